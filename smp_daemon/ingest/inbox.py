"""The inbox: any program may drop a memory, or a change of one, as a file.

The content of many drops and the removal of their files are one transaction, so a crash neither
loses a drop nor takes it in twice. A drop that is wrong is rejected, with a note beside it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from smp_client import (
    Invalid,
    LockTimeout,
    MemoryNotFound,
    QuotaExceeded,
    Session,
    SessionNotFound,
    SMPError,
    TookTooLong,
    TransactionPending,
    UnsafePath,
)
from smp_client.change.ids import give_ids
from smp_client.disk import journal
from smp_client.disk.locks import NO_PATIENCE
from smp_client.disk.place import directory_of, kinds_of
from smp_client.disk.quarantine import INBOX, NOTE, REJECTED, waiting
from smp_client.disk.tree import is_left_alone, read_from
from smp_client.model.deadline import deadline
from smp_client.model.layout import GLOBAL
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
from smp_client.redaction.redact import harmless
from smp_client.text.contents import parse_object
from smp_client.text.values import BadYaml, decode, load
from smp_client.transaction import Transaction

from ..log import ms_since

if TYPE_CHECKING:
    from ..root import Root

ROUND = 200  # after so many drops of a session the other sessions get their turn
BATCH_BYTES = 1024 * 1024  # in one transaction, at the most
DROP_CAP_BYTES = 8 * CONTENT_CAP_BYTES  # JSON may need six bytes for one character
AGAIN_S = 5.0  # before waiting drops are tried again
BEING_WRITTEN = "somebody is still writing it"
ENDINGS = (".yaml", ".yml", ".json", ".md")
_TYPES = {kind.name: kind for kind in SESSION_KINDS} | {"turn": TURN, "conversation": TURN}
_UPDATE, _RESOLVE = "update", "resolve"  # the keys that name the memory that a drop changes
_PATIENCE_S = 0.3
_MEND = "Mend it and move it back into `inbox/`, or remove both files."


@dataclass(frozen=True)
class Drop:
    """A file in an inbox, and its outcome."""

    name: str
    outcome: str  # taken, rejected, waiting, gone
    memory_id: str = ""
    reason: str = ""


@dataclass(frozen=True)
class _Order:
    """A drop that could be read; `carry_out` returns the id of its memory."""

    name: str
    read: os.stat_result
    carry_out: Callable[[Transaction], str]


class Inbox:
    """The inboxes of a tree, and the records in its files that have no id."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._again_at: dict[str, float] = {}  # by session with waiting drops
        self._from_the_front = True

    def take_in(self, scope: str) -> None:
        """Take in some drops of a session. The rest, and drops that must wait, are tried again."""
        root, started = self._root, time.perf_counter()
        names = waiting(root.memory.tree, directory_of(scope))
        if not names and scope not in self._again_at:
            return
        try:
            session = root.memory._session(scope)
        except SessionNotFound:  # it was archived or deleted just now
            return
        # From the back every other time, so that waiting drops do not hold up those behind them.
        self._from_the_front = not self._from_the_front
        batch = names[:ROUND] if self._from_the_front else names[-ROUND:]
        reasons: list[str] = []
        for drop in take_in(session, batch):
            if drop.outcome == "waiting":
                reasons.append(drop.reason)
            elif drop.outcome != "gone":
                say = root.log.info if drop.outcome == "taken" else root.log.warning
                say(f"drop {drop.outcome}", component="inbox", session_id=scope, drop=drop.name,
                    memory_id=drop.memory_id, reason=drop.reason,
                    duration_ms=ms_since(started))  # fmt: skip
        self._forget(scope)
        stuck = [reason for reason in reasons if reason != BEING_WRITTEN]
        if stuck:
            root.problems[f"inbox of {scope}"] = f"Drops wait in the inbox of {scope}: {stuck[0]}"
        if reasons:
            self._again_at[scope] = time.monotonic() + AGAIN_S
        if len(names) > ROUND and len(reasons) < ROUND:
            root.note(f"active/{scope}/{INBOX}")

    def ask_again(self) -> None:
        """Note the inboxes whose drops have waited long enough."""
        for scope, at in list(self._again_at.items()):
            if not self._root.memory.tree.exists(f"active/{scope}"):
                self._forget(scope)
            elif at <= time.monotonic():
                self._root.note(f"active/{scope}/{INBOX}")

    def _forget(self, scope: str) -> None:
        self._again_at.pop(scope, None)
        self._root.problems.pop(f"inbox of {scope}", None)

    def unnumbered(self) -> set[str]:
        """Return the scopes whose files may hold a record without an id."""
        asked = "SELECT DISTINCT scope FROM files WHERE bad"
        return {scope for (scope,) in self._root.index.execute(asked)}

    def give_ids(self, scope: str) -> None:
        """Give ids to records that a person has written into the files without an id."""
        root = self._root
        for (_, file), state in root.index.files(scope).items():
            if not state.bad or file not in kinds_of(scope):
                continue
            try:
                files = root.memory.everywhere if scope == GLOBAL else root.memory._session(scope)
                # A writer that has locked the file must not keep everybody else waiting.
                files.scope.options = files.scope.options._replace(lock_timeout_s=NO_PATIENCE)
                given = give_ids(files, kinds_of(scope)[file])
            except SessionNotFound:  # it was archived or deleted just now
                return
            except LockTimeout:
                root.note(f"{directory_of(scope)}/{file}")  # tried again after the writer
                continue
            if given:
                root.log.info("ids given", component="inbox", session_id=scope, file=file,
                              memories=given)  # fmt: skip
                root.note(f"{directory_of(scope)}/{file}")


