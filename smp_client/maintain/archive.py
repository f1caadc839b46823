"""A session that is put into the archive, and brought back: copy, read back, record, remove.

`archived/{session}/archive.tar.gz` holds every file of the session, `summary.yaml` what a person would want to know of it, and the
checksum of each file. Its `state` says after a crash what was going on: while it is `archiving` the session itself still counts,
unless it is gone from its place; while it is `restoring` the archive does, unless the session is back in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .. import rewrite
from ..errors import Conflict, CorruptionDetected, SessionNotFound, SMPError
from ..layout import ACTIVE, ARCHIVED, SESSION_DIRECTORIES, TEMPORARY, check_session_id
from ..locks import NO_PATIENCE, lock
from ..packing import Member, make_archive, member_of, packed_bytes, plain_files, read_members
from ..privacy.redact import harmless
from ..records import state_history
from ..scope import UPKEEP, Scope
from ..session_files import METADATA, artifact_file, state_file
from ..temporaries import temporary_name
from ..text.mapping import load_mapping, replace_parts
from ..text.values import Value
from ..timestamps import render_time
from . import leaving, summary_file
from .actions import Action, Outcome

if TYPE_CHECKING:
    from ..files import Tree
    from ..memory import Memory
    from ..session import Session

SUMMARY, ARCHIVE = "summary.yaml", "archive.tar.gz"
NEXT_SUMMARY = "summary.next.yaml"  # of an archive that is about to be replaced
_UNPACKED = "+unpacked+"
TOP = "archive"
ARCHIVING: Final = "archiving"
IN_ARCHIVE: Final = "archived"
RESTORING: Final = "restoring"


@dataclass(frozen=True)
class Archived:
    """A session in the archive."""

    session: str
    archived_at: str
    reason: str
    total_bytes: int
    archive_bytes: int


def archive(memory: Memory, session_id: str, reason: str, *, dry_run: bool = False) -> Outcome:
    """Puts a session into the archive. What is written into it meanwhile is in the archive too, or refused."""
    reason = harmless(reason)
    session = memory._session(session_id)
    total = session.size().total_bytes
    if dry_run:
        size = packed_bytes(files_in(memory.tree, session.scope.directory))
        return Outcome([Action(session_id, "archive", (session_id,), reason, total - size)], dry_run=True)
    with session.scope.undisturbed("archiving"):
        settle(memory, session_id)
        session.scope.require()
        _require_no_archive(memory.tree, session_id)
        notes = leaving.set_unfit_aside(memory.tree, session_id, session.scope.directory, memory.options.clock())
        said = summary_file.content(session)
        with session.scope.locked(locked_files(session), "archiving"):
            members = _copy(memory, session_id, session.scope.directory, said, reason)
            leaving.leave(session.scope, "archived", members)
        _note(memory.tree, session_id, IN_ARCHIVE, None)
        size = memory.tree.stat(_path(session_id, ARCHIVE)).st_size
        leaving.finish(memory, session_id)
    return Outcome([Action(session_id, "archive", (session_id,), reason, total - size)], notes=notes)


def _require_no_archive(tree: Tree, session_id: str) -> None:
    """There can be another session of this id in the archive, where somebody has made a directory of the same name since."""
    for name in (SUMMARY, ARCHIVE):
        if tree.exists(_path(session_id, name)):
            raise Conflict(f"Another session of this id is in the archive: {_path(session_id, name)}.", session_id=session_id,
                           advice="Move its directory away, or rename this session; nothing was changed.")  # fmt: skip


def unarchive(memory: Memory, session_id: str, *, dry_run: bool = False) -> Outcome:
    """Brings a session back into its place, active again."""
    scope = put_away_scope(memory, session_id)
    tree = memory.tree
    with scope.undisturbed("bringing back from the archive"):
        if not dry_run:
            settle(memory, session_id)
        said = load_summary(tree, session_id)
        if tree.exists(f"{ACTIVE}/{session_id}"):
            raise Conflict(f"There is a session {session_id!r} in {ACTIVE}/ as well as in the archive.",
                           advice="Move or rename the one that you do not want; nothing was changed.")  # fmt: skip
        size = sum(member.size_bytes for member in members_of(said, _path(session_id, SUMMARY)))
        action = Action(session_id, "unarchive", (session_id,), "brought back from the archive", -size)
        if dry_run:
            for _ in packed(memory, session_id, said):
                pass  # which raises where it is damaged
            return Outcome([action], dry_run=True)
        files = awakened(memory, packed(memory, session_id, said), "brought back from the archive")
        aside = unpack_aside(tree, session_id, files)
        try:
            _note(tree, session_id, RESTORING, tree.stat(aside).st_ino)
            put_in_place(memory, aside, session_id)
        except BaseException:
            tree.remove_directory(aside)
            settle(memory, session_id)
            raise
        settle(memory, session_id)
    return Outcome([action])


def archived(memory: Memory) -> list[Archived]:
    """The sessions in the archive; one whose summary cannot be read is named too."""
    found: list[Archived] = []
    for session_id in memory.tree.list(ARCHIVED):
        if not is_archived(memory.tree, session_id):
            continue
        try:
            said = load_summary(memory.tree, session_id)
        except (SMPError, OSError) as error:
            found.append(Archived(session_id, "", str(error), 0, 0))
            continue
        copy = said.get("archive")
        size = copy.get("bytes") if isinstance(copy, dict) else 0
        numbers = [number if isinstance(number, int) else 0 for number in (said.get("total_bytes"), size)]
        found.append(Archived(session_id, str(said.get("archived_at")), str(said.get("reason")), *numbers))
    return found


def is_archived(tree: Tree, session_id: str) -> bool:
    """Whether the session is in the archive and nowhere else."""
    return tree.exists(_path(session_id, SUMMARY)) and not tree.exists(f"{ACTIVE}/{session_id}")


def settle(memory: Memory, session_id: str) -> None:
    """Finishes or undoes what a crash has cut off, under the lock of the session's passes."""
    tree = memory.tree
    drop_unpacked(tree, session_id)
    _settle_replacement(tree, session_id)
    leaving.finish(memory, session_id)
    if not tree.exists(_path(session_id, SUMMARY)):
        return
    said = load_summary(tree, session_id)
    if said.get("state") not in (ARCHIVING, RESTORING):
        return
    standing = inode_of(tree, f"{ACTIVE}/{session_id}")
    if standing is not None and standing == said.get("directory"):
        # The session that was to go is still there, or the one that was to come is there already: the copy is one too many.
        drop_copy(tree, session_id)
    else:
        _note(tree, session_id, IN_ARCHIVE, None)


