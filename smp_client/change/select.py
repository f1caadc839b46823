"""The choice of memories: by their ids, or by everything else that can be said of them.

A topic, an agent, a type, a tag or a time means in a deletion what it means in a question, because
the index is asked in both. A text is sought in the memories themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..ask.argument import When
from ..ask.engine import is_about, keys_of, two_of
from ..ask.options import wanted
from ..disk.bundle import Item
from ..disk.place import archived_scope
from ..disk.session_files import METADATA
from ..model.errors import CorruptionDetected, Invalid
from ..model.layout import GLOBAL
from ..model.record import FOLDERS, HISTORY, check_lookup, split_folder
from ..text.values import Value
from .holdings import KEPT, Holding, holdings, id_of_file, in_file, in_use, is_in_use, missing

if TYPE_CHECKING:
    from ..ask.priorities import View
    from ..memory import Memory

_BOOKKEEPING = ("decay", "imported", "imported_id")  # fields whose values nobody chose


@dataclass(frozen=True)
class Selection:
    """Either ids, or conditions that must all hold; of several types or tags, one is enough.

    Raises Invalid where it could mean more than its author knows.
    """

    ids: str | Sequence[str] | None = None
    topic: str | None = None
    agent: str | None = None
    since: When | None = None
    until: When | None = None
    types: str | Sequence[str] = ()
    tags: str | Sequence[str] = ()
    text: str | None = None

    def __post_init__(self) -> None:
        for name in ("types", "tags", *(["ids"] if self.ids is not None else [])):
            object.__setattr__(self, name, several(getattr(self, name)))
        texts = [("topic", self.topic), ("agent", self.agent), ("text", self.text)]
        problems = [f"{name!r} must be a text that is not empty"
                    for name, text in [*texts, *(("tag", tag) for tag in self.tags)]
                    if text is not None and not str(text).strip()]  # fmt: skip
        if (self.ids is not None) is (self.text is not None or self.asks_index):
            problems.append("say which memories: their ids, or what they have in common, not both")
        if problems:
            raise Invalid(problems)
        for memory_id in self.ids or ():
            check_lookup(memory_id)

    @property
    def asks_index(self) -> bool:
        """Return whether a condition is one that the index answers."""
        given = (self.topic, self.agent, self.since, self.until)
        return bool(self.types or self.tags) or any(value is not None for value in given)

    @property
    def criteria(self) -> dict[str, Value]:
        """Return the conditions for the audit log, which never quotes a memory.

        A text is what somebody wants to be gone, so only its length is named.
        """
        said: dict[str, Value] = {}
        for name in ("topic", "agent", "since", "until"):
            if (value := getattr(self, name)) is not None:
                said[name] = str(value)
        for name in ("types", "tags"):
            if values := getattr(self, name):
                said[name] = [*values]
        if self.text is not None:
            said["text"] = f"{len(self.text)} characters"
        return said


def several(given: str | Iterable[str]) -> tuple[str, ...]:
    """Return one text as a list of one, not as the list of its letters."""
    is_list = isinstance(given, Iterable) and not isinstance(given, (str, bytes))
    return tuple(given) if is_list else (given,)  # type: ignore[return-value]


def chosen(
    memory: Memory, name: str, selection: Selection, problems: list[str] | None = None
) -> list[Holding]:
    """Return the memories that are meant, in every place where one is kept.

    Earlier versions of a memory, and earlier states of an agent, go with it. A record without an
    id that fits is reported.
    """
    problems, ids = [] if problems is None else problems, selection.ids
    if ids is not None and is_in_use(memory, name) and not memory.tree.list(archived_scope(name)):
        quickly = in_use(memory, name, ids)
        if {one.id for one in quickly} == {*ids}:
            return [*quickly, *earlier_versions(memory, name, ids)]
    found = [one for one in holdings(memory, name, KEPT, problems) if one.file != METADATA]
    if ids is None:
        meant = described(memory, name, selection, found)
    else:
        meant = [one for one in found if is_named(one, ids)]
        require_known(memory, name, ids, meant)
        _require_one_each(ids, meant)
        bare = [split_folder(memory_id)[1] for memory_id in ids]
        order = {memory_id: number for number, memory_id in enumerate(bare)}
        meant.sort(key=lambda one: order.get(one.id, len(order)))
    lines: dict[tuple[str, str], int] = {}
    for one in meant:
        if not one.id:
            why = "a record without an id fits too, and stays. Give it an id first"
            problems.append(f"{one.where}, line {one.line}: {why}.")
        elif one.line and not one.is_file and owner_of(one) is None:
            first = lines.setdefault((one.file, one.id), one.line)
            if first != one.line:  # the other one would answer again
                where = f"{one.file} line {first}, {one.file} line {one.line}"
                raise CorruptionDetected(f"{one.id} stands more than once: {where}; nothing was"
                                         " deleted.", session_id=name)  # fmt: skip
    return [one for one in meant if one.id]


def is_named(one: Holding | Item, ids: Collection[str]) -> bool:
    """Return whether one of these ids names a memory, or the memory that this is a version of."""
    return any(memory_id in ids for memory_id in ids_of(one))


def ids_of(one: Holding | Item) -> set[str]:
    """Return every id that means a memory: its own, its owner's, and these with their folder."""
    name = owner_of(one) or one.id
    folder = "agent-states" if one.type == "agent_state" else "artifacts"
    return {one.id, name, f"{folder}/{name}"}


