"""What a session that is there already gets of an import: a plan, which decides, and an apply, which only does it.

A memory that is there with the same id and says the same is skipped; how much it still matters does not count. One whose id nobody
has is added with its id. One whose id belongs to another memory gets a new one, and keeps the old one as `imported_id`, by which it
is known the next time; so is what comes with an `imported_id`, whatever number it has got this time. What was deleted here is not
brought back, and what was changed here stays as it is. What was changed where it comes from, and not here, is changed here too;
so is what a log says at greater length than before: it has grown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

from ..append import with_id
from ..layout import GLOBAL
from ..records import (
    GLOBAL_KINDS,
    RELATIONSHIP,
    SESSION_KINDS,
    STATE_HISTORY,
    TURN,
    Kind,
    is_counted,
    is_deleted,
    kind_of_file,
    state_history,
)  # fmt: skip
from ..scopes import ARTIFACTS, STATES
from ..session_files import METADATA, state_file
from ..text.format import format_of
from ..text.values import Value
from .building import Building
from .entries import PROFILE, kind_of
from .identity import (
    DIGEST,
    IMPORTED,
    IMPORTED_ID,
    digest_of,
    has_grown,
    is_alike,
    is_another,
    is_as_it_came,
    is_changed_here,
    is_from_log,
    is_same,
    is_same_in_words,
    known_as,
    longer,
    notes_of,
    referring,
    renewed,
    said,
)  # fmt: skip
from .merge import Merge, Standing, Values
from .merging_files import OtherFiles, stem


def plan(building: Building, standing: Standing, at: datetime) -> Merge:
    return _Plan(building, standing, at).made()


def wanted_files(building: Building) -> set[str]:
    """The files that a writer locks, as far as they are read or written when it is merged."""
    files = building.files()
    agents = {agent for file in files if (agent := stem(file, STATES, ".yaml"))}
    locked = {file for file in files if file in (METADATA, PROFILE) or kind_of(building.session, file)}
    locked |= {file for file in files if stem(file, ARTIFACTS, ".md")}
    return locked | {file for agent in agents for file in (state_file(agent), state_history(agent).file)}


class _Coming(NamedTuple):
    """A memory, and those that are there which it could be."""

    kind: Kind
    value: Values
    same_id: list[Values]
    others: list[Values]  # that were known by one of its names before, or have the one that it had
    has_id: bool

    @property
    def memory_id(self) -> str:
        return str(self.value.get("id"))

    @property
    def known(self) -> list[Values]:
        return [one for one in self.same_id if not is_another(self.kind, one, self.value)] + self.others


class _Plan:
    def __init__(self, building: Building, standing: Standing, at: datetime) -> None:
        self._building, self._standing, self._at = building, standing, at
        self._merge = Merge()
        self._numbers: dict[str, int] = {}
        self._doubtful: list[tuple[Kind, Values, list[Values]]] = []
        self._gone: list[str] = []
        self._changed: list[str] = []  # here
        self._changed_in_both, self._differing = list[str](), list[str]()  # the latter where nothing tells on which side
        self._changed_there: list[tuple[Kind, Values, Values]] = []  # what stands here, and what it is there
        self._grown: list[str] = []
        self._absent: set[str] = set()  # files that are not there, and of which nothing is to be left out
        self._ids: dict[str, Collection[str]] = {}  # by file: of what stands there
        self._waiting: dict[str, list[Values]] = {}  # what is added, while it is not yet known which ids change

    def made(self) -> Merge:
        merge, building = self._merge, self._building
        files = building.files()
        records = [(file, kind) for file in files if (kind := kind_of(building.session, file))]
        for file, kind in records:
            self._compare(kind, building.read(file), self._standing.read(file))
        for _, kind in records:
            self._doubt_ids_of_other_kinds(kind)
        self._settle_doubts()
        for kind, here, value in self._changed_there:
            self._change(kind, here, renewed(here, referring(value, merge.renamed)))
        for file, values in self._waiting.items():
            changed = [referring(value, merge.renamed) for value in values]
            if file in self._absent and not merge.renamed:
                merge.whole[file] = building.read(file)
            else:
                merge.added[file] = changed
            merge.count += sum(is_counted(kind_of_file(file), value) for value in changed)
            for value in changed:
                self._meet(file, value)
        others = OtherFiles(building, self._standing, self._at, merge, self._gone, self._numbers)
        for file in files:
            if kind_of(building.session, file) is None:
                others.take(file, building.read(file), self._standing.read(file))
        self._tell_what_stays()
        merge.differing = len(self._changed_in_both) + len(self._differing)
        return merge

    def _tell_what_stays(self) -> None:
        there = [str(here["id"]) for _, here, _ in self._changed_there]
        for ids, what in ((self._gone, "deleted or anonymised here, and not brought back; smp restore does that."),
                          (self._changed, "changed here since, and left as it is here."),
                          (self._changed_in_both, "changed here and where it comes from, and left as it is here."),
                          (self._differing, "says something else where it comes from, and is left as it is here."),
                          (there, "changed where it comes from since, and so here."),
                          (self._grown, "longer than before; what is new was added to it.")):  # fmt: skip
            if ids:
                self._merge.notes.append(f"{', '.join(ids[:5])}{f' and {len(ids) - 5:,} more' if len(ids) > 5 else ''}: {what}")

    # Records.

    def _compare(self, kind: Kind, content: bytes, there: bytes | None) -> None:
        form = format_of(kind)
        found, known = form.parse(content), form.parse(there or b"")
        incoming = sorted(found.records, key=lambda record: record.start)
        by_id: dict[str, list[Values]] = {}
        by_name: dict[str, list[Values]] = {}
        evicted = [value for (file, _), values in self._standing.evicted.items() if file == kind.file for value in values]
        for record in known.records:
            by_id.setdefault(str(record.value.get("id")), []).append(record.value)
        for value in [*(record.value for record in known.records), *evicted]:
            for name in known_as(kind, value):
                by_name.setdefault(name, []).append(value)
        self._ids[kind.file] = by_id.keys()
        last, own = form.highest(found, content), self._standing.highest(kind, there or b"")
        self._numbers[kind.file] = max(last, own)
        if last > own:
            self._merge.last[kind.file] = last

        def of_id(memory_id: str) -> list[Values]:
            return by_id.get(memory_id, []) + self._standing.evicted.get((kind.file, memory_id), [])

        left: list[_Coming] = []
        for record in incoming:
            memory_id, value = str(record.value.get("id")), record.value
            same_id = of_id(memory_id)
            names = known_as(kind, value)
            others = [one for name in (memory_id, *sorted(names)) for one in by_name.get(name, ()) if one not in same_id]
            others += [one for name in sorted(names - {memory_id}) for one in of_id(name)]
            one = _Coming(kind, value, same_id, others, record.has_id)
            if not self._is_known(one):
                left.append(one)
        for one in left:  # what is there as it is cannot be another one as well
            if here := next((here for here in by_id.get(one.memory_id, ()) if has_grown(kind, here, one.value)), None):
                self._grown.append(one.memory_id)
                self._change(kind, here, longer(kind, here, one.value))
            elif not self._is_changed(one, by_id):
                self._sort_in(one)
        if there is None and len(self._waiting.get(kind.file, ())) == len(incoming):
            self._absent.add(kind.file)
        if there is None and not incoming:
            self._merge.whole[kind.file] = content  # with no record, but with a head
        elif there is not None and (bad := self._building.bad.get(kind.file)):
            pieces = [content[piece.start : piece.end] for piece in found.bad]
            if not pieces or any(piece not in there for piece in pieces):
                self._merge.problems.append(f"{kind.file}: {bad} pieces that are no records were left out.")

    def _is_known(self, one: _Coming) -> bool:
        """Whether it is there, and as it is: it says the same, or did so when it came."""
        kind, value = one.kind, one.value
        if any(is_same(here, value) for here in one.same_id) or (one.same_id and is_deleted(kind, value)):
            self._merge.skipped += is_counted(kind, value)
            self._meet(kind.file, value)
            return True
        if not one.has_id:
            self._merge.problems.append(f"{kind.file}: a record without an id was left out.")
            return True
        # What a relationship says is what it refers to. All else may refer to what is gone, there or here.
        known = one.others if kind is RELATIONSHIP else one.known
        if known and (own := said(value)) and (here := next((here for here in known if said(here) == own), None)):
            self._skip(one, here)
            return True
        came = {str(notes_of(here)[DIGEST]): here for here in one.known if DIGEST in notes_of(here) and not is_deleted(kind, here)}
        if came and (here := came.get(digest_of(value))):
            self._changed.append(str(here["id"]))
            self._skip(one, here)
            return True
        return False

    def _is_changed(self, one: _Coming, by_id: Mapping[str, list[Values]]) -> bool:
        """Whether it is there, and somebody has changed it, here or there: known by its id and its time."""
        kind, value = one.kind, one.value
        for here in one.known:
            if here.get("timestamp") is None or here["timestamp"] != value.get("timestamp") or is_deleted(kind, here):
                continue
            is_first = not self._is_met(kind.file, here)
            if not is_first and IMPORTED in here and IMPORTED in value and is_same_in_words(here, value):
                self._skip(one, here)  # the same session in another layout
                return True
            as_it_came = is_as_it_came(here)
            if is_first and as_it_came and is_alike(kind, here, value) and here in by_id.get(str(here["id"]), ()):
                self._changed_there.append((kind, here, value))
                self._skip(one, here)
                self._merge.skipped -= 1
                return True
            if is_first and not as_it_came and is_changed_here(kind, here, value):
                is_unsaid = "updated_at" not in here and (is_from_log(here) or IMPORTED not in here)
                changed = self._differing if is_unsaid else self._changed
                (changed if as_it_came is None else self._changed_in_both).append(str(here["id"]))
                self._skip(one, here)
                return True
        return False

    def _skip(self, one: _Coming, here: Values) -> None:
        if one.memory_id != here["id"]:
            self._merge.renamed[one.memory_id] = str(here["id"])
        self._merge.skipped += 1
        self._meet(one.kind.file, here)

    def _meet(self, file: str, here: Mapping[str, Value]) -> None:
        if self._building.met is not None:
            self._building.met.add((file, str(here.get("id"))))

    def _is_met(self, file: str, here: Mapping[str, Value]) -> bool:
        """Whether another one that comes is it."""
        return self._building.met is None or (file, str(here.get("id"))) in self._building.met

    def _change(self, kind: Kind, here: Values, new: Values) -> None:
        self._merge.changed.setdefault(kind.file, {})[str(here["id"])] = new
        self._meet(kind.file, here)

    def _sort_in(self, one: _Coming) -> None:
        kind, value, same_id, memory_id = one.kind, one.value, one.same_id, one.memory_id
        if self._building.purged and self._building.purged.holds(kind.file, value) and not is_deleted(kind, value):
            self._building.left_out.append(memory_id)
        elif self._building.taken_back and self._building.taken_back.holds(kind.file, value):
            # Of a turn the number stands, and nobody else gets it.
            self._doubtful.append((kind, value, same_id)) if same_id else self._waiting.setdefault(kind.file, []).append(value)
        elif self._is_gone(kind, memory_id, value, same_id):
            self._gone.append(memory_id)
        elif same_id or (kind.file, memory_id) in self._standing.deleted or self._was_purged(kind, value):
            self._doubtful.append((kind, value, same_id))
        else:
            self._waiting.setdefault(kind.file, []).append(value)

    def _was_purged(self, kind: Kind, value: Values) -> bool:
        """Whether another one of this id went for good: its number is not given again."""
        known = self._building.purged or self._building.taken_back
        return known is not None and known.when(kind.file, str(value["id"])) is not None and not is_deleted(kind, value)

    def _is_gone(self, kind: Kind, memory_id: str, value: Values, same_id: list[Values]) -> bool:
        """Whether it was deleted here. One of another time only has the number of one that was."""
        names, times = known_as(kind, value), set[Value]()
        if kind is not TURN or not names or (kind.file, memory_id) not in self._standing.deleted_named:
            names |= {memory_id}
            times |= {one.get("timestamp") for one in same_id if is_deleted(kind, one)}
            times |= self._standing.deleted.get((kind.file, memory_id), set())
        for name in names:
            times |= self._standing.deleted_before.get((kind.file, name), set())
        return value.get("timestamp") in times

    def _doubt_ids_of_other_kinds(self, kind: Kind) -> None:
        """Here an id is given once. Others count each kind for itself, and may number what two have otherwise the next time."""
        waiting = self._waiting.get(kind.file, [])
        if kind.file.startswith(STATE_HISTORY) or all(str(value["id"]).startswith(f"{kind.prefix}-") for value in waiting):
            return
        for other in GLOBAL_KINDS if self._building.session == GLOBAL else SESSION_KINDS:
            if other.file not in self._ids:
                records = format_of(other).parse(self._standing.read(other.file) or b"").records
                self._ids[other.file] = {str(record.value.get("id")) for record in records}
        others = [ids for file, ids in self._ids.items() if file != kind.file and not file.startswith(STATE_HISTORY)]
        taken = {str(value["id"]) for value in waiting if any(str(value["id"]) in ids for ids in others)}
        if taken:
            self._doubtful += [(kind, value, []) for value in waiting if value["id"] in taken]
            self._waiting[kind.file] = [value for value in waiting if value["id"] not in taken]

    def _settle_doubts(self) -> None:
        """Of those whose id is taken: a relationship that differs only because what it refers to has got another id is there."""
        # Others first: they may be what it refers to.
        for kind, value, same_id in sorted(self._doubtful, key=lambda one: any(said(here) == said(one[1]) for here in one[2])):
            if any(is_same(one, referring(value, self._merge.renamed)) for one in same_id):
                self._merge.skipped += 1
            else:
                self._rename(kind, value)

    def _rename(self, kind: Kind, value: Values) -> None:
        old = str(value["id"])
        self._numbers[kind.file] += 1
        fields = {name: part for name, part in value.items() if name not in ("id", "turn")}
        new = {**with_id(kind, self._numbers[kind.file], fields), IMPORTED_ID: old}
        self._merge.renamed[old] = str(new["id"])
        self._waiting.setdefault(kind.file, []).append(new)
