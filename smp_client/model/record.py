"""The kinds of memory, and a memory as it is returned."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast

from .errors import Invalid
from .layout import is_file_id
from .priority import is_pinned
from .quotation import shown
from .times import time_at, time_of

if TYPE_CHECKING:
    from ..text.values import Value

CONTENT_CAP_BYTES = 1024 * 1024
KEY_CAP_CHARACTERS = 128
DELETED_TURN = "deleted"
STATE_HISTORY = "agent-states/history"
HISTORY = "history.yaml"  # earlier versions of the records of a session, or of `global/`
NUMBER_DIGITS = 12  # an id with a longer number is of another form: SMP neither gives nor counts it
NUMBERS = 10**NUMBER_DIGITS  # every number that SMP gives is below this
_decode = json.JSONDecoder().raw_decode
_MEMORY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SIGNS = "letters, digits, '-', '_' or '.'"
# The severities of a finding, the worst first. It is stored with the word that was given; a synonym
# is equal wherever findings are compared, filtered, ranked or sorted.
SEVERITIES = ("critical", "high", "medium", "low", "info")
_SYNONYMS = {"important": "high", "minor": "low"}
SEVERITY_WORDS = (*SEVERITIES, *_SYNONYMS)


def severity_rank(severity: object) -> int:
    """Return the place of a severity, 0 for the worst; any other word is behind the last."""
    word = severity.lower() if isinstance(severity, str) else ""
    word = _SYNONYMS.get(word, word)
    return SEVERITIES.index(word) if word in SEVERITIES else len(SEVERITIES)


def type_of(name: str) -> str:
    """Return the type for a kind's name: files and index say `conversation_turn` for a turn."""
    return "turn" if name == "conversation_turn" else name


def name_of(type: str) -> str:
    """Return the name that files and index have for a type."""
    return "conversation_turn" if type == "turn" else type


class Kind(NamedTuple):
    """A kind of memory: its file, its ids and its fields."""

    name: str  # as files have it; see `type`
    file: str
    key: str  # the list in the file
    prefix: str  # of its ids
    text: str  # the field that says it in words
    actor: str  # the field that says who
    base_priority: float
    required: tuple[str, ...]

    @property
    def type(self) -> str:
        """Return the name of the kind outside the files."""
        return type_of(self.name)

    def memory_id(self, number: int) -> str:
        return f"{self.prefix}-{number if self.prefix == 'turn' else f'{number:03d}'}"

    def number_of(self, memory_id: object) -> int | None:
        """Return the number of an id that SMP may have given; None for an id of another form."""
        prefix, _, digits = str(memory_id).rpartition("-")
        is_number = digits.isascii() and digits.isdecimal() and len(digits) <= NUMBER_DIGITS
        return int(digits) if is_number and prefix == self.prefix else None


# fmt: off
TURN = Kind("conversation_turn", "conversation.md", "", "turn", "content", "speaker", 1.0,
            ("speaker",))
DECISION = Kind("decision", "decisions.yaml", "decisions", "DEC", "decision", "made_by", 0.95,
                ("decision", "made_by"))
FINDING = Kind("finding", "findings.yaml", "findings", "FIND", "finding", "discovered_by", 0.90,
               ("finding", "discovered_by", "severity"))
PREFERENCE = Kind("preference", "preferences.yaml", "preferences", "PREF", "preference",
                  "created_by", 0.85, ("preference", "confidence"))
LEARNING = Kind("learning", "learnings.yaml", "learnings", "LEARN", "learning", "learned_by", 0.80,
                ("learning", "learned_by"))
RELATIONSHIP = Kind("relationship", "relationships.yaml", "memory_relationships", "REL",
                    "relationship", "created_by", 1.0, ("source", "target", "relationship"))
GLOBAL_PREFERENCE = Kind("preference", "cross-session-preferences.yaml", "preferences", "GPREF",
                         "preference", "created_by", 0.85, ("preference", "confidence"))
PATTERN = Kind("pattern", "learned-patterns.yaml", "patterns", "PAT", "pattern", "learned_by", 0.80,
               ("pattern",))
