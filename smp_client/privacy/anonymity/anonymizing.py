"""Anonymising: a session or memories of it in place, or an export on its way out. Names become placeholders, structure stays.

In place it is a rewrite like any other: everywhere at once, what was there goes to `deleted/` as one batch, and a restore of that
batch undoes it; or it is erased at once. Which placeholder stood for whom is kept nowhere. It finds what it knows and what has a
shape of its own, and `CANNOT_FIND` says what that leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...errors import InvalidQuery, SMPError
from ...layout import ACTIVE, ARCHIVED, GLOBAL, QUARANTINE
from ...packing import read_members
from ...records import check_memory_id
from ...text.format import HEAD
from ...whereabouts import missing
from ..deleting.clearing import wipe_old_versions
from ..deleting.reworking import Change, rework
from ..deleting.selection import is_named
from ..deleting.standing import Contents, Standing, heads
from ..deleting.store import ANONYMIZATION, Deleted
from .acquaintance import Acquaintance, acquainted
from .names import PROJECT, USER
from .placeholders import Anonymization, Placeholders, Replacement
from .replacing import Replacing, Unreadable

if TYPE_CHECKING:
    from ...memory import Memory

CANNOT_FIND = (
    "Names that are not in the metadata, in the user's profile or given; nicknames, misspelt or bent names.",
    "Postal addresses, birthdays and descriptions; numbers of no usual form; what is in images, encoded or binary data.",
    "Ids, names of files and keys of mappings, other sessions, and what was deleted before: they stay.",
)
_LINES_CAP, _PLACES_CAP = 5, 3
_NAMES_CAP = 20  # for each of which every file is read
_NAMING = (USER, PROJECT, "email")


@dataclass(frozen=True)
class Anonymized:
    """What was replaced, or would be. `batch` restores it until its deadline, unless it was erased; `agents` took part and kept
    their names, since agents are no persons; `problems` says what may still hold names, in sentences, and `notes` which names
    were not looked for or stand elsewhere. `earlier` are originals of anonymisations before this one, which can still be restored;
    `now` erases them as well."""

    session: str
    memories: list[Deleted]
    replacements: list[Replacement]
    counts: dict[str, int]
    agents: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    earlier: list[Deleted] = field(default_factory=list)
    cannot_find: tuple[str, ...] = CANNOT_FIND
    batch: str = ""
    erased: bool = False
    dry_run: bool = False


def anonymize(
    memory: Memory, session: str, *, ids: Sequence[str] | None = None, names: Iterable[str] = (), projects: Iterable[str] = (),
    config: Anonymization | None = None, reason: str = "anonymised", by: str = "user", dry_run: bool = False, now: bool = False,
) -> Anonymized:  # fmt: skip
    """Replaces what names somebody in a session or in `global`, or in some memories of it; `now` erases what it was at once."""
    wanted = None if ids is None else [check_memory_id(one) for one in ids]
    run = _Run(memory, session, wanted, (tuple(names), tuple(projects)), config)
    done = rework(memory, session, run.changes, reason=reason, by=by, action=ANONYMIZATION, dry_run=dry_run)
    problems, notes = [*run.problems, *done.problems], run.known.told_passed_over()
    earlier = [] if wanted is not None else _earlier(memory, session, done.batch)
    if now and not dry_run:
        for batch in dict.fromkeys([*(one.batch for one in earlier), *([done.batch] if done else [])]):
            erased = memory.purge_now(session, batch=batch, by=by)
            problems += erased.problems
            notes += [note for note in erased.notes if note not in notes]
    if not dry_run and ids is None:
        problems += [*_wiped(memory, session), *_left(memory, session, run.placeholders, notes)]
    if not dry_run and now:
        notes += _elsewhere(memory, run.placeholders.replacements(telling=True))
    kept = done.batch if done and not dry_run and not now else ""
    return Anonymized(
        session, [one for one in done if one.id != HEAD], run.placeholders.replacements(telling=dry_run), run.placeholders.counts(),
        run.known.agents, list(dict.fromkeys(problems)), notes, earlier, batch=kept, erased=now and not dry_run, dry_run=dry_run,
    )  # fmt: skip


class _Run:
    """Which memories are changed to what; asked once, under the locks."""

    def __init__(
        self, memory: Memory, session: str, ids: Sequence[str] | None, given: tuple[Iterable[str], Iterable[str]],
        config: Anonymization | None,
    ) -> None:  # fmt: skip
        self._memory, self._session, self._ids, self._config = memory, session, ids, config
        self._given = given
        self.known = Acquaintance()
        self.placeholders = Placeholders(self.known.names(), config)
        self.problems: list[str] = []

    def changes(self, found: Sequence[Standing]) -> Iterator[Change]:
        every = [*found, *heads(Contents(self._memory, self._session))]
        self.known = acquainted(self._memory, found, *self._given)
        self.placeholders = Placeholders(self.known.names(), self._config)
        for one in every:
            self.placeholders.avoid(one.raw.decode("utf-8", "replace"))
        replacing = Replacing(self.placeholders, {self._session, *(one.id for one in found if not one.is_file)})
        self.problems += self._told_names(found)
        places = Counter(one.key for one in every)
        for one in self._chosen(every):
            try:
                new = replacing.standing(one)
            except Unreadable as error:
                self.problems.append(f"{one.container} cannot be read and was left as it is: {error}")
                continue
            if new is not None and (not one.id or places[one.key] > 1):
                why = f"{one.id} stands more than once" if one.id else "the record has no id"
                self.problems.append(f"{one.container}, line {one.line}: {why}, so it was left as it is.")
            elif new is not None:
                yield Change(one, new)

    def _chosen(self, every: Sequence[Standing]) -> list[Standing]:
        """What tells who is who comes first, so that it has the first placeholders."""
        if self._ids is not None:
            for memory_id in self._ids:
                if not any(is_named(one, [memory_id]) for one in every):
                    raise missing(self._memory._scope(self._session), memory_id)
        chosen = [one for one in every if self._ids is None or is_named(one, self._ids)]
        return sorted(chosen, key=lambda one: one.type not in ("metadata", "user_profile"))

    def _told_names(self, found: Sequence[Standing]) -> Iterator[str]:
        """Names that stand where nothing can be replaced."""
        if self.placeholders.finds(self._session):
            yield f"The id of the session {self._session} holds a known name, and stays."
        for file in dict.fromkeys(one.file for one in found if one.is_file or "/" in one.file):
            if self.placeholders.finds(file):
                yield f"The name of the file {file} holds a known name, and stays."


def _wiped(memory: Memory, session: str) -> list[str]:
    """Also what a file that named nobody any more was before."""
    contents = Contents(memory, session)
    return [] if contents.is_archived else wipe_old_versions(memory._scope(session), contents.files())


def _earlier(memory: Memory, session: str, batch: str) -> list[Deleted]:
    """What anonymisations before the one of this batch have left for a restore."""
    return [one for one in memory.deleted(session) if one.action == ANONYMIZATION and one.batch != batch]


def _elsewhere(memory: Memory, replacements: Iterable[Replacement]) -> Iterator[str]:
    """Where else a name stands that was replaced here: what `smp show --all-about` would find."""
    from ..seeking.everywhere import all_about

    whats = list(dict.fromkeys(one.what for one in replacements if one.what and one.kind in _NAMING))
    if len(whats) > _NAMES_CAP:
        yield f"Only {_NAMES_CAP} of {len(whats):,} names were looked for elsewhere; smp show --all-about finds the others."
    for what in whats[:_NAMES_CAP]:
        with suppress(InvalidQuery):
            found = list(dict.fromkeys(one.where for one in all_about(memory, what) if not one.problem))
            if found:
                more = f" and {len(found) - _PLACES_CAP:,} more" if len(found) > _PLACES_CAP else ""
                yield f"{what!r} still stands in {', '.join(found[:_PLACES_CAP])}{more}; smp show --all-about {what!r} shows all."


def _left(memory: Memory, session: str, placeholders: Placeholders, notes: list[str]) -> list[str]:
    """Where a known name still stands: in comments, in what cannot be read, in drops that nobody has taken in yet. What is left
    because it may mean something else is only a note."""
    problems: list[str] = []
    unsure: dict[str, list[str]] = {}
    for file, content in _files(memory, session, problems):
        text = content.decode("utf-8", "replace").replace(session, "")
        for name in placeholders.names_left(text):
            unsure.setdefault(name, []).append(file)
        if placeholders.finds(text):
            lines = [str(number) for number, line in enumerate(text.splitlines(), 1) if placeholders.finds(line)]
            where = f", line {', '.join(lines[:_LINES_CAP])}{' and more' if len(lines) > _LINES_CAP else ''}," if lines else ""
            problems.append(f"{file}{where} still holds a known name; edit it by hand.")
    notes += [f"{name!r} is short or also a word, so it was left where it is written small, in {', '.join(files[:_PLACES_CAP])}"
              f"{' and more' if len(files) > _PLACES_CAP else ''}." for name, files in unsure.items()]  # fmt: skip
    return problems


def _files(memory: Memory, session: str, problems: list[str]) -> Iterator[tuple[str, bytes]]:
    tree = memory.tree
    places = [GLOBAL] if session == GLOBAL else [f"{place}/{session}" for place in (ACTIVE, ARCHIVED)]
    for place in [*places, f"{QUARANTINE}/{session}"]:
        for file in tree.files_below(place):
            try:
                if file.endswith(".tar.gz"):
                    yield from ((f"{file}, {path}", content) for path, content in read_members(tree, file))
                else:
                    yield file, tree.read(file)
            except FileNotFoundError:
                continue
            except (SMPError, OSError) as error:
                problems.append(f"{file} cannot be read, and may hold names: {error}")
