"""Secrets that came in past the library, as by an editor or a shell: found in what the index holds.

What was written through the library is clean, so whatever is found here is not from there. The index remembers of each memory
whether it was looked at and what kinds were found; a memory that changes is a new one, so only what is new or changed is looked at,
whoever brought the index up to date.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ..errors import UnsafePath
from ..layout import GLOBAL
from ..records import STATE_HISTORY
from ..scopes import directory_of, is_archived, kinds_of
from ..session_files import METADATA
from ..text.document import Lines
from ..text.yaml_list import MARK

if TYPE_CHECKING:
    from ..index import Index
    from ..place import Place
    from .redaction import Redaction

_PROFILE = "user-profile.yaml"
_MARK = MARK.encode()
_ROUND = 1000
_ROUND_S = 1.0  # of processor time: then others have their turn
_FOUND_CAP = 10_000
_SETTING = "redaction"  # in the index: what was looked for
_UNSEEN = "SELECT key, type, text, data FROM memories WHERE secrets IS NULL ORDER BY key LIMIT ?"
_FOUND = "SELECT scope, file, id, start, hash, secrets FROM memories WHERE secrets > '' ORDER BY scope, file, start LIMIT ?"
_FOUND_IN_METADATA = "SELECT scope, secrets FROM sessions WHERE secrets > '' ORDER BY scope"
_WITH_STATES = "SELECT DISTINCT scope FROM files WHERE file > 'agent-states/' AND file < 'agent-states0' ORDER BY scope"
_READABLE = "SELECT scope, file, size, checksum, mtime_ns FROM files WHERE bad = 0 AND problem IS NULL"
_STATE = "SELECT size, bad, problem FROM files WHERE scope = ? AND file = ?"
_SPANS = "SELECT start, end, secrets FROM memories WHERE scope = ? AND file = ? ORDER BY start"
_COMMENT = re.compile(rb"(?<![^\s])#[^\n]*")
_SAY_OF_MEMORY, _SAY_OF_SESSION = "UPDATE memories SET secrets = ? WHERE key = ?", "UPDATE sessions SET secrets = ? WHERE scope = ?"
_COUNT = "SELECT (SELECT COUNT(*) FROM memories WHERE secrets > '') + (SELECT COUNT(*) FROM sessions WHERE secrets > '')"


@dataclass(frozen=True)
class Spotted:
    """A memory, or the metadata of a session, with something in it that looks like a secret; never what."""

    scope: str
    file: str
    id: str  # none of metadata
    start: int
    hash: str
    kinds: tuple[tuple[str, int], ...]

    @property
    def place(self) -> str:
        return f"{self.id or self.file} in {self.scope}"

    @property
    def key(self) -> tuple[object, ...]:
        """The same as long as it is the same secret in the same memory, wherever in its file that stands."""
        return self.scope, self.file, self.id, self.kinds

    @property
    def is_by_shape(self) -> bool:
        """Whether any of it is a secret by its shape, and not only something that was configured."""
        from .secrets.shapes import SECRET_KINDS

        return any(kind in SECRET_KINDS for kind, _ in self.kinds)


def look(index: Index, redaction: Redaction) -> Iterator[int]:
    """Looks at what was not looked at yet, in rounds; gives back after each how many memories, or metadata, that were."""
    _begin(index, redaction)
    sessions = index.connection.execute("SELECT scope, metadata FROM sessions WHERE secrets IS NULL").fetchall()
    if sessions:
        _note(index, _SAY_OF_SESSION, [(_said(redaction.spotted(json.loads(metadata))), scope) for scope, metadata in sessions])
        yield len(sessions)
    while rows := index.connection.execute(_UNSEEN, (_ROUND,)).fetchall():
        found: list[tuple[str, int]] = []
        started = time.thread_time()
        for key, *row in rows:
            found.append((_said(_spotted(redaction, *row)), key))
            if time.thread_time() - started > _ROUND_S:
                break
        _note(index, _SAY_OF_MEMORY, found)
        yield len(found)


def found(index: Index) -> list[Spotted]:
    """What was found and is still there, up to so many that nobody would look through more."""
    ask = index.connection.execute
    rows = ask(_FOUND, (_FOUND_CAP,))
    memories = [Spotted(scope, file, name, start, digest, _kinds(kinds)) for scope, file, name, start, digest, kinds in rows]
    return memories + [Spotted(scope, METADATA, "", 0, "", _kinds(kinds)) for scope, kinds in ask(_FOUND_IN_METADATA)]


def count(index: Index) -> int:
    return int(index.connection.execute(_COUNT).fetchone()[0])


def forget(index: Index) -> None:
    """Nobody wants to know any more."""
    if count(index):
        _all_unseen(index)


def unindexed(memory: Place, index: Index) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Files of SMP that no index holds, each with what changes when it does: the user's profile, and what agents' states were."""
    for (scope,) in [(GLOBAL,), *index.connection.execute(_WITH_STATES).fetchall()]:
        folder = "" if scope == GLOBAL else f"{STATE_HISTORY}/"
        with suppress(OSError, UnsafePath):
            names = [_PROFILE] if scope == GLOBAL else memory.tree.list(f"{directory_of(scope)}/{STATE_HISTORY}")
            for name in names:
                with suppress(FileNotFoundError):
                    status = memory.tree.stat(f"{directory_of(scope)}/{folder}{name}")
                    yield scope, f"{folder}{name}", (status.st_ino, status.st_size, status.st_mtime_ns)


