"""Which memories of a session are meant: by their ids, or by everything else that can be said of them.

A topic, an agent, a type, a tag or a time means in a deletion what it means in a question, because
the index is asked in both. A text is sought in the memories themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, Unpack

from ..ask.when import When
from ..disk.bundle import Item
from ..disk.scopes import archived_scope
from ..disk.session_files import METADATA
from ..model.errors import CorruptionDetected, Invalid
from ..model.layout import GLOBAL
from ..model.record import check_memory_id
from ..text.values import Value
from .holdings import KEPT, Holding, holdings, in_use, is_in_use
from .places import id_of_file
from .whereabouts import missing

if TYPE_CHECKING:
    from ..ask.priorities import View
    from ..memory import Memory

_TEXTS = ("topic", "agent", "text")
_BOOKKEEPING = ("decay", "imported", "imported_id")  # fields whose values nobody chose


class Meant(TypedDict, total=False):
    """The conditions of a deletion, as its caller names them."""

    topic: str | None
    agent: str | None
    since: When | None
    until: When | None
    types: str | Sequence[str]
    tags: str | Sequence[str]
    text: str | None


@dataclass(frozen=True)
class Selection:
    """Either ids, or conditions that must all hold; of several types or tags, one is enough."""

    ids: tuple[str, ...] | None = None
    topic: str | None = None
    agent: str | None = None
    since: When | None = None
    until: When | None = None
    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    text: str | None = None

    @property
    def has_conditions(self) -> bool:
        return self.text is not None or self.asks_index

    @property
    def asks_index(self) -> bool:
        """Whether a condition is one that the index answers."""
        given = (self.topic, self.agent, self.since, self.until)
        return bool(self.types or self.tags) or any(value is not None for value in given)

    def check(self) -> None:
        """Raise Invalid where the selection could mean more than its author knows."""
        problems = [f"{name!r} must be a text that is not empty" for name in _TEXTS if _is_empty(getattr(self, name))]
        problems += ["a tag must be a text that is not empty" for tag in self.tags if _is_empty(tag)]
        if self.ids is not None and self.has_conditions:
            problems.append("ids and conditions cannot be given together: memories are named, or described")
        if self.ids is None and not self.has_conditions:
            problems.append("say which memories: their ids, or what they have in common")
        if problems:
            raise Invalid(problems)
        for memory_id in self.ids or ():
            check_memory_id(memory_id)


def chosen(memory: Memory, name: str, selection: Selection, problems: list[str] | None = None) -> list[Holding]:
    """Return the memories that are meant, in every place where one is kept.

    Earlier states of an agent go with its state. A record without an id that fits is reported.
    """
    problems = [] if problems is None else problems
    if selection.ids is not None and is_in_use(memory, name) and not memory.tree.list(archived_scope(name)):
        quickly = in_use(memory, name, selection.ids)
        if {one.id for one in quickly} == {*selection.ids}:
            return quickly
    found = [one for one in holdings(memory, name, KEPT, problems) if one.file != METADATA]
    if selection.ids is not None:
        meant = [one for one in found if one.id in selection.ids or agent_of(one) in selection.ids]
        require_known(memory, name, selection.ids, meant)
    else:
        meant = _described(memory, name, selection, found)
    _require_once(name, meant)
    problems += [f"{one.where}, line {one.line}: a record without an id fits too, and stays. Give it an id first."
                 for one in meant if not one.id]  # fmt: skip
    named = [one for one in meant if one.id]
    if selection.ids is not None:
        order = {memory_id: number for number, memory_id in enumerate(dict.fromkeys(selection.ids))}
        named.sort(key=lambda one: order.get(one.id, len(order)))
    return named


def _described(memory: Memory, name: str, selection: Selection, found: list[Holding]) -> list[Holding]:
    if selection.text is not None:
        wanted = selection.text.casefold()
        found = [one for one in found if any(wanted in text.casefold() for text in texts_of(one.value))]
    if not selection.asks_index:
        return found
    fitting = _fitting(memory, name, selection)
    meant = [one for one in found if _key(one) in fitting]
    agents = {agent_of(one) for one in meant if one.is_file} - {None}
    return [one for one in found if one in meant or (not one.is_file and agent_of(one) in agents)]


def _fitting(memory: Memory, name: str, selection: Selection) -> set[tuple[str, str, str]]:
    """Return the container or file, the type and the id of each memory that the index finds."""
    from ..ask.engine import is_about, keys_of
    from ..ask.options import wanted

    def question(view: View) -> set[tuple[str, str, str]]:
        want = wanted(
            view.now, view.policy, types=selection.types or None, tags=selection.tags or None, since=selection.since,
            until=selection.until, agents=None if selection.agent is None else [selection.agent],
        )  # fmt: skip
        return keys_of(view, want if selection.topic is None else want.also(is_about(view, selection.topic)))

    return memory._asker_of([name, *([] if name == GLOBAL else [archived_scope(name)])]).ask(question)


def _key(one: Holding) -> tuple[str, str, str]:
    return one.container.rpartition("/")[2] or one.file, one.type, one.id


def agent_of(one: Holding | Item) -> str | None:
    """Return the agent whose state it is, now or earlier; None for any other memory."""
    return id_of_file(one.file) if one.type == "agent_state" else None


def require_known(memory: Memory, name: str, ids: Collection[str], meant: list[Holding]) -> None:
    """Raise for the first id that names no memory, with what became of it."""
    known = {one.id for one in meant} | {agent_of(one) for one in meant}
    for memory_id in ids:
        if memory_id not in known:
            if memory_id == id_of_file(METADATA):
                raise Invalid(["the metadata of a session cannot be deleted: delete the session, or change them"])
            raise missing(memory._scope(name), memory_id)


def _require_once(name: str, meant: list[Holding]) -> None:
    """Raise where an id stands twice: of two such records, the other would answer again."""
    places: dict[tuple[str, str], list[str]] = {}
    for one in meant:
        if one.id and not one.is_file and one.place != "evicted" and agent_of(one) is None:
            places.setdefault((one.file, one.id), []).append(f"{one.file} line {one.line}")
    for (_, memory_id), known in places.items():
        if len(known) > 1:
            where = ", ".join(known)
            raise CorruptionDetected(f"{memory_id} stands more than once: {where}; nothing was deleted.", session_id=name)


def texts_of(value: Value) -> Iterator[str]:
    """Yield every text of a memory, numbers as they are written; without the decay that SMP counts."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name not in _BOOKKEEPING:
                yield from texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def selection(ids: str | Sequence[str] | None, **meant: Unpack[Meant]) -> Selection:
    """Return the selection of these ids or conditions. One text is a list of one."""
    return Selection(
        None if ids is None else _several(ids),
        meant.get("topic"),
        meant.get("agent"),
        meant.get("since"),
        meant.get("until"),
        _several(meant.get("types", ())),
        _several(meant.get("tags", ())),
        meant.get("text"),
    )


def _several(given: str | Sequence[str]) -> tuple[str, ...]:
    is_list = isinstance(given, Iterable) and not isinstance(given, (str, bytes))
    return tuple(given) if is_list else (given,)  # type: ignore[return-value]


def _is_empty(text: object) -> bool:
    return text is not None and not (isinstance(text, str) and text.strip())
