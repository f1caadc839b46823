"""The description of a service: which program runs, for which roots, under which account."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from smp_client.model.errors import Invalid

# For an editable install this code is no part of the interpreter.
_PACKAGES = Path(__file__).parents[2]
_UNSAFE_IN_PROGRAM = frozenset("\"'\\$")


@dataclass(frozen=True)
class Service:
    """All paths are absolute. `user` is the account of a system service, None in a user's own."""

    python: str
    roots: tuple[str, ...]
    config: str | None = None
    user: str | None = None
    code: tuple[str, ...] = ()  # the directories that the program itself is read from
    log: str | None = None  # the directory of the log file, where the settings name one

    @property
    def command(self) -> tuple[str, ...]:
        config = () if self.config is None else ("--config", self.config)
        roots = (word for root in self.roots for word in ("--root", root))
        # With -P a yaml.py in the working directory, such as a home, is not taken for the library.
        return (self.python, "-P", "-m", "smp_daemon", "run", *config, *roots)

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(filter(None, (*self.roots, self.log)))

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.python, *self.code, *self.writes, self.config)))

    def needs(self, *directories: str) -> bool:
        """Return whether a path of the service is below one of these, also behind a link."""
        names = [name for path in self.paths for name in (path, os.path.realpath(path))]
        return any(f"{name}/".startswith(f"{place}/") for name in names for place in directories)


def describe(
    roots: Sequence[str | Path], config: str | Path | None = None, user: str | None = None,
    log_file: str | Path | None = None,
) -> Service:  # fmt: skip
    """Return the service that runs the interpreter and the code in use now."""
    service = Service(
        python=sys.executable,
        roots=tuple(dict.fromkeys(map(_absolute, roots))),
        config=None if config is None else _absolute(config),
        user=user,
        log=None if log_file is None else os.path.dirname(_absolute(log_file)),
        code=tuple(dict.fromkeys([sys.prefix, sys.base_prefix, str(_PACKAGES)])),
    )
    check(service)
    return service


def check(service: Service) -> None:
    """Refuse paths that a unit or a property list cannot hold."""
    paths, odd = service.paths, "has characters that a service file cannot hold"
    problems = [f"{path!r} {odd}" for path in paths if not path.isprintable()]
    problems += [f"{path!r} is not absolute" for path in paths if path[0] != "/"]
    if _UNSAFE_IN_PROGRAM & set(service.python):
        problems.append(f"{service.python!r} {odd}: systemd takes no such name of a program")
    if not service.roots:
        problems.append("a service needs a root to look after")
    if problems:
        raise Invalid(problems)


def owner_of(roots: Iterable[str | Path]) -> str:
    """Return the account that owns all roots, or the nearest directory above a missing one."""
    owners = set()
    for root in roots:
        path = Path(_absolute(root))
        owners.add(next(p for p in (path, *path.parents) if p.exists()).stat().st_uid)
    if len(owners) != 1:
        reason = "the roots belong to different accounts, and a service runs as one"
        raise Invalid([f"{reason}: name it with --user"])
    number = owners.pop()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def user_id(name: str) -> int:
    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise Invalid([f"there is no account {name!r} on this machine"]) from None


def _absolute(path: str | Path) -> str:
    return os.path.abspath(os.path.expanduser(path))
