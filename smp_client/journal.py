"""All or nothing over several files: what a transaction will do is made durable first, then done.

Once an intent is in `.smp/journal/` the transaction happens: its writer carries it out while it holds the files' locks, and if
it dies, whoever comes next does. Every step can be carried out again without harm.
"""

from __future__ import annotations

import json
import os
import stat
import uuid
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .errors import LockTimeout, UnsafePath
from .files import read_from, sync, write_all
from .layout import JOURNAL, TEMPORARY
from .locks import NO_PATIENCE, lock_all
from .quarantine import set_aside
from .records import kind_of_file
from .rewrite import rewrite
from .text.format import format_of, insert_missing
from .text.values import BadYaml
from .text.version import require_known, stated

if TYPE_CHECKING:
    from .scope import Scope

_NAME_CAP = 1000
# What is raised over an intent that is not of our form; of a file that cannot be read, BadYaml is.
_NONSENSE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, StopIteration, UnsafePath)


def record(scope: Scope, steps: list[dict[str, Any]]) -> str:
    """Makes the intent durable: from here on the transaction happens. Gives back its name."""
    content = json.dumps({"version": 1, "scope": scope.name, "steps": steps}).encode()
    scope.tree.make_directory(JOURNAL)
    name = f"{JOURNAL}/{scope.name}+{uuid.uuid4().hex}.json"
    try:
        scope.tree.create(name, content + b"\n" + str(zlib.crc32(content)).encode())
    except OSError:
        # It can be there and only not known to be durable: whoever is told that it failed may repeat it.
        scope.tree.unlink(name)
        raise
    return name


def forget(scope: Scope, name: str) -> None:
    """Durable, because an intent that came back after a power failure would undo the writes that followed it."""
    # Nor must a file that it took out come back with the power. Each directory is synced once, however many went from it.
    for directory in {scope.path(file).rpartition("/")[0] for file in _removed(load(scope, name))}:
        with suppress(FileNotFoundError):
            scope.tree.sync_parent(f"{directory}/any")
    scope.tree.unlink(name)
    scope.tree.sync_parent(name)


def left_behind(scope: Scope, files: Iterable[str]) -> bool:
    """Whether a transaction over one of these files, whose locks the caller holds, was cut off."""
    wanted = set(files)
    return any(wanted & _files(load(scope, name)) for name in pending(scope))


def recover(scope: Scope, *, wait: bool) -> None:
    """Finishes the transactions that were cut off. One whose writer is still at work is waited for, or left to it."""
    for name in pending(scope):
        try:
            steps = load(scope, name)
            patience = scope.options.patience if wait else NO_PATIENCE
            with lock_all(scope.tree, scope.name, _files(steps), patience, "finishing a transaction"):
                if scope.tree.exists(name):
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
        except FileNotFoundError:
            continue
        except LockTimeout:
            if wait:
                raise


def read(scope: Scope, file: str) -> bytes:
    """The bytes of a file with every transaction done that is recorded, also where it is not yet; none where there is no file."""
    while True:
        recorded = {name: load(scope, name) for name in pending(scope)}
        content = _content(scope, file)
        # One that is done and forgotten by now may have been followed by other writes: look again.
        if all(scope.tree.exists(name) for name in recorded):
            for steps in recorded.values():
                with suppress(*_NONSENSE):  # whoever carries it out sets it aside
                    for step in steps:
                        content = _after(scope, step, content) if step["file"] == file else content
            return content


def going(scope: Scope) -> set[str]:
    """The files that a recorded transaction takes out whole, and that are still there."""
    return {file for name in pending(scope) for file in _removed(load(scope, name))}


def _content(scope: Scope, file: str) -> bytes:
    try:
        return scope.tree.read(scope.path(file))
    except FileNotFoundError:
        return b""


def load(scope: Scope, name: str) -> list[dict[str, Any]]:
    try:
        content, _, checksum = scope.tree.read(name).rpartition(b"\n")
    except FileNotFoundError:
        return []
    if str(zlib.crc32(content)).encode() != checksum:
        # An entry appears whole or not at all, so the disk has changed it: nobody can tell any more what it was to do.
        why = "a recorded transaction that the disk has damaged"
        set_aside(scope.tree, scope.name, "journal", 0, content + b"\n" + checksum, why, scope.options.clock())
        scope.tree.unlink(name)
        return []
    try:
        intent = json.loads(content)
        require_known(stated(intent.get("version")), name)
        return _sound(intent["steps"])
    except _NONSENSE:
        _refuse(scope, name)
        return []


