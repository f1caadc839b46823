"""The journal: the only place that knows of unfinished work.

An intent describes a change that must happen as a whole. Once it is durable in `.smp/journal/` the
change happens: its writer carries the steps out while it holds the locks, and if the writer dies,
whoever comes next does. Every step can be carried out again without harm.

The steps are: append records behind the end of a file; edit records of a file; replace or remove a
file; cut the access log; name, replace or unlink a bundle; rename the directory of a session.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..model.errors import LockTimeout, UnsafePath
from ..model.layout import ACTIVE, ARCHIVED, DELETED, JOURNAL, LEAVING, TEMPORARY
from ..model.record import kind_of_file
from ..text.edits import Edit, edited
from ..text.fingerprint import hash_of_bytes
from ..text.format import format_of
from ..text.values import BadYaml
from ..text.version import require_known, stated
from .locks import NO_PATIENCE, Patience, lock, lock_all
from .quarantine import set_aside
from .rewrite import rewrite
from .tree import Tree, read_from, sync, write_all

if TYPE_CHECKING:
    from .scope import Scope

_NAME_CAP = 1000
# What is raised over an intent that is not of our form; of a file that cannot be read, BadYaml is.
_NONSENSE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, StopIteration, UnsafePath)


UPKEEP = "upkeep"  # the lock of a session that every pass takes before any other


def record(scope: Scope, steps: list[dict[str, Any]]) -> str:
    """Make an intent durable, and return its name. From here on the change happens."""
    content = json.dumps({"version": 1, "scope": scope.name, "steps": steps}).encode()
    scope.tree.make_directory(JOURNAL)
    name = f"{JOURNAL}/{scope.name}+{os.urandom(16).hex()}.json"
    try:
        scope.tree.create(name, content + b"\n" + str(zlib.crc32(content)).encode())
    except OSError:
        # It can be there and only not known to be durable: the caller, who sees it fail, may repeat it.
        scope.tree.unlink(name)
        raise
    return name


def forget(scope: Scope, name: str) -> None:
    """Remove an intent, durably: one that came back after a power failure would undo later writes."""
    steps = load(scope, name)
    # Nor must a file that it removed come back. Each directory is synced once, however many went.
    for directory in {scope.path(file).rpartition("/")[0] for file in _removed(steps)}:
        with suppress(FileNotFoundError):
            scope.tree.sync_parent(f"{directory}/any")
    # Last, because it needs room on the disk: by now the memories are where they belong.
    for directory in {step["bundle"].rpartition("/")[0] for step in steps if "bundle" in step}:
        if scope.tree.exists(directory):
            from .inventory import describe  # late: it loads tar and gzip

            describe(scope.tree, directory)
    scope.tree.unlink(name)
    scope.tree.sync_parent(name)


def left_behind(scope: Scope, files: Iterable[str]) -> bool:
    """Return whether an intent over one of these files was cut off. The caller holds their locks."""
    wanted = set(files)
    found = [load(scope, name) for name in pending(scope)]
    return any(wanted & _files(steps) or any("directory" in step for step in steps) for steps in found)


def recover(scope: Scope, *, wait: bool, only_moves: bool = False) -> None:
    """Roll every pending intent forward. One whose writer is at work is waited for, or left to it.

    The intent of a move is of bundles and directories alone.
    """
    for name in pending(scope):
        try:
            steps = load(scope, name)
            if only_moves and _files(steps):
                continue
            patience = scope.options.patience if wait else NO_PATIENCE
            with _locked(scope, steps, patience):
                if scope.tree.exists(name):
                    _roll_forward(scope.home(), name, steps)
        except FileNotFoundError:
            if scope.tree.exists(name):
                raise  # not the intent is gone, but something that it needs
        except LockTimeout:
            if wait:
                raise


def _roll_forward(scope: Scope, name: str, steps: list[dict[str, Any]]) -> None:
    if _files(steps):
        scope.require()
    try:
        for step in steps:
            carry_out(scope, step)
    except BadYaml:
        raise
    except _NONSENSE:
        _refuse(scope, name)
    else:
        forget(scope, name)


@contextmanager
def _locked(scope: Scope, steps: list[dict[str, Any]], patience: Patience) -> Iterator[None]:
    """Hold the locks of whoever wrote the intent."""
    doing = "finishing a change"
    moves = any("bundle" in step or "directory" in step for step in steps)
    with ExitStack() as stack:
        if moves and not scope.in_upkeep:
            stack.enter_context(lock(scope.tree, scope.name, UPKEEP, patience, doing))
        stack.enter_context(lock_all(scope.tree, scope.name, _files(steps), patience, doing))
        yield


def read(scope: Scope, file: str) -> bytes:
    """Return a file as it is after every recorded intent; nothing where there is no file."""
    while True:
        recorded = {name: load(scope, name) for name in pending(scope)}
        content = _content(scope, file)
        # An intent that is forgotten by now may have been followed by other writes: look again.
        if all(scope.tree.exists(name) for name in recorded):
            for steps in recorded.values():
                with suppress(*_NONSENSE):  # whoever carries it out quarantines it
                    for step in steps:
                        content = _after(scope, step, content) if step.get("file") == file else content
            return content


def going(scope: Scope) -> set[str]:
    """Return the files that a recorded intent removes, and that are still there."""
    return {file for name in pending(scope) for file in _removed(load(scope, name))}


def files_of(scope: Scope) -> set[str]:
    """Return the files that a recorded intent has yet to change."""
    return {step["file"] for name in pending(scope) for step in load(scope, name) if "file" in step}


def asides(tree: Tree) -> set[str]:
    """Return the temporaries that an intent names: they are not abandoned."""
    found: set[str] = set()
    for name in tree.list(JOURNAL):
        with suppress(OSError, UnsafePath, *_NONSENSE):
            intent = json.loads(tree.read(f"{JOURNAL}/{name}").rpartition(b"\n")[0])
            found |= {str(step.get("aside") or step.get("directory")) for step in intent["steps"]}
    return found


def _content(scope: Scope, file: str) -> bytes:
    try:
        return scope.tree.read(scope.path(file))
    except FileNotFoundError:
        return b""


def load(scope: Scope, name: str) -> list[dict[str, Any]]:
    """Return the steps of an intent; none, and the intent in quarantine, where it is not ours."""
    try:
        content, _, checksum = scope.tree.read(name).rpartition(b"\n")
    except FileNotFoundError:
        return []
    if str(zlib.crc32(content)).encode() != checksum:
        # An entry appears whole or not at all, so the disk has changed it.
        why = "a recorded transaction that the disk has damaged"
        set_aside(scope.tree, scope.name, "journal", 0, content + b"\n" + checksum, why, scope.options.clock())
        scope.tree.unlink(name)
        return []
    try:
        intent = json.loads(content)
        require_known(stated(intent.get("version")), name)
        return _sound(scope, intent["steps"])
    except _NONSENSE:
        _refuse(scope, name)
        return []


def _sound(scope: Scope, steps: Any) -> list[dict[str, Any]]:
    """Return the steps; raise ValueError where one is not of our form."""
    for step in steps:
        if "bundle" in step:
            inside = any(step["bundle"].startswith(f"{place}/{scope.name}/") for place in (ARCHIVED, DELETED))
            aside = step["aside"]
            if not inside or not (aside is None or _is_inside(aside, TEMPORARY)):
                raise ValueError("no bundle of this session")
            continue
        if "directory" in step:
            ends = {step["directory"], step["to"]} - {f"{ACTIVE}/{scope.name}"}
            inside = any(_is_inside(end, place) for end in ends for place in (TEMPORARY, LEAVING))
            if len(ends) != 1 or type(step["inode"]) is not int or not inside:
                raise ValueError("no directory of this session")
            continue
        file = step["file"]
        if not isinstance(file, str) or not 0 < len(file) < _NAME_CAP or "\0" in file or ".." in file.split("/") or file[0] == "/":
            raise ValueError("no file of a session")
        if "append" in step and not (isinstance(step["append"], str) and type(step["at"]) is int and step["at"] >= 0):
            raise ValueError("no append")
        if "remove" in step and not all(type(number) is int for number in step["remove"]):
            raise ValueError("no drop")
        if "content" in step and not isinstance(step["content"], str):
            raise ValueError("no content")
        if "edit" in step and not (type(step["last"]) is int and all(_is_edit(edit) for edit in step["edit"])):
            raise ValueError("no edit")
    return list(steps)


def _is_inside(path: Any, directory: str) -> bool:
    return isinstance(path, str) and path.startswith(f"{directory}/") and path.count("/") == directory.count("/") + 1


def _is_edit(edit: Any) -> bool:
    return len(edit) == 4 and isinstance(edit[0], str) and all(isinstance(part, (str, type(None))) for part in edit)


def _refuse(scope: Scope, name: str) -> None:
    """Quarantine an intent that is none of ours: it can have come with a cloned repository."""
    why = "a recorded transaction that makes no sense: SMP has not written it"
    set_aside(scope.tree, scope.name, "journal", 0, scope.tree.read(name), why, scope.options.clock())
    scope.tree.unlink(name)


def carry_out(
    scope: Scope, step: Mapping[str, Any], kept: list[str] | None = None, ready: tuple[bytes, bytes] | None = None
) -> bytes | None:
    """Carry one step out; do nothing where it was done before. Return a rewritten file's content.

    The ids of records that somebody changed without a lock, and that therefore stay, go to `kept`.
    `ready` is a content of the file and what the step makes of it, where that is known already.
    """
    if "bundle" in step:
        _name_bundle(scope, step)
        return None
    if "directory" in step:
        _rename_directory(scope.tree, step)
        return None
    file = step["file"]
    if "append" in step and scope.tree.exists(scope.path(file)):
        _append_once(scope, scope.path(file), step["append"].encode(), step["at"])
        return None
    if "remove" in step:
        _remove_drop(scope, scope.path(file), step["remove"])
        return None
    if _CHANGES & step.keys() and not scope.tree.exists(scope.path(file)) and not _arrives(step):
        return None  # nothing is left to be changed
    if "/" in file:
        scope.tree.make_directory(scope.path(file).rpartition("/")[0])

    def after(content: bytes) -> bytes:
        return ready[1] if ready is not None and content == ready[0] else _after(scope, step, content, kept)

    return rewrite(scope, file, after)


_CHANGES = frozenset(("cut", "edit", "content"))


def _arrives(step: Mapping[str, Any]) -> bool:
    return any(old is None for _, old, _, _ in step.get("edit", ())) or ("content" in step and step.get("old") is None)


def _name_bundle(scope: Scope, step: Mapping[str, Any]) -> None:
    """Give a bundle that was made aside its name, or unlink the one that is empty now."""
    tree, path, aside = scope.tree, step["bundle"], step["aside"]
    if aside is None:
        if tree.exists(path) and _version_of(tree, path) == step["was"]:
            tree.unlink(path)
            tree.sync_parent(path)
    elif tree.exists(aside):
        tree.make_directory(path.rpartition("/")[0])
        tree.rename(aside, path)
        tree.sync_parent(path)


def _rename_directory(tree: Tree, step: Mapping[str, Any]) -> None:
    """Rename the directory of a session; raise ValueError where it is nowhere, so that nothing follows."""
    source, target = step["directory"], step["to"]
    if tree.exists(source) and tree.stat(source).st_ino == step["inode"] and not tree.exists(target):
        tree.make_directory(target.rpartition("/")[0])
        tree.rename_new(source, target)
        for name in (source, target):
            tree.sync_parent(name)
    elif target.startswith(f"{ACTIVE}/") and not tree.exists(target):
        raise ValueError("the session that was to come back is gone")


def _after(scope: Scope, step: Mapping[str, Any], content: bytes, kept: list[str] | None = None) -> bytes:
    """Return what a step makes of a file; the file itself where the step was done before."""
    if "content" in step:
        new = bytes(step["content"].encode("utf-8", "surrogateescape"))
        is_as_read = "old" not in step or not content or hash_of_bytes(content) == step["old"]
        if is_as_read or content == new:
            return new
        if kept is not None:
            kept.append(step["file"])
        return content
    if "remove" in step:
        return b""
    if "cut" in step:
        from .access import after_cut  # which needs us

        return after_cut(content, step)
    kind = kind_of_file(step["file"])
    if "edit" in step:
        content = content or format_of(kind).empty(scope.name, scope.options.clock(), [])
        after, changed = edited(kind, content, [Edit(*edit) for edit in step["edit"]], step["last"])
        if kept is not None:
            kept[:] = changed
        return after
    # Of an append: somebody may have removed the file since.
    content = content or format_of(kind).empty(scope.name, scope.options.clock(), [])
    stays, added = _missing(content[step["at"] :], content, step["append"].encode())
    return content[: step["at"] + stays] + added


def _append_once(scope: Scope, path: str, content: bytes, at: int) -> None:
    with scope.tree.opened(path, os.O_RDWR | os.O_APPEND) as descriptor:
        behind = read_from(descriptor, at)
        whole = b"" if os.fstat(descriptor).st_size == at else read_from(descriptor, 0)
        stays, added = _missing(behind, whole, content)
        if stays < len(behind):
            os.ftruncate(descriptor, at + stays)
        write_all(descriptor, added)
        sync(descriptor)


def _missing(behind: bytes, whole: bytes, content: bytes) -> tuple[int, bytes]:
    """Return how much stays of the bytes behind the place of an append, and what has to follow."""
    # Ids are never given twice, so equal bytes can only be this step's own, even where an edit moved them.
    if content in whole:
        return len(behind), b""
    if content.startswith(behind):
        return 0, content
    return len(behind), content if behind.endswith(b"\n") else b"\n" + content


def _remove_drop(scope: Scope, path: str, read: list[int]) -> None:
    """Remove a file. One that came under the same name meanwhile is another, and goes back."""
    aside = f"{TEMPORARY}/{os.urandom(16).hex()}"
    if not scope.tree.exists(path) or _version_of(scope.tree, path) != read:
        return
    scope.tree.make_directory(TEMPORARY)
    scope.tree.rename(path, aside)
    if _version_of(scope.tree, aside) == read:
        scope.tree.unlink(aside)
    else:
        scope.tree.rename_beside(aside, path)


def version_of(status: os.stat_result) -> list[int]:
    """Return the identity by which a file that is to be removed is known to be the same."""
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def _version_of(tree: Tree, path: str) -> list[int]:
    return version_of(tree.stat(path))


def pending(scope: Scope) -> list[str]:
    """Return the intents of a scope that are recorded and not yet done."""
    names = [f"{JOURNAL}/{name}" for name in scope.tree.list(JOURNAL) if name.startswith(f"{scope.name}+")]
    return [name for name in names if _is_file(scope, name)]


def _is_file(scope: Scope, name: str) -> bool:
    """Return whether it is a plain file: SMP records nothing in a link or a directory."""
    try:
        return stat.S_ISREG(scope.tree.stat(name).st_mode)
    except FileNotFoundError:
        return False


def _removed(steps: list[dict[str, Any]]) -> set[str]:
    return {step["file"] for step in steps if "remove" in step}


def _files(steps: list[dict[str, Any]]) -> set[str]:
    # A drop has no lock: nobody writes to it any more.
    return {step["file"] for step in steps if "file" in step and "remove" not in step}
