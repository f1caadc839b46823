"""Taking secrets out of memories that are there already, in their files: for those that came in past the library.

It is a rewrite like any other, by a transaction that puts the new memory in the place of one that still is what was read. Nothing
is kept of what stood there: the old version of the file is wiped, and the index is scrubbed. Only the secret goes; everything else
that the memory says stays, and so do its id and its time.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from .. import audit
from ..errors import Conflict, CorruptionDetected
from ..layout import GLOBAL
from ..locks import Patience
from ..scope import Scope
from ..scopes import ARTIFACTS, STATES, is_archived, kinds_of
from ..session_files import METADATA, parse_artifact
from ..text.format import finder, format_of
from ..text.mapping import load_mapping, replace_parts
from ..text.values import Value, render_entries
from .redaction import FIELD, Redaction, SecretKey, with_counts

if TYPE_CHECKING:
    from ..memory import Memory
    from ..records import Kind
    from ..session import RecordFiles
    from ..text.document import Located
    from ..transaction import Transaction

# By which it is known; a secret there can only be reported.
_FIXED = ("id", "turn", "timestamp", "agent_id", "session_id", "version")
_IMPATIENT = Patience(timeout_s=0.2, attempts=1)
_TOPS = {METADATA: "session"}


class Redacted(NamedTuple):
    """`left` says, in sentences, where they could still be; `refused` are the memories of which a key is a secret."""

    left: list[str]
    refused: tuple[str, ...]


def redact(memory: Memory, scope_name: str, file: str, ids: Collection[str], redaction: Redaction, by: str) -> Redacted:
    """Takes the secrets out of these memories of a file in one step. One that has a secret as a key keeps no other from it.

    Raises Conflict where there was nothing that it could take out, or where somebody changed it just now; CorruptionDetected where
    it cannot be read; SecretKey where each has a secret as a key.
    """
    from ..maintain import traces
    from .deleting.clearing import clear

    if is_archived(scope_name):
        raise Conflict(f"What is archived stays as it is; {scope_name} was left alone.", advice="Bring it back with smp unarchive.")
    files = _opened(memory, scope_name)
    scope = files.scope
    with scope.undisturbed("redacting"):
        transaction = files.transaction()
        refused: dict[str, SecretKey] = {}
        kinds = _collect(transaction, scope, file, ids, redaction, refused)
        if not kinds:
            transaction.rollback()
            for error in refused.values():
                raise error
            raise Conflict(f"Nothing of {file} in {scope_name} could be taken out.", advice="Take it out by hand, or delete it.")
        # Before it goes and, by clearing, after: a crash in between must not leave its words in the index.
        traces.ask_for_scrub(memory, "" if scope_name == GLOBAL else scope_name)
        done = [memory_id for memory_id in ids if memory_id not in refused]
        facts = {"session": scope_name, "count": len(done) or 1, "file": file, "ids": sorted(done), "kinds": dict(kinds)}
        with audit.noted(scope.tree, "redact", clock=scope.options.clock, by=by, **facts):
            transaction.commit()
        return Redacted(clear(memory, scope, [file], done), tuple(refused))


def _opened(memory: Memory, scope_name: str) -> RecordFiles:
    """One writer that has locked its file must not keep everybody else waiting."""
    if scope_name != GLOBAL:
        return memory._session(scope_name).with_options(patience=_IMPATIENT)
    return memory.everywhere


def _collect(
    transaction: Transaction, scope: Scope, file: str, ids: Collection[str], redaction: Redaction, refused: dict[str, SecretKey]
) -> Counter[str]:
    content = scope.read(file)
    kinds: Counter[str] = Counter()
    if kind := kinds_of(scope.name).get(file):
        find = finder(format_of(kind), content, len(ids))
        for memory_id in ids:
            try:
                kinds += _replace_record(transaction, kind, find(memory_id), redaction)
            except SecretKey as error:
                refused[memory_id] = error
        return kinds
    rewritten = _artifact if file.startswith(f"{ARTIFACTS}/") else _mapping
    after = rewritten(file, content, redaction, kinds)
    if kinds:
        transaction.replace_file(file, content, after)
    return kinds


def _replace_record(transaction: Transaction, kind: Kind, located: Located | None, redaction: Redaction) -> Counter[str]:
    if located is None:
        return Counter()  # it went just now
    new, kinds = _clean(located.value, redaction)
    if kinds:
        transaction.replace(kind, located.value, new)
    return kinds


def _clean(value: dict[str, Value], redaction: Redaction) -> tuple[dict[str, Value], Counter[str]]:
    fixed = {name: value[name] for name in _FIXED if name in value}
    rest, kinds = redaction.redacted_value({name: item for name, item in value.items() if name not in fixed})
    new = {name: fixed[name] if name in fixed else rest[name] for name in value}
    return (with_counts(new, value.get(FIELD), kinds) if kinds else new), kinds


def _mapping(file: str, content: bytes, redaction: Redaction, kinds: Counter[str]) -> bytes:
    top = _TOPS.get(file) or ("agent_state" if file.startswith(f"{STATES}/") else "")
    if not top:
        raise Conflict(f"{file} is no file that could be redacted.", advice="Take it out by hand.")
    old = load_mapping(content, top, file)
    new, found = _clean(old, redaction)
    kinds += found
    return replace_parts(content, top, {name: value for name, value in new.items() if value != old.get(name)}, file)


def _artifact(file: str, content: bytes, redaction: Redaction, kinds: Counter[str]) -> bytes:
    try:
        content.decode()
    except UnicodeDecodeError as error:
        raise CorruptionDetected(f"{file} is not UTF-8, so it was left alone.") from error
    fields, text = parse_artifact(content)
    new, found = _clean(fields, redaction)
    text, in_text = redaction.redacted_text(text)
    kinds += found + in_text
    name = os.path.splitext(os.path.basename(file))[0]
    head = with_counts(new or {"version": 1, "id": name}, fields.get(FIELD), kinds)
    return ("---\n" + "".join(line + "\n" for line in render_entries(head, 0)) + "---\n" + text).encode()