# fmt: on
# The earlier version of another memory. It is kept beside the memories and is not one of them.
REVISION = Kind(
    name="revision",
    file=HISTORY,
    key="history",
    prefix="REV",
    text="change",
    actor="changed_by",
    base_priority=0.30,
    required=("memory", "change", "changed_by"),
)
FOLDERS = {"agent-states": "agent_state", "artifacts": "artifact"}  # of memories that are files
SESSION_KINDS = (TURN, DECISION, FINDING, PREFERENCE, LEARNING, RELATIONSHIP)
GLOBAL_KINDS = (GLOBAL_PREFERENCE, PATTERN)

CHOICES: dict[tuple[str, str], tuple[str, ...]] = {
    ("finding", "severity"): SEVERITY_WORDS,
    ("preference", "confidence"): ("explicit", "inferred", "uncertain"),
    ("decision", "confidence"): ("high", "medium", "low", "uncertain"),
}


class Record:
    """A memory. `data` holds every field; the rest are shortcuts, or parts of an answer.

    Fields that are given as JSON are read when they are first looked at.
    """

    score: float | None = None  # how well it answers, from 0 to 1
    explanation: dict[str, float] | None = None  # the parts of the score
    path: tuple[str, ...] = ()  # how it is related to the memory that was asked for
    priority_now: float | None = None
    uses_now: int | None = None  # how often it was read
    used_now: int | None = None  # in microseconds since 1970
    file: str | None = None  # where it stands, below the root
    marks: tuple[str, ...] = ()  # `archived`, `superseded by DEC-004`
    holds: bool = True  # False for superseded, rejected, resolved …
    notes: tuple[str, ...] = ()  # after a write: sentences for whoever wrote it

    def __init__(
        self, id: str, type: str, session: str, data: dict[str, Any] | str, text: str, **answer: Any
    ) -> None:
        self.id, self.type, self.session, self._data, self.text = id, type, session, data, text
        if answer:
            vars(self).update(answer)

    @property
    def data(self) -> dict[str, Any]:
        if isinstance(self._data, str):
            self._data = cast("dict[str, Any]", _decode(self._data)[0])
            if self.type == "artifact":
                self._data["content"] = self.text
        return self._data

    def __eq__(self, other: object) -> bool:
        """Return whether it is the same memory, in whatever answer."""
        own = ("id", "type", "session", "data", "text")
        is_record = isinstance(other, Record)
        return is_record and all(getattr(self, name) == getattr(other, name) for name in own)

    def __repr__(self) -> str:
        return f"Record({self.id!r}, {self.type!r}, {self.session!r}, {self.data!r})"

    def shown(self, **answer: Any) -> Record:
        """Return this memory as a part of another answer."""
        changed = Record.__new__(Record)
        vars(changed).update(vars(self), **answer)
        return changed

    @property
    def timestamp(self) -> datetime | None:
        """Return its time; None where it has none that can be read."""
        return time_of(self.data.get("timestamp") or self.data.get("last_updated"))

    @property
    def by(self) -> str | None:
        """Return who said, decided, found or learned it; None where nobody is named."""
        actors = [one.actor for one in (*SESSION_KINDS, *GLOBAL_KINDS) if one.type == self.type]
        names = [self.data.get(name) for name in (*actors, "agent_id", "created_by")]
        return next((str(name) for name in names if name), None)

    @property
    def tags(self) -> list[str]:
        tags = self.data.get("tags")
        return [str(tag) for tag in tags] if isinstance(tags, list) else []

    @property
    def priority(self) -> float:
        """Return the decay priority: as of now in an answer, else as it was last written."""
        if self.priority_now is not None:
            return self.priority_now
        decay = self.data.get("decay")
        value = decay.get("priority") if isinstance(decay, dict) else None
        return float(value) if isinstance(value, (int, float)) else 1.0

    @property
    def access_count(self) -> int:
        """Return how often it was read: as of now in an answer, else as it was last written."""
        if self.uses_now is not None:
            return self.uses_now
        decay = self.data.get("decay")
        count = decay.get("access_count") if isinstance(decay, dict) else None
        return count if isinstance(count, int) else 0

    @property
    def last_accessed(self) -> datetime | None:
        """Return when it was last read, else when it was made; None where nothing tells."""
        if self.used_now is not None:
            return time_at(self.used_now)
        decay = self.data.get("decay")
        read = time_of(decay.get("last_accessed")) if isinstance(decay, dict) else None
        return read or self.timestamp

    @property
    def pinned(self) -> bool:
        return is_pinned(self.data)


