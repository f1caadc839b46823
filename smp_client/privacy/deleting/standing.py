"""Every memory of a session, in every place where it is kept: in its files, packed in the archive, or taken out by compaction.

Whoever deletes, anonymises or looks for something must see all of them, and each with the bytes that it stands in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...errors import CorruptionDetected, SMPError
from ...layout import ACTIVE, ARCHIVED, GLOBAL, is_file_id
from ...packing import read_members
from ...records import STATE_HISTORY, is_deleted, kind_of_file
from ...scopes import ARTIFACTS, STATES, archived_scope, files_of, is_of, kinds_of
from ...session_files import METADATA, parse_artifact
from ...text.format import HEAD, format_of
from ...text.mapping import load_mapping
from ...text.values import Value

if TYPE_CHECKING:
    from ...files import Tree
    from ...memory import Memory

PROFILE = "user-profile.yaml"
EVICTED = "evicted"
_ARCHIVE = "archive.tar.gz"
_TOPS = {METADATA: "session", PROFILE: "user_profile"}


@dataclass(frozen=True)
class Standing:
    """A memory, or a whole file that is one, where it stands."""

    session: str  # or `global`
    place: str  # active, archived, evicted
    container: str  # the file below the root that holds its bytes
    file: str  # the file of the session that it is in, or was taken out of
    type: str
    id: str  # nothing for a record that a person wrote without one
    value: dict[str, Value]
    raw: bytes = field(repr=False)
    line: int = 1  # in `file`; 0 where compaction has taken it out
    behind: str | None = None  # the id of the record before it
    facts: Mapping[str, Any] = field(default_factory=dict)  # of what compaction has taken out: when, how and why

    @property
    def is_file(self) -> bool:
        """Whether it is a whole file and not a record in one."""
        return not is_record_file(self.file)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.container, self.file, self.id


def is_record_file(file: str) -> bool:
    return file.startswith(f"{STATE_HISTORY}/") or file in kinds_of("") or file in kinds_of(GLOBAL)


def type_of_file(file: str) -> str:
    """What the memories in a file of this name are."""
    folder, _, _ = file.rpartition("/")
    if folder in (STATES, ARTIFACTS):
        return "agent_state" if folder == STATES else "artifact"
    return {METADATA: "metadata", PROFILE: "user_profile"}.get(file) or kind_of_file(file).name


class Contents:
    """The files of a session or of `global/` that hold memories, wherever it is. Reads only."""

    def __init__(self, memory: Memory, name: str) -> None:
        self._memory = memory
        self.name = name
        tree = memory.tree
        is_active = name == GLOBAL or tree.exists(f"{ACTIVE}/{name}")
        self.is_archived = not is_active and tree.exists(f"{ARCHIVED}/{name}/{_ARCHIVE}")
        self.is_there = is_active or self.is_archived

    @cached_property
    def _packed(self) -> dict[str, bytes]:
        return dict(read_members(self._memory.tree, self.container(""))) if self.is_archived else {}

    def container(self, file: str) -> str:
        """The file below the root in which the bytes of this one are."""
        if self.is_archived:
            return f"{ARCHIVED}/{self.name}/{_ARCHIVE}"
        return f"{GLOBAL}/{file}" if self.name == GLOBAL else f"{ACTIVE}/{self.name}/{file}"

    def files(self) -> list[str]:
        if self.is_archived:
            return [path for path in self._packed if holds_memories(path, "")]
        scope = self._memory._scope(self.name)
        histories = (f"{STATE_HISTORY}/{name}" for name in _names(scope.tree, scope.path(STATE_HISTORY)))
        further = [PROFILE] if self.name == GLOBAL else histories
        return [*files_of(self._memory, self.name), *(file for file in further if scope.tree.exists(scope.path(file)))]

    def read(self, file: str) -> bytes:
        """Nothing where there is none of it."""
        if self.is_archived:
            return self._packed.get(file, b"")
        return self._memory._scope(self.name).read(file)


def standing(memory: Memory, name: str, problems: list[str], contents: Contents | None = None) -> Iterator[Standing]:
    """All that a session, or `global/`, holds; adds to `problems` what cannot be read, and so may hold more."""
    contents = contents or Contents(memory, name)
    for file in contents.files() if contents.is_there else ():
        try:
            yield from in_file(contents, file)
        except (SMPError, OSError) as error:
            problems.append(f"{contents.container(file)} cannot be read: {error}")
    if name != GLOBAL:
        yield from evicted(memory, name, problems)


def in_file(contents: Contents, file: str) -> Iterator[Standing]:
    content = contents.read(file)
    place = ARCHIVED if contents.is_archived else ACTIVE
    where = (contents.name, place, contents.container(file), file, type_of_file(file))
    if not is_record_file(file):
        if content:
            yield Standing(*where, id_of_file(file), value_of_file(file, content), content)
        return
    kind = kind_of_file(file)
    behind: str | None = None
    lines = _LineCounter(content)
    for record in sorted(format_of(kind).parse(content).records, key=lambda record: record.start):
        memory_id = str(record.value["id"]) if record.has_id else ""
        if not is_deleted(kind, record.value):
            raw = content[record.start : record.end]
            yield Standing(*where, memory_id, record.value, raw, lines.at(record.start), behind)
        behind = memory_id or behind


def head_of_file(contents: Contents, file: str) -> Standing | None:
    """What stands before the first record of a file; None where that is no text, or nothing."""
    found = format_of(kind_of_file(file)).find(content, HEAD) if (content := contents.read(file)) else None
    place = ARCHIVED if contents.is_archived else ACTIVE
    if found is None:
        return None
    return Standing(contents.name, place, contents.container(file), file, "head", HEAD, found.value, content[: found.end])


def heads(contents: Contents) -> Iterator[Standing]:
    """Of every record file of a session, or of `global`."""
    for file in contents.files() if contents.is_there else ():
        if is_record_file(file) and (head := head_of_file(contents, file)):
            yield head


def taken_out_of(file: str, items: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of the deleted ones that stood in the file of the session itself."""
    return [item for item in items if item["file"] == file and item.get("place") != EVICTED and "replaced_by" not in item]


