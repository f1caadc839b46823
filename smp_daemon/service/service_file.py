"""A service file where its manager looks for it: installed, removed, never over a person's edits.

The manager is systemd on Linux and launchd on macOS. The file holds the checksum of its other
lines, which shows whether somebody has edited it. The manager need not be running: commands that
only it can follow are returned for a person.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from smp_client import Memory
from smp_client.disk.tree import Tree
from smp_client.model.errors import Conflict, StorageFailed, UnsafePath

from .unit import LABEL, Service, render_plist, render_unit

UNIT_NAME = "smp.service"
SYSTEM_MODE = 0o644  # everybody may see which services the system runs; a user's own stays 0600
_CHECKSUM = re.compile(r"^.*\bsha256:([0-9a-f]{64})\b.*\n", re.MULTILINE)


class State(StrEnum):
    ABSENT = "absent"
    OURS = "ours"
    EDITED = "edited"


@dataclass(frozen=True)
class Place:
    path: Path
    system: bool
    log: str = ""  # takes the output where launchd is the manager, which has no journal

    @property
    def control(self) -> str:
        if self.log:
            return "sudo launchctl" if self.system else "launchctl"
        return "sudo systemctl" if self.system else "systemctl --user"


def place(platform: str, system: bool, home: Path, environment: Mapping[str, str]) -> Place:
    if platform == "darwin":
        library = (Path("/") if system else home) / "Library"
        directory = library / ("LaunchDaemons" if system else "LaunchAgents")
        return Place(directory / f"{LABEL}.plist", system, str(library / "Logs/smp.log"))
    own = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "systemd/user"
    return Place((Path("/etc/systemd/system") if system else own) / UNIT_NAME, system)


def render(service: Service, where: Place) -> str:
    """Return the whole file, with its checksum."""
    body = render_plist(service, where.log) if where.log else render_unit(service)
    origin = "From `smp service install`, which does not touch it any more once it is edited."
    mark = f"{origin} sha256:{_checksum(body)}"
    if not where.log:
        return f"# {mark}\n{body}"
    declaration, rest = body.split("\n", 1)  # before which nothing may stand
    return f"{declaration}\n<!-- {mark} -->\n{rest}"


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
    # The manager gives the service its roots only if they are there when it starts.
    for root in service.roots:
        if not where.system:
            Memory(root).create()
        elif not Path(root).is_dir():
            advice = "Make it as the account that owns it: smp init"
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
    Tree(where.path.parent).unlink(where.path.name)
    return True


def refuse_if_edited(where: Place, *, force: bool) -> None:
    if state(where) is State.EDITED and not force:
        advice = "Look at it with `smp service show`; --force replaces or removes it all the same."
        raise Conflict(f"{where.path} was edited, or is not from SMP.", advice=advice)


def after_install(where: Place) -> list[str]:
    """Return the commands with which a person starts the service, also where it runs already."""
    control = where.control
    if where.log:
        again = f"{after_uninstall(where)} 2>/dev/null"
        start = f"{control} bootstrap {_domain(where)} {shlex.quote(str(where.path))}"
        return [f"{again}; {start}"]
    start = f"{control} daemon-reload && {control} enable smp && {control} restart smp"
    # Without lingering, a user's services end when the user logs out.
    return [start, *([] if where.system else ["loginctl enable-linger"])]


def after_uninstall(where: Place) -> str:
    """Return the command with which a person stops the service."""
    if where.log:
        return f"{where.control} bootout {_domain(where)}/{LABEL}"
    return f"{where.control} stop smp && {where.control} daemon-reload"


def _domain(where: Place) -> str:
    return "system" if where.system else f"gui/{os.getuid()}"


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
