"""The journal: the only place that knows of unfinished work.

An intent describes a change that must happen as a whole. Once it is durable in `.smp/journal/` the
change happens: its writer carries the steps out while it holds the locks, and if the writer dies,
whoever comes next does. Every step can be carried out again without harm.

The steps are: append bytes behind the end of a file; edit records of a file; replace or remove a
file; name, replace or unlink a bundle; rename the directory of a session; count bytes of an old
version as folded in; count bytes of a directory that has left as packed.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from ..model.errors import LockTimeout, SMPError, StorageFailed, UnsafePath
from ..model.layout import (
    ACTIVE,
    ARCHIVED,
    DELETED,
    FORMAT_VERSION,
    JOURNAL,
    LEAVING,
    RETIRED,
    TEMPORARY,
)
from ..model.record import kind_of_file
from ..text.edits import Edit, edited
from ..text.format import format_of
from ..text.values import BadYaml, hash_of_bytes
from ..text.version import is_record_file, is_versioned, require_known, stated
from .locks import NO_PATIENCE, guarded, lock, lock_all
from .quarantine import INBOX, quarantine_entry
from .rewrite import rewrite
from .state_name import (
    IntentName,
    LeavingName,
    is_path,
    parse_intent,
    parse_leaving,
    parse_old,
)
from .tree import Tree, read_from, sync, write_all
from .tree import version_of as version_of

if TYPE_CHECKING:
    from .scope import Scope

Step = dict[str, Any]
UPKEEP = "upkeep"  # the lock of a session that every pass takes before any other
# An intent that is not of our form raises one of these; a file that cannot be read raises BadYaml.
_OTHER_FORM = (
    ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, StopIteration,
)  # fmt: skip
_NONSENSE = (*_OTHER_FORM, UnsafePath)
_PATHS = ("file", "bundle", "aside", "directory", "to", "retired", "left")  # the parts of steps
_PAUSE_S = 0.02  # between two looks at an intent whose writer is at work
_IN_DOUBT = "If it is, the next write or read carries it out; look before you repeat it."
_FOREIGN = "a recorded transaction that makes no sense: SMP has not written it"
_BY_HAND = "Nothing of its session is written before: mend it, or move it out of the tree."


# Intents.


def record(scope: Scope, steps: list[Step]) -> str:
    """Make an intent durable, and return its name. From here on the change happens.

    Raise OSError if nothing is recorded, and StorageFailed if nobody can know.
    """
    content = json.dumps({"version": 1, "scope": scope.name, "steps": steps}).encode()
    scope.tree.make_directory(JOURNAL)
    name = f"{JOURNAL}/{scope.name}+{os.urandom(16).hex()}.json"
    try:
        scope.tree.create(name, content)
    except OSError as error:
        # It can be there and not be durable: the caller, who sees it fail, may repeat it.
        try:
            scope.tree.unlink(name)
        except OSError:
            said = f"Perhaps the change of {scope.path('')} is recorded, not durably: {error}."
            raise StorageFailed(said, advice=_IN_DOUBT, session_id=scope.name) from error
        raise
    return name


def happen(scope: Scope, steps: list[Step]) -> None:
    """Record an intent, carry its steps out, and forget it."""
    name = record(scope, steps)
    for step in steps:
        carry_out(scope, step)
    forget(scope, name, steps)


def appending(scope: Scope, file: str, late: bytes) -> Step:
    """Return the step that appends bytes of somebody else to a file, on lines of their own.

    They may stand there already, without ids, so the step counts how often.
    """
    whole = scope.tree.read(scope.path(file))
    added = late if whole.endswith(b"\n") or not whole else b"\n" + late
    text = added.decode("utf-8", "surrogateescape")
    return {"file": file, "append": text, "at": len(whole), "times": whole.count(added)}


def forget(scope: Scope, name: str, steps: list[Step]) -> None:
    """Remove an intent, durably: one that came back after a crash would undo later writes."""
    tree = scope.tree
    # Nor must a file that it removed come back. Each directory is synced once.
    for directory in {scope.path(file).rpartition("/")[0] for file in _removed(steps)}:
        with suppress(FileNotFoundError):
            tree.sync_parent(f"{directory}/any")
    # Last, because it needs room on the disk: by now the memories are where they belong.
    for directory in {step["bundle"].rpartition("/")[0] for step in steps if "bundle" in step}:
        if tree.exists(directory):
            from .bundle import describe  # late: it loads tar and gzip

            describe(tree, directory)
    tree.unlink(name)
    tree.sync_parent(name)


def pending(scope: Scope) -> list[str]:
    """Return the intents of a scope."""
    found = intents(scope.tree)
    return [f"{JOURNAL}/{name}" for name, one in found.items() if one.scope == scope.name]


def intents(tree: Tree) -> dict[str, IntentName]:
    """Return the intents of every scope by their names in the journal."""
    parsed = {name: parse_intent(name) for name in tree.entries_known(JOURNAL)}
    return {name: one for name, one in parsed.items() if one is not None}


def load(scope: Scope, name: str) -> list[Step]:
    """Return the steps of an intent; none, and the intent in quarantine, where it is not ours.

    Raise NewerFormat, UnsafePath or OSError where a change may be recorded that cannot be read.
    """
    try:
        steps = _steps(scope.tree, name)
    except FileNotFoundError:
        return []  # it is done
    with suppress(*_NONSENSE):
        if steps is not None and all(_is_sound(scope, step) for step in steps):
            return steps
    _refuse(scope, name)
    return []


def problem_of(tree: Tree, name: str) -> SMPError | OSError | None:
    """Return why nobody can read an intent, so that its session waits; None where it is no such."""
    try:
        _steps(tree, name)
    except FileNotFoundError:
        return None
    except (SMPError, OSError) as error:
        return error
    return None


def _steps(tree: Tree, name: str) -> list[Step] | None:
    """Return what an intent states as its steps; None where it is not ours.

    A file with a second name may be ours, as a backup program makes it. A link is not.
    """
    if not stat.S_ISREG(tree.stat(name).st_mode):
        return None
    try:
        content = tree.read(name)
    except UnsafePath as error:
        raise UnsafePath(str(error).removesuffix(error.advice).rstrip(), advice=_BY_HAND) from error
    with suppress(*_OTHER_FORM):
        intent = json.loads(content)
        version = stated(intent.get("version"))
        if version > FORMAT_VERSION:
            require_known(version, name)
        return list(intent["steps"]) if version == FORMAT_VERSION else None
    return None


def _refuse(scope: Scope, name: str) -> None:
    """Quarantine an intent that is none of ours: it can have come with a cloned repository."""
    with suppress(FileNotFoundError):  # another process was first
        quarantine_entry(scope, name, _FOREIGN)


def _is_sound(scope: Scope, step: Any) -> bool:
    """Return whether a step stays in its session, and names only files that there can be.

    A step of another form raises when it is carried out, and the intent is refused then.
    """
    if not all(is_path(step[name]) for name in _PATHS if step.get(name) is not None):
        return False
    if "bundle" in step:
        places = tuple(f"{place}/{scope.name}/" for place in (ARCHIVED, DELETED))
        is_made = step["aside"] is None or _is_inside(step["aside"], TEMPORARY)
        return is_made and bool(step["bundle"].startswith(places))
    if "directory" in step:
        ends = {step["directory"], step["to"]} - {f"{ACTIVE}/{scope.name}"}
        is_aside = any(_is_inside(end, place) for end in ends for place in (TEMPORARY, LEAVING))
        return len(ends) == 1 and is_aside and type(step["inode"]) is int
    if "left" in step:
        left = parse_leaving(step["left"].removeprefix(f"{LEAVING}/"))
        is_slot = _is_inside(step["left"], LEAVING) and left == LeavingName(scope.name, False)
        return is_slot and isinstance(step["packed"], dict)
    if "retired" in step:
        slots = [slot for slot in (step["retired"], step["to"]) if slot is not None]
        if not all(_is_old_version(scope, slot) for slot in slots):
            return False
    numbers = [step[name] for name in ("at", "last", "times") if name in step]
    is_numbered = all(type(number) is int and 0 <= number < 1 << 60 for number in numbers)
    is_kept = isinstance(step["file"], str) and is_versioned(step["file"])
    return is_numbered and (is_kept or _is_drop(step))


def _is_drop(step: Mapping[str, Any]) -> bool:
    return "remove" in step and _is_inside(step["file"], INBOX)


def _is_inside(path: str, directory: str) -> bool:
    return path.startswith(f"{directory}/") and path.count("/") == directory.count("/") + 1


def _is_old_version(scope: Scope, path: str) -> bool:
    old = parse_old(path.removeprefix(f"{RETIRED}/"))
    return _is_inside(path, RETIRED) and old is not None and old.scope == scope.name


def _removed(steps: list[Step]) -> set[str]:
    return {step["file"] for step in steps if "remove" in step}


def _files(steps: list[Step]) -> set[str]:
    # A drop has no lock: nobody writes to it any more.
    return {step["file"] for step in steps if "file" in step and "remove" not in step}


def _recorded(scope: Scope) -> list[Step]:
    return [step for name in pending(scope) for step in load(scope, name)]


# Questions.


def left_behind(scope: Scope, files: Iterable[str]) -> bool:
    """Return whether an intent over one of these files, which are locked, was cut off."""
    steps = _recorded(scope)
    return any("directory" in step for step in steps) or not _files(steps).isdisjoint(files)


def read(scope: Scope, file: str) -> bytes:
    """Return a file as it is after every recorded intent; nothing where there is no file."""
    while True:
        recorded = {name: load(scope, name) for name in pending(scope)}
        content = b""
        with suppress(FileNotFoundError):
            content = scope.tree.read(scope.path(file))
        # An intent that is forgotten by now may have been followed by other writes: look again.
        if all(scope.tree.exists(name) for name in recorded):
            for steps in recorded.values():
                with suppress(*_NONSENSE):  # whoever carries it out quarantines it
                    for step in steps:
                        if step.get("file") == file:
                            content = _after(scope, step, content)
            return content


def going(scope: Scope) -> set[str]:
    """Return the files that a recorded intent removes, and that are still there."""
    return _removed(_recorded(scope))


def files_of(scope: Scope) -> set[str]:
    """Return the files that a recorded intent has yet to change."""
    return {step["file"] for step in _recorded(scope) if "file" in step}


def asides(tree: Tree) -> set[str]:
    """Return the temporaries that an intent names: they are not abandoned.

    Raise NewerFormat, UnsafePath or OSError where an intent cannot be read, which may name any.
    """
    found: set[str] = set()
    for name in intents(tree):
        with suppress(FileNotFoundError, *_OTHER_FORM):
            for step in _steps(tree, f"{JOURNAL}/{name}") or ():
                found.add(str(step.get("aside") or step.get("directory")))
    return found


# Recovery.


def recover(scope: Scope, *, wait: bool) -> None:
    """Roll every pending intent forward. One whose writer is at work is waited for, or left to it.

    One that changes files stays while its session is away.
    """
    deadline = time.monotonic() + (scope.options.lock_timeout_s if wait else NO_PATIENCE)
    for name in pending(scope):
        while scope.tree.exists(name):
            try:
                _recover_one(scope, name)
                break
            except FileNotFoundError:
                if scope.tree.exists(name):
                    raise  # something that the intent needs is gone
            except LockTimeout:
                if not wait:
                    break
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)


def _recover_one(scope: Scope, name: str) -> None:
    steps = load(scope, name)
    if not steps:
        return
    home = scope.home()
    doing = "finishing a change"
    files = guarded(scope.name, _files(steps))
    with ExitStack() as stack:
        # The locks of whoever wrote the intent.
        if not scope.in_upkeep and any("file" not in step for step in steps):
            stack.enter_context(lock(scope.tree, scope.name, UPKEEP, NO_PATIENCE, doing))
        stack.enter_context(lock_all(scope.tree, scope.name, files, NO_PATIENCE, doing))
        is_away = bool(files) and not scope.tree.exists(home.directory)
        if is_away or not scope.tree.exists(name):
            return
        try:
            for step in steps:
                carry_out(home, step)
        except BadYaml:
            raise
        except _NONSENSE:
            _refuse(scope, name)
        else:
            forget(home, name, steps)


# Steps.


def carry_out(
    scope: Scope,
    step: Mapping[str, Any],
    kept: list[str] | None = None,
    ready: tuple[bytes, bytes] | None = None,
) -> bytes | None:
    """Carry one step out; do nothing where it was done before. Return a rewritten file's content.

    The ids of records that somebody changed without a lock, and that therefore stay, go to `kept`.
    `ready` is a content of the file and its content after the step, where these are known.
    """
    if "bundle" in step:
        _name_bundle(scope.tree, step)
        return None
    if "directory" in step:
        _rename_directory(scope.tree, step)
        return None
    if "left" in step:
        if scope.tree.exists(step["left"]):
            scope.tree.replace(f"{step['left']}.json", json.dumps(step["packed"]).encode())
        return None
    file = step["file"]
    path = scope.path(file)
    if "remove" in step:
        _remove_drop(scope.tree, path, step["remove"])
        return None
    if "retired" in step:
        _settle_old(scope.tree, step["retired"], step["to"])
        return None
    if scope.tree.exists(path):
        if "append" in step:
            _append_once(scope.tree, path, step)
            return None
    elif "append" not in step and not _makes_file(step):
        return None  # nothing is left to be changed
    if "/" in file:
        scope.tree.make_directory(path.rpartition("/")[0], inside=scope.directory)

    def after(content: bytes) -> bytes:
        is_ready = ready is not None and content == ready[0]
        return ready[1] if ready and is_ready else _after(scope, step, content, kept)

    return rewrite(scope, file, after)


def _makes_file(step: Mapping[str, Any]) -> bool:
    adds = any(old is None for _, old, _, _ in step.get("edit", ()))
    return adds or ("content" in step and step.get("old") is None)


def _after(
    scope: Scope, step: Mapping[str, Any], content: bytes, kept: list[str] | None = None
) -> bytes:
    """Return the file after a step; the file itself where the step was done before."""
    if "remove" in step:
        return b""
    if "retired" in step:
        return content
    if "content" in step:
        new = bytes(step["content"].encode("utf-8", "surrogateescape"))
        is_as_read = "old" not in step or not content or hash_of_bytes(content) == step["old"]
        if not is_as_read and content != new:
            if kept is not None:
                kept.append(step["file"])
            return content
        return new
    if not content and is_record_file(step["file"]):
        kind = kind_of_file(step["file"])
        content = format_of(kind).empty(scope.name, scope.options.clock(), [])
    if "edit" in step:
        kind = kind_of_file(step["file"])
        edits = [Edit(*edit) for edit in step["edit"]]
        done = edited(kind, content, edits, step["last"])
        if kept is not None:
            kept[:] = done.kept
        return done.content
    stays, added = _missing(step, content[step["at"] :], content)
    return content[: step["at"] + stays] + added


def _append_once(tree: Tree, path: str, step: Mapping[str, Any]) -> None:
    at = step["at"]
    with tree.opened(path, os.O_RDWR | os.O_APPEND) as descriptor:
        behind = read_from(descriptor, at)
        whole = b"" if os.fstat(descriptor).st_size == at else read_from(descriptor, 0)
        stays, added = _missing(step, behind, whole)
        if stays < len(behind):
            os.ftruncate(descriptor, at + stays)
        write_all(descriptor, added)
        sync(descriptor)


def _missing(step: Mapping[str, Any], behind: bytes, whole: bytes) -> tuple[int, bytes]:
    """Return how many bytes stay behind the place of an append, and the bytes that follow."""
    content = step["append"].encode("utf-8", "surrogateescape")
    # Ids are never given twice: equal bytes are this step's own, even where an edit moved them.
    # Only bytes of somebody else may have stood there before, so often.
    if whole.count(content) > step.get("times", 0):
        return len(behind), b""
    if content.startswith(behind):
        return 0, content
    return len(behind), content if behind.endswith(b"\n") else b"\n" + content


def _settle_old(tree: Tree, slot: str, following: str | None) -> None:
    """Give an old version its new name, or remove it. Durably: else its bytes come in again."""
    if following is None:
        tree.unlink(slot)
    elif tree.exists(slot):
        tree.rename(slot, following)
    tree.sync_parent(slot)


def _name_bundle(tree: Tree, step: Mapping[str, Any]) -> None:
    """Give a bundle that was made aside its name, or unlink the one that is empty now."""
    path, aside = step["bundle"], step["aside"]
    if aside is None:
        if tree.exists(path) and version_of(tree.stat(path)) == step["was"]:
            tree.unlink(path)
            tree.sync_parent(path)
    elif tree.exists(aside):
        tree.make_directory(path.rpartition("/")[0])
        tree.rename(aside, path)
        tree.sync_parent(path)


def _rename_directory(tree: Tree, step: Mapping[str, Any]) -> None:
    """Rename the directory of a session. Raise ValueError where it is gone: nothing may follow."""
    source, target = step["directory"], step["to"]
    is_there = tree.exists(target)
    if not is_there and tree.exists(source) and tree.stat(source).st_ino == step["inode"]:
        tree.make_directory(target.rpartition("/")[0])
        tree.rename_new(source, target)
        for name in (source, target):
            tree.sync_parent(name)
    elif not is_there and target.startswith(f"{ACTIVE}/"):
        raise ValueError("the session that was to come back is gone")


def _remove_drop(tree: Tree, path: str, read: list[int]) -> None:
    """Remove a file. One that came under its name meanwhile is another, and goes back."""
    if not tree.exists(path) or version_of(tree.stat(path)) != read:
        return
    aside = tree.new_temporary()
    tree.rename(path, aside)
    if version_of(tree.stat(aside)) == read:
        tree.unlink(aside)
    else:
        tree.rename_beside(aside, path)