def _settle_replacement(tree: Tree, session_id: str) -> None:
    """The next summary counts if the archive is already the one that it tells of."""
    name = _path(session_id, NEXT_SUMMARY)
    if not tree.exists(name):
        return
    said = load_mapping(tree.read(name), TOP, name).get("archive")
    copy = member_of(ARCHIVE, tree.read(_path(session_id, ARCHIVE))) if tree.exists(_path(session_id, ARCHIVE)) else None
    if copy and isinstance(said, dict) and said.get("sha256") == copy.sha256:
        tree.rename(name, _path(session_id, SUMMARY))
    else:
        tree.unlink(name)
    tree.sync_parent(name)


def settle_all(memory: Memory) -> list[str]:
    """The same for every session that may be in both places; gives back which. One that somebody is at work on is left to them."""
    tree = memory.tree
    summed_up = [name for name in tree.list(ARCHIVED) if tree.exists(_path(name, SUMMARY))]
    unsettled = [name for name in summed_up if tree.exists(f"{ACTIVE}/{name}") or leaving.is_leaving(tree, name)
                 or tree.exists(_path(name, NEXT_SUMMARY))]  # fmt: skip
    return [name for name in unsettled if settle_alone(memory, name, settle)]


def settle_alone(memory: Memory, session_id: str, finish: Callable[[Memory, str], None]) -> bool:
    """Gives back whether it could be done now."""
    try:
        with lock(memory.tree, session_id, UPKEEP, NO_PATIENCE, "finishing what was cut off"):
            finish(memory, session_id)
    except (SMPError, OSError):
        # Somebody is at work on it, or its record cannot be read, which check tells: neither keeps the others waiting.
        return False
    return True


