"""Reading everything once, and saying what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .errors import SMPError
from .index import Index, UnusableIndex
from .indexing import describe, directory_of, files_of, is_unchanged, scopes
from .layout import GLOBAL, QUARANTINE
from .memory import Memory
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
    """Reads every file; changes nothing."""
    return [*_unreadable(memory), *_silently_changed(memory), *_quarantined(memory)]


def _unreadable(memory: Memory) -> Iterator[Complaint]:
    for scope in scopes(memory):
        files = memory.everywhere if scope == GLOBAL else memory.session(scope)
        try:
            for problem in files.problems():
                yield Complaint(scope, problem.file, problem.line, problem.problem, "Mend these lines by hand.")
        except (SMPError, OSError) as error:
            yield Complaint(scope, "", None, str(error), "Look at this file by hand.")
        yield from _unreadable_mappings(memory, scope)


def _unreadable_mappings(memory: Memory, scope: str) -> Iterator[Complaint]:
    for file in files_of(memory, scope):
        try:
            describe(scope, file, memory.tree.read(f"{directory_of(scope)}/{file}"))
        except (SMPError, OSError) as error:
            yield Complaint(scope, file, None, str(error), "Look at this file by hand.")


def _silently_changed(memory: Memory) -> Iterator[Complaint]:
    """Content that differs although nobody has written the file since it was indexed: a disk that forgets."""
    try:
        index = Index.open_to_read(memory.root / INDEX_FILE)
    except UnusableIndex as error:
        yield Complaint("", INDEX_FILE, None, f"the index cannot be used: {error}", "Run smp reindex.")
        return
    try:
        for (scope, file), state in index.files().items():
            path = f"{directory_of(scope)}/{file}"
            if not memory.tree.exists(path) or not is_unchanged(state, memory.tree.stat(path)):
                continue
            known = index.hashes(scope, file)
            for memory_id, digest in describe(scope, file, memory.tree.read(path)):
                if known.get(memory_id, digest) != digest:
                    yield Complaint(scope, file, None, f"{memory_id} has changed although the file was not written",
                                    "Compare it with a backup; the disk may be failing.")  # fmt: skip
    except SMPError as error:
        yield Complaint("", "", None, str(error), "Look at this file by hand.")
    finally:
        index.close()


def _quarantined(memory: Memory) -> Iterator[Complaint]:
    for scope in memory.tree.list(QUARANTINE):
        for name in memory.tree.list(f"{QUARANTINE}/{scope}"):
            if name.endswith(".bytes"):
                yield Complaint(scope, f"{QUARANTINE}/{scope}/{name}", None, "bytes that were set aside",
                                "Read the note beside it, take out what you need, and remove both.")  # fmt: skip
