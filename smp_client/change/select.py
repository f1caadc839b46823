"""The choice of memories: by their ids, or by everything else that can be said of them.

A topic, an agent, a type, a tag or a time means in a deletion what it means in a question, because
the index is asked in both. A text is sought in the memories themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..ask.argument import When
from ..ask.engine import is_about, keys_of
from ..ask.options import wanted
from ..disk.bundle import Item
from ..disk.place import archived_scope
from ..disk.session_files import METADATA
from ..model.errors import CorruptionDetected, Invalid
from ..model.layout import GLOBAL
from ..model.record import check_memory_id
from ..text.values import Value
from .holdings import KEPT, Holding, holdings, id_of_file, in_use, is_in_use, missing

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
            check_memory_id(memory_id)

    @property
    def asks_index(self) -> bool:
        """Return whether a condition is one that the index answers."""
        given = (self.topic, self.agent, self.since, self.until)
        return bool(self.types or self.tags) or any(value is not None for value in given)


def several(given: str | Iterable[str]) -> tuple[str, ...]:
    """Return one text as a list of one, not as the list of its letters."""
    is_list = isinstance(given, Iterable) and not isinstance(given, (str, bytes))
    return tuple(given) if is_list else (given,)  # type: ignore[return-value]


def chosen(
    memory: Memory, name: str, selection: Selection, problems: list[str] | None = None
) -> list[Holding]:
    """Return the memories that are meant, in every place where one is kept.

    Earlier states of an agent go with its state. A record without an id that fits is reported.
    """
    problems, ids = [] if problems is None else problems, selection.ids
    if ids is not None and is_in_use(memory, name) and not memory.tree.list(archived_scope(name)):
        quickly = in_use(memory, name, ids)
        if {one.id for one in quickly} == {*ids}:
            return quickly
    found = [one for one in holdings(memory, name, KEPT, problems) if one.file != METADATA]
    if ids is None:
        meant = _described(memory, name, selection, found)
    else:
        meant = [one for one in found if one.id in ids or agent_of(one) in ids]
        require_known(memory, name, ids, meant)
        order = {memory_id: number for number, memory_id in enumerate(ids)}
        meant.sort(key=lambda one: order.get(one.id, len(order)))
    lines: dict[tuple[str, str], int] = {}
    for one in meant:
        if not one.id:
            why = "a record without an id fits too, and stays. Give it an id first"
            problems.append(f"{one.where}, line {one.line}: {why}.")
        elif one.line and not one.is_file and agent_of(one) is None:
            first = lines.setdefault((one.file, one.id), one.line)
            if first != one.line:  # the other one would answer again
                where = f"{one.file} line {first}, {one.file} line {one.line}"
                raise CorruptionDetected(f"{one.id} stands more than once: {where}; nothing was"
                                         " deleted.", session_id=name)  # fmt: skip
    return [one for one in meant if one.id]


def _described(
    memory: Memory, name: str, selection: Selection, found: list[Holding]
) -> list[Holding]:
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
    agents = {agent_of(one) for one in meant if one.is_file} - {None}
    return [one for one in found if one in meant or (not one.is_file and agent_of(one) in agents)]


def agent_of(one: Holding | Item) -> str | None:
    """Return the agent whose state it is, now or earlier; None for any other memory."""
    return id_of_file(one.file) if one.type == "agent_state" else None


def require_known(memory: Memory, name: str, ids: Collection[str], meant: list[Holding]) -> None:
    """Raise for the first id that names no memory, with its state."""
    known = {one.id for one in meant} | {agent_of(one) for one in meant}
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