def held(tree: Tree, session_id: str) -> set[Member]:
    """What the archive holds of a session; nothing where it is not there."""
    if not tree.exists(_path(session_id, SUMMARY)):
        return set()
    return set(members_of(load_summary(tree, session_id), _path(session_id, SUMMARY)))


def repack(memory: Memory, session_id: str, directory: str) -> list[Member]:
    """The archive anew from what is left of the session, into which somebody has still written."""
    said = load_summary(memory.tree, session_id)
    return _copy(memory, session_id, directory, said, str(said.get("reason")), state=IN_ARCHIVE)


def repack_changed(memory: Memory, session_id: str, directory: str, said: dict[str, Any]) -> None:
    """The archive anew from a directory in which its session was changed, with what there is to say of that."""
    before = load_summary(memory.tree, session_id)
    told = {**said, "archived_at": before.get("archived_at")}
    _copy(memory, session_id, directory, told, str(before.get("reason")), state=IN_ARCHIVE)


def drop_copy(tree: Tree, session_id: str) -> None:
    """Removes the archive of a session that is in its place. What compaction has put beside it stays."""
    tree.unlink(_path(session_id, ARCHIVE))
    tree.unlink(_path(session_id, SUMMARY))
    tree.remove_empty(f"{ARCHIVED}/{session_id}")


def locked_files(session: Session) -> list[str]:
    """Every file of a session that a writer locks before it writes."""
    states, artifacts = session.agent_states(), session.artifacts()
    return [
        METADATA, *(kind.file for kind in session.kinds), *map(state_file, states),
        *(state_history(agent).file for agent in states), *map(artifact_file, artifacts),
    ]  # fmt: skip


def put_away_scope(memory: Memory, session_id: str) -> Scope:
    """For the locks of a session that is not in its place."""
    return Scope(memory.tree, check_session_id(session_id), f"{ARCHIVED}/{session_id}", memory.options)


