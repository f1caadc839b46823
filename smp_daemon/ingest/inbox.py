"""The inbox: any program may drop one memory as one file; it is checked, gets an id, and goes when it is durable.

Adding the record and removing the drop are one transaction, so a crash neither loses a drop nor takes it in twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from smp_client import Invalid, QuotaExceeded, Session, SMPError, UnsafePath
from smp_client.files import is_left_alone, read_from
from smp_client.locks import Patience
from smp_client.privacy.redaction import harmless, told
from smp_client.records import FINDING, RELATIONSHIP, SESSION_KINDS, TURN, Kind
from smp_client.values import BadYaml, Value, decode, load

INBOX, REJECTED = "inbox", "inbox/rejected"
_TYPES: dict[str, Kind] = {kind.name: kind for kind in SESSION_KINDS} | {"turn": TURN, "conversation": TURN}


@dataclass(frozen=True)
class Drop:
    """What became of one file in an inbox."""

    name: str
    outcome: str  # taken, rejected, waiting, gone
    memory_id: str = ""
    reason: str = ""
    is_being_written: bool = False  # what waits for no other reason is no problem


def waiting(session: Session) -> list[str]:
    """The names of the drops that are there."""
    try:
        return [name for name in session.scope.tree.list(session.scope.path(INBOX)) if _is_drop(name)]
    except UnsafePath:
        # Something else stands where the inbox should be; nothing can be dropped into that.
        return []


def take_in(session: Session, names: Iterable[str]) -> Iterator[Drop]:
    """Takes the drops that are complete, one by one; one that somebody still writes, or that does not fit, waits."""
    # One session whose files are locked must not keep the others waiting: the drop is tried again later.
    impatient = session.with_options(patience=Patience(timeout_s=0.1, attempts=1))
    return (_take(impatient, name) for name in names)


def _is_drop(name: str) -> bool:
    return name != "rejected" and not name.startswith(".") and not name.endswith((".tmp", ".part", "~"))


def _take(session: Session, name: str) -> Drop:
    path = session.scope.path(f"{INBOX}/{name}")
    try:
        if not name.endswith((".yaml", ".yml", ".md")):
            raise Invalid([f"{name!r} must be a file that ends with .yaml, .yml or .md"])
        with session.scope.tree.opened(path) as descriptor:
            if not is_left_alone(descriptor):
                return Drop(name, "waiting", reason="somebody is still writing it", is_being_written=True)
            status = os.fstat(descriptor)
            content = read_from(descriptor, 0)
        kind, fields = _parse(name, content)
        return Drop(name, "taken", _record(session, name, status, kind, fields))
    except FileNotFoundError:
        return Drop(name, "gone")
    except QuotaExceeded as error:
        return Drop(name, "waiting", reason=str(error))
    except (Invalid, BadYaml, UnsafePath) as error:
        return _rejected(session, name, str(error))
    except (OSError, SMPError) as error:
        # Somebody holds the lock, the disk is full, a file of the session is of a newer format: it may go later.
        return Drop(name, "waiting", reason=str(error))


def _parse(name: str, content: bytes) -> tuple[Kind, dict[str, Any]]:
    text = decode(content)
    fields: Value
    if name.endswith(".md"):
        head, body = _front_matter(text)
        fields = load(head)
        if isinstance(fields, dict):
            fields.setdefault("text", body)
    else:
        fields = load(text)
    if not isinstance(fields, dict):
        raise Invalid(["a drop must be one mapping, or Markdown that begins with front matter between two lines of ---"])
    return _kind_and_fields(fields)


def _kind_and_fields(given: dict[str, Value]) -> tuple[Kind, dict[str, Any]]:
    fields: dict[str, Any] = dict(given)
    kind = _TYPES.get(str(fields.pop("type", "")))
    if kind is None:
        raise Invalid([f"'type' must be one of {', '.join(sorted(_TYPES))}"])
    if kind is TURN:
        fields["type"] = str(fields.pop("turn_type", "message"))
    if kind.text not in fields and "text" in fields:
        fields[kind.text] = fields.pop("text")
    if "id" in fields:
        fields["dropped_id"] = fields.pop("id")
    if kind is FINDING:
        fields.setdefault("resolution", {"status": "open"})
    if kind not in (TURN, RELATIONSHIP):
        fields.setdefault("tags", [])
    return kind, fields


def _front_matter(text: str) -> tuple[str, str]:
    text = text.replace("\r\n", "\n")
    if not text.startswith("---\n"):
        raise Invalid(["Markdown in the inbox must begin with front matter between two lines of ---"])
    head, separator, body = text[4:].partition("\n---\n")
    if not separator:
        raise Invalid(["the front matter is not closed by a line of ---"])
    return head, body.strip("\n")


def _record(session: Session, name: str, read: os.stat_result, kind: Kind, fields: dict[str, Any]) -> str:
    timestamp = fields.pop("timestamp", None)
    # Before a number is given, because one that does not fit is tried again and again.
    session.scope.usage.require(session.id, read.st_size, session.quota_bytes())
    with session.transaction() as tx:
        record = tx.record(kind, fields, timestamp)
        tx.remove_drop(f"{INBOX}/{name}", read)
    return record.id


def _rejected(session: Session, name: str, why: str) -> Drop:
    why = harmless(why)  # it may quote what it is about
    try:
        _reject(session, name, why)
    except (OSError, SMPError) as error:
        return Drop(name, "waiting", reason=f"{why} It cannot be put aside: {error}")
    return Drop(name, "rejected", reason=why)


def _reject(session: Session, name: str, why: str) -> None:
    """Moves the drop aside, with a note beside it on what is wrong and how to mend it."""
    tree = session.scope.tree
    tree.make_directory(session.scope.path(REJECTED))
    target = tree.rename_beside(session.scope.path(f"{INBOX}/{name}"), session.scope.path(f"{REJECTED}/{name}"))
    note = f"# {name} was not taken in\n\n{why}\n\nMend it and move it back into `inbox/`, or remove both files.\n"
    note += _warning(session, target)
    try:
        tree.create(f"{target}.why.md", note.encode("utf-8", "replace"))
    except (OSError, SMPError):
        # The drop itself is safe; the log has the reason as well.
        return


def _warning(session: Session, target: str) -> str:
    """What is rejected stays as it was dropped, so somebody has to see to what it holds."""
    try:
        content = session.scope.tree.read(target)
    except (OSError, SMPError):
        return ""
    kinds = session.scope.redaction.redacted_text(content.decode("utf-8", "replace"))[1]
    if not kinds:
        return ""
    return f"\nIt holds what looks like a secret ({told(kinds)}), which still stands in it: take that out first.\n"
