"""A service file where its manager looks for it: installed, removed, never over a person's edits.

The file holds the checksum of its other lines, which shows whether somebody has edited it. No
manager need be running: commands that only a manager can follow are returned for a person.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shlex
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from smp_client import Memory
from smp_client.disk.tree import Tree
from smp_client.model.errors import Conflict, Invalid, StorageFailed, UnsafePath

from . import unit
from .description import Service

SYSTEM_MODE = 0o644  # everybody may see which services the system runs; a user's own stays 0600
_CHECKSUM = re.compile(r"^.*\bsha256:([0-9a-f]{64})\b.*\n", re.MULTILINE)


class State(StrEnum):
    ABSENT = "absent"
    OURS = "ours"
    EDITED = "edited"


@dataclass(frozen=True)
class Place:
    """The path of the file, and its manager. `log` takes the output, for launchd has no journal."""

    path: Path
    manager: str
    system: bool
    log: str = ""


def place(platform: str, system: bool, home: Path, environment: Mapping[str, str]) -> Place:
    if platform == "darwin":
        top = Path("/") if system else home
        directory = top / "Library" / ("LaunchDaemons" if system else "LaunchAgents")
        log = str(top / "Library/Logs/smp.log")
        return Place(directory / f"{unit.LABEL}.plist", "launchd", system, log)
    if platform.startswith("linux"):
        own = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "systemd/user"
        directory = Path("/etc/systemd/system") if system else own
        return Place(directory / unit.UNIT_NAME, "systemd", system)
    reason = f"there is no service manager on {platform} that SMP knows"
    raise Invalid([f"{reason}; have `smp run` started by the one you use"])


def render(service: Service, where: Place) -> str:
    """Return the whole file, with its checksum."""
    is_xml = where.manager == "launchd"
    body = unit.render_plist(service, where.log) if is_xml else unit.render_unit(service)
    origin = "From `smp service install`, which does not touch it any more once it is edited."
    mark = f"{origin} sha256:{_checksum(body)}"
    # Nothing may stand before the declaration of XML.
    declaration, rest = body.split("\n", 1)
    return f"{declaration}\n<!-- {mark} -->\n{rest}" if is_xml else f"# {mark}\n{body}"


def state(where: Place) -> State:
    content = read(where)
    if content is None:
        return State.ABSENT
    found = _CHECKSUM.search(content)
    is_ours = found and found[1] == _checksum(content[: found.start()] + content[found.end() :])
    return State.OURS if is_ours else State.EDITED


def read(where: Place) -> str | None:
    """Return the installed file, None where there is none. A link, as masking makes, is empty."""
    try:
        return Tree(where.path.parent).read(where.path.name).decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnsafePath:
        return ""


def install(service: Service, where: Place, *, force: bool = False) -> bool:
    """Write the file, and make the roots. Return False where the file is there already."""
    content = render(service, where)
    if read(where) == content:
        return False
    refuse_if_edited(where, force=force)
    is_ours = service.user in (None, pwd.getpwuid(os.geteuid()).pw_name)
    # The manager gives the service its roots only if they are there when it starts.
    for root in service.roots:
        if is_ours:
            Memory(root).create()
        elif not Path(root).is_dir():
            advice = f"Make it: sudo -u {service.user} mkdir -p {shlex.quote(root)}"
            raise StorageFailed(f"{root} does not exist.", advice=advice)
    tree, temporary = Tree(where.path.parent), f".{where.path.name}.{uuid.uuid4().hex}"
    tree.create_root(())
    tree.write_new(temporary, content.encode())
    if where.system:
        with tree.opened(temporary) as descriptor:
            os.fchmod(descriptor, SYSTEM_MODE)
    tree.rename(temporary, where.path.name)
    return True


def uninstall(where: Place, *, force: bool = False) -> bool:
    """Remove the file. Return False where there is none."""
    if state(where) is State.ABSENT:
        return False
    refuse_if_edited(where, force=force)
    # Links that `systemctl enable` made would lead nowhere.
    for link in where.path.parent.glob(f"*.wants/{where.path.name}"):
        if link.is_symlink() and link.parent.joinpath(os.readlink(link)) == where.path:
            link.unlink()
    Tree(where.path.parent).unlink(where.path.name)
    return True


def refuse_if_edited(where: Place, *, force: bool) -> None:
    if state(where) is State.EDITED and not force:
        advice = "Look at it with `smp service show`; --force replaces or removes it all the same."
        raise Conflict(f"{where.path} was edited, or is not from SMP.", advice=advice)


def after_install(where: Place, replaced: bool, user_id: int) -> list[str]:
    """Return the commands with which a person starts the service."""
    control, domain = _control(where, user_id)
    if where.manager == "launchd":
        start = f"{control} bootstrap {domain} {shlex.quote(str(where.path))}"
        return [*(after_uninstall(where, user_id) if replaced else []), start]
    start = f"{control} daemon-reload && {control} enable --now smp"
    again = [f"{control} restart smp"] if replaced else []
    # Without lingering, a user's services end when the user logs out.
    return [start, *again, *([] if where.system else ["loginctl enable-linger"])]


def after_uninstall(where: Place, user_id: int) -> list[str]:
    """Return the commands with which a person stops the service."""
    control, domain = _control(where, user_id)
    if where.manager == "launchd":
        return [f"{control} bootout {domain}/{unit.LABEL}"]
    return [f"{control} stop smp && {control} daemon-reload"]


def _control(where: Place, user_id: int) -> tuple[str, str]:
    """Return the command that controls the manager, and the name of its domain."""
    if where.manager == "launchd":
        return ("sudo launchctl", "system") if where.system else ("launchctl", f"gui/{user_id}")
    return ("sudo systemctl" if where.system else "systemctl --user"), ""


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
