"""From what was typed to what is written: the words, options and YAML of `smp add` as fields of memories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from smp_client import GlobalMemory, Invalid, Record, Session
from smp_client.privacy.redact import OFF, Redaction
from smp_client.records import (
    FINDING,
    GLOBAL_KINDS,
    RELATIONSHIP,
    SESSION_KINDS,
    TURN,
    Kind,
    check_memory_id,
    check_memory_name,
    new_fields,
)
from smp_client.synonyms import taken_type, with_own_names
from smp_client.text.values import BadYaml, Value, decode, load
from smp_client.timestamps import now, parse_time
from smp_client.writing import Writing

STATE, ARTIFACT = "state", "artifact"  # no records: each is a file, with a name that is given to it
_OF_A_SESSION = {"turn" if kind is TURN else kind.name: kind for kind in SESSION_KINDS}
_GLOBAL = {kind.name: kind for kind in GLOBAL_KINDS}
_OTHER_NAMES = {TURN.name: "turn", "conversation": "turn", "agent_state": STATE}
_NOT_OF_AN_ARTIFACT = ("self", "artifact_id", "content", "id", "version")


@dataclass(frozen=True)
class Shared:
    """What the options say; in YAML, what a record says of itself goes before it."""

    by: str | None = None
    timestamp: str | None = None
    severity: str | None = None
    confidence: str | None = None
    topic: str | None = None
    rationale: str | None = None
    turn: int | None = None
    pin: bool = False
    tags: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    further: Mapping[str, Value] = field(default_factory=dict)
    redaction: Redaction = field(default=OFF, compare=False)  # of where it is written


@dataclass(frozen=True)
class New:
    """One thing that is to be written."""

    what: Kind | str  # a kind of record, or STATE or ARTIFACT
    fields: dict[str, Any]
    name: str = ""  # of the agent or the artifact
    timestamp: str | None = None


def from_words(what: str, words: Sequence[str], text: str | None, shared: Shared, *, is_global: bool) -> New:
    """One thing, said on the command line; `words` are those before the text: a name, or the ends of a relationship."""
    kind = _named(what, is_global)
    if kind == STATE:
        return _state(words[0], {**_mapping(text), **shared.further}, shared)
    if kind == ARTIFACT:
        return _artifact(words[0], {"content": text or ""}, shared)
    assert isinstance(kind, Kind)
    if kind is RELATIONSHIP:
        return _record(kind, dict(zip(kind.required, words, strict=True)), shared)
    return _record(kind, {kind.text: text}, shared)


def from_yaml(what: str | None, text: str, shared: Shared, *, is_global: bool) -> list[New]:
    """Every record of a text that holds one or a list of them; every problem at once, each with the record's number."""
    value = _load(text)
    found: list[New] = []
    problems: list[str] = []
    for number, item in enumerate(value if isinstance(value, list) else [value], 1):
        try:
            found.append(_from_mapping(what, item, shared, is_global))
        except Invalid as invalid:
            problems += [f"record {number}: {problem}" for problem in invalid.problems]
    if problems or not found:
        raise Invalid(problems or ["the YAML holds no record"])
    return found


def write(target: Session | GlobalMemory, news: Sequence[New]) -> list[Record]:
    """Writes them, several all or nothing, and gives them back as they are then."""
    if len(news) == 1:
        written = [_write(target, news[0])]
    else:
        with target.transaction() as transaction:
            written = [_write(transaction, new) for new in news]
    return [record or _saved(target, new) for record, new in zip(written, news, strict=True)]


def taken_out(target: Session | GlobalMemory, news: Sequence[New]) -> Counter[str]:
    """What a write of them takes out, by kind."""
    return sum((target.scope.redaction.spotted(new.fields) for new in news), Counter[str]())


