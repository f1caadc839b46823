"""Which memories are meant: by id, or by everything else that can be said of them; and deleting just these."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import CorruptionDetected, Invalid, InvalidQuery, SessionNotFound, SMPError
from ...layout import DELETED, GLOBAL
from ...maintain.putting_back import stands_in
from ...questions.when import When
from ...records import TURN, check_memory_id
from ...session_files import METADATA
from ...text.values import Value
from ...whereabouts import missing
from .reworking import Change, Reworked, new_batch, rework
from .standing import EVICTED, Standing, id_of_file, is_record_file, names_with_memories, standing
from .store import check_said

if TYPE_CHECKING:
    from ...memory import Memory

_TEXTS = ("topic", "agent", "text")
_OF_ITSELF = (DELETED, "derived", "retired", "journal", "leaving")  # places that hold it on purpose, or that deleting clears itself
_LISTED = 5


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
        return bool(self.types or self.tags) or any(
            value is not None for value in (self.topic, self.agent, self.since, self.until, self.text)
        )

    def check(self) -> None:
        """Raises Invalid where it could mean more than whoever gave it knows."""
        problems = [f"{name!r} must be a text that is not empty" for name in _TEXTS if not _says_something(getattr(self, name))]
        problems += ["a tag must be a text that is not empty" for tag in self.tags if not _says_something(tag)]
        if self.ids is not None and self.has_conditions:
            problems.append("ids and conditions cannot be given together: memories are named, or described")
        if self.ids is None and not self.has_conditions:
            problems.append("it must be said which memories: their ids, or what they have in common")
        if problems:
            raise Invalid(problems)
        for memory_id in self.ids or ():
            check_memory_id(memory_id)


def _says_something(text: object) -> bool:
    return text is None or (isinstance(text, str) and bool(text.strip()))


def delete(
    memory: Memory, name: str, selection: Selection, *, reason: str, by: str, dry_run: bool = False, batch: str = "",
    is_undisturbed: bool = False,
) -> Reworked:  # fmt: skip
    """Of one memory every copy that is kept goes, whichever of them the selection names."""
    selection.check()
    unnamed: list[str] = []
    done = rework(memory, name, lambda found: map(Change, chosen(memory, name, selection, found, unnamed)), reason=reason, by=by,
                  dry_run=dry_run, batch=batch, is_undisturbed=is_undisturbed)  # fmt: skip
    done.problems += unnamed
    if not batch:
        _tell_what_is_left(memory, selection, name, {name: done}, batch=done.batch, dry_run=dry_run)
    return done


def _tell_what_is_left(
    memory: Memory, selection: Selection, name: str | None, done: dict[str, Reworked], *, batch: str, dry_run: bool
) -> None:
    """Whoever names nothing but a text wants it gone: where it stands in no memory, or in what cannot be read, is told."""
    if selection.text is None or selection != Selection(text=selection.text):
        return
    from ..seeking.everywhere import all_about

    places: dict[str, dict[str, None]] = {}
    with suppress(InvalidQuery):  # too short to be looked for in what is no memory
        for one in all_about(memory, selection.text, name):
            session = one.session or name or GLOBAL
            is_going = dry_run and one.id in {item.id for item in done.get(session, ())}
            if one.place in _OF_ITSELF or is_going:
                continue
            if one.problem:
                done.setdefault(session, Reworked(batch=batch)).problems.append(f"{one.where}: {one.problem}")
            else:
                places.setdefault(session, {})[one.where] = None
    for session, found in places.items():
        listed = ", ".join([*found][:_LISTED]) + (f" and {len(found) - _LISTED} more" if len(found) > _LISTED else "")
        done.setdefault(session, Reworked(batch=batch)).notes.append(
            f"{session}: the text also stands in what is no memory, or cannot be read as one, and stays there: {listed}."
        )


def wanted_by(memory: Memory, selection: Selection) -> Callable[[str, str, str, Mapping[str, Value]], bool]:
    """Whether a memory is meant, for an export: by its session, file, type and fields. Each session is looked through once."""
    selection.check()
    known: dict[str, set[tuple[str, str]]] = {}

    def is_wanted(name: str, file: str, _type: str, value: Mapping[str, Value]) -> bool:
        if name not in known:
            meant = chosen(memory, name, selection, [*standing(memory, name, [])])
            known[name] = {(one.file, "" if one.is_file else one.id) for one in meant}
        return (file, str(value.get("id")) if is_record_file(file) else "") in known[name]

    return is_wanted


def delete_everywhere(
    memory: Memory, selection: Selection, *, reason: str, by: str, dry_run: bool = False
) -> dict[str, Reworked]:
    """The same in `global` and in every session, archived or not, under one batch: what came of it where there was something.

    What cannot be done in one of them stops no other.
    """
    if selection.ids is not None:
        raise Invalid(["the same ids are given in every session: say in which one, or what the memories have in common"])
    selection.check()
    check_said(reason, by)
    memory.require()
    _fitting(memory, selection, [])  # which raises for what makes no sense anywhere
    batch = new_batch(memory)
    done: dict[str, Reworked] = {}
    for name in names_with_memories(memory):
        try:
            one = delete(memory, name, selection, reason=reason, by=by, dry_run=dry_run, batch=batch)
        except SessionNotFound:
            continue  # it went meanwhile
        except (SMPError, OSError) as error:
            one = Reworked(batch=batch, problems=[f"{name}: {error}"])
        if one or one.problems:
            done[name] = one
    _tell_what_is_left(memory, selection, None, done, batch=batch, dry_run=dry_run)
    return done


def chosen(
    memory: Memory, name: str, selection: Selection, found: Sequence[Standing], problems: list[str] | None = None
) -> Iterator[Standing]:
    """Those that are meant, with every other copy of the same memory; adds to `problems` those that fit and have no id."""
    selection.check()
    meant = _named(memory, name, selection.ids, found) if selection.ids is not None else _fitting(memory, selection, found)
    for one in meant:
        if not one.id and problems is not None:
            problems.append(f"{one.container}, line {one.line}: a record without an id fits too, and stays. Give it an id and"
                            " delete again, or take it out by hand.")  # fmt: skip
    places = {_memory(one) for one in meant if one.id}
    every = [one for one in found if _memory(one) in places]
    if selection.ids is not None:
        order = {memory_id: number for number, memory_id in enumerate(dict.fromkeys(selection.ids))}
        every.sort(key=lambda one: order.get(one.id, len(order)))
    yield from every


def _memory(one: Standing) -> tuple[str, str, bool]:
    """The same for every copy of a memory. A summary has the id of the first of the turns that it stands for, and is not it."""
    return one.file, one.id, one.file == TURN.file and stands_in(TURN, one.value)


def is_named(one: Standing, ids: Collection[str]) -> bool:
    """Whether one of these ids means it; what an agent's state was earlier goes with the state."""
    return one.file != METADATA and (one.id in ids or agent_of(one) in ids)