def as_record(kind: Kind, session: str, value: Mapping[str, Value]) -> Record:
    text = str(value.get(kind.text, ""))
    return Record(str(value["id"]), kind.type, session, dict(value), text)


def is_deleted(kind: Kind, value: Mapping[str, Value]) -> bool:
    """Return whether it is only the place of a turn that was deleted."""
    return kind is TURN and value.get("type") == DELETED_TURN and not value.get("content")


def kind_of(memory_id: str, kinds: tuple[Kind, ...]) -> Kind | None:
    """Return the kind that gives ids of this form, if any does."""
    prefix = memory_id.rpartition("-")[0]
    return next((kind for kind in kinds if kind.prefix == prefix), None)


def kind_of_file(file: str) -> Kind:
    """Return the kind that is kept in a file of a session or of `global/`."""
    if file.startswith(f"{STATE_HISTORY}/"):
        return state_history(file.rpartition("/")[2].removesuffix(".yaml"))
    if file == HISTORY:
        return REVISION
    return next(kind for kind in (*SESSION_KINDS, *GLOBAL_KINDS) if kind.file == file)


def state_history(agent: str) -> Kind:
    """Return the kind of an agent's earlier states, which are records in a file of its own."""
    file = f"{STATE_HISTORY}/{agent}.yaml"
    return Kind("agent_state", file, "history", "STATE", "", "agent_id", 0.80, ())


def is_memory_id(memory_id: object) -> bool:
    return isinstance(memory_id, str) and _MEMORY_ID.fullmatch(memory_id) is not None


def is_like_an_id(text: str) -> bool:
    """Return whether a text has the form of the ids that SMP gives: `FIND-999`, `dec-1`."""
    prefix, _, digits = text.rpartition("/")[2].rpartition("-")
    prefixes = {kind.prefix.lower() for kind in (*SESSION_KINDS, *GLOBAL_KINDS)}
    return prefix.lower() in prefixes and digits.isdecimal()


def is_memory_name(name: object) -> TypeGuard[str]:
    """Return whether it names a memory: `ID`, or `SESSION/ID` for one of another session."""
    if not isinstance(name, str):
        return False
    session, slash, memory_id = name.rpartition("/")
    return is_memory_id(memory_id) and (not slash or is_file_id(session))


def split_name(name: str, session: str) -> tuple[str, str]:
    """Return session and id of a memory that is named in this session.

    The id of a state or an artifact may have its folder before it: `agent-states/veritas`.
    """
    other, _, memory_id = name.rpartition("/")
    outer, _, folder = other.rpartition("/")
    if folder in FOLDERS:
        return outer or session, f"{folder}/{memory_id}"
    return other or session, memory_id


def split_folder(memory_id: str) -> tuple[str, str]:
    """Return the type that the folder before an id names, empty for none, and the bare id."""
    folder, slash, name = memory_id.partition("/")
    return (FOLDERS[folder], name) if slash and folder in FOLDERS else ("", memory_id)


def kind_named(name: object, kinds: tuple[Kind, ...]) -> Kind | None:
    """Return the kind of this name: `decision`, `decisions` or `dec`, and `conversation`."""
    for kind in kinds:
        names = (kind.name, kind.type, f"{kind.type}s", kind.key, kind.prefix.lower())
        if name in names or (kind is TURN and name == "conversation"):
            return kind
    return None


def check_memory_id(memory_id: str) -> str:
    if not is_memory_id(memory_id):
        raise Invalid([f"memory id {shown(memory_id)} must be 1 to 64 {_SIGNS}"])
    return memory_id


def check_lookup(memory_id: str) -> str:
    """Return an id, which may have the folder of a state or an artifact before it."""
    _, bare = split_folder(memory_id) if isinstance(memory_id, str) else ("", memory_id)
    check_memory_id(bare)
    return memory_id


def check_memory_name(name: str) -> str:
    if not is_memory_name(name):
        raise Invalid([f"memory {shown(name)} must be an id of 1 to 64 {_SIGNS}, or SESSION/ID"])
    return name
