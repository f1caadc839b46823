"""Party mode: several agents talk in one session and share what they find and decide.

All of them read conversation, decisions, findings and preferences; the state of an agent, with its working memory, is its own. That
a session is in party mode stands in its metadata (`party_mode: true`), so it holds for every process that opens it.

What two agents find is one finding if they say it alike. That is judged with care, since two entries for one matter do less harm
than one entry that hides another matter: most of the content words are the same, and all words with a digit; both or neither say
that something is missing; the class of severity is the same; tags and places do not contradict each other. What was said second
is kept word by word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..ask.likeness import likeness
from ..disk.locks import lock
from ..model.errors import Invalid, MemoryNotFound
from ..model.priority import is_resolved
from ..model.record import Record
from ..model.severity import SEVERITIES, rank
from ..redaction.redact import FIELD, with_counts
from ..text.contents import plain_fields
from .agent import PARTY_MODE, AgentMemory

if TYPE_CHECKING:
    from ..session import Session

LIKENESS = 0.6  # of 1: how much of two findings' words must be the same
PARTY = "party"
_CANDIDATES = 20
_LOCK = "party"
_MERGED = ("tags", "evidence")  # kept in the finding itself, not with the observation


class Party:
    """`session.party()`: makes the session one in party mode."""

    def __init__(self, session: Session) -> None:
        self.session = session
        if session.metadata().get(PARTY_MODE) is not True:
            session.update_metadata(**{PARTY_MODE: True})

    def agent(self, name: str) -> AgentMemory:
        return AgentMemory(self.session, name)

    def end(self) -> None:
        """The session is one like others again, and states are open."""
        self.session.update_metadata(**{PARTY_MODE: None})

    def record_finding(self, finding: str, *, discovered_by: str, **fields: Any) -> Record:
        """The finding as it stands now: a new one, or one like it that now has `also_found_by`, `observations`, `evidence`."""
        return record_or_merge(self.session, finding, {"discovered_by": discovered_by, **fields})

    def record_decision(self, decision: str, *, inputs: Mapping[str, str], made_by: str = PARTY, **fields: Any) -> Record:
        """A decision with what every agent had to say about it, as `agent_inputs`."""
        if not isinstance(inputs, Mapping):
            raise Invalid([f"'inputs' must be what each agent said, by its name, not a {type(inputs).__name__}"])
        further = {"agents_involved": list(inputs), **fields, "agent_inputs": dict(inputs)}
        return self.session.record_decision(decision, made_by=made_by, **further)


def record_or_merge(session: Session, finding: str, fields: Mapping[str, Any]) -> Record:
    """Looks and writes under one lock, so that agents who find the same at the same time have one finding."""
    scope = session.scope
    finding, fields = _redacted(session, finding, fields)
    doing = "recording a finding of a party"
    with scope.answering(doing), lock(scope.tree, scope.name, _LOCK, scope.options.patience, doing):
        known = _like(session, finding, fields) if isinstance(finding, str) else None
        if known is not None:
            try:
                changes = _merged(known, finding, fields, session)
                return session.update(known.id, **changes) if changes else known
            except (Invalid, MemoryNotFound):
                # It went meanwhile, or would become too large. If it is the finding itself that is not valid, that is said below.
                pass
        return session.record_finding(finding, **fields)


def _redacted(session: Session, finding: str, fields: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """As it will be written, so that it is compared with what was written before."""
    problems: list[str] = []
    plain = plain_fields({**fields, "finding": finding}, problems)
    if problems:  # which are said when it is recorded
        return finding, fields
    new, kinds = session.scope.redaction.redacted_fields(plain)
    if not kinds:
        return finding, fields
    return str(new["finding"]), {name: value for name, value in new.items() if name != "finding"}


def _like(session: Session, finding: str, fields: Mapping[str, Any]) -> Record | None:
    """The open finding that is most like this one, if any is."""
    found = session.similar(finding, types=["finding"], limit=_CANDIDATES)
    alike = [(likeness(record.text, finding), record) for record in found if _is_candidate(record, fields)]
    best = max(alike, key=lambda item: item[0], default=None)
    return best[1] if best is not None and best[0] >= LIKENESS else None


def _is_candidate(record: Record, fields: Mapping[str, Any]) -> bool:
    tags = fields.get("tags")
    own = {tag.lower() for tag in tags} if isinstance(tags, (list, tuple)) and all(isinstance(tag, str) for tag in tags) else set()
    theirs = {tag.lower() for tag in record.tags}
    return (
        not is_resolved(record.data)
        and not is_resolved(fields)
        and rank(record.data.get("severity")) == rank(fields.get("severity", "medium")) < len(SEVERITIES)
        and (not own or not theirs or bool(own & theirs))
        and _may_be_one_place(record.data.get("location"), fields.get("location"))
    )


def _may_be_one_place(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        # Lines may differ a little where two look at the same thing.
        return all(one.get(part) in (None, value) for part, value in other.items() if part != "line_numbers" and value is not None)
    return one is None or other is None or one == other


def _merged(known: Record, finding: str, fields: Mapping[str, Any], session: Session) -> dict[str, Any]:
    """What changes in the known finding; nothing where it says all of this already."""
    who = fields.get("discovered_by")
    data = known.data
    elsewhere = ("discovered_by", "timestamp", FIELD, *_MERGED)
    observed = {**fields, "finding": finding}
    new = {name: value for name, value in observed.items() if name not in elsewhere and value not in (None, data.get(name))}
    after: dict[str, Any] = {}
    if who != data.get("discovered_by"):
        after["also_found_by"] = _with(data.get("also_found_by"), [who])
    for name in _MERGED:
        after[name] = _with(data.get(name), fields.get(name))
    if new and not _is_known(data.get("observations"), who, new):
        at = fields.get("timestamp") or session._now()
        after["observations"] = [*_list(data.get("observations")), {"by": who, "at": at, **new}]
    changes = {name: value for name, value in after.items() if value != _list(data.get(name))}
    return with_counts(changes, data.get(FIELD), fields[FIELD]) if changes and FIELD in fields else changes


def _is_known(observations: Any, who: Any, new: Mapping[str, Any]) -> bool:
    return any(
        isinstance(one, dict) and one.get("by") == who and new.items() <= one.items()
        for one in _list(observations)
    )


def _with(old: Any, new: Any) -> list[Any]:
    """One list with what the other has beside, each once."""
    return [*_list(old), *(item for item in _list(new) if item not in _list(old))]


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
