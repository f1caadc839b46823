"""The made-up projects, their tasks and their questions.

Every folder of this one with numbered session files is a project. A session file has `session`,
`topic`, `begins` and `memories` in order; each memory has its id, `by`, and the field of its kind
with its text: `turn`, `decision`, `finding`, `preference`, `learning`, or `state` with the parts of
an agent's state. Three fields are deeds: `supersedes`, `resolved` and `pinned`. The rest is stored.

`tasks.yaml` lists tasks, each with the memories that somebody who takes it on should see.
`questions*.yaml` list questions, each with the memory that answers it. A name is `SESSION/ID`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from smp_client import Memory, Session
from smp_client.model.record import RELATIONSHIP, SESSION_KINDS, Kind
from smp_client.model.times import parse_time

FOLDER = Path(__file__).parent
EVERY = timedelta(minutes=4)  # between two memories of a session
ASKED_AFTER = timedelta(days=7)  # since the last session began
KINDS = {kind.type: kind for kind in SESSION_KINDS}
DEEDS = {"id", "by", "supersedes", "resolved", "pinned"}


@dataclass(frozen=True)
class Task:
    """A task, and the names of the memories that it needs."""

    text: str
    needed: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """A question, the name of the memory that answers it, and how the two share words."""

    text: str
    right: str
    how: str


class Project:
    """A folder with session files, tasks and questions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name

    @cached_property
    def sessions(self) -> list[dict[str, Any]]:
        return [_read(file) for file in sorted(self.folder.glob("[0-9]*.yaml"))]

    @property
    def asked_at(self) -> datetime:
        return max(_begin(session) for session in self.sessions) + ASKED_AFTER

    @property
    def tasks(self) -> list[Task]:
        file = self.folder / "tasks.yaml"
        listed = _read(file) if file.exists() else []
        return [Task(one["task"], tuple(map(self._known, one["needed"]))) for one in listed]

    def questions(self, file: str) -> list[Question]:
        """Return the questions of a file of the folder; none without the file."""
        path = self.folder / file
        listed = _read(path) if path.exists() else []
        return [
            Question(one["ask"], self._known(one["right"]), one.get("how", "")) for one in listed
        ]

    @property
    def grouped_questions(self) -> list[Question]:
        """Return the questions of every file that say how they share words with the answer."""
        files = sorted(path.name for path in self.folder.glob("questions*.yaml"))
        return [one for file in files for one in self.questions(file) if one.how]

    @property
    def always(self) -> tuple[str, ...]:
        """Return the names of pinned memories and explicit preferences that still hold."""
        ended = {_name(session, one["supersedes"]) for session, one in self._all() if "supersedes" in one}
        names = (_name(session, str(one["id"])) for session, one in self._all() if _holds_always(one))
        return tuple(name for name in names if name not in ended)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(_name(session, str(one["id"])) for session, one in self._all())

    def build(self, root: Path) -> Memory:
        """Return a tree with the whole project in it."""
        asked_at = self.asked_at
        memory = Memory(root, clock=lambda: asked_at, count_access=False)
        for told in self.sessions:
            session = memory.create_session(
                id=told["session"], project=self.name, topic=told["topic"]
            )
            for number, fields in enumerate(told["memories"]):
                _record(session, fields, _begin(told) + number * EVERY)
        return memory

    def full_name(self, shown: str) -> str:
        """Return the whole name of a memory whose session may be shortened to its last part."""
        short, _, memory_id = shown.rpartition("/")
        whole = (name.rpartition("/") for name in self.names)
        named = [
            f"{session}/{other}"
            for session, _, other in whole
            if other == memory_id and f"-{session}".endswith(f"-{short}")
        ]
        return named[0] if len(named) == 1 else shown

    def _all(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for session in self.sessions:
            for one in session["memories"]:
                yield session["session"], one

    def _known(self, name: str) -> str:
        if name not in self.names:
            raise SystemExit(f"{self.name}: no session file has a memory {name}.")
        return name


def projects() -> list[Project]:
    """Return every project, by the name of its folder."""
    folders = sorted({file.parent for file in FOLDER.glob("*/[0-9]*.yaml")})
    return [Project(folder) for folder in folders]


def _read(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def _begin(session: Mapping[str, Any]) -> datetime:
    return parse_time(str(session["begins"]))


def _name(session: str, memory_id: str) -> str:
    return memory_id if "/" in memory_id else f"{session}/{memory_id}"


def _holds_always(told: Mapping[str, Any]) -> bool:
    is_explicit = "preference" in told and told.get("confidence") == "explicit"
    return is_explicit or bool(told.get("pinned"))


def _record(session: Session, told: Mapping[str, Any], at: datetime) -> None:
    if "state" in told:
        session.with_options(clock=lambda: at).save_agent_state(told["id"], told["state"])
        return
    name = next(name for name in KINDS if name in told)
    kind: Kind = KINDS[name]
    further = {key: told[key] for key in told.keys() - DEEDS - {name}}
    made = session.record(kind, {kind.text: told[name], kind.actor: told["by"], **further}, at)
    if made.id != told["id"]:
        raise SystemExit(
            f"{session.id}: {told['id']} became {made.id}; the ids must follow the order of the file."
        )
    if "supersedes" in told:
        ends = {"source": made.id, "target": told["supersedes"], "relationship": "supersedes"}
        session.record(RELATIONSHIP, {**ends, "created_by": told["by"]}, at)
    if "resolved" in told:
        session.resolve_finding(made.id, resolved_by=told["by"], action_taken=told["resolved"])
    if told.get("pinned"):
        session.pin(made.id, by=told["by"])
