"""Party mode: several agents talk in one session and share their findings and decisions.

The metadata of the session have `party_mode: true`, so it holds for every process.

Findings that say the same become one. Two entries for one matter do less harm than one entry that
hides another. So two findings are one only if most of their words are the same, both are open, and
severity, tags and location do not contradict each other. The words of the second are kept as an
observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..ask.questions import like_text
from ..ask.text import likeness, said
from ..disk.locks import lock
from ..model.door import front_door
from ..model.errors import Invalid, MemoryNotFound
from ..model.priority import is_resolved
from ..model.record import SEVERITIES, Record, severity_rank
from ..redaction.redact import FIELD

if TYPE_CHECKING:
    from ..session import Session
    from .agent import AgentMemory

PARTY_MODE = "party_mode"  # in the metadata of a session
LIKENESS = 0.6  # of 1: how much of two findings' words must be the same
_CANDIDATES = 20
_LOCK = "party"
_APART = ("discovered_by", "timestamp", "tags", FIELD)  # no part of an observation


@front_door
class Party:
    """`session.party()` puts the session into party mode."""

    def __init__(self, session: Session) -> None:
        self.session = session
        if session.metadata().get(PARTY_MODE) is not True:
            session.update_metadata(**{PARTY_MODE: True})

    def agent(self, name: str) -> AgentMemory:
        """Return the session as one agent of the party sees it."""
        return self.session.agent(name)

    def end(self) -> None:
        """End party mode: agents can read each other's states again."""
        self.session.update_metadata(**{PARTY_MODE: None})

    def record_decision(
        self, decision: str, *, inputs: Mapping[str, str], made_by: str = "party", **fields: Any
    ) -> Record:
        """Record a decision with the input of every agent as `agent_inputs`."""
        if not isinstance(inputs, Mapping):
            given = type(inputs).__name__
            raise Invalid([f"'inputs' must be a text for each agent, by its name, not a {given}"])
        further = {"agents_involved": list(inputs), **fields, "agent_inputs": dict(inputs)}
        return self.session.record_decision(decision, made_by=made_by, **further)


def record_or_merge(session: Session, finding: str, fields: Mapping[str, Any]) -> Record:
    """Record a finding, or merge it with the open one that is most like it.

    A merged finding has `also_found_by`, `observations` and the tags of both. Looking and writing
    happen under one lock: agents with one finding at one moment make one entry.
    """
    if not isinstance(finding, str) or not finding:
        return session.record_finding(finding, **fields)  # which refuses it
    scope, doing = session.scope, "recording a finding of a party"
    timeout_s = scope.options.lock_timeout_s
    with scope.answering(doing), lock(scope.tree, scope.name, _LOCK, timeout_s, doing):
        found = like_text(session, finding, types=["finding"], limit=_CANDIDATES)
        alike = {likeness(said(one.text), said(finding)): one
                 for one in found if _may_be_one(one, fields)}  # fmt: skip
        if alike and max(alike) >= LIKENESS:
            known = alike[max(alike)]
            try:
                changes = _merged(known, finding, fields, session)
                return session.update(known.id, **changes) if changes else known
            except (Invalid, MemoryNotFound):
                pass  # it went meanwhile, or would become too large: this one is recorded by itself
        return session.record_finding(finding, **fields)


def _may_be_one(known: Record, fields: Mapping[str, Any]) -> bool:
    severity = severity_rank(fields.get("severity", "medium"))
    here, there = known.data.get("location"), fields.get("location")
    return (
        (here is None or there is None or here == there)
        and not is_resolved(known.data)
        and not is_resolved(fields)
        and severity_rank(known.data.get("severity")) == severity < len(SEVERITIES)
    )


def _merged(
    known: Record, finding: str, fields: Mapping[str, Any], session: Session
) -> dict[str, Any]:
    """Return the changes of the known finding; none where it says all of this already."""
    who, data = fields.get("discovered_by"), known.data
    new = {
        name: value
        for name, value in {**fields, "finding": finding}.items()
        if name not in _APART and value not in (None, data.get(name))
    }
    after = {name: _list(data.get(name)) for name in ("tags", "also_found_by", "observations")}
    after["tags"] += [tag for tag in _list(fields.get("tags")) if tag not in after["tags"]]
    if who not in (data.get("discovered_by"), *after["also_found_by"]):
        after["also_found_by"].append(who)
    own = [one for one in after["observations"] if isinstance(one, dict) and one.get("by") == who]
    if new and not any(new.items() <= one.items() for one in own):
        at = fields.get("timestamp") or session._now()
        after["observations"].append({"by": who, "at": at, **new})
    return {name: value for name, value in after.items() if value != _list(data.get(name))}


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
