"""The description of a service: which program runs, for which roots, under which account."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
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

    def __post_init__(self) -> None:
        """Refuse paths that a unit or a property list cannot hold."""
        odd = "is not absolute, or has characters that a service file cannot hold"
        bad = [path for path in self.paths if path[0] != "/" or not path.isprintable()]
        bad += [self.python] if _UNSAFE_IN_PROGRAM & set(self.python) else []
        problems = [f"{path!r} {odd}" for path in bad]
        if problems or not self.roots:
            raise Invalid(problems or ["a service needs a root to look after"])

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
    return Service(
        python=sys.executable,
        roots=tuple(dict.fromkeys(map(_absolute, roots))),
        config=None if config is None else _absolute(config),
        user=user,
        log=None if log_file is None else os.path.dirname(_absolute(log_file)),
        code=tuple(dict.fromkeys([sys.prefix, sys.base_prefix, str(_PACKAGES)])),
    )


def owner_of(roots: Sequence[str | Path]) -> str:
    """Return the account that owns the first root, or the nearest directory above it."""
    path = Path(_absolute(roots[0]))
    return next(place for place in (path, *path.parents) if place.exists()).owner()


def _absolute(path: str | Path) -> str:
    return os.path.abspath(os.path.expanduser(path))
