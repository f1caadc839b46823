"""Which kind of ours the `type` of an entry means, and what is told of types that mean none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ...privacy.redact import harmless
from ...records import DECISION, FINDING, LEARNING, PREFERENCE, TURN, Kind
from ..formats import Read
from .blocks import text_of
from .shaping import ALIASES, IMPORTED, is_speaker

_KINDS = {"conversation": TURN, "decision": DECISION, "finding": FINDING, "preference": PREFERENCE, "learning": LEARNING}
_TYPES = {kind.name: name for name, kind in _KINDS.items()}
# What some call a turn, where somebody says something in it.
_MESSAGES = frozenset(("message", "turn", "conversation_turn", "chat", "utterance"))
_NAMED, _NAME_CHARACTERS = 5, 40


def kind_of_type(name: object, said: object) -> Kind:
    """Where an entry of a type that says this is kept; what we have no kind for is a learning."""
    word = name.lower() if isinstance(name, str) else ""
    return TURN if word in _MESSAGES and _is_message(said) else _KINDS.get(word, LEARNING)


def type_of_kind(kind: Kind) -> str:
    return _TYPES[kind.name]


def _is_message(said: object) -> bool:
    if not isinstance(said, dict):
        return False
    known = ALIASES[TURN.name]
    texts = {name: text for name, text in said.items() if isinstance(text, str)}
    has_speaker = any(name in texts and texts[name].strip() and is_speaker(texts[name]) for name in known["speaker"])
    return has_speaker and any(name in texts or text_of(said.get(name)) is not None for name in known["content"])


def counting_unknown(given: Iterable[Read], counts: Counter[str]) -> Iterator[Read]:
    """The same entries; counts those that became learnings because their type means nothing here, by that type."""
    for one in given:
        if one.entry is not None and one.entry.get("file") == LEARNING.file:
            record = one.entry.get("record")
            notes = record.get(IMPORTED) if isinstance(record, dict) else None
            # The type stands there where it is another than that of the kind.
            if isinstance(notes, dict) and isinstance(name := notes.get("type"), str) and name.lower() not in _KINDS:
                counts[name] += 1
        yield one


def unknown_note(counts: Counter[str]) -> list[str]:
    """What an import says of these, once."""
    if not counts:
        return []
    names = ", ".join(harmless(name)[:_NAME_CHARACTERS] for name, _ in counts.most_common(_NAMED))
    types = f"{'a type that is' if len(counts) == 1 else 'types that are'} not known here"
    listed = f"{types} ({names}{' and others' if len(counts) > _NAMED else ''})"
    number = counts.total()
    return [f"1 entry of {listed} became a learning" if number == 1 else f"{number:,} entries of {listed} became learnings"]
