"""The inbox: any program may drop a memory, or a change of one, as a file.

The content of many drops and the removal of their files are one transaction, so a crash neither
loses a drop nor takes it in twice. A drop that is wrong is rejected, with a note beside it.

Sessions are served in turn. A turn ends after some drops, or after a time, so that the drops of one
session do not keep those of another waiting. A drop that is too large is rejected without a look.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
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
from smp_client.index.status import BEING_WRITTEN
from smp_client.model.deadline import deadline
from smp_client.model.errors import is_of_machine
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
from smp_client.model.times import now, render_time
from smp_client.redaction.redact import harmless
from smp_client.text.contents import parse_object
from smp_client.text.values import BadYaml, decode, load
from smp_client.transaction import Transaction

from ..log import ms_since

if TYPE_CHECKING:
    from ..root import Root

TURN_DROPS = 200  # after so many drops of a session the other sessions get their turn
TURN_S = 0.25  # or after so long
ROUND_S = 0.5  # after so long other work has its turn
BATCH_BYTES = 1024 * 1024  # in one transaction, at the most
DROP_CAP_BYTES = 3 * CONTENT_CAP_BYTES  # JSON may need six bytes for a character of two
AGAIN_S = 5.0  # before waiting drops are tried again
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


@dataclass
class _Pass:
    """One look at each drop of a session, in as many turns as it takes."""

    names: deque[str] | None = None  # that are left; None before the first turn
    began: str = ""  # when the names were listed
    reasons: list[str] = field(default_factory=list)  # why drops have to wait
    is_noted: bool = False  # another pass has to follow


class Inbox:
    """The inboxes of a tree, and the records in its files that have no id."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._passes: dict[str, _Pass] = {}  # by session, in the order of their turns
        self._again_at: dict[str, float] = {}  # by session with waiting drops
        self.waits: dict[str, dict[str, str]] = {}  # by session: why its drops wait, for clients

    def note(self, scope: str) -> None:
        """Note that a session may have drops."""
        under_way = self._passes.setdefault(scope, _Pass())
        under_way.is_noted = under_way.names is not None

    def has_work(self) -> bool:
        return bool(self._passes)

    def serve(self) -> None:
        """Give sessions their turn, one after the other, until the time of a round is over."""
        ends_at = time.monotonic() + ROUND_S
        while self._passes and time.monotonic() < ends_at:
            scope = next(iter(self._passes))
            under_way = self._passes.pop(scope)
            try:
                self._take_turn(scope, under_way)
            except Exception as error:
                if is_of_machine(error):
                    raise
                reason = self._root.log_failure(f"taking in drops of {scope}", error)
                under_way.reasons.append(reason)
                under_way.names = deque()  # the others are tried again, too
            if under_way.names:
                self._passes[scope] = under_way  # behind the others
            else:
                self._finish(scope, under_way)

    def _take_turn(self, scope: str, under_way: _Pass) -> None:
        root = self._root
        started = time.perf_counter()
        if under_way.names is None:
            under_way.began = render_time(now())
            under_way.names = deque(waiting(root.memory.tree, directory_of(scope)))
        if not under_way.names:
            return
        try:
            session = root.memory._session(scope)
        except SessionNotFound:  # it was archived or deleted just now
            under_way.names.clear()
            return
        for drop in take_in(session, _names_of_turn(under_way.names)):
            if drop.outcome == "waiting":
                under_way.reasons.append(harmless(drop.reason))
            elif drop.outcome != "gone":
                say = root.log.info if drop.outcome == "taken" else root.log.warning
                say(f"drop {drop.outcome}", component="inbox", session_id=scope, drop=drop.name,
                    memory_id=drop.memory_id, reason=drop.reason,
                    duration_ms=ms_since(started))  # fmt: skip

    def _finish(self, scope: str, done: _Pass) -> None:
        """Have the drops that wait named in the status, and looked at again."""
        self._forget(scope)
        stuck = [reason for reason in done.reasons if reason != BEING_WRITTEN]
        if stuck:
            sentence = f"Drops wait in the inbox of {scope}: {stuck[0]}"
            self._root.problems[f"inbox of {scope}"] = sentence
        if done.reasons:
            self._again_at[scope] = time.monotonic() + AGAIN_S
            reason = [*stuck, BEING_WRITTEN][0]
            self.waits[scope] = {"reason": reason, "tried_at": done.began}
        if done.is_noted:
            self.note(scope)

    def ask_again(self, *, at_once: bool = False) -> None:
        """Note the inboxes whose drops have waited long enough, or all whose drops wait."""
        for scope, at in list(self._again_at.items()):
            if not self._root.memory.tree.exists(f"active/{scope}"):
                self._forget(scope)
            elif at_once or at <= time.monotonic():
                self.note(scope)

    def _forget(self, scope: str) -> None:
        self._again_at.pop(scope, None)
        self.waits.pop(scope, None)
        self._root.problems.pop(f"inbox of {scope}", None)

    def unnumbered(self) -> set[str]:
        """Return the scopes whose files may hold a record without an id."""
        asked = "SELECT DISTINCT scope FROM files WHERE bad"
        return {scope for (scope,) in self._root.index.execute(asked)}

    def give_ids(self, scope: str) -> None:
        """Give ids to records that a person has written into the files without an id."""
        root = self._root
        for (_, file), state in root.index.files(scope).items():
            if not state.bad or state.problem or file not in kinds_of(scope):
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


def _names_of_turn(names: deque[str]) -> Iterator[str]:
    """Take the drops of one turn from the names."""
    ends_at = time.monotonic() + TURN_S
    for _ in range(TURN_DROPS):
        if not names:
            return
        yield names.popleft()
        if time.monotonic() > ends_at:
            return


def take_in(session: Session, names: Iterable[str]) -> Iterator[Drop]:
    """Take in the drops that are complete, many in one transaction. The others wait."""
    # One session whose files are locked must not keep the others waiting.
    session = session.with_options(lock_timeout_s=_PATIENCE_S)
    try:
        session.scope.recover()
        on_their_way = journal.going(session.scope)
    except (OSError, SMPError) as error:
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
        if len(orders) == TURN_DROPS or sum(order.read.st_size for order in orders) > BATCH_BYTES:
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
    size = 0
    try:
        quota = session.quota_bytes()
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
        # Inside: a session that was archived meanwhile must not come back, empty.
        tree.make_directory(session.scope.path(REJECTED), inside=session.scope.directory)
        old, new = (session.scope.path(f"{place}/{name}") for place in (INBOX, REJECTED))
        target = tree.rename_beside(old, new)
    except (OSError, SMPError) as error:
        return Drop(name, "waiting", reason=f"{why} It cannot be put aside: {error}")
    try:
        note = harmless(f"# {name} was not taken in\n\n{why}\n\n{_MEND}\n")
        tree.create(f"{target}{NOTE}", note.encode("utf-8", "replace"))
    except (OSError, SMPError) as error:
        why = f"{why} No note could be written beside it: {error}"
    return Drop(name, "rejected", reason=why)