def take_in(session: Session, names: Iterable[str]) -> Iterator[Drop]:
    """Take in the drops that are complete, many in one transaction. The others wait."""
    # One session whose files are locked must not keep the others waiting.
    session = session.with_options(lock_timeout_s=_PATIENCE_S)
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
        if len(orders) == ROUND or sum(order.read.st_size for order in orders) > BATCH_BYTES:
            yield from _carry_out(session, orders)
            orders = []
    if orders:
        yield from _carry_out(session, orders)


def _read(session: Session, name: str) -> _Order | Drop:
    try:
        if not name.endswith(ENDINGS):
            raise Invalid([f"{name!r} must be a file that ends with {', '.join(ENDINGS)}"])
        with session.scope.tree.opened(session.scope.path(f"{INBOX}/{name}")) as descriptor:
            if not is_left_alone(descriptor):
                return Drop(name, "waiting", reason=BEING_WRITTEN)
            status = os.fstat(descriptor)
            if status.st_size > DROP_CAP_BYTES:
                raise Invalid([f"a drop may have {DROP_CAP_BYTES:,} bytes, not {status.st_size:,}"])
            content = read_from(descriptor, 0)
        with deadline():
            return _Order(name, status, _order(session, _parse(name, content)))
    except FileNotFoundError:
        return Drop(name, "gone")
    except (Invalid, MemoryNotFound, BadYaml, UnsafePath, TookTooLong) as error:
        return _reject(session, name, str(error))
    except (OSError, SMPError) as error:
        return Drop(name, "waiting", reason=str(error))
    except Exception as error:  # unexpected, and it must not come back at every start
        return _reject(session, name, f"It cannot be read: {error!r}.")


def _parse(name: str, content: bytes) -> dict[str, Any]:
    fields: Any
    if name.endswith(".json"):
        fields, problem = parse_object(content)
        if problem:
            raise Invalid([f"the JSON cannot be read: {problem}"])
    elif name.endswith(".md"):
        text = decode(content).replace("\r\n", "\n")
        head, separator, body = text.removeprefix("---\n").partition("\n---\n")
        if not text.startswith("---\n") or not separator:
            raise Invalid(["Markdown must begin with front matter between two lines of ---"])
        fields = load(head)
        if isinstance(fields, dict):
            fields.setdefault("text", body.strip("\n"))
    else:
        fields = load(decode(content))
    if not isinstance(fields, dict):
        raise Invalid(["a drop must be one mapping, or Markdown with front matter"])
    return fields


