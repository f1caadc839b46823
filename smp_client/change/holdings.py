"""Every memory, wherever it is: one iterator over the files of a session and its bundles.

Selecting, showing, finding, deleting, anonymising and exporting iterate it, so that none of them
overlooks a place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ..disk import bundle
from ..disk.bundle import Bundle, Item
from ..disk.scopes import ARCHIVE, EVICTED, files_of
from ..model.errors import SMPError
from ..model.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, is_session_id
from ..model.record import GLOBAL_KINDS, SESSION_KINDS, STATE_HISTORY, TURN, Kind, kind_of, kind_of_file
from ..text.edits import located, spans, value_of
from ..text.fingerprint import hash_of, hash_of_bytes
from ..text.values import Value
from .places import PROFILE, holds_memories, id_of_file, is_record_file, type_of_file, value_of_file

if TYPE_CHECKING:
    from ..memory import Memory

BESIDE = "beside/"  # before the name of an evicted bundle in the bundle of a deleted session
Place = Literal["active", "archived", "evicted", "deleted", "undo"]
KEPT: tuple[Place, ...] = ("active", "archived", "evicted")  # what is neither deleted nor replaced
EVERY: tuple[Place, ...] = (*KEPT, "deleted", "undo")


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
    facts: Mapping[str, Any] = field(default_factory=dict)  # of its bundle and its item: when, by whom, why

    @property
    def is_file(self) -> bool:
        """Whether it is a whole file and not a record in one."""
        return not is_record_file(self.file)

    @property
    def where(self) -> str:
        """The file or bundle below the root that holds its bytes."""
        directory = GLOBAL if self.session == GLOBAL else f"{ACTIVE}/{self.session}"
        return self.container or f"{directory}/{self.file}"


def holdings(
    memory: Memory, session: str, places: Collection[Place] = KEPT, problems: list[str] | None = None
) -> Iterator[Holding]:
    """Yield every memory of a session, or of `global`, in these places.

    A file or bundle that cannot be read may hold more: it is added to `problems`.
    """
    problems = [] if problems is None else problems
    if "active" in places and is_in_use(memory, session):
        yield from _active(memory, session, problems)
    for path in bundles_of(memory, session):
        if (place := place_of(path)) in places:
            try:
                yield from in_bundle(bundle.read(memory.tree, path), session, place)
            except (SMPError, OSError) as error:
                problems.append(f"{path} cannot be read: {error}")


def in_use(memory: Memory, session: str, ids: Collection[str]) -> list[Holding]:
    """Return memories in the files of a session by their ids, without parsing the others.

    An id of a form that SMP does not give, or that seems to stand twice, is not among them.
    """
    kinds = GLOBAL_KINDS if session == GLOBAL else SESSION_KINDS
    by_kind: dict[Kind, list[str]] = {}
    for memory_id in ids:
        if (kind := kind_of(memory_id, kinds)) is not None:
            by_kind.setdefault(kind, []).append(memory_id)
    found: list[Holding] = []
    for kind, some in by_kind.items():
        content = memory._scope(session).read(kind.file)
        mark = "## Turn {}" if kind is TURN else "id: {}"
        once = [one for one in some if content.count(mark.format(one.removeprefix("turn-")).encode()) == 1]
        for span in located(kind, content, once).values():
            found.append(Holding(session, "active", "", kind.file, span.id, kind.name, span.value, span.raw,
                                 hash_of(span.value), span.behind))  # fmt: skip
    return found


def names(memory: Memory) -> list[str]:
    """Return `global` and every session that is in use, archived, or has evicted memories."""
    places = (name for place in (ACTIVE, ARCHIVED) for name in memory.tree.directories(place))
    return [GLOBAL, *sorted({name for name in places if is_session_id(name)})]


def is_in_use(memory: Memory, session: str) -> bool:
    return session == GLOBAL or memory.tree.exists(f"{ACTIVE}/{session}")


def bundles_of(memory: Memory, session: str) -> list[str]:
    """Return the bundles of a session. An archive of a session that is in use again is none."""
    found = [*bundle.paths(memory.tree, f"{ARCHIVED}/{session}"), *bundle.paths(memory.tree, f"{DELETED}/{session}")]
    is_active = is_in_use(memory, session)
    return [path for path in found if not (is_active and path.endswith(f"/{ARCHIVE}"))]


def place_of(path: str) -> Place:
    """Return the place that a bundle of this path is, by its name alone."""
    directory, _, name = path.rpartition("/")
    if directory.startswith(f"{ARCHIVED}/"):
        return "evicted" if name.startswith(EVICTED) else "archived"
    return "undo" if name.startswith("undo-") else "deleted"


def in_bundle(packed: Bundle, session: str, place: Place) -> Iterator[Holding]:
    """Yield the memories in a bundle: of a packed session those in its files, else its items."""
    manifest = packed.manifest
    facts = {"at": manifest.at, "by": manifest.by, "why": manifest.why, "until": manifest.until, "batch": manifest.batch}
    if manifest.kind == "archive" or "was" in manifest.facts:
        for file, content in packed.files():
            if file.startswith(BESIDE):  # memories that were evicted before the session was deleted
                yield from in_bundle(bundle.unpacked(packed.path, content), session, place)
            elif holds_memories(file, ""):
                yield from (replace(one, facts=facts) for one in in_file(session, place, packed.path, file, content))
        return
    for item, raw in packed.pieces():
        yield _of_item(item, raw, session, place, packed.path, {**facts, **item.facts})


def in_file(session: str, place: Place, container: str, file: str, content: bytes) -> Iterator[Holding]:
    """Yield the memories in the content of one file."""
    if not is_record_file(file):
        if content:
            value = value_of_file(file, content)
            yield Holding(session, place, container, file, id_of_file(file), type_of_file(file), value, content,
                          hash_of_bytes(content), line=1)  # fmt: skip
        return
    kind = kind_of_file(file)
    head, records, *_ = spans(kind, content)
    line = 1 + head.count(b"\n")
    for span in records:
        if span.value:
            yield Holding(session, place, container, file, span.id, kind.name, span.value, span.raw,
                          hash_of(span.value), span.behind, line)  # fmt: skip
        line += span.raw.count(b"\n")


def _active(memory: Memory, session: str, problems: list[str]) -> Iterator[Holding]:
    scope = memory._scope(session)
    histories = (f"{STATE_HISTORY}/{name}" for name in scope.tree.sizes(scope.path(STATE_HISTORY)))
    further = [PROFILE] if session == GLOBAL else [file for file in histories if holds_memories(file, session)]
    for file in [*files_of(memory, session), *(file for file in further if scope.tree.exists(scope.path(file)))]:
        try:
            yield from in_file(session, "active", "", file, scope.read(file))
        except (SMPError, OSError) as error:
            problems.append(f"{scope.path(file)} cannot be read: {error}")


def _of_item(item: Item, raw: bytes, session: str, place: Place, path: str, facts: Mapping[str, Any]) -> Holding:
    value = value_of_file(item.file, raw) if item.is_file else value_of(kind_of_file(item.file), raw)
    value = value or {"id": item.id, "content": raw.decode("utf-8", "replace")}
    return Holding(session, place, path, item.file, item.id, item.type, value, raw, item.hash, item.behind, 0, facts)
