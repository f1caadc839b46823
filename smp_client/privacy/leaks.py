"""Leaks: secrets that came into a file past the library, as by an editor or a shell.

The library writes no secrets, so every secret in the index is a leak. The index keeps the kinds
that were found in each memory. A memory that changes is new to the index and is searched again.

`redact` redacts the leaks of a file by a transaction. The old version of the file goes when nobody
has it open, and the index is scrubbed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..change.places import id_of_file
from ..disk import audit
from ..disk.scopes import ARTIFACTS, is_archived, kinds_of
from ..disk.session_files import parse_artifact
from ..index.sync import ask_for_scrub, scrub_index
from ..model.errors import Conflict, CorruptionDetected
from ..model.layout import GLOBAL
from ..redaction.redact import FIELD, Redaction, SecretKey, with_counts
from ..redaction.secrets import SECRET_KINDS
from ..text.edits import located as spans_of
from ..text.mapping import load_mapping, replace_parts
from ..text.values import Value, render_entries
from ..text.version import top_of

if TYPE_CHECKING:
    from ..disk.scope import Scope
    from ..index.database import Index
    from ..memory import Memory
    from ..transaction import Transaction

_ROUND, _ROUND_S = 1000, 1.0  # memories, and seconds of processor time: then others have their turn
_SETTING = "redaction"  # in the index: the kinds that were searched for
_UNSEEN = "SELECT key, type, text, data FROM memories WHERE secrets IS NULL ORDER BY key LIMIT ?"
_UNSEEN_METADATA = "SELECT scope, metadata FROM sessions WHERE secrets IS NULL"
_NOTE_MEMORY = "UPDATE memories SET secrets = ? WHERE key = ?"
_NOTE_SESSION = "UPDATE sessions SET secrets = ? WHERE scope = ?"
# Fields that identify a memory. A secret in them can only be reported.
_FIXED = ("id", "turn", "timestamp", "agent_id", "session_id", "version")
_IMPATIENT = {"lock_timeout_s": 0.2}


def look(index: Index, redaction: Redaction) -> Iterator[int]:
    """Search new memories and metadata in rounds, and yield how many each round searched."""
    wanted = repr((redaction.personal, redaction.patterns, SECRET_KINDS))
    setting = hashlib.sha256(wanted.encode("utf-8", "replace")).hexdigest()[:16]
    ask = index.connection.execute
    if ask("SELECT value FROM meta WHERE name = ?", (_SETTING,)).fetchone() != (setting,):
        forget(index)
        ask("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_SETTING, setting))
    if sessions := ask(_UNSEEN_METADATA).fetchall():
        leaks = [(_render(redaction.spotted(json.loads(data))), scope) for scope, data in sessions]
        _note(index, _NOTE_SESSION, leaks)
        yield len(leaks)
    while rows := ask(_UNSEEN, (_ROUND,)).fetchall():
        searched: list[tuple[str, int]] = []
        started = time.thread_time()
        for key, kind, text, data in rows:
            value: dict[str, Any] = json.loads(data)
            # The index keeps the text of an artifact beside its fields.
            whole = {**value, "content": text} if kind == "artifact" else value
            searched.append((_render(redaction.spotted(whole)), key))
            if time.thread_time() - started > _ROUND_S:
                break
        _note(index, _NOTE_MEMORY, searched)
        yield len(searched)


def forget(index: Index) -> None:
    """Forget every leak. Every memory then counts as not searched."""
    index.connection.execute("UPDATE memories SET secrets = NULL WHERE secrets IS NOT NULL")
    index.connection.execute("UPDATE sessions SET secrets = NULL WHERE secrets IS NOT NULL")


class Redacted(NamedTuple):
    """`left` names places that may still hold the secrets; `refused` memories have a secret key."""

    left: list[str]
    refused: tuple[str, ...]


class Target(NamedTuple):
    """Memories in one file of a scope. A file that is one memory is redacted as a whole."""

    scope: str
    file: str
    ids: Collection[str]


def redact(memory: Memory, target: Target, redaction: Redaction, by: str) -> Redacted:
    """Redact the secrets in memories of a file, all in one transaction.

    Raise Conflict where nothing could be redacted, or another writer changed the file meanwhile.
    Raise CorruptionDetected where it is unreadable, SecretKey where each has a secret as a key.
    """
    name, file, ids = target
    if is_archived(name):
        problem = f"{name} is archived, and an archive is never redacted."
        raise Conflict(problem, advice="Restore the session with smp unarchive.")
    # A writer that has locked its file must not keep everybody else waiting.
    is_session = name != GLOBAL
    session = memory._session(name).with_options(**_IMPATIENT) if is_session else None
    files = session or memory.everywhere
    with files.scope.undisturbed("redacting"):
        transaction = files.transaction()
        refused: dict[str, SecretKey] = {}
        kinds = _collect(transaction, files.scope, target, redaction, refused)
        if not kinds:
            transaction.rollback()
            for error in refused.values():
                raise error
            problem = f"No secret in {file} of {name} could be redacted."
            raise Conflict(problem, advice="Remove it by hand, or delete the memory.")
        # Before the commit and after: a crash between must leave no word in the index.
        ask_for_scrub(memory, name if is_session else "")
        done = sorted(memory_id for memory_id in ids if memory_id not in refused)
        facts: dict[str, Any] = {"session": name, "count": len(done) or 1, "file": file}
        facts |= {"ids": done, "kinds": dict(kinds)}
        with audit.noted(files.scope.tree, "redact", clock=memory.options.clock, by=by, **facts):
            transaction.commit()
        ask_for_scrub(memory, name if is_session else "")
    return Redacted(scrub_index(memory), tuple(refused))


def _collect(
    transaction: Transaction, scope: Scope, target: Target, redaction: Redaction,
    refused: dict[str, SecretKey],
) -> Counter[str]:  # fmt: skip
    """Put the redacted memories into the transaction. Return the kinds that were redacted."""
    file, content = target.file, scope.read(target.file)
    kinds: Counter[str] = Counter()
    if kind := kinds_of(scope.name).get(file):
        for memory_id, located in spans_of(kind, content, target.ids).items():
            try:
                new, redacted = _clean(located.value, redaction)
            except SecretKey as error:
                refused[memory_id] = error
                continue
            if redacted:
                kinds += redacted
                new = with_counts(new, located.value.get(FIELD), redacted)
                transaction.replace(kind, located.value, new)
        return kinds
    if "\ufffd" in content.decode("utf-8", "replace"):
        raise CorruptionDetected(f"{file} is not UTF-8, so it was left alone.")

    def text_of(text: str) -> str:
        text, redacted = redaction.redacted_text(text)
        kinds.update(redacted)
        return text

    def fields_of(fields: dict[str, Value]) -> dict[str, Value]:
        new, redacted = _clean(fields, redaction)
        kinds.update(redacted)
        return with_counts(new, fields.get(FIELD), kinds) if kinds else new

    after = changed_file(file, content, fields_of, text_of)
    if kinds:
        transaction.replace_file(file, content, after)
    return kinds


def changed_file(
    file: str, content: bytes, fields_of: Callable[[dict[str, Value]], dict[str, Value]],
    text_of: Callable[[str], str],
) -> bytes:  # fmt: skip
    """Return the file of one memory with its text, then its fields, changed by functions."""
    if file.startswith(f"{ARTIFACTS}/"):
        fields, body = parse_artifact(content)
        text, new = text_of(body), fields_of(fields)
        before = content[: len(content) - len(body.encode())]
        if new != fields:
            named = new if fields else {"version": 1, "id": id_of_file(file), **new}
            lines = "".join(line + "\n" for line in render_entries(named, 0))
            before = f"---\n{lines}---\n".encode()
        return before + text.encode()
    top = top_of(file) or ""
    old = load_mapping(content, top, file)
    parts = {name: part for name, part in fields_of(old).items() if part != old.get(name)}
    return replace_parts(content, top, parts, file) if parts else content


def _clean(value: dict[str, Value], redaction: Redaction) -> tuple[dict[str, Value], Counter[str]]:
    """Return the fields without secrets. Fields that identify a memory stay."""
    rest = {name: item for name, item in value.items() if name not in _FIXED}
    clean, kinds = redaction.redacted_value(rest)
    return {name: clean.get(name, item) for name, item in value.items()}, kinds


def _note(index: Index, change: str, rows: Iterable[tuple[str, Any]]) -> None:
    """Note the kinds of each memory or session in one transaction of the index."""
    with index.batch(is_silent=True):
        index.connection.executemany(change, rows)


def _render(kinds: Mapping[str, int]) -> str:
    return json.dumps(dict(sorted(kinds.items()))) if kinds else ""