def _sound(steps: Any) -> list[dict[str, Any]]:
    """Return the steps; raise ValueError where they are not of our form. What they do is for `carry_out` to refuse."""
    for step in steps:
        file = step["file"]
        if not isinstance(file, str) or not 0 < len(file) < _NAME_CAP or "\0" in file or ".." in file.split("/") or file[0] == "/":
            raise ValueError("no file of a session")
        if "append" in step and not (isinstance(step["append"], str) and type(step["at"]) is int and step["at"] >= 0):
            raise ValueError("no append")
        if "remove" in step and not all(type(number) is int for number in step["remove"]):
            raise ValueError("no drop")
        if "content" in step and not isinstance(step["content"], str):
            raise ValueError("no content")
    return list(steps)


def _refuse(scope: Scope, name: str) -> None:
    """Set aside an intent that is none of ours: it can have come with a cloned repository."""
    why = "a recorded transaction that makes no sense: SMP has not written it"
    set_aside(scope.tree, scope.name, "journal", 0, scope.tree.read(name), why, scope.options.clock())
    scope.tree.unlink(name)


def carry_out(scope: Scope, step: Mapping[str, Any]) -> None:
    """One step of an intent; does nothing where it has been done before."""
    file = step["file"]
    if "append" in step and scope.tree.exists(scope.path(file)):
        _append_once(scope, scope.path(file), step["append"].encode(), step["at"])
    elif "remove" in step:
        _remove_drop(scope, scope.path(file), step["remove"])
    elif ("cut" in step or "decay" in step or "splice" in step) and not scope.tree.exists(scope.path(file)):
        return  # there is nothing left to be changed
    else:
        if "/" in file:
            scope.tree.make_directory(scope.path(file).rpartition("/")[0])
        rewrite(scope, file, lambda content: _after(scope, step, content))


def _after(scope: Scope, step: Mapping[str, Any], content: bytes) -> bytes:
    """What a step makes of a file; the file itself where the step has been done before."""
    if "content" in step:
        return bytes(step["content"].encode())
    if "remove" in step:
        return b""
    if "decay" in step:
        from . import decay_lines

        return decay_lines.changed(step["file"], content, decay_lines.from_step(step))
    if "cut" in step:
        from .access import after_cut  # which needs us

        return after_cut(content, step)
    kind = kind_of_file(step["file"])
    if "splice" in step:
        from .splicing import from_step, splice  # which needs the index's idea of a record

        return splice(kind, content, from_step(step))
    form = format_of(kind)
    if "append" in step:
        # Somebody may have removed the file since.
        content = content or form.empty(scope.name, scope.options.clock(), [])
        kept, added = _missing(content[step["at"] :], content, step["append"].encode())
        return content[: step["at"] + kept] + added
    return form.rewrite(insert_missing(form, content, step["insert"]), step["change"], step["last"])


def _append_once(scope: Scope, path: str, content: bytes, at: int) -> None:
    with scope.tree.opened(path, os.O_RDWR | os.O_APPEND) as descriptor:
        behind = read_from(descriptor, at)
        whole = b"" if os.fstat(descriptor).st_size == at else read_from(descriptor, 0)
        kept, added = _missing(behind, whole, content)
        if kept < len(behind):
            os.ftruncate(descriptor, at + kept)
        write_all(descriptor, added)
        sync(descriptor)


def _missing(behind: bytes, whole: bytes, content: bytes) -> tuple[int, bytes]:
    """How much stays of what stands behind the place of an append, and what has to follow it."""
    # Ids are never given twice, so the same bytes can only be this step's own, even where an edit has moved them.
    if content in whole:
        return len(behind), b""
    if content.startswith(behind):
        return 0, content
    return len(behind), content if behind.endswith(b"\n") else b"\n" + content


def _remove_drop(scope: Scope, path: str, read: list[int]) -> None:
    """Takes it out of the inbox first: a file that came under the same name meanwhile is another drop, and goes back."""
    aside = f"{TEMPORARY}/{uuid.uuid4().hex}"
    if not scope.tree.exists(path) or _version(scope, path) != read:
        return
    scope.tree.make_directory(TEMPORARY)
    scope.tree.rename(path, aside)
    if _version(scope, aside) == read:
        scope.tree.unlink(aside)
    else:
        scope.tree.rename_beside(aside, path)


def _version(scope: Scope, path: str) -> list[int]:
    status = scope.tree.stat(path)
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def pending(scope: Scope) -> list[str]:
    """The transactions that are recorded and not yet done."""
    names = [f"{JOURNAL}/{name}" for name in scope.tree.list(JOURNAL) if name.startswith(f"{scope.name}+")]
    return [name for name in names if _is_plain(scope, name)]


def _is_plain(scope: Scope, name: str) -> bool:
    """Return whether it is a file: SMP records nothing in a link or a directory."""
    try:
        return stat.S_ISREG(scope.tree.stat(name).st_mode)
    except FileNotFoundError:
        return False


def _removed(steps: list[dict[str, Any]]) -> set[str]:
    return {step["file"] for step in steps if "remove" in step}


def _files(steps: list[dict[str, Any]]) -> set[str]:
    # A drop has no lock: nobody writes to it any more.
    return {step["file"] for step in steps if "remove" not in step}
