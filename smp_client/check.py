"""Reading everything once, and saying what is wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from .errors import NewerFormat, SMPError
from .index import FileState, Index, UnusableIndex
from .indexing import describe, directory_of, files_of, is_unchanged, scopes, unnameable
from .layout import GLOBAL
from .memory import Memory
from .quarantine import quarantined
from .status import INDEX_FILE


@dataclass(frozen=True)
class Complaint:
    """Something that is not as it should be; `advice` says what to do about it."""

    scope: str
    file: str
    line: int | None
    problem: str
    advice: str


def check(memory: Memory) -> list[Complaint]:
    """Reads every file; changes nothing. Raises where there is no memory at all."""
    memory.require()
    return [*_unreadable(memory), *_silently_changed(memory), *_quarantined(memory)]


def _unreadable(memory: Memory) -> Iterator[Complaint]:
    for scope in scopes(memory):
        files = memory.everywhere if scope == GLOBAL else memory.session(scope)
        try:
            for problem in files.problems():
                yield Complaint(scope, problem.file, problem.line, problem.problem, "Mend it by hand.")
        except NewerFormat:
            # Named below, with its file.
            continue
        finally:
            yield from _unreadable_files(memory, scope)


def _unreadable_files(memory: Memory, scope: str) -> Iterator[Complaint]:
    for file in unnameable(memory, scope):
        yield Complaint(scope, file.encode("utf-8", "backslashreplace").decode(), None, "no memory can have this name",
                        "Rename it: letters, digits, '_' and '-'.")  # fmt: skip
    for file in files_of(memory, scope):
        try:
            counted = Counter(memory_id for memory_id, _ in _described(memory, scope, file))
        except (SMPError, OSError) as error:
            yield Complaint(scope, file, None, _without_advice(error), "Mend it by hand.")
            continue
        for memory_id, times in counted.items():
            if times > 1:
                yield Complaint(scope, file, None, f"{times} records have the id {memory_id}", "Give all but one another id.")


def _silently_changed(memory: Memory) -> Iterator[Complaint]:
    """Content that differs although nobody has written the file since it was indexed: a disk that forgets."""
    path = memory.root / INDEX_FILE
    if not path.exists():
        return
    try:
        index = Index.open_to_read(path)
    except UnusableIndex as error:
        yield Complaint("", INDEX_FILE, None, f"the index cannot be used: {error}", "Run smp reindex.")
        return
    try:
        for (scope, file), state in index.files().items():
            yield from _changed_since(memory, index, scope, file, state)
    finally:
        index.close()


def _changed_since(memory: Memory, index: Index, scope: str, file: str, state: FileState) -> Iterator[Complaint]:
    path = f"{directory_of(scope)}/{file}"
    try:
        if not is_unchanged(state, memory.tree.stat(path)):
            return
        found = set(_described(memory, scope, file))
    except (SMPError, OSError):
        # That it cannot be read is said already.
        return
    for memory_id, _ in sorted(index.hashes(scope, file) - found):
        yield Complaint(scope, file, None, f"{memory_id} has changed although the file was not written",
                        "Compare it with a backup; the disk may be failing.")  # fmt: skip


def _described(memory: Memory, scope: str, file: str) -> list[tuple[str, str]]:
    return describe(scope, file, memory.tree.read(f"{directory_of(scope)}/{file}"))


def _quarantined(memory: Memory) -> Iterator[Complaint]:
    for name in quarantined(memory):
        yield Complaint("", name, None, "bytes that were set aside",
                        "Read the note beside it, take out what you need, and remove both.")  # fmt: skip


def _without_advice(error: Exception) -> str:
    return str(error).removesuffix(getattr(error, "advice", "")).rstrip(" .")