def parse_fields(texts: Sequence[str]) -> dict[str, Value]:
    """`name=value` as fields; a dot in a name leads into a mapping."""
    fields: dict[str, Value] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        path = name.split(".")
        if not equals or not all(path):
            raise Invalid([f"field {text!r} must be NAME=VALUE"])
        inner = fields
        for part in path[:-1]:
            deeper = inner.setdefault(part, {})
            if not isinstance(deeper, dict):
                raise Invalid([f"field {name!r} cannot be both a value and a mapping"])
            inner = deeper
        if path[-1] in inner:
            raise Invalid([f"field {name!r} is given twice"])
        inner[path[-1]] = _value(name, value)
    return fields


def _value(name: str, text: str) -> Value:
    """Numbers, true, false and null are what they are in YAML, as is what stands in brackets or quotes; all else is text."""
    if text.startswith(("[", "{")):
        try:
            return load(text)
        except BadYaml as error:
            problem = f"field {name!r} begins like a list or mapping and is none ({error.problem}); quote it as text"
            raise Invalid([problem]) from error
    with suppress(BadYaml):
        value = load(text)
        # As YAML, "see: this" would be a mapping, and " # 5" a comment: nobody means that on a command line.
        if text.startswith(('"', "'")) or value is None or isinstance(value, (bool, int, float)):
            return value
    return text


def _load(text: str) -> Value:
    try:
        return load(decode(text.encode("utf-8", "surrogatepass")))
    except BadYaml as error:
        raise Invalid([f"the YAML cannot be read, {error}"]) from error


def _mapping(text: str | None) -> dict[str, Value]:
    value = _load(text or "")
    if value is not None and not isinstance(value, dict):
        raise Invalid(["a state must be a mapping in YAML or JSON"])
    return value or {}


def _named(what: str, is_global: bool) -> Kind | str:
    if what in (STATE, ARTIFACT) and not is_global:
        return what
    here, elsewhere = (_GLOBAL, _OF_A_SESSION) if is_global else (_OF_A_SESSION, _GLOBAL)
    if what not in here:
        known = ", ".join([*here, *(() if is_global else (STATE, ARTIFACT))])
        whose = "a session" if is_global else "global: smp add global"
        belongs = f"; a {what} belongs to {whose}" if what in elsewhere or what in (STATE, ARTIFACT) else ""
        raise Invalid([f"{'global' if is_global else 'a session'} holds {known}, not {what!r}{belongs}"])
    return here[what]


def _from_mapping(what: str | None, item: Value, shared: Shared, is_global: bool) -> New:
    if not isinstance(item, dict):
        raise Invalid(["it must be a mapping of fields"])
    own: dict[str, Any] = dict(item)
    if "type" not in own and (other := taken_type(own, (*_OF_A_SESSION, *_GLOBAL, *_OTHER_NAMES, STATE, ARTIFACT))):
        own["type"] = other
    named = _OTHER_NAMES.get(str(own.get("type")), str(own.get("type")))
    # A turn has a type of its own, such as message, which is no kind of memory.
    if "type" in own and (what != "turn" or named in (*_OF_A_SESSION, *_GLOBAL, STATE, ARTIFACT)):
        what = named
        del own["type"]
    if what is None:
        raise Invalid(["it must say its 'type', or the kind must stand behind the session"])
    kind = _named(what, is_global)
    if kind == STATE:
        return _state(_popped(own, "agent_id", "an agent's state"), {**shared.further, **own}, shared)
    if kind == ARTIFACT:
        return _artifact(_popped(own, "id", "an artifact"), own, shared)
    assert isinstance(kind, Kind)
    if kind is TURN and "turn_type" in own:
        own["type"] = own.pop("turn_type")
    return _record(kind, with_own_names(kind, own), shared)


def _popped(own: dict[str, Any], name: str, whose: str) -> str:
    if name not in own:
        raise Invalid([f"{name!r} of {whose} is missing"])
    return str(own.pop(name))


def _state(agent: str, parts: dict[str, Any], shared: Shared) -> New:
    if replace(shared, further={}) != Shared():
        raise Invalid(["a state has no options but --field; say everything else in its YAML"])
    if not parts:
        raise Invalid([f"there is nothing to save for {agent!r}: give its state as YAML or JSON"])
    return New(STATE, parts, agent)


