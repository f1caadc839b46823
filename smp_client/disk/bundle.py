"""The one container: an immutable `tar.gz` with a manifest first, then files or spans of records.

An archived session, a deleted session, a deleted batch, memories evicted by compaction, the undo of
an anonymisation and an export are bundles in different folders. A bundle is made aside, synced,
read back, and then named. Taking something out of a bundle makes a new one that replaces it.

A bundle may have been changed, or made by anybody: it is read as a stream, under caps on names,
kinds, count and size, and nothing of it is ever written to a place that it names itself. Equal
members give equal bytes.

`summary.yaml` and `deletion-record.yaml` are rendered from the manifests beside them, for people,
whenever a bundle comes or goes. SMP never decides by them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import IO, Any, Literal, cast, get_args

from ..model.errors import CorruptionDetected, SMPError
from ..model.layout import ARCHIVED
from ..text.mapping import render_mapping
from ..text.values import Value
from .place import ARCHIVE, BACKUP, ENDING
from .tree import READ_CAP_BYTES, Tree

BundleKind = Literal["archive", "deleted", "evicted", "undo", "export"]
KINDS: tuple[BundleKind, ...] = get_args(BundleKind)
VERSION = 1
_MANIFEST = "manifest.json"
SUMMARY, RECORD = "summary.yaml", "deletion-record.yaml"
TOTAL_CAP_BYTES = 4 * READ_CAP_BYTES
_NAME_CAP_CHARACTERS = 512
_LEVEL = 4  # of gzip: half of the time of 6, for a twentieth more bytes


@dataclass(frozen=True)
class Item:
    """A record, or a whole file, in a bundle."""

    file: str  # of the session
    id: str  # empty for a file that is no memory itself
    type: str
    timestamp: str | None
    hash: str  # see text/values.py
    sha256: str  # of its bytes
    behind: str | None = None  # the id of the record before it
    start: int | None = None  # its place among the spans of its file; None for a whole file
    length: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)  # such as the operation that evicted it

    @property
    def is_file(self) -> bool:
        return self.start is None

    @property
    def key(self) -> tuple[str, str]:
        return self.file, self.id

    @property
    def member(self) -> str:
        return f"{'files' if self.is_file else 'records'}/{self.file}"


@dataclass(frozen=True)
class Manifest:
    """The description of a bundle, with its items."""

    kind: BundleKind
    session: str
    at: str
    by: str
    why: str
    until: str | None = None
    batch: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)  # such as the summary of an archive
    items: tuple[Item, ...] = ()


@dataclass(frozen=True)
class Bundle:
    """A bundle that was read: its manifest, and the bytes of each member."""

    path: str
    manifest: Manifest
    members: Mapping[str, bytes] = field(repr=False)

    def raw(self, item: Item) -> bytes:
        """Return the bytes of an item. Raise CorruptionDetected where they are not those packed."""
        start = item.start or 0
        content = self.members.get(item.member, b"")[start : start + item.length]
        if hashlib.sha256(content).hexdigest() != item.sha256:
            raise damaged(f"{item.file} {item.id} in {self.path} is damaged.")
        return content

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield every whole file by its path in the session."""
        return ((item.file, self.raw(item)) for item in self.manifest.items if item.is_file)

    def pieces(self) -> list[tuple[Item, bytes]]:
        """Return every item with its bytes, each checked."""
        return [(item, self.raw(item)) for item in self.manifest.items]


def item_of(
    file: str, memory_id: str, type: str, raw: bytes, *, hash: str = "", timestamp: Any = None,
    behind: str | None = None, whole: bool = False, **facts: Any,
) -> tuple[Item, bytes]:  # fmt: skip
    """Return an item for these bytes, ready to be packed."""
    stamp = timestamp if isinstance(timestamp, str) else None
    digest, start = hashlib.sha256(raw).hexdigest(), None if whole else 0
    return Item(file, memory_id, type, stamp, hash, digest, behind, start, len(raw), facts), raw


