"""Every memory, wherever it is: one iterator over the files of a session and its bundles.

Selecting, showing, finding, deleting, anonymising and exporting iterate it, so that none of them
overlooks a place.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..disk import bundle
from ..disk.bundle import Bundle
from ..disk.place import ARCHIVE, ARTIFACTS, BACKUP, EVICTED, STATES, files_of, is_of, kinds_of
from ..disk.session_files import METADATA, parse_artifact
from ..model.errors import CorruptionDetected, MemoryNotFound, SMPError
from ..model.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, is_file_id, is_session_id
from ..model.nearest import nearest
from ..model.record import (
    GLOBAL_KINDS,
    HISTORY,
    SESSION_KINDS,
    STATE_HISTORY,
    TURN,
    Kind,
    kind_of,
    kind_of_file,
    split_folder,
)
from ..text.edits import Span, located, spans, value_of
from ..text.mapping import load_mapping
from ..text.values import Value, hash_of, hash_of_bytes
from ..text.version import PROFILE, is_record_file, top_of

if TYPE_CHECKING:
    from ..disk.scope import Scope
    from ..memory import Memory

_BACK = {
    "deleted": "To restore it: smp restore {0} {1}, or session.restore({1!r}).",
    "evicted": "To bring it back: smp compact {0} {1} --bring-back,"
    " or session.bring_back([{1!r}]).",
}
Place = Literal["active", "archived", "evicted", "deleted", "undo"]
KEPT: tuple[Place, ...] = ("active", "archived", "evicted")  # what is neither deleted nor replaced
EVERY: tuple[Place, ...] = (*KEPT, "deleted", "undo")


class Origin(NamedTuple):
    """The session and the place that memories are in."""

    session: str  # or `global`
    place: Place
    container: str  # the bundle that holds them; empty for files of the session


class Unread(NamedTuple):
    """A place in a file where a record cannot be read."""

    file: str
    line: int
    problem: str

    def below(self, folder: str) -> str:
        """Return it for a message, with its file in this folder or bundle."""
        return f"{folder}/{self.file}, line {self.line}: it cannot be read: {self.problem}"


@dataclass(frozen=True)
class Holding:
    """A memory and where it is."""

    session: str  # or `global`
    place: Place
    container: str  # the bundle that holds it; empty where it is in a file of the session
    file: str
    id: str  # empty for a record that a person wrote without one
    type: str
    value: dict[str, Value] = field(repr=False)
    raw: bytes = field(repr=False)
    hash: str
    behind: str | None = None  # the id of the record before it
    line: int = 0  # in its file; 0 in a bundle of records
    facts: Mapping[str, Any] = field(default_factory=dict)  # of its bundle and of its item

    @property
    def is_file(self) -> bool:
        """Return whether it is a whole file and not a record in one."""
        return not is_record_file(self.file)

    @property
    def batch(self) -> str:
        """Return the name that all memories deleted, or anonymised, together have."""
        return str(self.facts.get("batch", ""))

    @property
    def where(self) -> str:
        """Return the file or bundle below the root that holds its bytes."""
        directory = GLOBAL if self.session == GLOBAL else f"{ACTIVE}/{self.session}"
        return self.container or f"{directory}/{self.file}"


def holdings(
    memory: Memory, session: str, places: Collection[Place] = KEPT,
    problems: list[str] | None = None,
) -> Iterator[Holding]:  # fmt: skip
    """Yield every memory of a session, or of `global`, in these places.

    A file, bundle or record that cannot be read may hold more: it is added to `problems`.
    """
    problems = [] if problems is None else problems
    if "active" in places and is_in_use(memory, session):
        yield from _active(memory, session, problems)
    # Evicted memories of a deleted session are deleted with it.
    hidden = () if "deleted" in places or is_kept(memory, session) else ("evicted",)
    for path in bundles_of(memory, session):
        if (place := place_of(path)) in places and place not in hidden:
            try:
                unread: list[Unread] = []
                packed = bundle.read(memory.tree, path)
                yield from in_bundle(packed, Origin(session, place, path), unread)
                problems += [one.below(path) for one in unread]
            except (SMPError, OSError) as error:
                problems.append(f"{path} cannot be read: {error}")


def in_use(memory: Memory, session: str, ids: Collection[str]) -> list[Holding]:
    """Return memories in the files of a session by their ids, without parsing the others.

    An id of a form that SMP does not give, or that seems to stand twice, is not among them.
    """
    by_kind: dict[Kind, list[str]] = {}
    for memory_id in ids:
        kind = kind_of(memory_id, GLOBAL_KINDS if session == GLOBAL else SESSION_KINDS)
        if kind is not None:
            by_kind.setdefault(kind, []).append(memory_id)
    found: list[Holding] = []
    for kind, some in by_kind.items():
        content = memory._scope(session).read(kind.file)
        mark = rb"## Turn (\d+)" if kind is TURN else rb"\bid: ([A-Za-z0-9_.-]+)"
        counts = Counter(re.findall(mark, content))
        once = [one for one in some if counts[one.removeprefix("turn-").encode()] == 1]
        for span in located(kind, content, once).values():
            found.append(_of_span(span, Origin(session, "active", ""), kind, 0))
    return found


def names(memory: Memory) -> list[str]:
    """Return `global` and every session that is in use or archived."""
    found = {name for place in (ACTIVE, ARCHIVED) for name in memory.tree.directories(place)}
    found = {name for name in found if is_session_id(name) and is_kept(memory, name)}
    return [GLOBAL, *sorted(found)]


def is_in_use(memory: Memory, session: str) -> bool:
    return session == GLOBAL or memory.tree.exists(f"{ACTIVE}/{session}")


def is_kept(memory: Memory, session: str) -> bool:
    """Return whether a session is in use or archived."""
    return is_in_use(memory, session) or memory.tree.exists(f"{ARCHIVED}/{session}/{ARCHIVE}")


def bundles_of(memory: Memory, session: str) -> list[str]:
    """Return the bundles of a session. An archive of a session that is in use again is none."""
    found = [
        *bundle.paths(memory.tree, f"{ARCHIVED}/{session}"),
        *bundle.paths(memory.tree, f"{DELETED}/{session}"),
    ]
    is_active = is_in_use(memory, session)
    return [path for path in found if not (is_active and path.endswith(f"/{ARCHIVE}"))]


def place_of(path: str) -> Place:
    """Return the place that a bundle of this path is, by its name alone."""
    directory, _, name = path.rpartition("/")
    if directory.startswith(f"{ARCHIVED}/"):
        return "evicted" if name.startswith(EVICTED) else "archived"
    return "undo" if name.startswith("undo-") else "deleted"


def in_bundle(packed: Bundle, origin: Origin, unread: list[Unread]) -> Iterator[Holding]:
    """Yield the memories in a bundle: of a packed session those in its files, else its items."""
    said, path = packed.manifest, packed.path
    facts = {name: getattr(said, name) for name in ("at", "by", "why", "until", "batch")}
    if path.endswith((f"/{ARCHIVE}", f"/{BACKUP}")):
        for file, content in packed.files():
            if holds_memories(file, ""):
                for one in in_content(origin, file, content, unread):
                    yield replace(one, facts=facts)
        return
    for item, raw in packed.pieces():
        is_file = item.is_file
        value = value_of_file(item.file, raw) if is_file else value_of(kind_of_file(item.file), raw)
        value = value or {"id": item.id, "content": raw.decode("utf-8", "replace")}
        of_item = (item.file, item.id, item.type, value, raw, item.hash, item.behind)
        facts_of_item = {**facts, **item.facts}
        yield Holding(origin.session, origin.place, path, *of_item, 0, facts_of_item)


def in_file(
    session: str, place: Place, container: str, file: str, content: bytes
) -> Iterator[Holding]:
    """Yield the memories in the content of one file, as far as it can be read."""
    return in_content(Origin(session, place, container), file, content, [])


def in_content(
    origin: Origin, file: str, content: bytes, unread: list[Unread]
) -> Iterator[Holding]:
    """Yield the memories in the content of one file. `unread` gets places without a record."""
    if is_record_file(file):
        kind = kind_of_file(file)
        found = spans(kind, content)
        for bad in found.bad:
            at = content.count(b"\n", 0, bad.start) + bad.line
            unread.append(Unread(file, at, bad.problem))
        line = 1 + found.head.count(b"\n")
        for span in found.records:
            if span.value:
                yield _of_span(span, origin, kind, line)
            line += span.raw.count(b"\n")
    elif content:
        value, hash = value_of_file(file, content), hash_of_bytes(content)
        named = (file, id_of_file(file), type_of_file(file))
        session, place, container = origin
        yield Holding(session, place, container, *named, value, content, hash, line=1)


def _of_span(span: Span, origin: Origin, kind: Kind, line: int) -> Holding:
    about = (kind.file, span.id, kind.name, span.value, span.raw, hash_of(span.value))
    session, place, container = origin
    return Holding(session, place, container, *about, span.behind, line)


def _active(memory: Memory, session: str, problems: list[str]) -> Iterator[Holding]:
    scope, files = memory._scope(session), files_of(memory, session)
    names = () if session == GLOBAL else scope.tree.sizes(scope.path(STATE_HISTORY))
    for file in [PROFILE, HISTORY, *(f"{STATE_HISTORY}/{name}" for name in names)]:
        if holds_memories(file, session) and scope.tree.exists(scope.path(file)):
            files.append(file)
    for file in files:
        try:
            unread: list[Unread] = []
            yield from in_content(Origin(session, "active", ""), file, scope.read(file), unread)
            problems += [one.below(scope.directory) for one in unread]
        except (SMPError, OSError) as error:
            problems.append(f"{scope.path(file)} cannot be read: {error}")


def missing(scope: Scope, memory_id: str) -> SMPError:
    """Return the error for a memory that no file has, with the way to restore it. Take no lock.

    If the memory may be a record that cannot be read, the error is CorruptionDetected.
    """
    problem = f"There is no memory {memory_id!r} in {scope.name}"
    advice: str | None = None
    bare = split_folder(memory_id)[1]
    for place, kind in ((DELETED, "deleted"), (ARCHIVED, "evicted")):
        times: list[str] = []
        with suppress(SMPError, OSError):  # an unreadable bundle says nothing
            for _, manifest in bundle.manifests(scope.tree, f"{place}/{scope.name}"):
                if manifest.kind == kind and any(one.id == bare for one in manifest.items):
                    times.append(manifest.at)
        if times:
            problem += f": it was {kind} on {max(times)[:16].replace('T', ' ')} UTC"
            advice = _BACK[kind].format(scope.name, memory_id)
            break
    else:
        if unread := _unread(scope, memory_id):
            said = f"{memory_id} of {scope.name} cannot be read, or there is no such memory"
            advice = (
                "smp doctor --fix sets unreadable records aside, and brings back what is known."
            )
            where = unread.below(scope.directory).rstrip(".")
            return CorruptionDetected(f"{said}: {where}.", session_id=scope.name, advice=advice)
        if meant := nearest(memory_id, _ids(scope)):
            advice = f"Did you mean {meant}?"
    return MemoryNotFound(f"{problem}.", session_id=scope.name, advice=advice)


def _unread(scope: Scope, memory_id: str) -> Unread | None:
    """Return the place of an unreadable record that has this id, or that may have it."""
    kinds = GLOBAL_KINDS if scope.name == GLOBAL else SESSION_KINDS
    own = kind_of(memory_id, kinds)
    found: list[Unread] = []
    for kind in kinds:
        with suppress(SMPError, OSError):  # reading the file says by itself what is wrong
            content = scope.read(kind.file)
            for bad in spans(kind, content).bad:
                line = content.count(b"\n", 0, bad.start) + bad.line
                place = Unread(kind.file, line, bad.problem)
                if is_named(kind, memory_id, content[bad.start : bad.end]):
                    return place
                found += [place] if kind is own else []
    return found[0] if found else None


def is_named(kind: Kind, memory_id: str, raw: bytes) -> bool:
    """Return whether bytes that cannot be read as a record seem to be the record of this id."""
    return memory_id in ids_named(kind, raw)


def ids_named(kind: Kind, raw: bytes) -> list[str]:
    """Return the ids that bytes of this kind name, also where they cannot be read."""
    if kind is TURN:
        return [f"turn-{number.decode()}" for number in re.findall(rb"## Turn (\d+)", raw)]
    found = re.findall(rb"\bid: *[\"']?([A-Za-z0-9_.-]+)", raw)
    return [one.decode() for one in found]


# Files, and the memory that a whole file is.


def holds_memories(file: str, scope: str) -> bool:
    """Return whether a file of this name, in a session or in `global`, holds memories."""
    folder, _, name = file.rpartition("/")
    if folder == STATE_HISTORY and scope != GLOBAL:
        return name.endswith(".yaml") and is_file_id(name.removesuffix(".yaml"))
    if file == HISTORY:
        return True
    return is_of(scope, file) or (scope == GLOBAL and file == PROFILE)


def type_of_file(file: str) -> str:
    """Return the type of the memories in a file of this name."""
    folder, _, _ = file.rpartition("/")
    if folder in (STATES, ARTIFACTS):
        return "agent_state" if folder == STATES else "artifact"
    return {METADATA: "metadata", PROFILE: "user_profile"}.get(file) or kind_of_file(file).name


def id_of_file(file: str) -> str:
    """Return the id of the memory that a whole file is: its name without the ending."""
    return file.rpartition("/")[2].rpartition(".")[0]


def value_of_file(file: str, content: bytes) -> dict[str, Value]:
    """Return the fields of a file that is one memory. One that cannot be read is a text."""
    folder, _, _ = file.rpartition("/")
    memory_id = id_of_file(file)
    try:
        if folder == ARTIFACTS:
            fields, text = parse_artifact(content)
            return {**fields, "id": memory_id, "content": text}
        value = load_mapping(content, top_of(file) or "", file)
    except SMPError:
        return {"id": memory_id, "content": content.decode("utf-8", "replace")}
    return {"timestamp": value.get("last_updated"), **value, "id": memory_id}


def _ids(scope: Scope) -> list[str]:
    """Return the ids of the memories of a scope, as far as its files can be read."""
    found: list[str] = []
    for kind in kinds_of(scope.name).values():
        with suppress(SMPError, OSError):
            content = scope.read(kind.file)
            found += [one.id for one in in_file(scope.name, "active", "", kind.file, content)]
    return found
