"""Bringing files of an older version up to the present one: when they are next written, or all of a session at once.

Whoever locks a file to write it finds it in the present version: what is older is replaced first, like any other rewrite, and what
is newer is refused. A record that says the same in both versions keeps its bytes. What was put away keeps all of them, and is
brought up when it is back and next written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from . import document, editing, markdown
from .document import Located, RecordList
from .errors import CorruptionDetected, SMPError, UnsafePath
from .formats import format_of
from .layout import ACTIVE, FORMAT_VERSION, GLOBAL, is_file_id
from .mapping import load_parts, render_anew, splice_parts
from .records import GLOBAL_KINDS, SESSION_KINDS, STATE_HISTORY, TURN, Kind, kind_of_file
from .rewrite import rewrite
from .session_files import METADATA, parse_front
from .values import BadYaml, Value, decode, load, render_entries
from .versions import HEAD_BYTES, front_now, number_in, parts_now, record_now, require_known, stated, version_in

if TYPE_CHECKING:
    from .files import Tree
    from .locks import Lock
    from .maintain.actions import Outcome
    from .scope import Scope

_STATES, _ARTIFACTS = "agent-states", "artifacts"
_TOPS = {METADATA: "session", "user-profile.yaml": "user_profile"}
_RECORD_FILES = frozenset(kind.file for kind in (*SESSION_KINDS, *GLOBAL_KINDS))
_COMMENT = re.compile(rb"(?:^|(?<=[ \t]))#[^\r\n]*", re.MULTILINE)


class Found(NamedTuple):
    """A file that is not of the present version."""

    file: str
    version: int


def bring_up(scope: Scope, file: str, held: Lock) -> None:
    """Makes a file, whose lock is held, one of the present version; raises NewerFormat where it is newer."""
    if not is_versioned(file):
        return
    path = scope.path(file)
    try:
        status = scope.tree.stat(path)
        if held.note.get("file") == identity(status) and held.note.get("version") == FORMAT_VERSION:
            return  # the last writer knew it, and it is still the same
        version = _version_of(scope.tree, path, file)
    except (OSError, UnsafePath):
        return  # whoever needs it will say so
    if version != FORMAT_VERSION:
        require_known(version, path)
        rewrite(scope, file, lambda content: migrated(file, content))


def bring_up_all(scope: Scope) -> None:
    """The same for every file of a session or of `global/`, for a pass over it. What cannot be brought up stays as it is."""
    for file, version in planned(scope):
        if version < FORMAT_VERSION:
            with suppress(SMPError), _in_place(scope).locked([file], "bringing it up to this version"):
                pass


def identity(status: os.stat_result) -> list[int]:
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def planned(scope: Scope) -> list[Found]:
    """The files of a session, or of `global/`, that are older or newer. Changes nothing."""
    found: list[Found] = []
    scope = _in_place(scope)
    for file in _files(scope):
        with suppress(OSError, UnsafePath):  # which is told by whoever needs the file
            found.append(Found(file, _version_of(scope.tree, scope.path(file), file)))
    return [one for one in found if one.version != FORMAT_VERSION]


def migrate(scope: Scope, *, dry_run: bool = False) -> Outcome:
    """All files of a session, or of `global/`, at once; what is newer, or cannot be brought up, is left alone and named."""
    from .maintain.actions import Outcome, VersionAction

    outcome = Outcome(dry_run=dry_run)
    older: list[Found] = []
    for one in planned(scope):
        try:
            require_known(one.version, scope.path(one.file))
            if dry_run:
                migrated(one.file, scope.read(one.file))
            older.append(one)
        except SMPError as error:
            outcome.problems.append(str(error))
    if older and not dry_run:
        # Which brings them up; those that could not be are tried once more, to hear why.
        with scope.undisturbed("bringing the files up to this version"):
            left = {one.file for one in planned(scope)}
            for file in left.intersection(one.file for one in older):
                try:
                    with scope.locked([file], "bringing it up to this version"):
                        left.discard(file)
                except SMPError as error:
                    outcome.problems.append(str(error))
        older = [one for one in older if one.file not in left]
    reason = f"written in version {{}}, and {'to become' if dry_run else 'now'} of version {FORMAT_VERSION}"
    outcome.actions += [VersionAction(scope.name, "migrate", (one.file,), reason.format(one.version), version_from=one.version,
                                      version_to=FORMAT_VERSION) for one in older]  # fmt: skip
    return outcome


def is_versioned(file: str) -> bool:
    """Whether a file of a session, or of `global/`, says its version."""
    if file in _RECORD_FILES or file in _TOPS:
        return True
    folder, _, name = file.rpartition("/")
    if folder == _ARTIFACTS:
        return name.endswith(".md")
    return folder in (_STATES, STATE_HISTORY) and name.endswith(".yaml")


def migrated(file: str, content: bytes) -> bytes:
    """The file in the present version; the file itself where it is of that. Raises NewerFormat, and CorruptionDetected where it
    cannot be brought up."""
    version = version_in(file, content)
    if version == FORMAT_VERSION:
        return content
    require_known(version, file)
    folder = file.rpartition("/")[0]
    if folder == _ARTIFACTS:
        return _artifact(file, content, version)
    top = "agent_state" if folder == _STATES else _TOPS.get(file)
    return _records(kind_of_file(file), content, version) if top is None else mapping_migrated(content, top, file)


def present(file: str, content: bytes) -> bytes:
    """The same for whoever passes the file on: as it is, where it cannot be brought up."""
    with suppress(SMPError):
        return migrated(file, content) if is_versioned(file) else content
    return content


# Record files.


def _records(kind: Kind, content: bytes, version: int) -> bytes:
    found = _parse(kind, content)
    _require_readable(kind, found, content, version)
    new = {record.start: record_now(kind, record.value, version) for record in found.records}
    changed = [(record, new[record.start]) for record in found.records if new[record.start] != record.value]
    splices = [(record.start, record.end, _rendered(kind, found, content, record, value)) for record, value in changed]
    if place := number_in(kind.file, content):
        splices.append((*place, b"%d" % FORMAT_VERSION))
    after = editing.splice(content, splices)
    wanted = [new[record.start] for record in sorted(found.records, key=lambda record: record.start)]
    if _says(kind, after, wanted):
        return after
    # Some style in which this cannot be done piece by piece.
    after = _anew(kind, found, wanted)
    if found.bad or not _says(kind, after, wanted):
        raise _unreadable(kind.file, version, found.bad[0].problem if found.bad else "it is written in an unusual way")
    return after


def _require_readable(kind: Kind, found: RecordList, content: bytes, version: int) -> None:
    """What cannot be read would keep its old words below a new version, and be misread when it is mended. Only the end of a write
    that was cut off does not count: it is set aside by whoever writes next."""
    torn = format_of(kind).torn(found, content)
    for bad in found.bad:
        if torn is None or bad.start < torn or not found.listed:
            raise _unreadable(kind.file, version, f"line {bad.line}: {bad.problem}")
    for record in found.records:
        if not record.has_id:
            line = content.count(b"\n", 0, record.start) + 1
            raise _unreadable(kind.file, version, f"line {line}: a record must have an id")


def _parse(kind: Kind, content: bytes) -> RecordList:
    """As it stands there, in the words of its version."""
    return markdown.parse(content) if kind is TURN else document.parse(content, kind.key)


def _says(kind: Kind, content: bytes, wanted: list[dict[str, Value]]) -> bool:
    now = _parse(kind, content)
    values = [record.value for record in sorted(now.records, key=lambda record: record.start)]
    return stated(now.head.get("version")) == FORMAT_VERSION and values == wanted


def _rendered(kind: Kind, found: RecordList, content: bytes, record: Located, value: Mapping[str, Value]) -> bytes:
    if kind is TURN:
        return markdown.render_turn(value).removesuffix(b"\n")
    rendered = editing.render_change(found, value)
    raw = content[record.start : record.end]
    if found.flow:
        noted = _comments(raw, _loaded)
        return b"".join(b"\n  " + comment for comment in noted) + (b"\n  " if noted else b"") + rendered
    noted = _comments(raw, lambda piece: [one.value for one in document.parse_tail(piece, 0, found.indent).records])
    return b"".join(b" " * found.indent + comment + b"\n" for comment in noted) + rendered


def _anew(kind: Kind, found: RecordList, wanted: Iterable[dict[str, Value]]) -> bytes:
    if kind is TURN or any("id" not in value for value in wanted):
        return b""
    head = {name: value for name, value in found.head.items() if name != "version"}
    return editing.render_head(kind.key, head) + b"".join(editing.render_record(value) for value in wanted)


def _comments(raw: bytes, says: Callable[[bytes], object]) -> list[bytes]:
    """What a person noted in what is rendered anew: all behind a `#` that can go without anything else being said."""
    if b"#" not in raw:
        return []
    whole = says(raw)
    return [match[0].rstrip() for match in _COMMENT.finditer(raw) if says(raw[: match.start()] + raw[match.end() :]) == whole]


def _unreadable(file: str, version: int, problem: str) -> CorruptionDetected:
    return CorruptionDetected(f"{file} has format version {version} and cannot be brought up to {FORMAT_VERSION}: {problem}.")


# Files that are one mapping, and artifacts.


def mapping_migrated(content: bytes, top: str, file: str) -> bytes:
    """A part that says the same in both versions keeps its bytes."""
    version, old = load_parts(content, top, file)
    if version == FORMAT_VERSION:
        return content
    require_known(version, file)
    new = parts_now(top, old, version)
    place = number_in(file, content)
    if place is not None:
        numbered = editing.splice(content, [(*place, b"%d" % FORMAT_VERSION)])
        with suppress(CorruptionDetected, BadYaml):
            after = splice_parts(numbered, top, old, new)
            after = _with_comments(content, after)
            if load_parts(after, top, file) == (FORMAT_VERSION, new):
                return after
    return render_anew(content, top, new)


def _with_comments(content: bytes, after: bytes) -> bytes:
    """The comments that went with parts stand at the top."""
    gone = [comment for comment in _comments(content, lambda piece: _loaded(piece)) if comment not in after]
    return b"".join(comment + b"\n" for comment in gone) + after


def _loaded(content: bytes) -> object:
    try:
        return load(decode(content))
    except BadYaml as problem:
        return str(problem)


def _artifact(file: str, content: bytes, version: int) -> bytes:
    front = parse_front(content)
    if front is None:
        raise _unreadable(file, version, "its front matter is no mapping")
    fields, begins_at = front
    noted = _comments(content[4 : begins_at - 4], _loaded)
    head = "".join(line + "\n" for line in render_entries(front_now(fields, version), 0)).encode()
    return b"---\n" + b"".join(comment + b"\n" for comment in noted) + head + b"---\n" + content[begins_at:]


# Which files there are.


def _in_place(scope: Scope) -> Scope:
    """A pass over what is put away, or may be, has the session's name and another directory."""
    place = GLOBAL if scope.name == GLOBAL else f"{ACTIVE}/{scope.name}"
    return scope if scope.directory == place else type(scope)(scope.tree, scope.name, place, scope.options)


def _files(scope: Scope) -> list[str]:
    tree = scope.tree
    found = [name for name in _names(tree, scope.directory) if is_versioned(name)]
    for folder in (_STATES, STATE_HISTORY, _ARTIFACTS) if scope.name != GLOBAL else ():
        names = (name for name in _names(tree, scope.path(folder)) if is_file_id(name.rpartition(".")[0]))
        found += [file for name in names if is_versioned(file := f"{folder}/{name}")]
    return found


def _names(tree: Tree, directory: str) -> list[str]:
    try:
        return sorted(tree.sizes(directory))
    except (OSError, UnsafePath):
        return []


def _version_of(tree: Tree, path: str, file: str) -> int:
    """Looks at the beginning of the file, and at the rest only where that does not say it."""
    with tree.opened(path) as descriptor:
        beginning = os.pread(descriptor, HEAD_BYTES, 0)
        if len(beginning) < HEAD_BYTES or number_in(file, beginning):
            return version_in(file, beginning)
    return version_in(file, tree.read(path))
