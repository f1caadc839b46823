"""The ledger of the soak: each operation, and whether it was acknowledged, noted outside the tree.

A driver writes a line before an operation and one after it. A kill leaves the first line alone:
then nobody knows, and the memory may be as before or as after. Each driver has a ledger and
memories of its own, which it changes one after the other, so every fate can be told from it.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_write = os.write  # a driver that dies at a change of the disk dies at a change of the tree
TOKEN = re.compile(r"tok-[a-z]+\d*-\d+-\d+x")
VERSIONED = re.compile(r"(tok-[a-z]+\d*-\d+-\d+x) v(\d+)")
NOWHERE = "nowhere"
KEPT = "kept"  # in its file, in an archive or evicted
DELETED = "deleted"
PURGED = "purged"
# Where the memories of an operation are after it.
AFTER = {
    "create": {KEPT},
    "update": {KEPT},
    "restore": {KEPT},
    "delete": {DELETED},
    "doom": {DELETED, PURGED},  # deleted, and due for any purge
    "purge": {PURGED},
}
DURING = {"purge": {DELETED, PURGED}}  # a purge of a memory deletes it first
KILLED = "the process was killed"
DONE = "done"
REFUSED = "refused"
UNCLEAR = "unclear"
BROKEN = "broken"  # it raised an error that a caller must never see


@dataclass(frozen=True)
class Operation:
    door: str
    verb: str  # one of AFTER, or one that leaves memories where they are
    tokens: tuple[str, ...] = ()
    session: str = ""
    version: int = 0
    together: bool = False  # whether all of its memories are there, or none


@dataclass
class Fate:
    """One memory as its driver knows it."""

    token: str
    session: str
    door: str
    places: set[str] = field(default_factory=lambda: {NOWHERE})
    acknowledged_version: int = 0
    latest_version: int = 0
    name: str = ""  # SESSION/ID, where the acknowledgement said it

    @property
    def id(self) -> str:
        return self.name.rpartition("/")[2]


class Ledger:
    """The lines of one driver and its successors."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def begin(self, operation: Operation) -> None:
        self._note(asdict(operation))

    def end(self, outcome: str, names: Mapping[str, str], said: str = "") -> None:
        self._note({"outcome": outcome, "names": dict(names), "said": said[:2000]})

    def _note(self, line: dict[str, Any]) -> None:
        _write(self._descriptor, json.dumps(line).encode() + b"\n")


@dataclass
class Book:
    """What the ledger of one driver says."""

    path: Path
    fates: dict[str, Fate] = field(default_factory=dict)
    outcomes: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # door, verb, outcome
    broken: list[str] = field(default_factory=list)
    groups: list[tuple[str, ...]] = field(default_factory=list)  # all there, or none
    names: list[tuple[str, str]] = field(default_factory=list)  # each name, and its memory
    killed: int = 0  # processes that a driver had started, and that were killed
    _read: int = 0
    _open: Operation | None = None

    def catch_up(self) -> None:
        """Read the lines that came since the last time."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            self._take(json.loads(line))

    def close(self) -> None:
        """Read the rest: the driver is dead, and nobody knows of the operation that it was at."""
        self.catch_up()
        self._abandon()

    def _abandon(self) -> None:
        if self._open is not None:
            self._settle(self._open, UNCLEAR, {})
            self._open = None

    def kept(self, *doors: str) -> list[Fate]:
        """Return the memories that are kept for sure, whose names are known."""
        return [one for one in self.of({KEPT}) if one.name and (not doors or one.door in doors)]

    def of(self, places: Iterable[str]) -> list[Fate]:
        wanted = set(places)
        return [fate for fate in self.fates.values() if fate.places == wanted]

    def _take(self, line: dict[str, Any]) -> None:
        if "outcome" not in line:
            self._abandon()
            self._open = Operation(**{**line, "tokens": tuple(line["tokens"])})
            return
        assert self._open is not None
        operation = self._open
        self._open = None
        self._settle(operation, line["outcome"], line["names"])
        self.killed += line["said"] == KILLED
        if line["outcome"] == BROKEN:
            self.broken.append(f"{operation}: {line['said']}")

    def _settle(self, operation: Operation, outcome: str, names: Mapping[str, str]) -> None:
        self.outcomes[operation.door, operation.verb, outcome] += 1
        if operation.together and operation.verb == "create":
            self.groups.append(operation.tokens)
        self.names += [(name, token) for token, name in names.items()]
        for token in operation.tokens:
            first = Fate(token, operation.session, operation.door)
            fate = self.fates.setdefault(token, first)
            fate.name = names.get(token, fate.name)
            if outcome == DONE:
                fate.places = set(AFTER[operation.verb])
            elif outcome in (UNCLEAR, BROKEN):
                fate.places |= DURING.get(operation.verb, AFTER[operation.verb])
            if outcome != REFUSED:
                fate.latest_version = max(fate.latest_version, operation.version)
            if outcome == DONE:
                fate.acknowledged_version = max(fate.acknowledged_version, operation.version)