def _order(session: Session, fields: dict[str, Any]) -> Callable[[Transaction], str]:
    """Return the work that a drop asks for: a new memory, or a change of one."""
    named = taken_type(fields, _TYPES)
    for key in (_UPDATE, _RESOLVE):
        # Of a new memory it can be a field like any other.
        if key in fields and (named is None or kind_of(str(fields[key]), SESSION_KINDS)):
            return _change(session, key, fields)
    if named is None:
        types = ", ".join(sorted(_TYPES))
        raise Invalid([f"'type' must be one of {types}; or 'update' or 'resolve' names a memory"])
    kind: Kind = _TYPES[named]
    fields = with_own_names(kind, fields)
    if kind is TURN:
        fields["type"] = str(fields.pop("turn_type", fields.get("type", "message")))
    if "id" in fields:
        fields["dropped_id"] = fields.pop("id")
    if kind is FINDING:
        fields.setdefault("resolution", {"status": "open"})
    if kind not in (TURN, RELATIONSHIP):
        fields.setdefault("tags", [])
    timestamp = fields.pop("timestamp", None)
    return lambda transaction: transaction.record(kind, dict(fields), timestamp).id


def _change(session: Session, key: str, fields: dict[str, Any]) -> Callable[[Transaction], str]:
    memory_id = check_memory_id(fields.pop(key))
    if taken := [name for name in ("self", "memory_id", _UPDATE, _RESOLVE) if name in fields]:
        raise Invalid([f"{key!r} cannot set a field {taken[0]!r}"])
    if key == _UPDATE:
        own = with_own_names(session.kind_of_record(memory_id), fields)
        return lambda transaction: transaction.update(memory_id, **own).id
    fields = with_names_of_a_resolution(fields)
    needed = ("resolved_by", "action_taken")
    if missing := [repr(name) for name in needed if not isinstance(fields.get(name), str)]:
        raise Invalid([f"'resolve' must say {' and '.join(missing)}"])
    return lambda transaction: transaction.resolve_finding(memory_id, **fields).id


def _carry_out(session: Session, orders: list[_Order]) -> list[Drop]:
    """Carry all out in one transaction, or, where one is at fault, each in its own."""
    drops: list[Drop] = []
    size, quota = 0, session.quota_bytes()
    try:
        with session.transaction(len(orders)) as transaction:
            for order in orders:
                try:
                    # Before a number is given: a drop that does not fit is tried again and again.
                    session.scope.usage.require(session.id, size + order.read.st_size, quota)
                    with deadline():
                        memory_id = order.carry_out(transaction)
                except QuotaExceeded as error:
                    drops.append(Drop(order.name, "waiting", reason=str(error)))
                except (Invalid, MemoryNotFound, TookTooLong) as error:
                    drops.append(_reject(session, order.name, str(error)))
                else:
                    transaction.remove_drop(f"{INBOX}/{order.name}", order.read)
                    size += order.read.st_size
                    drops.append(Drop(order.name, "taken", memory_id))
    except (OSError, SMPError) as error:
        # A held lock, a full disk, a file of a newer format: all of that may pass.
        settled = [drop for drop in drops if drop.outcome != "taken"]
        names = {drop.name for drop in settled}
        left = [order for order in orders if order.name not in names]
        if len(orders) == 1 or isinstance(error, (LockTimeout, TransactionPending)):
            return settled + [Drop(order.name, "waiting", reason=str(error)) for order in left]
        return settled + [drop for order in left for drop in _carry_out(session, [order])]
    return drops


def _reject(session: Session, name: str, why: str) -> Drop:
    """Move the drop aside, with a note beside it on the mistake and how to mend it."""
    why, tree = harmless(why), session.scope.tree  # the reason may quote the drop
    try:
        tree.make_directory(session.scope.path(REJECTED))
        old, new = (session.scope.path(f"{place}/{name}") for place in (INBOX, REJECTED))
        target = tree.rename_beside(old, new)
    except (OSError, SMPError) as error:
        return Drop(name, "waiting", reason=f"{why} It cannot be put aside: {error}")
    try:
        note = f"# {name} was not taken in\n\n{why}\n\n{_MEND}\n"
        tree.create(f"{target}{NOTE}", note.encode("utf-8", "replace"))
    except (OSError, SMPError) as error:
        why = f"{why} No note could be written beside it: {error}"
    return Drop(name, "rejected", reason=why)
