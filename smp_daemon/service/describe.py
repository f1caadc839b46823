"""What a service file is made from: which program runs, for which roots, as whom."""

from __future__ import annotations

import os
import pwd
import stat
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from smp_client.errors import Invalid

_PACKAGES = Path(__file__).parents[2]  # where this very code is, which for an editable install is no part of the interpreter


@dataclass(frozen=True)
class Service:
    """All paths are absolute. `user` is the account of a service of the system; None is a service of whoever installs it."""

    python: str
    roots: tuple[str, ...]
    config: str | None = None
    user: str | None = None
    code: tuple[str, ...] = ()  # the directories that the program itself is read from
    log: str | None = None  # the directory of the log file, where the settings name one

    @property
    def command(self) -> tuple[str, ...]:
        # -P: else a yaml.py in the directory it is started from (a home, say) would be taken for the library.
        config = () if self.config is None else ("--config", self.config)
        roots = (word for root in self.roots for word in ("--root", root))
        return (self.python, "-P", "-m", "smp_daemon", "run", *config, *roots)

    @property
    def writes(self) -> tuple[str, ...]:
        return (*self.roots, *(() if self.log is None else (self.log,)))

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.python, *self.code, *self.writes, *(() if self.config is None else (self.config,)))

    def needs(self, *directories: str) -> bool:
        """Whether anything it reads or writes is below one of these, followed to where links lead as well."""
        return any(_is_below(name, directory) for path in self.paths for name in _names(path) for directory in directories)


def describe(
    roots: Sequence[str | Path], config: str | Path | None = None, user: str | None = None, log_file: str | Path | None = None
) -> Service:
    """The service that runs the interpreter and the code in use now."""
    service = Service(
        python=sys.executable,
        roots=tuple(dict.fromkeys(_absolute(root) for root in roots)),
        config=None if config is None else _absolute(config),
        user=user,
        log=None if log_file is None else os.path.dirname(_absolute(log_file)),
        code=tuple(dict.fromkeys([sys.prefix, sys.base_prefix, str(_PACKAGES)])),
    )
    check(service)
    return service


def check(service: Service) -> None:
    """Refuses what neither a unit nor a property list can say."""
    problems = [f"{path!r} has characters that a service file cannot hold" for path in service.paths if not path.isprintable()]
    problems += [f"{path!r} is not absolute" for path in service.paths if not path.startswith("/")]
    if not service.roots:
        problems.append("a service needs a root to look after")
    if problems:
        raise Invalid(problems)


def owner_of(roots: Iterable[str | Path]) -> str:
    """The one account that all roots belong to; one that is not there yet, to the owner of the directory it is made in."""
    owners = {_nearest(Path(_absolute(root))).stat().st_uid for root in roots}
    if len(owners) != 1:
        raise Invalid(["the roots belong to different accounts, and a service runs as one: name it with --user"])
    return account(owners.pop())


def out_of_reach(service: Service) -> list[str]:
    """The directories that keep the account of a service of the system from what it must read, as far as their modes tell."""
    if service.user is None:
        return []
    number = user_id(service.user)
    above = {place for path in service.paths for place in Path(os.path.realpath(path)).parents if place.exists()}
    return sorted(str(place) for place in above if number and not _may_pass(place.stat(), number))


def user_id(name: str) -> int:
    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise Invalid([f"there is no account {name!r} on this machine"]) from None


def _may_pass(status: os.stat_result, number: int) -> bool:
    # A group's right counts, because whether the account is in the group is for the account's keeper to know.
    return bool(status.st_mode & (stat.S_IXUSR if status.st_uid == number else stat.S_IXGRP | stat.S_IXOTH))


def account(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _absolute(path: str | Path) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _nearest(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())


def _names(path: str) -> tuple[str, str]:
    return path, os.path.realpath(path)


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")
