"""Putting a service's file where its manager looks for it, and taking it away; never over the edits of a person.

The file carries the checksum of the rest of it, so that it shows whether somebody has changed it since. No manager need be
running: what only it can do is given back as commands for a person.
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
from smp_client.errors import Conflict, Invalid, StorageFailed, UnsafePath
from smp_client.files import Tree

from . import plist, unit
from .describe import Service, user_id

SYSTEM_MODE = 0o644  # everybody may see what the system runs; a user's own file stays 0600
_CHECKSUM = re.compile(r"^.*\bsha256:([0-9a-f]{64})\b.*\n", re.MULTILINE)


class State(StrEnum):
    ABSENT = "absent"
    OURS = "ours"
    EDITED = "edited"


@dataclass(frozen=True)
class Place:
    """Where the file goes, and for which manager; `log` is where launchd, which has no journal, puts what is printed."""

    path: Path
    manager: str
    system: bool
    log: str | None = None


def place(platform: str, system: bool, home: Path, environment: Mapping[str, str]) -> Place:
    if platform == "darwin":
        top = Path("/") if system else home
        directory = top / "Library" / ("LaunchDaemons" if system else "LaunchAgents")
        return Place(directory / plist.NAME, "launchd", system, str(top / "Library/Logs/smp.log"))
    if platform.startswith("linux"):
        own = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "systemd/user"
        return Place((Path("/etc/systemd/system") if system else own) / unit.NAME, "systemd", system)
    raise Invalid([f"there is no service manager on {platform} that SMP knows; have `smp run` started by the one you use"])


def render(service: Service, where: Place) -> str:
    """The whole file, with its checksum."""
    if where.manager == "launchd":
        assert where.log is not None
        body = plist.render(service, where.log)
        # Nothing may stand before the declaration of XML.
        declaration, rest = body.split("\n", 1)
        return f"{declaration}\n<!-- {_mark(body)} -->\n{rest}"
    body = unit.render(service)
    return f"# {_mark(body)}\n{body}"


def state(where: Place) -> State:
    content = read(where)
    if content is None:
        return State.ABSENT
    found = _CHECKSUM.search(content)
    if found is None or found[1] != _checksum(content[: found.start()] + content[found.end() :]):
        return State.EDITED
    return State.OURS


def read(where: Place) -> str | None:
    """What is installed; None where nothing is. A link (masking makes one to /dev/null) is a person's doing and reads as empty."""
    try:
        return Tree(where.path.parent).read(where.path.name).decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnsafePath:
        return ""


def install(service: Service, where: Place, *, force: bool = False) -> bool:
    """Whether the file had to be written; what is there already is left as it is."""
    content = render(service, where)
    if read(where) == content:
        return False
    refuse_if_edited(where, force=force)
    _make_roots(service)
    try:
        _replace(where, content.encode())
    except OSError as error:
        raise _not_permitted("write", where, error) from error
    return True


def uninstall(where: Place, *, force: bool = False) -> bool:
    """Whether there was a file to remove."""
    if state(where) is State.ABSENT:
        return False
    refuse_if_edited(where, force=force)
    try:
        _remove_links(where)
        Tree(where.path.parent).unlink(where.path.name)
    except OSError as error:
        raise _not_permitted("remove", where, error) from error
    return True


def refuse_if_edited(where: Place, *, force: bool) -> None:
    if state(where) is State.EDITED and not force:
        raise Conflict(f"{where.path} was edited, or is not from SMP.",
                       advice="Look at it with `smp service show`; --force replaces or removes it all the same.")  # fmt: skip


def after_install(where: Place, replaced: bool, user_id: int) -> list[str]:
    """The commands that make the manager take notice."""
    if where.manager == "launchd":
        domain, sudo = _launchd(where, user_id)
        out = [f"{sudo}launchctl bootout {domain}/{plist.LABEL}"] if replaced else []
        return [*out, f"{sudo}launchctl bootstrap {domain} {shlex.quote(str(where.path))}"]
    control = _systemctl(where)
    start = [f"{control} daemon-reload && {control} enable --now smp"]
    again = [f"{control} restart smp"] if replaced else []
    # Without it, a user's services end when the user logs out.
    return [*start, *again, *([] if where.system else ["loginctl enable-linger"])]


def after_uninstall(where: Place, user_id: int) -> list[str]:
    if where.manager == "launchd":
        domain, sudo = _launchd(where, user_id)
        return [f"{sudo}launchctl bootout {domain}/{plist.LABEL}"]
    return [f"{_systemctl(where)} stop smp && {_systemctl(where)} daemon-reload"]


def _systemctl(where: Place) -> str:
    return "sudo systemctl" if where.system else "systemctl --user"


def _launchd(where: Place, user_id: int) -> tuple[str, str]:
    return ("system", "sudo ") if where.system else (f"gui/{user_id}", "")


def _mark(body: str) -> str:
    return f"From `smp service install`, which does not touch it any more once it is edited. sha256:{_checksum(body)}"


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _make_roots(service: Service) -> None:
    """The manager gives the service its roots only if they are there when it starts, so they are made now."""
    for root in service.roots:
        if service.user is None or user_id(service.user) == os.geteuid():
            Memory(root).create()
        elif not Path(root).is_dir():
            raise StorageFailed(f"{root} does not exist.",
                                advice=f"Make it: sudo -u {service.user} mkdir -p {shlex.quote(root)}")  # fmt: skip


def _replace(where: Place, content: bytes) -> None:
    tree = Tree(where.path.parent)
    tree.create_root(())
    temporary = f".{where.path.name}.{uuid.uuid4().hex}"
    tree.write_new(temporary, content)
    try:
        if where.system:
            with tree.opened(temporary) as descriptor:
                os.fchmod(descriptor, SYSTEM_MODE)
        tree.rename(temporary, where.path.name)
    except BaseException:
        tree.unlink(temporary)
        raise
    tree.sync_parent(where.path.name)


def _remove_links(where: Place) -> None:
    """What `systemctl enable` made, which would lead nowhere."""
    for link in where.path.parent.glob(f"*.wants/{where.path.name}"):
        if link.is_symlink() and link.parent.joinpath(os.readlink(link)) == where.path:
            link.unlink()


def _not_permitted(verb: str, where: Place, error: OSError) -> StorageFailed:
    advice = "Run the command with sudo." if where.system and os.geteuid() else "Mend that, then try again."
    return StorageFailed(f"Could not {verb} {where.path}: {error.strerror}.", advice=advice)