def with_something_beside(index: Index) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Files in which something can stand that is no memory: comments in YAML, the head of a conversation."""
    for scope, file, *state in index.connection.execute(_READABLE).fetchall():
        if not is_archived(scope) and (file.endswith(".yaml") or file in kinds_of(scope)):
            yield scope, file, tuple(state)


def beside(index: Index, scope: str, file: str, content: bytes) -> str | None:
    """What of the file is no memory; None where the index does not know yet what is one. A memory with a secret is reported as
    such, so that only in one without it a number sign begins what must be a comment. Where something cannot be read, whatever
    stands between the memories may be that."""
    size, bad, problem = index.connection.execute(_STATE, (scope, file)).fetchone() or (-1, 0, None)
    if problem is not None:
        return content.decode("utf-8", "replace")
    spans = index.connection.execute(_SPANS, (scope, file)).fetchall()
    if file == METADATA:
        spans = [(0, size, *row) for row in index.connection.execute("SELECT secrets FROM sessions WHERE scope = ?", (scope,))]
    if size != len(content) or any(secrets is None for *_, secrets in spans):
        return None
    parts, at, is_yaml = list[bytes](), 0, file.endswith(".yaml")
    for start, end, secrets in [*spans, (size, size, "")]:
        parts += _COMMENT.findall(content, at, start) if is_yaml and not bad else [content[at:start]]
        if is_yaml and not secrets:
            parts += _COMMENT.findall(content, start, end)
        at = max(at, end)
    return b"\n".join(part for part in parts if part.strip() != _MARK).decode("utf-8", "replace")


def with_lines(memory: Place, found: Iterable[Spotted]) -> Iterator[tuple[Spotted, int | None]]:
    """Yield each with the line on which it begins, from 1; None where its file cannot be read now. Each file is read once."""
    for (scope, file), group in groupby(sorted(found, key=_where), key=lambda one: (one.scope, one.file)):
        try:
            content = memory.tree.read(f"{directory_of(scope)}/{file}")
        except (OSError, UnsafePath):
            yield from ((one, None) for one in group)
            continue
        lines = Lines(content, b"\n")
        yield from ((one, lines.at(one.start)) for one in group)


def _where(one: Spotted) -> tuple[str, str, int]:
    return one.scope, one.file, one.start


def advice(is_by_shape: bool, *, redacts: bool) -> str:
    """What can be done; `redacts` where the daemon takes secrets out by itself."""
    if redacts:
        return "that is tried again" if is_by_shape else "own patterns and personal data in edited files are only reported"
    return "redaction.unlocked_edits: redact takes secrets out by itself" if is_by_shape else "the daemon only reports it"


def sentence(spotted: Iterable[Spotted], *, redacts: bool = False) -> str:
    """What a person is told: how many, of which kinds, where the first of them are, and what can be done."""
    from .redaction import harmless, told

    all_of_them = list(spotted)
    kinds: Counter[str] = Counter()
    for one in all_of_them:
        kinds.update(dict(one.kinds))
    number = len(all_of_them)
    named = ", ".join(harmless(one.place) for one in all_of_them[:3]) + (f" and {number - 3:,} more" if number > 3 else "")
    further = advice(any(one.is_by_shape for one in all_of_them), redacts=redacts)
    return (
        f"{number:,} place{' holds' if number == 1 else 's hold'} what should have been redacted ({told(kinds)}): {named}. Take it"
        f" out of the file, or the memory with smp delete; {further}."
    )


def _spotted(redaction: Redaction, kind: str, text: str, data: str) -> Counter[str]:
    value: dict[str, Any] = json.loads(data)
    # The text of an artifact stands beside its fields.
    return redaction.spotted({**value, "content": text} if kind == "artifact" else value)


def _begin(index: Index, redaction: Redaction) -> None:
    """What was looked at with other eyes is looked at again."""
    from .secrets.shapes import SECRET_KINDS

    wanted = repr((redaction.personal, redaction.patterns, SECRET_KINDS))
    setting = hashlib.sha256(wanted.encode("utf-8", "replace")).hexdigest()[:16]
    known = index.connection.execute("SELECT value FROM meta WHERE name = ?", (_SETTING,)).fetchone()
    if known != (setting,):
        _all_unseen(index)
        index.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_SETTING, setting))


def _all_unseen(index: Index) -> None:
    index.connection.execute("UPDATE memories SET secrets = NULL WHERE secrets IS NOT NULL")
    index.connection.execute("UPDATE sessions SET secrets = NULL WHERE secrets IS NOT NULL")


def _note(index: Index, change: str, rows: Iterable[tuple[str, Any]]) -> None:
    """In one step, and with the generation as it is: no answer changes by this."""
    index.connection.execute("BEGIN IMMEDIATE")
    try:
        index.connection.executemany(change, rows)
        index.connection.execute("COMMIT")
    except BaseException:
        index._roll_back()
        raise


def _said(kinds: Mapping[str, int]) -> str:
    return json.dumps(dict(sorted(kinds.items()))) if kinds else ""


def _kinds(said: str) -> tuple[tuple[str, int], ...]:
    return tuple(json.loads(said).items())
