"""Entries into a tree. A session that is not there is built aside and moved into its place in one step; one that is there gets what
it lacks in one transaction. So an import that is killed can simply be repeated, and one that is repeated adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..errors import NewerFormat, SMPError
from ..files import Tree
from ..layout import ACTIVE, GLOBAL
from ..maintain import purged as purged_file
from ..maintain.archive import is_archived, put_away_scope, settle
from ..maintain.removal import whole_deletion
from ..records import TURN
from ..session_files import METADATA, state_file
from ..text.version import is_versioned, require_known, stated, version_in
from . import placing
from .building import Building, Refused
from .entries import DELETED, HEADER, PROFILE, VERSION, Entry, content_of, problem_of
from .formats import Read
from .identity import with_digest
from .merge import Merge
from .merging import plan
from .names import note_of
from .purged import (
    TAKE_IN_ALL_THE_SAME,
    deletes_what_was_purged,
    is_here,
    is_purged,
    is_purged_session,
    named_by,
    purged_note,
    renumber,
)  # fmt: skip
from .reading import Transform

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..memory import Memory

_PROBLEMS_CAP = 1000
_IN_THE_SESSION = ("active", "archived")
_VERSIONED = {"session": "metadata", "file": "head", "state": "state", "profile": "profile"}  # entries, and what says a version


@dataclass
class Imported:
    """What an import came to, or would."""

    dry_run: bool = False
    sessions: dict[str, str] = field(default_factory=dict)  # what became of each: new, archived, merged, unchanged, refused
    added: int = 0  # memories
    changed: int = 0  # that were there, and say something else, or more, where they come from since
    differing: int = 0  # that stay as they are here, though they were changed there too
    skipped: int = 0  # that were there already
    deleted: int = 0  # memories that are deleted where they come from, and so here; they can be restored
    redacted: dict[str, int] = field(default_factory=dict)  # secrets that were taken out, by kind
    renamed: dict[str, dict[str, str]] = field(default_factory=dict)  # by session: old id, new id
    # By session: a new id, and the id there, which two had, or which can be none of ours.
    mapped: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what was left out, and need not trouble anybody
    problems: list[str] = field(default_factory=list)

    def problem(self, said: str) -> None:
        if len(self.problems) < _PROBLEMS_CAP:
            self.problems.append(said)
        elif len(self.problems) == _PROBLEMS_CAP:
            self.problems.append("and more")


class Importing:
    """Takes entries in; `take` each, then `end`."""

    def __init__(
        self, memory: Memory, name: str, *, dry_run: bool = False, transform: Transform | None = None, purged: bool = False
    ) -> None:
        self._memory, self._name, self._transform = memory, name, transform
        self.result = Imported(dry_run=dry_run)
        self._building: Building | None = None
        self._count = 0
        self._is_whole = False
        self._is_export = False
        self._aside = memory.tree
        self._purged, self._takes_back = purged_file.load(memory.tree), purged
        self._newer: NewerFormat | None = None  # why nothing of the session is taken in that is being built
        self._mapped: dict[str, tuple[str, str]] = {}  # of that session: the file of each new id, and the id there
        self._met: dict[str, set[tuple[str, str]] | None] = {}  # by session: see Building.met
        self._foreseen = placing.Foreseen()

    def take_all(self, given: Iterable[Read], advance: Callable[[], None] = lambda: None) -> Imported:
        with self._tree_aside():
            try:
                for one in given:
                    self.take(one)
                    advance()
                self.end()
            finally:
                if self._building:
                    self._building.discard()
        return self.result

    @contextmanager
    def _tree_aside(self) -> Iterator[None]:
        """Where sessions are built: beside their place, or, where nothing is to be changed, elsewhere."""
        if not self.result.dry_run:
            self._memory.create()
            yield
            return
        self._memory.require_room()
        import tempfile
        from pathlib import Path

        with tempfile.TemporaryDirectory(prefix="smp-import-") as directory:
            self._aside = Tree(Path(directory))
            yield

    def take(self, read: Read) -> None:
        where = f"{self._name}, line {read.line}: " if read.line else f"{self._name}: "
        entry = read.entry
        if entry is None:
            own = self._name.rpartition("/")[2]
            is_named = read.problem.startswith((f"{own}, ", f"{own}: ")) and not read.line
            self.result.problem(f"{self._name}{read.problem.removeprefix(own)}" if is_named else where + read.problem)
            return
        if HEADER in entry:
            self._check_version(entry[HEADER])
            return
        if not read.is_sound and (problem := problem_of(entry)) is not None:
            self.result.problem(where + problem)
            self._count += 1
            return
        if entry["entry"] == "end":
            self._is_whole = True
            if self._count != entry["entries"]:
                self.result.problem(f"{where}{entry['entries']:,} entries were written, and {self._count:,} were read.")
            return
        self._count += 1
        changed = self._transform(entry) if self._transform else entry
        if changed is not None:
            self._take_entry(changed, where)

    def _take_entry(self, entry: Entry, where: str) -> None:
        session = entry.get("session", GLOBAL)
        place = entry.get("place") if entry["entry"] != "bytes" or entry.get("place") in ("active", "archived") else None
        building = self._building
        if building is not None and (building.session != session or (place and building.place and place != building.place)
                                     or self._comes_again(building, entry)):  # fmt: skip
            self._settle()
            building = None
        try:
            if building is None:
                building = self._building = Building(self._aside, session, self._memory.options.clock())
                known = self._purged.get(session)
                building.purged, building.taken_back = (None, known) if self._takes_back else (known, None)
                building.met = self._met.setdefault(session, set())
                self._newer, self._mapped = None, {}
            building.place = building.place or place or ""
            if self._newer:
                return
            require_known_version(entry)
            if building.purged and is_purged(entry, building.purged) and not is_here(self._memory, session):
                building.left_out.append(str(named_by(entry)[1]))
                return
            building.take(self._with_digest(entry))
            if session == GLOBAL and not self._is_export:
                building.given.add((entry["entry"], *named_by(entry)))
            self._note_mapped(entry)
            if entry["entry"] == "bytes" and entry["place"] in _IN_THE_SESSION and is_versioned(file := str(entry["path"])):
                self._tell_newer(session, file, version_in(file, content_of(entry)))
        except NewerFormat as error:
            self._newer = error
        except (Refused, SMPError, OSError) as error:
            self.result.problem(f"{where}{error}")

    def _comes_again(self, building: Building, entry: Entry) -> bool:
        """Whether it begins anew in another place or layout: that is merged into it like a second import."""
        if self._is_export:
            return False
        if building.session != GLOBAL:
            return entry["entry"] == "session" and building.is_told
        return (entry["entry"], *named_by(entry)) in building.given

    def _with_digest(self, entry: Entry) -> Entry:
        if entry["entry"] != "memory" or self._is_export or (record := with_digest(entry["record"])) is entry["record"]:
            return entry
        return {**entry, "record": record}

    def _tell_newer(self, session: str, file: str, version: int) -> None:
        """It may be all that there is of it, so it is kept."""
        try:
            require_known(version, file)
        except NewerFormat as error:
            self.result.problem(f"{session}: {error}")

    def _note_mapped(self, entry: Entry) -> None:
        """Messages become turns with numbers, all of them; and an export of ours has its ids from long ago."""
        if entry["entry"] == "memory" and entry["file"] != TURN.file and not self._is_export:
            record = entry["record"]
            if isinstance(old := record.get("imported_id"), str):
                self._mapped[record["id"]] = entry["file"], old

    def _check_version(self, version: object) -> None:
        self._is_export = True
        if not isinstance(version, int) or version > VERSION:
            raise NewerFormat(f"{self._name} is an export of version {version!r}; this SMP knows versions up to {VERSION}.")

    def end(self) -> None:
        self._settle()
        if self._is_export and not self._is_whole:
            self.result.problem(f"{self._name} is cut off: it has no end.")

    # A session that is whole.

    def _settle(self) -> None:
        building, self._building = self._building, None
        if building is None:
            return
        session = building.session
        try:
            if self._newer:
                self.result.sessions[session] = "refused"
                self.result.problem(f"{session}: nothing of it is taken in: {self._newer}")
                return
            building.finish()
            for problem in building.problems:
                self.result.problem(f"{session}: {problem}")
            self._put(building)
            self.result.notes += [note for note in note_of(session) if note not in self.result.notes]
        except (SMPError, OSError) as error:
            self.result.sessions[session] = "refused"
            self.result.problem(f"{session}: {error}")
        finally:
            if self._foreseen.built.get(session) is not building:
                building.discard()

    def _put(self, building: Building) -> None:
        session, memory = building.session, self._memory
        if session == GLOBAL:
            self._merge(building)
            return
        if is_purged_session(memory, building):
            self.result.sessions[session] = "left out"
            self.result.notes.append(f"{session} was purged here, and is not taken in; {TAKE_IN_ALL_THE_SAME}.")
            return
        scope = put_away_scope(memory, session)
        dry_run = self.result.dry_run
        with nullcontext() if dry_run else scope.undisturbed("importing", may_be_new=True):
            if not dry_run:
                settle(memory, session)
            if session in self._foreseen.built or memory.tree.exists(f"{ACTIVE}/{session}"):
                self._merge(building)
            elif not memory.root.is_dir():
                self._place(building)
            elif building.has_session and is_archived(memory.tree, session):
                self._compare(building)
            elif building.has_session and whole_deletion(memory.tree, session) is not None:
                self.result.sessions[session] = "refused"
                self.result.notes.append(f"{session} is deleted here; smp restore {session}, and then it can be imported.")
            else:
                self._place(building)

    def _place(self, building: Building) -> None:
        """A session that is nowhere."""
        if building.place == "archived" and not building.has_session:
            building.place = ""
        if renamed := renumber(building, self._now()):
            self.result.renamed.setdefault(building.session, {}).update(renamed)
        note = placing.quota_note(self._memory, building)
        if not self.result.dry_run:
            try:
                placing.place(self._memory, building)
            except FileExistsError:
                # Another import, or whoever else makes a session of this id, was first.
                self._merge(building)
                return
        elif building.has_session:
            self._foreseen.built[building.session] = building
        self._met[building.session] = None
        self.result.notes += note
        if building.has_session or building.evictions:
            self._tell(building, "archived" if building.place == "archived" else "new", None)
        self._elsewhere(building)

    def _merge(self, building: Building) -> None:
        merge = (self._foreseen.merge if self.result.dry_run else placing.merge)(self._memory, building)
        self._tell(building, "unchanged" if merge.is_empty else "merged", merge)
        self._elsewhere(building)

    def _compare(self, building: Building) -> None:
        """With one that is in the archive: nothing is added there, so that a second import of all adds nothing either."""
        merge = plan(building, placing.standing_in_archive(self._memory, building.session), self._now())
        if merge.lacking or merge.copies:
            self.result.sessions[building.session] = "refused"
            lacks = "1 memory is" if merge.lacking == 1 else f"{merge.lacking:,} memories are" if merge.lacking else "a file is"
            self.result.problem(f"{building.session} is archived here, and {lacks} not in it; smp unarchive {building.session},"
                                " and then it can be imported.")  # fmt: skip
            return
        merge.whole.clear()
        self._tell(building, "unchanged", merge)
        self._elsewhere(building)

    def _elsewhere(self, building: Building) -> None:
        if building.left_out:
            self.result.notes.append(f"{building.session}: {purged_note(building.left_out)}")
        without = (DELETED,) if deletes_what_was_purged(building) else ()
        if without:
            self.result.notes.append(f"{building.session}: what was deleted of it holds memories that were purged here, and is not"
                                     f" taken in; {TAKE_IN_ALL_THE_SAME}.")  # fmt: skip
        for problem in placing.place_elsewhere(self._memory, building, dry_run=self.result.dry_run, without=without):
            self.result.problem(f"{building.session}: {problem}")

    def _tell(self, building: Building, became: str, merge: Merge | None) -> None:
        result, session = self.result, building.session
        before = result.sessions.get(session)
        is_new = before in ("new", "archived") and became == "merged"
        # What another program is set to is kept beside what is global, and is nothing of that.
        if before or session != GLOBAL or merge is None or merge.is_about_memories:
            result.sessions[session] = before if before and (is_new or became == "unchanged") else became
        added = {value["id"] for values in merge.added.values() for value in values} if merge else set()
        mapped = {new: old for new, (file, old) in self._mapped.items() if not merge or file in merge.whole or new in added}
        if mapped:
            result.mapped.setdefault(session, {}).update(mapped)
        if merge is None:
            result.added += building.memories
            return
        result.added += merge.count
        result.changed += sum(map(len, merge.changed.values()))
        result.differing += merge.differing
        result.skipped += merge.skipped
        if merge.renamed:
            result.renamed.setdefault(session, {}).update(merge.renamed)
        result.notes += [f"{session}: {note}" for note in merge.notes]
        for problem in merge.problems:
            result.problem(f"{session}: {problem}")

    def _now(self) -> datetime:
        return self._memory.options.clock()


def require_known_version(entry: Entry) -> None:
    """Raises NewerFormat where a later SMP has written what an entry holds: it could mean something else. Whole files that travel
    as their bytes come as they are, and are refused by whoever reads them."""
    part = _VERSIONED.get(entry["entry"])
    if part and isinstance(said := entry.get(part), dict):
        named = {"session": METADATA, "profile": PROFILE, "state": state_file(str(entry.get("agent")))}
        file = named.get(entry["entry"]) or str(entry.get("file"))
        require_known(stated(said.get("Format-Version" if file == TURN.file else "version")), file)


def import_entries(memory: Memory, given: Iterable[Entry], name: str, **options: Any) -> Imported:
    """What another layout was turned into: see entries.py."""
    return Importing(memory, name, **options).take_all(Read(0, entry) for entry in given)


__all__ = ["Imported", "Importing", "import_entries"]
