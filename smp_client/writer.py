"""The verbs that write: a session, `global/` and a transaction have them all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from .index.validity import RESOLVES, SUPERSEDES, relation_of
from .model.errors import Invalid
from .model.layout import GLOBAL, check_file_id
from .model.priority import is_resolved
from .model.record import (
    DECISION,
    FINDING,
    LEARNING,
    PREFERENCE,
    RELATIONSHIP,
    TURN,
    Kind,
    Record,
    check_memory_id,
    check_memory_name,
)  # fmt: skip

Time = datetime | str


class Writer(ABC):
    """Each `record_*` takes the fields of its kind; any further field is kept as it is."""

    @abstractmethod
    def _add(self, kind: Kind, fields: Mapping[str, Any], timestamp: Time | None) -> Record: ...
    @abstractmethod
    def _change(self, memory_id: str, changes: Mapping[str, Any]) -> Record: ...
    @abstractmethod
    def _save_state(self, agent: str, state: Mapping[str, Any]) -> None: ...
    @abstractmethod
    def _save_artifact(self, artifact_id: str, content: str, fields: Mapping[str, Any]) -> None: ...
    @abstractmethod
    def _find(self, memory_id: str) -> Record: ...
    @abstractmethod
    def _memory_named(self, name: str) -> Record: ...
    @abstractmethod
    def _now(self) -> datetime: ...
    @abstractmethod
    def _session_id(self) -> str: ...

    def add_turn(
        self, speaker: str, text: str, *, type: str = "message", memory_refs: Sequence[str] = (),
        timestamp: Time | None = None, **further: Any,
    ) -> Record:  # fmt: skip
        """Adds what somebody said to the conversation."""
        fields = {"speaker": speaker, "type": type, "content": text, "memory_refs": memory_refs or None, **further}
        return self._add(TURN, fields, timestamp)

    def record_decision(
        self, decision: str, *, made_by: str, rationale: str | None = None, confidence: str | None = None,
        tags: Sequence[str] = (), timestamp: Time | None = None, **further: Any,
    ) -> Record:  # fmt: skip
        fields = {"made_by": made_by, "decision": decision, "rationale": rationale, "confidence": confidence, **further}
        return self._add(DECISION, {**fields, "tags": tags}, timestamp)

    def record_finding(
        self, finding: str, *, discovered_by: str, severity: str = "medium", tags: Sequence[str] = (),
        timestamp: Time | None = None, **further: Any,
    ) -> Record:  # fmt: skip
        fields = {"discovered_by": discovered_by, "severity": severity, "finding": finding, **further}
        return self._add(FINDING, {"resolution": {"status": "open"}, **fields, "tags": tags}, timestamp)

    def record_preference(
        self, preference: str, *, topic: str | None = None, confidence: str = "inferred", tags: Sequence[str] = (),
        timestamp: Time | None = None, **further: Any,
    ) -> Record:  # fmt: skip
        fields = {"topic": topic, "preference": preference, "confidence": confidence, **further}
        return self._add(PREFERENCE, {**fields, "tags": tags}, timestamp)

    def record_learning(
        self, learning: str, *, learned_by: str, tags: Sequence[str] = (), timestamp: Time | None = None, **further: Any
    ) -> Record:
        """What an agent has learned in this session."""
        return self._add(LEARNING, {"learned_by": learned_by, "learning": learning, **further, "tags": tags}, timestamp)

    def relate(
        self, source: str, target: str, relationship: str, *, timestamp: Time | None = None, **further: Any
    ) -> Record:
        """Says how a memory of this session hangs together with another: `supersedes`, `resolves`, `led_to`, `influenced`…

        The target may be of another session, as `SESSION/ID`. A target that is superseded no longer holds, and a finding that is
        resolved is closed.
        """
        own = self._session_id()
        if own == GLOBAL:
            raise Invalid(["relationships belong to a session"])
        names = [check_memory_name(name) for name in (source, target)]
        new, old = (self._memory_named(name) for name in names)
        if new.session != own:
            raise Invalid([f"{source} is no memory of {own}; a relationship is recorded in the session of its source"])
        if (new.session, new.id) == (old.session, old.id):
            raise Invalid([f"{source} cannot be related to itself"])
        ends = {"source": new.id, "target": old.id if old.session == own else f"{old.session}/{old.id}"}
        record = self._add(RELATIONSHIP, {**ends, "relationship": relationship, **further}, timestamp)
        is_open = old.type == FINDING.name and old.session == own and not is_resolved(old.data)
        if is_open and relation_of(record.data) == RESOLVES:
            # The relationship alone closes the finding: a crash before this costs nothing but the words.
            self.resolve_finding(old.id, resolved_by=new.by or new.id, action_taken=new.id)
        return record

    def supersede(self, old: str, *, by: str, timestamp: Time | None = None, **further: Any) -> Record:
        """Says that a memory, also `SESSION/ID` of another session, no longer holds, because one of this session does.

        In `global/`, which has no relationships, the old memory says so itself.
        """
        if self._session_id() == GLOBAL:
            return self.update(self._find(old).id, status="superseded", superseded_by=self._find(by).id, **further)
        return self.relate(by, old, SUPERSEDES, timestamp=timestamp, **further)

    def record(self, kind: Kind, fields: Mapping[str, Any], timestamp: Time | None = None) -> Record:
        """A memory of any kind, for callers that have its kind as a value: the inbox, an import."""
        return self._add(kind, fields, timestamp)

    def update(self, memory_id: str, **changes: Any) -> Record:
        """Replaces the named fields; a field set to None goes. What was said in a turn stays as it was said."""
        return self._change(check_memory_id(memory_id), changes)

    def resolve_finding(self, memory_id: str, *, resolved_by: str, action_taken: str, **further: Any) -> Record:
        found = self._find(check_memory_id(memory_id))
        if found.type != FINDING.name:
            raise Invalid([f"{memory_id} is a {found.type}; only a finding can be resolved"])
        old = found.data.get("resolution")
        kept = {key: value for key, value in old.items() if key != "next_steps"} if isinstance(old, dict) else {}
        done = {"status": "resolved", "resolved_at": self._now(), "resolved_by": resolved_by, "action_taken": action_taken}
        return self._change(memory_id, {"resolution": {**kept, **done, **further}})

    def pin(self, memory_id: str) -> Record:
        """A pinned memory does not decay and is never compacted away."""
        return self._change(check_memory_id(memory_id), {"pinned": True})

    def unpin(self, memory_id: str) -> Record:
        return self._change(check_memory_id(memory_id), {"pinned": None})

    def save_agent_state(self, agent: str, state: Mapping[str, Any]) -> None:
        """Replaces the named parts of an agent's state, keeps the others, and the state before as history."""
        if not isinstance(state, Mapping):
            raise Invalid([f"the state of {agent!r} must be a mapping, not a {type(state).__name__}"])
        self._save_state(check_file_id("agent", agent), state)

    def save_artifact(self, artifact_id: str, content: str, **fields: Any) -> None:
        """Keeps a text an agent made, under a name; saving it again replaces it."""
        self._save_artifact(check_file_id("artifact", artifact_id), content, fields)