def agent_of(one: Standing) -> str | None:
    """Whose state it is, now or earlier; None for what is none."""
    return id_of_file(one.file) if one.type == "agent_state" else None


def _named(memory: Memory, name: str, ids: Sequence[str], found: Sequence[Standing]) -> list[Standing]:
    wanted = dict.fromkeys(ids)
    meant = [one for one in found if is_named(one, wanted)]
    known = {one.id for one in meant} | {agent_of(one) for one in meant}
    for memory_id in wanted:
        if memory_id in known:
            continue
        if memory_id == id_of_file(METADATA) and any(one.file == METADATA for one in found):
            raise Invalid(["the metadata of a session cannot be deleted: delete the session, or change them"])
        raise missing(memory._scope(name), memory_id)
    _require_once(name, meant)
    return meant


def _require_once(name: str, meant: Sequence[Standing]) -> None:
    """Of two records with one id, the other would answer again."""
    places: dict[str, list[str]] = {}
    for one in meant:
        if one.place != EVICTED and not one.is_file and agent_of(one) is None:
            places.setdefault(one.id, []).append(f"{one.file} line {one.line}")
    for memory_id, known in places.items():
        if len(known) > 1:
            where = ", ".join(known)
            raise CorruptionDetected(f"{memory_id} stands more than once: {where}; nothing was deleted.", session_id=name)


def _fitting(memory: Memory, selection: Selection, found: Sequence[Standing]) -> list[Standing]:
    from .fitting import fitting

    return fitting(found, selection, memory.options.clock())