def files_in(tree: Tree, directory: str, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """Every file below a directory with its content, as an archive takes them: what comes behind it later is put behind it, so half
    of what somebody is writing must not be in it."""
    for file in plain_files(tree, directory):
        yield f"{prefix}{file}", rewrite.read_whole(tree, f"{directory}/{file}")


def aside_of(session_id: str) -> str:
    """The name of a directory for what is unpacked, by which it is known whose it is."""
    return temporary_name(f"{session_id}{_UNPACKED}")


def drop_unpacked(tree: Tree, session_id: str) -> None:
    """What a crash has left of it: whoever has the lock of the session's passes, and has unpacked nothing, knows it is nobody's."""
    for name in tree.list(TEMPORARY):
        if name.startswith(f"{session_id}{_UNPACKED}"):
            tree.remove_directory(f"{TEMPORARY}/{name}")


def unpack_aside(tree: Tree, session_id: str, members: Iterable[tuple[str, bytes]]) -> str:
    """A directory of a session that nobody knows yet, durable."""
    aside = aside_of(session_id)
    directories = {aside, *(f"{aside}/{name}" for name in SESSION_DIRECTORIES)}
    try:
        for directory in sorted(directories):
            tree.make_directory(directory)
        for path, content in members:
            parent = f"{aside}/{path}".rpartition("/")[0]
            if parent not in directories:
                tree.make_directory(parent)
                directories.add(parent)
            tree.write_new(f"{aside}/{path}", content)
        for directory in directories:
            tree.sync_parent(f"{directory}/any")
    except BaseException:
        tree.remove_directory(aside)
        raise
    return aside


def awakened(memory: Memory, members: Iterable[tuple[str, bytes]], reason: str) -> Iterator[tuple[str, bytes]]:
    """With metadata that say that the session is in use again, so that it does not go back to where it came from the next night."""
    now = render_time(memory.options.clock())
    changes: dict[str, Value] = {"status": "active", "status_since": now, "status_reason": reason, "last_accessed": now}
    for path, content in members:
        yield path, replace_parts(content, "session", changes, METADATA) if path == METADATA and content else content


def put_in_place(memory: Memory, aside: str, session_id: str) -> None:
    memory.tree.make_directory(ACTIVE)
    memory.tree.rename_new(aside, f"{ACTIVE}/{session_id}")
    memory.tree.sync_parent(f"{ACTIVE}/{session_id}")


def load_summary(tree: Tree, session_id: str) -> dict[str, Any]:
    try:
        content = tree.read(_path(session_id, SUMMARY))
    except FileNotFoundError as error:
        if tree.exists(_path(session_id, ARCHIVE)):
            advice = f"Unpack it by hand into {ACTIVE}/{session_id}, and move it away."
            raise CorruptionDetected(f"{_path(session_id, ARCHIVE)} has lost its {SUMMARY}.", advice=advice) from error
        raise SessionNotFound(f"There is no session {session_id!r} in the archive.", session_id=session_id,
                              advice="smp sessions --all lists those that there are.") from error  # fmt: skip
    return load_mapping(content, TOP, _path(session_id, SUMMARY))


def members_of(said: dict[str, Any], name: str) -> list[Member]:
    """What a summary, or the record of a deletion, says that its archive holds."""
    try:
        return [Member(str(item["path"]), int(item["bytes"]), str(item["sha256"])) for item in said["members"]]
    except (TypeError, KeyError, ValueError) as error:
        raise CorruptionDetected(f"{name} does not say what its archive holds: {error!r}.",
                                 advice="Unpack the archive by hand, and move both files away.") from error  # fmt: skip


def listed(members: Iterable[Member]) -> list[dict[str, Value]]:
    """The same for the file."""
    return [{"path": member.path, "bytes": member.size_bytes, "sha256": member.sha256} for member in members]


def checked(found: Iterable[tuple[str, bytes]], expected: Iterable[Member], name: str) -> Iterator[tuple[str, bytes]]:
    """The members of an archive; raises CorruptionDetected at the first that is not the one that was put there, or is missing."""
    advice = "Nothing was changed; bring it back from a copy of your own."
    wanted = {member.path: member for member in expected}
    for path, content in found:
        if wanted.pop(path, None) != member_of(path, content):
            raise CorruptionDetected(f"{path!r} in {name} is not what was put there.", advice=advice)
        yield path, content
    if wanted:
        raise CorruptionDetected(f"{name} lacks {', '.join(sorted(wanted)[:5])}.", advice=advice)


def _copy(
    memory: Memory, session_id: str, directory: str, said: dict[str, Any], reason: str,
    *, state: summary_file.ArchiveState = ARCHIVING,
) -> list[Member]:
    """The archive and its summary, each durable, and the archive read back."""
    tree = memory.tree
    temporary, members = make_archive(tree, files_in(tree, directory))
    try:
        copy = member_of(ARCHIVE, tree.read(temporary))
        at = str(said.get("archived_at") or render_time(memory.options.clock()))
        summary = summary_file.render(
            said, state=state, reason=reason, archived_at=at, members=listed(members),
            archive={"file": ARCHIVE, "bytes": copy.size_bytes, "sha256": copy.sha256},
        )  # fmt: skip
        if state == ARCHIVING:
            summary = replace_parts(summary, TOP, {"directory": inode_of(tree, directory)}, SUMMARY)
        tree.make_directory(f"{ARCHIVED}/{session_id}")
        # The two files change one after the other: from here on it can be told which summary the archive belongs to.
        tree.replace(_path(session_id, SUMMARY if state == ARCHIVING else NEXT_SUMMARY), summary)
        tree.rename(temporary, _path(session_id, ARCHIVE))
    except BaseException:
        tree.unlink(temporary)
        raise
    tree.sync_parent(_path(session_id, ARCHIVE))
    _settle_replacement(tree, session_id)
    return members


def packed(memory: Memory, session_id: str, said: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """The session as it was, each file checked."""
    name = _path(session_id, ARCHIVE)
    return checked(read_members(memory.tree, name), members_of(said, _path(session_id, SUMMARY)), name)


def _note(tree: Tree, session_id: str, state: str, inode: int | None) -> None:
    name = _path(session_id, SUMMARY)
    tree.replace(name, replace_parts(tree.read(name), TOP, {"state": state, "directory": inode}, name))


def inode_of(tree: Tree, name: str) -> int | None:
    try:
        return tree.stat(name).st_ino
    except FileNotFoundError:
        return None


def _path(session_id: str, name: str) -> str:
    return f"{ARCHIVED}/{session_id}/{name}"