def write(tree: Tree, manifest: Manifest, pieces: Iterable[tuple[Item, bytes]]) -> str:
    """Make a bundle aside, durable and read back. Return its temporary name."""
    items: list[dict[str, Any]] = []
    members: dict[str, bytearray] = {}
    for item, raw in pieces:
        member = members.setdefault(item.member, bytearray())
        start = None if item.is_file else len(member)
        said = vars(replace(item, start=start, length=len(raw)))
        items.append({name: value for name, value in said.items() if value not in (None, {}, "")})
        member += raw
    head = json.dumps({"version": VERSION, **vars(manifest), "items": items}, ensure_ascii=False)
    return make_archive(tree, [(_MANIFEST, head.encode()), *members.items()])


def read(tree: Tree, path: str) -> Bundle:
    """Return a bundle. Raise CorruptionDetected where it is none, or is damaged."""
    members = read_members(tree, path)
    return Bundle(path, _manifest(path, members), dict(members))


def unpacked(path: str, content: bytes) -> Bundle:
    """Return the bundle whose bytes these are."""
    members = members_in(io.BytesIO(content), path)
    return Bundle(path, _manifest(path, members), dict(members))


def read_manifest(tree: Tree, path: str) -> Manifest:
    """Return only the manifest, without unpacking the rest."""
    return _manifest(path, read_members(tree, path))


def paths(tree: Tree, directory: str) -> list[str]:
    """Return the bundles in a directory, the oldest names first."""
    return [f"{directory}/{name}" for name in sorted(tree.list(directory)) if name.endswith(ENDING)]


def _manifest(path: str, members: Iterator[tuple[str, bytes]]) -> Manifest:
    """Return the manifest, which is the first member. Anybody may have written it."""
    name, content = next(members, ("", b""))
    if name != _MANIFEST:
        raise damaged(f"{path} has no manifest.")
    try:
        said: dict[str, Any] = json.loads(content)
        if said.pop("version") != VERSION or said["kind"] not in KINDS:
            raise ValueError("it is of another version, or of no kind that SMP makes")
        items = tuple(_item(item) for item in said.pop("items"))
        found = Manifest(**said, items=items)
        _require_texts(found, found.session, found.at, found.by, found.why, found.batch)
        return found
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged(f"The manifest of {path} cannot be read: {error}.") from error


def _item(said: dict[str, Any]) -> Item:
    item = Item(**{"id": "", "type": "", "timestamp": None, "hash": "", **said})
    _require_texts(item, item.file, item.id, item.type, item.hash, item.sha256)
    if not all(type(one) is int and one >= 0 for one in (item.start or 0, item.length)):
        raise ValueError("an item has no place")
    return item


def _require_texts(said: Item | Manifest, *texts: Any) -> None:
    if not all(isinstance(text, str) for text in texts) or not isinstance(said.facts, dict):
        raise ValueError("a field has another type")


def damaged(problem: str) -> CorruptionDetected:
    advice = "Bring it back from a copy of your own; nothing was changed."
    return CorruptionDetected(problem, advice=advice)


# The members.


def make_archive(tree: Tree, members: Sequence[tuple[str, bytes | bytearray]]) -> str:
    """Make an archive aside, durable and read back. Return its temporary name."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", _LEVEL, packed, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path, content in members:
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    temporary = tree.create_temporary(packed.getvalue())
    try:
        read_back = zip_longest(read_members(tree, temporary), members)
        if not all(found == given for found, given in read_back):
            raise damaged(f"{temporary} was not written as it was given.")
    except BaseException:
        tree.unlink(temporary)
        raise
    return temporary


def read_members(tree: Tree, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each member of an archive in the tree."""
    with tree.opened(name) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as raw:
        yield from members_in(raw, name)


