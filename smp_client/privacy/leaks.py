"""Leaks: secrets that came into a file past the library, as by an editor or a shell.

The library writes no secrets, so every secret in the index is a leak. The index keeps the kinds
that were found in each memory. A memory that changes is new to the index and is searched again.

`redact` redacts the leaks of a file, and scrubs the index.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ..change.change import Change, Request, apply
from ..change.holdings import Holding, in_file
from ..disk import audit
from ..disk.place import ARTIFACTS, is_archived
from ..disk.session_files import parse_artifact
from ..index.sync import ask_for_scrub, scrub_index
from ..model.errors import Conflict, CorruptionDetected
from ..model.layout import GLOBAL
from ..redaction.redact import FIELD, Redaction, SecretKey, with_counts
from ..redaction.secrets import SECRET_KINDS
from ..text.mapping import load_mapping, replace_parts
from ..text.values import Value, render_entries
from ..text.version import top_of

if TYPE_CHECKING:
    from ..index.database import Index
    from ..memory import Memory

_ROUND = 100  # memories: then others have their turn
_SETTING = "redaction"  # in the index: the kinds that were searched for
# Those not searched yet, and how the kinds that were found are noted. An artifact has its text.
_SEARCHES = (
    ("SELECT scope, metadata, NULL FROM sessions WHERE secrets IS NULL LIMIT ?",
     "UPDATE sessions SET secrets = ? WHERE scope = ?"),
    ("SELECT key, data, CASE type WHEN 'artifact' THEN text END FROM memories"
     " WHERE secrets IS NULL ORDER BY key LIMIT ?",
     "UPDATE memories SET secrets = ? WHERE key = ?"),
)  # fmt: skip
# Fields that identify a memory. A secret in them can only be reported.
_FIXED = ("id", "turn", "timestamp", "agent_id", "session_id", "version")


def look(index: Index, redaction: Redaction) -> Iterator[int]:
    """Search new memories and metadata in rounds, and yield how many each round searched."""
    setting = repr((redaction.personal, redaction.patterns, SECRET_KINDS))
    ask = index.execute
    if ask("SELECT value FROM meta WHERE name = ?", (_SETTING,)).fetchone() != (setting,):
        forget(index)
        ask("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_SETTING, setting))
    for unseen, note in _SEARCHES:
        while rows := ask(unseen, (_ROUND,)).fetchall():
            found: list[tuple[str, object]] = []
            for key, data, text in rows:
                kinds = redaction.spotted([json.loads(data), text])
                found.append((json.dumps(kinds, sort_keys=True) if kinds else "", key))
            with index.batch(is_silent=True):
                index.connection.executemany(note, found)
            yield len(rows)


def forget(index: Index) -> None:
    """Forget every leak. Every memory then counts as not searched."""
    index.execute("UPDATE memories SET secrets = NULL WHERE secrets IS NOT NULL")
    index.execute("UPDATE sessions SET secrets = NULL WHERE secrets IS NOT NULL")


class Redacted(NamedTuple):
    """The memories that were redacted, and places that may still hold their secrets."""

    ids: list[str]
    left: list[str]


def redact(memory: Memory, name: str, file: str, ids: Collection[str], by: str) -> Redacted:
    """Redact the secrets in memories of a file by one change. Without ids, redact the whole file.

    A memory with a secret as a key stays. Raise Conflict where nothing could be redacted, or
    another writer changed the file meanwhile.
    """
    if is_archived(name):
        problem = f"{name} is archived, and an archive is never redacted."
        raise Conflict(problem, advice="Restore the session with smp unarchive.")
    # A writer that has locked its file must not keep everybody else waiting.
    session = None if name == GLOBAL else memory._session(name).with_options(lock_timeout_s=0.2)
    scope = (session or memory.everywhere).scope
    with scope.undisturbed("redacting"):
        found = {one.id: one for one in in_file(name, "active", "", file, scope.read(file))
                 if not ids or one.id in ids}  # fmt: skip
        kinds: Counter[str] = Counter()
        changes: list[Change] = []
        for one in found.values():
            with suppress(SecretKey):
                new, redacted = _redacted(one)
                kinds.update(redacted)
                changes += [Change(file, one.id, one.hash, new)] if redacted else []
        if not changes:
            problem = f"No secret in {file} of {name} could be redacted."
            raise Conflict(problem, advice="Remove it by hand, or delete the memory.")
        # Before the change and after: a crash between must leave no word in the index.
        ask_for_scrub(memory, name if session else "")
        done = sorted(change.id for change in changes)
        facts: dict[str, Any] = {"session": name, "count": len(changes), "file": file}
        facts |= {"ids": done, "kinds": dict(kinds)}
        with audit.noted(scope.tree, "redact", clock=memory.options.clock, by=by, **facts):
            apply(scope, Request(changes, doing="redacting"))
        ask_for_scrub(memory, name if session else "")
    return Redacted(done, scrub_index(memory))


def _redacted(one: Holding) -> tuple[bytes | dict[str, Value], Counter[str]]:
    """Return a memory without its secrets, and their kinds. Fields that identify it stay."""
    kinds: Counter[str] = Counter()
    if one.is_file and "\ufffd" in one.raw.decode("utf-8", "replace"):
        raise CorruptionDetected(f"{one.file} is not UTF-8, so it was left alone.")

    def text_of(text: str) -> str:
        text, found = Redaction().redacted_value(text)
        kinds.update(found)
        return text

    def fields_of(fields: dict[str, Value]) -> dict[str, Value]:
        rest = {name: item for name, item in fields.items() if name not in _FIXED}
        clean, found = Redaction().redacted_value(rest)
        kinds.update(found)
        new = {name: clean.get(name, item) for name, item in fields.items()}
        return with_counts(new, fields.get(FIELD), kinds) if kinds else new

    return changed(one, fields_of, text_of), kinds


def changed(
    one: Holding, fields_of: Callable[[dict[str, Value]], dict[str, Value]],
    text_of: Callable[[str], str],
) -> bytes | dict[str, Value]:  # fmt: skip
    """Return a memory with its fields, and the text of an artifact, changed by functions."""
    if not one.is_file:
        return fields_of(one.value)
    file, content = one.file, one.raw
    if file.startswith(f"{ARTIFACTS}/"):
        fields, body = parse_artifact(content)
        text, new = text_of(body), fields_of(fields)
        before = content[: len(content) - len(body.encode())]
        if new != fields:
            named = new if fields else {"version": 1, "id": one.id, **new}
            lines = "".join(line + "\n" for line in render_entries(named, 0))
            before = f"---\n{lines}---\n".encode()
        return before + text.encode()
    top = top_of(file) or ""
    old = load_mapping(content, top, file)
    parts = {name: part for name, part in fields_of(old).items() if part != old.get(name)}
    return replace_parts(content, top, parts, file) if parts else content
