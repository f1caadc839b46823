"""The verbs that write: a session, `global/` and a transaction have them all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from .disk.scope import Scope
from .index.validity import RESOLVES, SUPERSEDES, relation_of
from .model.door import front_door
from .model.errors import Invalid
from .model.layout import GLOBAL, check_file_id
from .model.nearest import did_you_mean, misspelt
from .model.priority import is_resolved
from .model.quotation import shown
from .model.record import (
    DECISION,
    FINDING,
    GLOBAL_KINDS,
    LEARNING,
    PREFERENCE,
    RELATIONSHIP,
    SESSION_KINDS,
    TURN,
    Kind,
    Record,
    check_memory_id,
    check_memory_name,
    kind_named,
)
from .model.synonyms import UNKNOWN, USUAL, unfolded, with_own_names
from .text.revision import Editor

if TYPE_CHECKING:
    from .transaction import Transaction

Time = datetime | str
T = TypeVar("T")
_USER = "user"
_STORED = "**Memory Stored:**"  # in the text of a turn, above the memories that came of it


_EFFECTIVE = (SUPERSEDES, RESOLVES)  # relations by which the target no longer holds
_REVERSED = {"superseded_by": SUPERSEDES, "resolved_by": RESOLVES}


def _check_relation(relationship: str) -> None:
    """Raise Invalid for a relation that is misspelt or reversed, and so would have no effect."""
    if not isinstance(relationship, str):
        return
    word = relationship.strip().lower().replace(" ", "_").replace("-", "_")
    if word in _REVERSED:
        said = f"{shown(relationship)} has no effect here"
        raise Invalid([f"{said}; say it from the other memory: it {_REVERSED[word]!r} this one"])
    meant = None if word in _EFFECTIVE else misspelt(word, _EFFECTIVE)
    if meant:
        raise Invalid([f"there is no relation {shown(relationship)} (did you mean {meant!r}?)"])


@front_door
class Writer(ABC):
    """Each `record_*` takes the fields of its kind; any further field is kept as it is."""

    scope: Scope

    @abstractmethod
    def _add(self, kind: Kind, fields: Mapping[str, Any], timestamp: Time | None) -> Record: ...
    @abstractmethod
    def _write(self, write: Callable[[Transaction], T]) -> T: ...
    @abstractmethod
    def _memory_named(self, name: str) -> Record: ...

    def _now(self) -> datetime:
        return self.scope.options.clock()

    def record(
        self, kind: Kind | str, fields: Mapping[str, Any], timestamp: Time | None = None
    ) -> Record:
        """Record a memory of any kind by its name: `session.record("decision", {…})`."""
        return self._add(self._kind(kind), fields, timestamp)

    def write_memory(self, memory: Mapping[str, object]) -> str:
        """Record a memory by its `type`, and return its id: `{"type": "decision", …}`.

        Fields may have the names of other programs, also inside of `content`. A memory without an
        author is from `unknown`. The type can be `agent_state` with `agent_id`, or `artifact` with
        `id` and `content`.
        """
        type, fields = unfolded(memory)
        if type == "agent_state":
            agent = str(fields.pop("agent_id", ""))
            self.save_agent_state(agent, fields)
            return agent
        if type == "artifact":
            name = str(fields.pop("id", ""))
            self.save_artifact(name, str(fields.pop("content", "")), **fields)
            return name
        kind = self._kind(type)
        given = {**USUAL.get(kind.name, {}), **with_own_names(kind, fields)}
        if kind.actor in kind.required:
            given.setdefault(kind.actor, UNKNOWN)
        timestamp = given.pop("timestamp", None)
        return self._add(kind, given, None if timestamp is None else str(timestamp)).id

    def _kind(self, kind: Kind | str) -> Kind:
        if isinstance(kind, Kind):
            return kind
        known = GLOBAL_KINDS if self.scope.name == GLOBAL else SESSION_KINDS
        if found := kind_named(kind, known):
            return found
        names = [one.type for one in known]
        meant = did_you_mean(kind, names) if isinstance(kind, str) else ""
        raise Invalid([f"'type' must be one of {', '.join(names)}, not {shown(kind)}{meant}"])

    def add_turn(
        self, speaker: str, text: str, *, type: str = "message", memory_refs: Sequence[str] = (),
        stored: Sequence[str] | Mapping[str, str] = (), timestamp: Time | None = None,
        **further: Any,
    ) -> Record:  # fmt: skip
        """Add a turn to the conversation.

        `stored` are the memories that came of it, by their ids, or with words for each. They stand
        below the text under `**Memory Stored:**`, and are among its references.
        """
        if stored:
            text = f"{text}\n\n{_STORED}\n{self._lines_for(stored)}"
            memory_refs = [*dict.fromkeys([*memory_refs, *stored])]
        fields = {"speaker": speaker, "type": type, "content": text}
        return self._add(TURN, {**fields, "memory_refs": memory_refs or None, **further}, timestamp)

    def _lines_for(self, stored: Sequence[str] | Mapping[str, str]) -> str:
        """Return a line for each memory: its kind or the words for it, and its id.

        The words of the memory itself do not go there: nobody would purge them with it.
        """
        lines: list[str] = []
        for memory_id in stored:
            found = self._memory_named(check_memory_name(memory_id))
            words = stored[memory_id] if isinstance(stored, Mapping) else ""
            said = " ".join([found.type.replace("_", " ").capitalize() + ":", *words.split()])
            lines.append(f"- {said if words else said[:-1]} [{memory_id}]")
        return "\n".join(lines)

    def record_decision(
        self, decision: str, *, made_by: str, rationale: str | None = None,
        confidence: str | None = None, tags: Sequence[str] = (), timestamp: Time | None = None,
        **further: Any,
    ) -> Record:  # fmt: skip
        """Record a decision."""
        fields = {"made_by": made_by, "decision": decision, "rationale": rationale}
        further = {"confidence": confidence, **further, "tags": tags}
        return self._add(DECISION, {**fields, **further}, timestamp)

    def record_finding(
        self, finding: str, *, discovered_by: str, severity: str = "medium",
        tags: Sequence[str] = (), timestamp: Time | None = None, **further: Any,
    ) -> Record:  # fmt: skip
        """Record a finding, which is open until it is resolved."""
        fields = {"discovered_by": discovered_by, "severity": severity, "finding": finding}
        state = {"resolution": {"status": "open"}}
        return self._add(FINDING, {**state, **fields, **further, "tags": tags}, timestamp)

    def record_preference(
        self, preference: str, *, topic: str | None = None, confidence: str = "inferred",
        tags: Sequence[str] = (), keep_both: bool = False, timestamp: Time | None = None,
        **further: Any,
    ) -> Record:  # fmt: skip
        """Record a preference of the user. Without a topic, it is about its first tag.

        An explicit one replaces an earlier one of the same topic that is about the same thing,
        unless `keep_both` is true; `memory.alike(record)` says which.
        """
        about = topic or next(iter(tags), None)
        fields = {"topic": about, "preference": preference, "confidence": confidence}
        beside = {"keep_both": True} if keep_both else {}
        return self._add(PREFERENCE, {**fields, **beside, **further, "tags": tags}, timestamp)

    def record_learning(
        self, learning: str, *, learned_by: str, tags: Sequence[str] = (),
        timestamp: Time | None = None, **further: Any,
    ) -> Record:  # fmt: skip
        """Record something that an agent has learned in this session."""
        fields = {"learned_by": learned_by, "learning": learning, **further, "tags": tags}
        return self._add(LEARNING, fields, timestamp)

    def relate(
        self, source: str, target: str, relationship: str, *, timestamp: Time | None = None,
        **further: Any,
    ) -> Record:  # fmt: skip
        """Relate a memory of this session to another: `supersedes`, `resolves`, `led_to`, …

        The target may be of another session, as `SESSION/ID`. A superseded target no longer holds,
        and a resolved finding is closed.
        """
        own = self._require_session("relationships")
        _check_relation(relationship)
        names = [check_memory_name(name) for name in (source, target)]
        new, old = (self._memory_named(name) for name in names)
        if new.session != own:
            said = f"{source} is no memory of {own}; a relationship stands with its source"
            raise Invalid([said])
        if (new.session, new.id) == (old.session, old.id):
            raise Invalid([f"{source} cannot be related to itself"])
        name = old.id if old.session == own else f"{old.session}/{old.id}"
        fields = {"source": new.id, "target": name, "relationship": relationship, **further}
        is_open = old.type == FINDING.name and old.session == own and not is_resolved(old.data)
        if not is_open or relation_of(fields) != RESOLVES:
            return self._add(RELATIONSHIP, fields, timestamp)

        def write(to: Transaction) -> Record:
            # The relationship alone closes the finding; the resolution has the words.
            record = to._add(RELATIONSHIP, fields, timestamp)
            to.resolve_finding(old.id, resolved_by=new.by or new.id, action_taken=new.id)
            return record

        return self._write(write)

    def supersede(
        self, old: str, *, by: str, timestamp: Time | None = None, **further: Any
    ) -> Record:
        """Supersede a memory, also `SESSION/ID` of another session, by one of this session.

        In `global/`, which has no relationships, the old memory says so itself.
        """
        if self.scope.name == GLOBAL:
            fields = {"status": "superseded", "superseded_by": self._memory_named(by).id, **further}
            return self._update(self._memory_named(old).id, fields, Editor(change="superseded"))
        return self.relate(by, old, SUPERSEDES, timestamp=timestamp, **further)

    def update(self, memory_id: str, *, by: str = _USER, **changes: Any) -> Record:
        """Replace the named fields; None removes a field. The text of a turn cannot be changed.

        The fields that stood there before become history, with `by` as the one who changed them.
        """
        return self._update(memory_id, changes, Editor(by, "updated"))

    def _update(self, memory_id: str, changes: Mapping[str, object], editor: Editor) -> Record:
        check_memory_id(memory_id)
        return self._write(lambda to: to._change(memory_id, changes, editor))

    def resolve_finding(
        self, memory_id: str, *, resolved_by: str, action_taken: str, **further: Any
    ) -> Record:
        """Close a finding, with who closed it and how."""
        found = self._memory_named(check_memory_id(memory_id))
        if found.type != FINDING.name:
            raise Invalid([f"{memory_id} is a {found.type}; only a finding can be resolved"])
        old = found.data.get("resolution")
        resolution = dict(old) if isinstance(old, dict) else {}
        resolution.pop("next_steps", None)
        resolution |= {"status": "resolved", "resolved_at": self._now(), "resolved_by": resolved_by}
        resolution |= {"action_taken": action_taken, **further}
        return self._update(memory_id, {"resolution": resolution}, Editor(resolved_by, "resolved"))

    def pin(self, memory_id: str, *, by: str = _USER) -> Record:
        """Pin a memory: it does not decay and is never evicted."""
        return self._update(memory_id, {"pinned": True}, Editor(by, "pinned"))

    def unpin(self, memory_id: str, *, by: str = _USER) -> Record:
        """Let a pinned memory decay again."""
        return self._update(memory_id, {"pinned": None}, Editor(by, "unpinned"))

    def save_agent_state(self, agent: str, state: Mapping[str, Any]) -> None:
        """Replace the named parts of an agent's state. The state before becomes history."""
        if not isinstance(state, Mapping):
            raise Invalid([f"the state of {agent!r} must be a mapping"])
        self._require_session("agent states")
        check_file_id("agent", agent)
        self._write(lambda to: to._save_state(agent, state))

    def save_artifact(self, artifact_id: str, content: str, **fields: Any) -> None:
        """Save a text that an agent made, under a name. Saving it again replaces it.

        The text before becomes history.
        """
        self._require_session("artifacts")
        check_file_id("artifact", artifact_id)
        editor = Editor(str(fields.get("created_by") or _USER), "saved")
        self._write(lambda to: to._save_artifact(artifact_id, content, fields, editor))

    def _require_session(self, belonging: str) -> str:
        """Return the session, to which these belong; raise Invalid in `global/`."""
        if self.scope.name == GLOBAL:
            raise Invalid([f"{belonging} belong to a session"])
        return self.scope.name