def in_order(there: Sequence[str], items: Iterable[Mapping[str, Any]]) -> list[str]:
    """The ids of the records of a file as they would stand if none had been taken out: each behind the one that it was behind."""
    standing, out = set(there), dict[str, Mapping[str, Any]]()
    for item in items:
        memory_id = str(item["id"])
        out.pop(memory_id, None)  # of two that had one id the later
        if memory_id not in standing:
            out[memory_id] = item
    following: dict[str, list[str]] = {}
    for memory_id, item in out.items():
        # Of two that were behind the same one, the first that went stood closer to it.
        following.setdefault(_one_before(item, there, standing | out.keys()), []).append(memory_id)
    order: list[str] = []
    for start in ("", *there):
        todo = [start]
        while todo:
            order += [one] if (one := todo.pop()) else []
            todo += reversed(following.pop(one, []))
    return [*order, *(memory_id for several in following.values() for memory_id in several)]


def _one_before(item: Mapping[str, Any], there: Sequence[str], known: Collection[str]) -> str:
    """Nothing for the first of the file. Where all that it was behind is gone for good, its number says where it belongs."""
    own, further = str(item["id"]), item.get("behind_that")
    before = [item.get("behind"), *(further if isinstance(further, list) else ())]
    if before[0] is None:
        return ""
    for one in map(str, before):
        if one in known and one != own:
            return one
    later = next((place for place, one in enumerate(there) if _number(one) > _number(own)), len(there))
    return there[later - 1] if later else ""


def _number(memory_id: str) -> int:
    last = memory_id.rpartition("-")[2]
    return int(last) if last.isdecimal() else 0


class _LineCounter:
    """Lines of places that come in order, each counted once."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at, self._line = 0, 1

    def at(self, offset: int) -> int:
        self._line += self._content.count(b"\n", self._at, offset)
        self._at = offset
        return self._line


def id_of_file(file: str) -> str:
    return file.rpartition("/")[2].rpartition(".")[0]


def value_of_file(file: str, content: bytes) -> dict[str, Value]:
    """What a file that is one memory says; one that cannot be read is a text."""
    folder, _, _ = file.rpartition("/")
    try:
        if folder == ARTIFACTS:
            fields, text = parse_artifact(content)
            return {**fields, "id": id_of_file(file), "content": text}
        value = load_mapping(content, "agent_state" if folder == STATES else _TOPS[file], file)
    except SMPError:
        return {"id": id_of_file(file), "content": content.decode("utf-8", "replace")}
    return {"timestamp": value.get("last_updated"), **value, "id": id_of_file(file)}


def evicted(memory: Memory, name: str, problems: list[str]) -> Iterator[Standing]:
    """The copies that compaction has made of what it took out."""
    from ...maintain import evictions
    from ...maintain.putting_back import value_of

    for path in evictions.names(memory.tree, name):
        try:
            eviction = evictions.load(memory.tree, path)
        except CorruptionDetected as error:
            problems.append(str(error))
            continue
        for item in eviction.items:
            raw = eviction.held(item)
            kind = kind_of_file(item["file"])
            value = value_of(kind, raw) or {"id": item["id"], "content": raw.decode("utf-8", "replace")}
            facts = {"evicted_at": eviction.head.get("evicted_at"), **{fact: item.get(fact) for fact in ("operation", "reason")}}
            yield Standing(name, EVICTED, path, item["file"], kind.name, item["id"], value, raw, 0, None, facts)


def names_with_memories(memory: Memory) -> list[str]:
    """`global`, every session in its place, and every archived one."""
    archived = [name for name in memory.tree.list(ARCHIVED) if memory.tree.exists(f"{archived_scope(name)}/{_ARCHIVE}")]
    return [GLOBAL, *dict.fromkeys([*(session.id for session in memory._sessions()), *archived])]


def holds_memories(path: str, scope: str) -> bool:
    """Whether a file of this name, in a session or in `global`, holds memories."""
    folder, _, name = path.rpartition("/")
    if folder == STATE_HISTORY and scope != GLOBAL:
        return name.endswith(".yaml") and is_file_id(name.removesuffix(".yaml"))
    return is_of(scope, path)


def _names(tree: Tree, directory: str) -> Iterable[str]:
    return [name for name in tree.sizes(directory) if name.endswith(".yaml")]
