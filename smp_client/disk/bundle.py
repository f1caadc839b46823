"""The one container: an immutable `tar.gz` with a manifest first, then files or spans of records.

An archived session, a deleted session, a deleted batch, memories evicted by compaction, the undo of
an anonymisation and an export are bundles in different folders. A bundle is made aside, synced, read
back, and then named. Taking something out of a bundle makes a new one that replaces it.

The manifest says which kind it is, of which session, when, by whom and why it was made, until when
it can be restored, and lists its items. An item is a record or a whole file, with its sha256.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any, Literal

from ..model.errors import CorruptionDetected
from .packing import make_archive, members_in, packed_bytes, read_members
from .scopes import ENDING
from .tree import Tree

BundleKind = Literal["archive", "deleted", "evicted", "undo", "export"]
KINDS: tuple[BundleKind, ...] = ("archive", "deleted", "evicted", "undo", "export")
VERSION = 1
_MANIFEST = "manifest.json"
_FILES, _RECORDS = "files/", "records/"  # before the path of a member
_ADVICE = "Bring it back from a copy of your own; nothing was changed."


@dataclass(frozen=True)
class Item:
    """A record, or a whole file, in a bundle."""

    file: str  # of the session
    id: str  # empty for a file that is no memory itself
    type: str
    timestamp: str | None
    hash: str  # see fingerprint.py
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


@dataclass(frozen=True)
class Manifest:
    """What a bundle says of itself."""

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
    """A bundle that was read: its manifest, and the bytes of each item."""

    path: str
    manifest: Manifest
    members: Mapping[str, bytes] = field(repr=False)

    def raw(self, item: Item) -> bytes:
        """Return the bytes of an item. Raises CorruptionDetected where they are not those packed."""
        member = self.members.get(_member(item), b"")
        start = item.start or 0
        content = member[start : start + item.length]
        if hashlib.sha256(content).hexdigest() != item.sha256:
            raise CorruptionDetected(f"{item.file} {item.id} in {self.path} is damaged.", advice=_ADVICE)
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
    digest = hashlib.sha256(raw).hexdigest()
    start = None if whole else 0
    return Item(file, memory_id, type, stamp, hash, digest, behind, start, len(raw), facts), raw


def write(tree: Tree, manifest: Manifest, pieces: Iterable[tuple[Item, bytes]]) -> str:
    """Make a bundle aside, durable and read back. Return its temporary name; the caller names it."""
    temporary, _ = make_archive(tree, _members(manifest, pieces))
    return temporary


def size_of(manifest: Manifest, pieces: Iterable[tuple[Item, bytes]]) -> int:
    """Return how many bytes a bundle of these would have."""
    return packed_bytes(_members(manifest, pieces))


def _members(manifest: Manifest, pieces: Iterable[tuple[Item, bytes]]) -> list[tuple[str, bytes]]:
    """Return the members of a bundle, the manifest first."""
    items: list[Item] = []
    members: dict[str, list[bytes]] = {}
    ends: dict[str, int] = {}
    for item, raw in pieces:
        member = _member(item)
        start = None if item.is_file else ends.get(member, 0)
        items.append(replace(item, start=start, length=len(raw)))
        members.setdefault(member, []).append(raw)
        ends[member] = ends.get(member, 0) + len(raw)
    head = json.dumps(_as_json(replace(manifest, items=tuple(items))), ensure_ascii=False).encode()
    return [(_MANIFEST, head), *((name, b"".join(parts)) for name, parts in members.items())]


def read(tree: Tree, path: str) -> Bundle:
    """Return a bundle. Raises CorruptionDetected where it is none, or is damaged."""
    return _bundle(path, read_members(tree, path))


def unpacked(path: str, content: bytes) -> Bundle:
    """Return the bundle whose bytes these are."""
    return _bundle(path, members_in(BytesIO(content), path))


def read_manifest(tree: Tree, path: str) -> Manifest:
    """Return only the manifest, without unpacking the rest."""
    for name, content in read_members(tree, path):
        if name == _MANIFEST:
            return _manifest(path, content)
        break
    raise CorruptionDetected(f"{path} has no manifest.", advice=_ADVICE)


def paths(tree: Tree, directory: str) -> list[str]:
    """Return the bundles in a directory, the oldest names first."""
    return [f"{directory}/{name}" for name in sorted(tree.list(directory)) if name.endswith(ENDING)]


def _bundle(path: str, members: Iterator[tuple[str, bytes]]) -> Bundle:
    name, content = next(members, ("", b""))
    if name != _MANIFEST:
        raise CorruptionDetected(f"{path} has no manifest.", advice=_ADVICE)
    return Bundle(path, _manifest(path, content), dict(members))


def _member(item: Item) -> str:
    return f"{_FILES if item.is_file else _RECORDS}{item.file}"


def _as_json(manifest: Manifest) -> dict[str, Any]:
    items = [{name: value for name, value in vars(item).items() if value not in (None, {}, "")}
             for item in manifest.items]  # fmt: skip
    return {"version": VERSION, **vars(manifest), "items": items}


def _manifest(path: str, content: bytes) -> Manifest:
    try:
        said: dict[str, Any] = json.loads(content)
        if said.pop("version") != VERSION or said["kind"] not in KINDS:
            raise ValueError("it is of another version, or of no kind that SMP makes")
        items = tuple(_item(item) for item in said.pop("items"))
        manifest = Manifest(**said, items=items)
        texts = (manifest.session, manifest.at, manifest.by, manifest.why, manifest.batch)
        if not all(isinstance(text, str) for text in texts) or not isinstance(manifest.facts, dict):
            raise ValueError("a field has another type")
        return manifest
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptionDetected(f"The manifest of {path} cannot be read: {error}.", advice=_ADVICE) from error


def _item(said: dict[str, Any]) -> Item:
    item = Item(**{"id": "", "type": "", "timestamp": None, "hash": "", **said})
    texts = (item.file, item.id, item.type, item.hash, item.sha256)
    numbers = (item.start or 0, item.length)
    if not all(isinstance(text, str) for text in texts) or not isinstance(item.facts, dict):
        raise ValueError("an item has a field of another type")
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("an item has no place")
    return item
