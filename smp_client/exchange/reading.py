"""A tree as entries: one file after the other, so that it takes the memory of the largest file, not of the tree.

No lock is taken, as by any reader. Only the sessions of an archive are read twice: once to see that all of it is whole, since what
has been given out cannot be taken back. What cannot be understood travels as its bytes. What cannot be read at all is named in
`problems`, and everything else is given out all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .. import journal
from ..errors import Invalid, SessionNotFound, SMPError
from ..files import DEEPEST
from ..fingerprint import hash_of
from ..layout import ACCESS_LOG, ARCHIVED, DELETED, GLOBAL, QUARANTINE, check_session_id, is_file_id
from ..layout import ACTIVE as ACTIVE_DIRECTORY
from ..maintain import evictions
from ..maintain.archive import ARCHIVE, ARCHIVING, NEXT_SUMMARY, RESTORING, SUMMARY, checked, is_archived, load_summary, members_of
from ..maintain.putting_back import value_of
from ..packing import read_members
from ..records import SESSION_KINDS, Kind, is_deleted
from ..scope import Scope
from ..scopes import ARTIFACTS, STATES
from ..session_files import METADATA
from ..text.format import present
from ..text.values import Value
from . import entries as kinds_of_entries
from .entries import ACTIVE, BESIDE, PROFILE, Entry, file_bytes, header, kind_of, made, storable_problem
from .pieces import Piece, Pieces, is_written, render, take_apart, take_artifact, take_mapping, take_values

if TYPE_CHECKING:
    from ..files import Tree
    from ..memory import Memory

# Whether a memory is wanted: of which session, in which file, of which type, and its fields.
Wanted = Callable[[str, str, str, dict[str, Value]], bool]
Transform = Callable[[Entry], Entry | None]  # on its way out; None leaves it out

_INDEXES = "indexes/"
_PACKING = ("state", "directory", "total_bytes", "archive", "members")  # what a summary says of how it was packed
_QUOTED = ("decisions", "open_findings", "preferences", "learnings", "last_turns")  # what a summary quotes, with ids
_TOLD = ("topics", "participants", "memories", "sizes", "first_activity", "last_activity")  # and what it says of all of them
_ORDER = {METADATA: 0, **{kind.file: rank for rank, kind in enumerate(SESSION_KINDS, 1)}}
_MOVED = "moved or changed while it was exported; export it again"


class Reading:
    """What is to be exported; `entries` gives it out. Raises SessionNotFound at once where a session is nowhere."""

    def __init__(
        self, memory: Memory, sessions: Sequence[str] | None = None, *, wanted: Wanted | None = None,
        transform: Transform | None = None, deleted: bool = False,
    ) -> None:  # fmt: skip
        memory.require()
        self.problems: list[str] = []
        self._memory, self._tree = memory, memory.tree
        self._wanted, self._transform, self._deleted = wanted, transform, deleted
        # A selection, or what is changed on its way, must not carry the bytes of what it leaves out.
        self._exact = wanted is None and transform is None
        self.with_global = sessions is None or GLOBAL in sessions
        self.sessions = self._all() if sessions is None else self._named(sessions)

    def entries(self, advance: Callable[[], None] = lambda: None) -> Iterator[Entry]:
        """Header, what holds everywhere, the sessions by their ids, end. `advance` is called after each session."""
        count = 0
        yield header()
        for entry in self._given(advance):
            changed = self._transform(entry) if self._transform else entry
            if changed is not None:
                count += 1
                yield changed
        yield made("end", entries=count)

    def _given(self, advance: Callable[[], None]) -> Iterator[Entry]:
        if self.with_global:
            yield from self._chosen(self._everywhere())
        for name in self.sessions:
            try:
                yield from self._chosen(self._session(name))
            except SessionNotFound:
                self.problems.append(f"{name}: {_MOVED}.")
            except (SMPError, OSError) as error:
                self.problems.append(f"{name}: {error}")
            advance()

    def _chosen(self, given: Iterator[Entry]) -> Iterator[Entry]:
        """Of a selection: a session, and a file, only where something of it is wanted."""
        held: list[Entry] = []
        for entry in given:
            kind = entry["entry"]
            if self._wanted is None:
                yield entry
            elif kind in ("session", "file"):
                held = [one for one in held if one["entry"] == "session"] + [entry]
            elif kind != "archive" or not any(one["entry"] == "session" for one in held):
                yield from held
                held = []
                yield entry

    # Which sessions there are.

    def _all(self) -> list[str]:
        places = [ACTIVE_DIRECTORY, ARCHIVED, *([QUARANTINE] if self._exact else []), *([DELETED] if self._deleted else [])]
        found = {name for place in places for name in self._directories(place)}
        return sorted(found - {GLOBAL})

    def _named(self, sessions: Sequence[str]) -> list[str]:
        from ..put_away import missing

        names = [check_session_id(name) for name in sessions if name != GLOBAL]
        places = [ACTIVE_DIRECTORY, ARCHIVED, *([DELETED] if self._deleted else [])]
        for name in names:
            if not any(self._tree.exists(f"{place}/{name}") for place in places):
                raise missing(self._tree, name)
        return list(dict.fromkeys(names))

    def _directories(self, place: str) -> Iterator[str]:
        for name in self._tree.list(place):
            try:
                with suppress(FileNotFoundError):
                    if self._tree.is_directory(f"{place}/{name}"):
                        yield name if name == GLOBAL else check_session_id(name)
            except Invalid:
                self.problems.append(f"{place}/{name} is no name of a session; it was left out.")

    # One of them, wherever it is.

    def _session(self, name: str) -> Iterator[Entry]:
        scope = self._memory._scope(name)
        before = _versions(self._tree, name)
        selected: set[str] = set()
        if self._tree.exists(scope.directory):
            yield from self._noting(selected, self._active(scope))
        elif is_archived(self._tree, name):
            yield from self._noting(selected, self._archived(name, selected))
        yield from self._evicted(name)
        if _versions(self._tree, name).items() - before.items() or before.items() - _versions(self._tree, name).items():
            self.problems.append(f"{name}: {_MOVED}.")
        if self._deleted:
            yield from self._as_bytes(name, f"{DELETED}/{name}", kinds_of_entries.DELETED)
        if self._exact:
            yield from self._as_bytes(name, f"{QUARANTINE}/{name}", kinds_of_entries.QUARANTINE)

    def _noting(self, selected: set[str], given: Iterator[Entry]) -> Iterator[Entry]:
        for entry in given:
            if self._wanted and entry["entry"] == "memory":
                selected.add(str(entry["record"].get("id")))
            yield entry

    def _active(self, scope: Scope) -> Iterator[Entry]:
        scope.finish_transactions()
        found = take_mapping(present(METADATA, scope.read(METADATA))) if self._tree.exists(scope.path(METADATA)) else None
        yield made("session", session=scope.name, place=ACTIVE, metadata=found and found[0], written=self._only_exact(found))
        for file in self._files(scope):
            if file != METADATA or not found:
                yield from self._read(scope, file)

    def _files(self, scope: Scope) -> list[str]:
        """Those that are not derived, with what a transaction that is recorded and not yet done will add."""
        recorded = {step["file"] for name in journal.pending(scope) for step in journal.load(scope, name) if "remove" not in step}
        files = {*self._walk(scope.directory), *recorded}
        return sorted((file for file in files if not file.startswith(_INDEXES)), key=lambda file: (_ORDER.get(file, 99), file))

    def _read(self, scope: Scope, file: str) -> Iterator[Entry]:
        try:
            content = scope.read(file)
            if not content and not self._tree.exists(scope.path(file)):
                return  # a drop that was taken in, or a file that somebody has removed since
        except SessionNotFound:
            raise
        except (SMPError, OSError) as error:
            self.problems.append(f"{scope.path(file)}: {error}")
            return
        yield from self._file(scope.name, ACTIVE, file, content)

    def _everywhere(self) -> Iterator[Entry]:
        scope = self._memory._scope(GLOBAL)
        if self._tree.exists(GLOBAL):
            for file in self._files(scope):
                yield from self._read(scope, file)
        if self._exact:
            yield from self._as_bytes(GLOBAL, f"{QUARANTINE}/{GLOBAL}", kinds_of_entries.QUARANTINE)

    def _archived(self, name: str, selected: set[str]) -> Iterator[Entry]:
        packed = f"{ARCHIVED}/{name}/{ARCHIVE}"
        metadata = b""
        try:
            said = load_summary(self._tree, name)
            members = members_of(said, f"{ARCHIVED}/{name}/{SUMMARY}")
            for path, content in checked(read_members(self._tree, packed), members, packed):
                metadata = content if path == METADATA else metadata
        except (SMPError, OSError) as error:
            self.problems += [f"{name}: {error}"] if not self._exact else []
            yield from self._as_bytes(name, f"{ARCHIVED}/{name}", BESIDE, (SUMMARY, ARCHIVE))
            return
        place = kinds_of_entries.ARCHIVED
        found = take_mapping(present(METADATA, metadata)) if metadata else None
        yield made("session", session=name, place=place, metadata=found and found[0], written=self._only_exact(found))
        for path, content in read_members(self._tree, packed):
            if not path.startswith(_INDEXES) and not (path == METADATA and found):
                yield from self._file(name, place, path, content)
        yield made("archive", session=name, summary=self._summary(said, selected))

    def _summary(self, said: dict[str, Any], selected: set[str]) -> dict[str, Any]:
        """Without what is only true of the archive it stands beside; of a selection, without what that leaves out."""
        summary = {name: value for name, value in said.items() if name not in _PACKING}
        if self._wanted is None:
            return summary
        quoted = {name: [one for one in listed if isinstance(one, dict) and one.get("id") in selected]
                  for name in _QUOTED if isinstance(listed := summary.get(name), list)}  # fmt: skip
        return {name: value for name, value in {**summary, **quoted}.items() if name not in _TOLD}

    def _evicted(self, name: str) -> Iterator[Entry]:
        for path in evictions.names(self._tree, name):
            try:
                eviction = evictions.load(self._tree, path)
                found = [self._eviction_item(name, eviction, item) for item in eviction.items]
            except FileNotFoundError:
                continue  # brought back just now
            except (SMPError, OSError, ValueError) as error:
                if not self._exact:
                    self.problems.append(f"{name}: {error}")
                yield from self._as_bytes(name, f"{ARCHIVED}/{name}", BESIDE, (path.rpartition("/")[2],))
                continue
            for entry in found:
                item = entry["item"]
                if self._wanted is None or self._wanted(name, item["file"], str(item.get("type")), entry["record"]):
                    yield entry
        known = (SUMMARY, ARCHIVE, NEXT_SUMMARY) if self._is_told(name) else (NEXT_SUMMARY,)
        others = [file for file in self._walk(f"{ARCHIVED}/{name}") if file not in known and not evictions.is_eviction(file)]
        yield from self._as_bytes(name, f"{ARCHIVED}/{name}", BESIDE, others)

    def _is_told(self, name: str) -> bool:
        """Whether what is in the archive was given out as a session, or is only on its way in or out."""
        if is_archived(self._tree, name):
            return True
        try:
            return load_summary(self._tree, name).get("state") in (ARCHIVING, RESTORING)
        except (SMPError, OSError):
            return False

    def _eviction_item(self, name: str, eviction: evictions.Eviction, item: dict[str, Any]) -> Entry:
        """Raises ValueError where it cannot be told in values: then the whole file travels as it is."""
        kind, raw = kind_of(name, item["file"]), eviction.raw(item)
        value = value_of(kind, raw) if kind else None
        if kind is None or value is None or storable_problem(value) or hash_of(value) != item["hash"]:
            raise ValueError(f"{eviction.name} holds {item['id']} in a form that cannot be read.")
        written = None if raw == render(kind, value) or not self._exact else raw.decode()
        if written is not None and not is_written(kind, raw, value):
            raise ValueError(f"{eviction.name} holds {item['id']} in a form that cannot be read.")
        said = {key: part for key, part in item.items() if key not in ("offset", "length", "sha256", "hash")}
        return made("evicted", session=name, eviction=eviction.name.rpartition("/")[2], manifest=eviction.head, item=said,
                    record=value, written=written)  # fmt: skip

    # One file.

    def _file(self, session: str, place: str, file: str, content: bytes) -> Iterator[Entry]:
        where = {"session": session, "place": place}
        content = present(file, content)  # what goes out is of the present version
        stem = file.rpartition("/")[2].rpartition(".")[0]
        if kind := kind_of(session, file):
            yield from self._records(where, kind, content)
        elif file == f"{STATES}/{stem}.yaml" and is_file_id(stem) and session != GLOBAL and (found := take_mapping(content)):
            state = found[0].get("agent_state")
            if self._is_wanted(session, file, "agent_state", {**(state if isinstance(state, dict) else {}), "id": stem}):
                yield made("state", **where, agent=stem, state=found[0], written=self._only_exact(found))
        elif file == f"{ARTIFACTS}/{stem}.md" and is_file_id(stem) and session != GLOBAL and (artifact := take_artifact(content)):
            fields = {**(artifact.head or {}), "id": stem, "content": artifact.text}
            if self._is_wanted(session, file, "artifact", fields):
                written = artifact.written if self._exact else None
                yield made("artifact", **where, artifact=stem, head=artifact.head, text=artifact.text, written=written)
        elif (session, file) == (GLOBAL, PROFILE) and (found := take_mapping(content)):
            if self._is_wanted(GLOBAL, file, "user_profile", found[0]):
                yield made("profile", profile=found[0], written=self._only_exact(found))
        elif self._wanted is None:
            yield self._other(session, place, file, content)

    def _other(self, session: str, place: str, file: str, content: bytes) -> Entry:
        if file == ACCESS_LOG and session != GLOBAL:
            with suppress(UnicodeDecodeError):
                return made("access", session=session, place=place, text=content.decode())
        return file_bytes(session, place, file, content)

    def _records(self, where: dict[str, str], kind: Kind, content: bytes) -> Iterator[Entry]:
        path = f"{where['session']}/{kind.file}"
        try:
            pieces = take_apart(kind, content) if self._exact else take_values(kind, content)
        except SMPError as error:
            self.problems.append(f"{path}: {error}")
            return
        if pieces is None:
            yield file_bytes(where["session"], where["place"], kind.file, content)
            return
        if pieces.unreadable:
            self.problems.append(f"{path}: {pieces.unreadable} records that cannot be read were left out.")
        yield made("file", **where, file=kind.file, head=pieces.head, before=pieces.before, behind=pieces.behind,
                   bad=pieces.bad or None)  # fmt: skip
        for piece in self._wanted_of(where["session"], kind, pieces):
            yield made("memory", **where, file=kind.file, type=kind.name, record=piece.record, written=piece.written,
                       before=piece.before)  # fmt: skip

    def _wanted_of(self, session: str, kind: Kind, pieces: Pieces) -> Iterator[Piece]:
        for piece in pieces.records:
            # What a deleted turn leaves is no memory: of a selection the head says that its number was given.
            is_left_out = self._wanted is not None and is_deleted(kind, piece.record)
            if not is_left_out and self._is_wanted(session, kind.file, kind.name, piece.record):
                yield piece

    def _is_wanted(self, session: str, file: str, type: str, value: dict[str, Value]) -> bool:
        return self._wanted is None or self._wanted(session, file, type, value)

    def _only_exact(self, found: tuple[dict[str, Value], str | None] | None) -> str | None:
        return found[1] if found and self._exact else None

    def _as_bytes(self, session: str, directory: str, place: str, files: Sequence[str] | None = None) -> Iterator[Entry]:
        if self._wanted is not None:
            return  # nobody can tell whether it is wanted
        for file in self._walk(directory) if files is None else files:
            try:
                yield file_bytes(session, place, file, self._tree.read(f"{directory}/{file}"))
            except FileNotFoundError:
                continue
            except (SMPError, OSError) as error:
                self.problems.append(f"{directory}/{file}: {error}")

    def _walk(self, directory: str) -> Iterator[str]:
        """The plain files below a directory, in order; what is none is named."""
        for path, is_directory, is_deep in self._tree.walk(directory, self._leave_out):
            if is_deep:
                self.problems.append(f"{path} is deeper than {DEEPEST} directories; it was left out.")
            if is_directory:
                continue
            try:
                with self._tree.opened(path):
                    pass  # which raises at a link or a device
            except FileNotFoundError:
                continue
            except (SMPError, OSError) as error:
                self._leave_out(path, error)
                continue
            yield path.removeprefix(f"{directory}/")

    def _leave_out(self, path: str, error: Exception) -> None:
        self.problems.append(f"{path}: {error}")


def _versions(tree: Tree, name: str) -> dict[str, int]:
    """What compaction has put away, and in which version of its file: to see that it was not at work meanwhile."""
    found: dict[str, int] = {}
    for path in evictions.names(tree, name):
        with suppress(FileNotFoundError):
            found[path] = tree.stat(path).st_ino
    return found
