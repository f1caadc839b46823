"""The inbox: any program may drop a memory, or a change of one, as one file; it is checked and goes when it is durable.

What many drops say and the removal of their files are one transaction, so a crash neither loses a drop nor takes it in twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from smp_client import (
    Invalid,
    LockTimeout,
    MemoryNotFound,
    QuotaExceeded,
    Session,
    SMPError,
    TookTooLong,
    TransactionPending,
    UnsafePath,
)
from smp_client.disk import inboxes, journal
from smp_client.disk.inboxes import INBOX, REJECTED
from smp_client.disk.locks import Patience
from smp_client.disk.tree import is_left_alone, read_from
from smp_client.model.deadline import deadline
from smp_client.model.record import (
    CONTENT_CAP_BYTES,
    FINDING,
    RELATIONSHIP,
    SESSION_KINDS,
    TURN,
    Kind,
    check_memory_id,
    kind_of,
)
from smp_client.model.synonyms import taken_type, with_names_of_a_resolution, with_own_names
from smp_client.redaction.redact import harmless, told
from smp_client.text.values import BadYaml, decode, load
from smp_client.transaction import Transaction

BATCH, BATCH_BYTES = 200, 1024 * 1024  # in one transaction, at the most
DROP_CAP_BYTES = 8 * CONTENT_CAP_BYTES  # JSON may need six bytes for one character
ENDINGS = (".yaml", ".yml", ".json", ".md")
_TYPES: dict[str, Kind] = {kind.name: kind for kind in SESSION_KINDS} | {"turn": TURN, "conversation": TURN}
_UPDATE, _RESOLVE = "update", "resolve"  # the keys that name the memory that a drop changes
_PATIENCE = Patience(timeout_s=0.3, attempts=1)


@dataclass(frozen=True)
class Drop:
    """What became of one file in an inbox."""

    name: str
    outcome: str  # taken, rejected, waiting, gone
    memory_id: str = ""
    reason: str = ""
    is_being_written: bool = False  # what waits for no other reason is no problem
    is_locked_out: bool = False  # somebody writes the file that it goes into, and is done soon


@dataclass(frozen=True)
class _Order:
    """What a drop that could be read wants: a new memory of a kind, or a change of the memory with an id."""

    name: str
    read: os.stat_result
    what: Kind | str
    fields: dict[str, Any]
    resolves: bool = False

    def carry_out(self, transaction: Transaction) -> str:
        """Return the id of the memory that is new or changes."""
        if isinstance(self.what, Kind):
            fields = dict(self.fields)
            return transaction.record(self.what, fields, fields.pop("timestamp", None)).id
        if self.resolves:
            return transaction.resolve_finding(self.what, **self.fields).id
        return transaction.update(self.what, **self.fields).id


def waiting(session: Session) -> list[str]:
    """The names of the drops that are there."""
    return inboxes.waiting(session.scope.tree, session.scope.directory)


def take_in(session: Session, names: Iterable[str]) -> Iterator[Drop]:
    """Take the drops that are complete, many in one transaction. One that somebody still writes, or that does not fit, waits."""
    # One session whose files are locked must not keep the others waiting: the drop is tried again later.
    session = session.with_options(patience=_PATIENCE)
    try:
        session.scope.recover()
        on_their_way = journal.going(session.scope)
    except SMPError as error:
        yield from (Drop(name, "waiting", reason=str(error)) for name in names)
        return
    orders: list[_Order] = []
    for name in names:
        if f"{INBOX}/{name}" in on_their_way:
            yield Drop(name, "waiting", reason="it is recorded, and its file cannot be removed yet")
            continue
        found = _read(session, name)
        if isinstance(found, Drop):
            yield found
            continue
        orders.append(found)
        if len(orders) == BATCH or sum(order.read.st_size for order in orders) > BATCH_BYTES:
            yield from _carry_out(session, orders)
            orders = []
    if orders:
        yield from _carry_out(session, orders)


def _read(session: Session, name: str) -> _Order | Drop:
    try:
        if not name.endswith(ENDINGS):
            raise Invalid([f"{name!r} must be a file that ends with {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"])
        with session.scope.tree.opened(session.scope.path(f"{INBOX}/{name}")) as descriptor:
            if not is_left_alone(descriptor):
                return Drop(name, "waiting", reason="somebody is still writing it", is_being_written=True)
            status = os.fstat(descriptor)
            if status.st_size > DROP_CAP_BYTES:
                raise Invalid([f"a drop may have {DROP_CAP_BYTES:,} bytes, not {status.st_size:,}"])
            content = read_from(descriptor, 0)
        with deadline():
            return _order(session, name, status, _parse(name, content))
    except FileNotFoundError:
        return Drop(name, "gone")
    except (Invalid, MemoryNotFound, BadYaml, UnsafePath, TookTooLong) as error:
        return _rejected(session, name, str(error))
    except (OSError, SMPError) as error:
        return Drop(name, "waiting", reason=str(error))
    except Exception as error:  # nobody thought of this, and it must not come back at every start
        return _rejected(session, name, f"It cannot be read: {error!r}.")


def _parse(name: str, content: bytes) -> dict[str, Any]:
    fields: Any
    if name.endswith(".json"):
        from smp_client.text.json_text import parse_object  # which few drops need

        fields, problem = parse_object(content)
        if problem:
            raise Invalid([f"the JSON cannot be read: {problem}"])
    elif name.endswith(".md"):
        head, body = _front_matter(decode(content))
        fields = load(head)
        if isinstance(fields, dict):
            fields.setdefault("text", body)
    else:
        fields = load(decode(content))
    if not isinstance(fields, dict):
        raise Invalid(["a drop must be one mapping, or Markdown that begins with front matter between two lines of ---"])
    return fields


def _order(session: Session, name: str, read: os.stat_result, fields: dict[str, Any]) -> _Order:
    named = taken_type(fields, _TYPES)
    for key in (_UPDATE, _RESOLVE):
        # Of a new memory it can be a field like any other.
        if key in fields and (named is None or kind_of(str(fields[key]), SESSION_KINDS)):
            memory_id = check_memory_id(fields.pop(key))
            return _Order(name, read, memory_id, _changes(session, key, memory_id, fields), key == _RESOLVE)
    if named is None:
        types = ", ".join(sorted(_TYPES))
        raise Invalid([f"'type' must be one of {types}; or name a memory with 'update' or 'resolve'"])
    return _Order(name, read, _TYPES[named], _new_fields(_TYPES[named], fields))


def _changes(session: Session, key: str, memory_id: str, fields: dict[str, Any]) -> dict[str, Any]:
    if taken := [name for name in ("self", "memory_id", _UPDATE, _RESOLVE) if name in fields]:
        raise Invalid([f"{key!r} cannot set a field {taken[0]!r}"])
    if key == _UPDATE:
        return with_own_names(session.kind_of_record(memory_id), fields)
    fields = with_names_of_a_resolution(fields)
    if missing := [name for name in ("resolved_by", "action_taken") if not isinstance(fields.get(name), str)]:
        raise Invalid([f"'resolve' must say {' and '.join(map(repr, missing))}"])
    return fields


def _new_fields(kind: Kind, given: dict[str, Any]) -> dict[str, Any]:
    fields = with_own_names(kind, given)
    if kind is TURN:
        fields["type"] = str(fields.pop("turn_type", fields.get("type", "message")))
    if "id" in fields:
        fields["dropped_id"] = fields.pop("id")
    if kind is FINDING:
        fields.setdefault("resolution", {"status": "open"})
    if kind not in (TURN, RELATIONSHIP):
        fields.setdefault("tags", [])
    return fields


def _front_matter(text: str) -> tuple[str, str]:
    text = text.replace("\r\n", "\n")
    if not text.startswith("---\n"):
        raise Invalid(["Markdown in the inbox must begin with front matter between two lines of ---"])
    head, separator, body = text[4:].partition("\n---\n")
    if not separator:
        raise Invalid(["the front matter is not closed by a line of ---"])
    return head, body.strip("\n")


def _carry_out(session: Session, orders: list[_Order]) -> list[Drop]:
    """Carry all out in one transaction. Where one of them is at fault, each gets its own, so that it costs only itself."""
    drops: list[Drop] = []
    size, quota = 0, session.quota_bytes()
    try:
        with session.transaction(len(orders)) as transaction:
            for order in orders:
                try:
                    # Before a number is given, because one that does not fit is tried again and again.
                    session.scope.usage.require(session.id, size + order.read.st_size, quota)
                    with deadline():
                        memory_id = order.carry_out(transaction)
                except QuotaExceeded as error:
                    drops.append(Drop(order.name, "waiting", reason=str(error)))
                except (Invalid, MemoryNotFound, TookTooLong) as error:
                    drops.append(_rejected(session, order.name, str(error)))
                else:
                    transaction.remove_drop(f"{INBOX}/{order.name}", order.read)
                    size += order.read.st_size
                    drops.append(Drop(order.name, "taken", memory_id))
    except (OSError, SMPError) as error:
        # Somebody holds the lock, the disk is full, a file of the session is of a newer format: it may go later.
        settled = [drop for drop in drops if drop.outcome != "taken"]
        left = [order for order in orders if order.name not in {drop.name for drop in settled}]
        if len(orders) == 1 or isinstance(error, (LockTimeout, TransactionPending)):
            is_locked_out = isinstance(error, LockTimeout)
            return settled + [Drop(order.name, "waiting", reason=str(error), is_locked_out=is_locked_out) for order in left]
        return settled + [drop for order in left for drop in _carry_out(session, [order])]
    return drops


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
    note = inboxes.note_of(name, why) + _warning(session, target)
    try:
        tree.create(f"{target}{inboxes.NOTE}", note.encode("utf-8", "replace"))
    except (OSError, SMPError):
        # The drop itself is safe; the log has the reason as well.
        return


def _warning(session: Session, target: str) -> str:
    """What is rejected stays as it was dropped, so somebody has to see to what it holds."""
    try:
        if session.scope.tree.stat(target).st_size > DROP_CAP_BYTES:
            return "\nIt is too large to be searched for secrets.\n"
        content = session.scope.tree.read(target)
    except (OSError, SMPError):
        return ""
    kinds = session.scope.redaction.redacted_text(content.decode("utf-8", "replace"))[1]
    if not kinds:
        return ""
    return f"\nIt holds what looks like a secret ({told(kinds)}), which still stands in it: take that out first.\n"