def _artifact(name: str, own: dict[str, Any], shared: Shared) -> New:
    content = own.pop("content", own.pop("text", None))
    if not isinstance(content, str):
        raise Invalid(["'content' of an artifact must be a text"])
    about = {
        "created_by": shared.by, "severity": shared.severity, "topic": shared.topic, "rationale": shared.rationale,
        "confidence": shared.confidence, "references": list(shared.refs) or None, "turn_ref": shared.turn,
        "pinned": shared.pin or None, "tags": list(shared.tags) or None, "timestamp": shared.timestamp, **shared.further, **own,
    }  # fmt: skip
    fields = {field: value for field, value in about.items() if value is not None}
    if taken := [field for field in _NOT_OF_AN_ARTIFACT if field in fields]:
        raise Invalid([f"an artifact cannot have a field {taken[0]!r}"])
    if "timestamp" in fields:
        fields["timestamp"] = _time(fields["timestamp"])
    return New(ARTIFACT, {**fields, "content": content}, name)


def _time(text: object) -> object:
    try:
        return parse_time(str(text))
    except ValueError as error:
        raise Invalid([f"timestamp {text!r} must be an ISO 8601 time such as 2026-01-11T14:30:00Z"]) from error


def _record(kind: Kind, own: dict[str, Any], shared: Shared) -> New:
    fields = {**_defaults(kind, shared), **shared.further, **own}
    timestamp = fields.pop("timestamp", None) or shared.timestamp
    if kind.actor in kind.required and not fields.get(kind.actor):
        raise Invalid([f"{kind.actor!r} is missing: say who with --by"])
    if kind is RELATIONSHIP:
        for end in ("source", "target"):
            check_memory_name(fields.get(end, ""))
    if kind is TURN and "turn_ref" in fields and fields["turn_ref"] is not None:
        raise Invalid(["a turn refers to another with --ref turn-N"])
    new_fields(kind, fields, timestamp or now(), shared.redaction)  # raises before a number is given
    return New(kind, fields, timestamp=timestamp)


def _defaults(kind: Kind, shared: Shared) -> dict[str, Any]:
    """In the order in which a person looks for them; None is left out."""
    for memory_id in shared.refs:
        check_memory_id(memory_id)
    return {
        kind.actor: shared.by or ("user" if kind is TURN else None),
        "type": "message" if kind is TURN else None,
        "severity": shared.severity or ("medium" if kind is FINDING else None),
        "topic": shared.topic,
        **dict.fromkeys(name for name in kind.required if name not in (kind.actor, "severity", "confidence")),
        kind.text: None,
        "rationale": shared.rationale,
        "confidence": shared.confidence or ("inferred" if "confidence" in kind.required else None),
        "resolution": {"status": "open"} if kind is FINDING else None,
        "memory_refs" if kind is TURN else "references": list(shared.refs) or None,
        "turn_ref": shared.turn,
        "pinned": shared.pin or None,
        "tags": list(shared.tags) if shared.tags or kind not in (TURN, RELATIONSHIP) else None,
    }


def _write(writing: Writing, new: New) -> Record | None:
    """None for what is a file of its own and can be read only when all is written."""
    if new.what == STATE:
        writing.save_agent_state(new.name, new.fields)
    elif new.what == ARTIFACT:
        writing.save_artifact(new.name, **new.fields)
    else:
        assert isinstance(new.what, Kind)
        if new.what is RELATIONSHIP:
            said = dict(new.fields)
            ends = [said.pop(name) for name in RELATIONSHIP.required]
            return writing.relate(*ends, timestamp=new.timestamp, **said)
        return writing.record(new.what, new.fields, new.timestamp)
    return None


def _saved(target: Session | GlobalMemory, new: New) -> Record:
    assert isinstance(target, Session)
    if new.what == ARTIFACT:
        return target.artifact(new.name)
    state = target.agent_state(new.name)
    return Record(new.name, "agent_state", target.id, {**state, "timestamp": state.get("last_updated")}, "")