def members_in(raw: IO[bytes], name: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each member of an open archive, which messages call by its name.

    Raise CorruptionDetected at the first thing that no archive of SMP holds.
    """
    seen: set[str] = set()
    try:
        with (
            gzip.GzipFile(fileobj=raw, mode="rb") as compressed,
            tarfile.open(fileobj=cast("IO[bytes]", _Capped(compressed)), mode="r|") as archive,
        ):
            for entry in archive:
                is_new = entry.isfile() and entry.name not in seen
                if not is_new or not is_inner_path(entry.name) or entry.size > READ_CAP_BYTES:
                    raise damaged(f"{name} holds {entry.name!r}, which no bundle of SMP does.")
                seen.add(entry.name)
                opened = archive.extractfile(entry)
                content = opened.read() if opened else b""
                if len(content) != entry.size:
                    raise damaged(f"{entry.name!r} in {name} is cut off.")
                yield entry.name, content
            # The bytes behind the last member tell whether the file is whole.
            while compressed.read(1 << 20):
                pass
    except (tarfile.TarError, EOFError, zlib.error, ValueError, OverflowError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk; gzip's wrong checksum has no number
        raise damaged(f"{name} cannot be read: {error}.") from error


def is_inner_path(path: str) -> bool:
    """Return whether a path can only name something inside the directory that it is put into."""
    parts = path.split("/")
    is_plain = all(part not in ("", ".", "..") and part.isprintable() for part in parts)
    return 0 < len(path) <= _NAME_CAP_CHARACTERS and "\\" not in path and is_plain


class _Capped:
    """Stops a stream that goes on and on: a few bytes can stand for any number of zeros."""

    def __init__(self, source: gzip.GzipFile) -> None:
        self._source = source
        self._left = TOTAL_CAP_BYTES

    def read(self, size: int = -1) -> bytes:
        piece = self._source.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(piece)
        if self._left < 0:
            raise damaged(f"An archive holds more than {TOTAL_CAP_BYTES:,} bytes.")
        return piece


# The files for people.


def describe(tree: Tree, directory: str) -> None:
    """Render the file for people in `archived/{session}` or `deleted/{session}` anew."""
    place, _, session = directory.partition("/")
    if place == ARCHIVED:
        name, content = f"{directory}/{SUMMARY}", _summary(tree, f"{directory}/{ARCHIVE}")
    else:
        name, content = f"{directory}/{RECORD}", _deletions(tree, directory, session)
    if content is None:
        tree.unlink(name)
        tree.remove_empty(directory)
    else:
        tree.replace(name, content, durable=False)


def manifests(tree: Tree, directory: str) -> Iterator[tuple[str, Manifest]]:
    """Yield the manifest of every bundle in a directory that can be read, with its path."""
    for path in paths(tree, directory):
        try:
            yield path, read_manifest(tree, path)
        except SMPError:
            continue  # `smp check` reports it


def _summary(tree: Tree, path: str) -> bytes | None:
    if not tree.exists(path):
        return None
    try:
        archived = read_manifest(tree, path)
    except SMPError as error:
        return render_mapping("archive", {"state": "unreadable", "reason": str(error)})
    said = {"state": "archived", "archived_at": archived.at, "reason": archived.why}
    size: dict[str, Value] = {"compressed_size_bytes": tree.stat(path).st_size}
    return render_mapping("archive", {**said, **archived.facts, **size})


def _deletions(tree: Tree, directory: str, session: str) -> bytes | None:
    if not paths(tree, directory):
        return None
    said: dict[str, Value] = {"session_id": session}
    items: list[Value] = []
    for path, manifest in sorted(manifests(tree, directory), key=lambda one: one[1].at):
        about: dict[str, Value] = {"deleted_at": manifest.at, "deleted_by": manifest.by}
        about |= {"reason": manifest.why, "recovery_deadline": manifest.until}
        about["backup_location"] = path
        said |= about  # of the last one
        if path.endswith(f"/{BACKUP}"):
            said["deleted_session"] = {**about, "files": len(manifest.items)}
            continue
        about["batch"] = manifest.batch
        reason = about.pop("reason")
        for item in manifest.items:
            entry: dict[str, Value] = {"type": item.type, "id": item.id, "file": item.file}
            own = {"reason_specific": item.facts.get("why", reason)}
            items.append({**entry, "timestamp": item.timestamp, **about, **own})
    return render_mapping("deletion", {**said, "deleted_items": items})