def _require_one_each(ids: Collection[str], meant: list[Holding]) -> None:
    """Raise InvalidQuery for a name that a state and an artifact have: a deletion takes one."""
    for memory_id in ids:
        types = {one.type for one in meant if one.is_file and one.id == memory_id}
        if types == {*FOLDERS.values()}:
            raise two_of(memory_id)


def described(
    memory: Memory, name: str, selection: Selection, found: list[Holding]
) -> list[Holding]:
    """Return those of these memories of a session for which all conditions hold."""
    if selection.text is not None:
        text = selection.text.casefold()
        found = [
            one for one in found if any(text in said.casefold() for said in texts_of(one.value))
        ]
    if not selection.asks_index:
        return found

    def question(view: View) -> set[tuple[str, str, str]]:
        said = {
            "types": selection.types, "tags": selection.tags, "since": selection.since,
            "until": selection.until, "agents": selection.agent,
        }  # fmt: skip
        options: Any = {name: value for name, value in said.items() if value not in (None, ())}
        want, topic = wanted(view.now, view.policy, options), selection.topic
        return keys_of(view, want if topic is None else want.also(is_about(view, topic)))

    scopes = [name] if name == GLOBAL else [name, archived_scope(name)]
    keys = memory._asker_of(scopes).ask(question)
    files = [one.container.rpartition("/")[2] or one.file for one in found]
    meant = [
        one for one, file in zip(found, files, strict=True) if (file, one.type, one.id) in keys
    ]
    return _with_earlier(found, meant)


def _with_earlier(found: list[Holding], meant: list[Holding]) -> list[Holding]:
    """Return the memories that are meant, with their earlier versions and states."""
    owners = {_owner(one) for one in meant}
    objects = {id(one) for one in meant}

    def belongs(one: Holding) -> bool:
        is_earlier = not one.is_file and owner_of(one) is not None
        return id(one) in objects or (is_earlier and _owner(one) in owners)

    return [one for one in found if belongs(one)]


def _owner(one: Holding) -> tuple[bool, str]:
    """Return the memory that this is, or is an earlier version of, and whether it is a state."""
    return one.type == "agent_state", owner_of(one) or one.id


def owner_of(one: Holding | Item) -> str | None:
    """Return the memory that this is an earlier version of, or the agent whose state this is.

    It is None for any other memory.
    """
    if one.file != HISTORY:
        return id_of_file(one.file) if one.type == "agent_state" else None
    said = one.value.get("memory") if isinstance(one, Holding) else one.facts.get("memory")
    return str(said)


def is_revision(one: Holding | Item) -> bool:
    """Return whether this is the earlier version of another memory."""
    return one.file == HISTORY


def earlier_versions(memory: Memory, name: str, ids: Collection[str]) -> list[Holding]:
    """Return the revisions of memories in the history of a session that is in use."""
    history = memory._scope(name).read(HISTORY)
    if not history:
        return []
    revisions = in_file(name, "active", "", HISTORY, history)
    return [one for one in revisions if owner_of(one) in ids]


def require_known(memory: Memory, name: str, ids: Collection[str], meant: list[Holding]) -> None:
    """Raise for the first id that names no memory, with its state."""
    known: set[str] = set()
    for one in meant:
        known |= ids_of(one)
    for memory_id in ids:
        if memory_id not in known:
            raise missing(memory._scope(name), memory_id)


def texts_of(value: Value) -> Iterator[str]:
    """Yield every text of a memory, numbers as they are written, without its bookkeeping."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name not in _BOOKKEEPING:
                yield from texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)
