"""What a session holds, as compaction needs it: from the index, and only what that does not know from the files."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ..decay import PINNED, is_resolved
from ..indexing import hash_of
from ..layout import is_file_id
from ..records import RELATIONSHIP, STATE_HISTORY, TURN, kind_of_file, state_history
from ..splicing import Splice, is_as_read
from ..text.format import format_of
from ..timestamps import parse_time
from .compaction import ARTIFACT, STATE, SUMMARIZES, SUMMARY, Item, Snapshot
from .putting_back import by_id

if TYPE_CHECKING:
    from ..questions.priorities import View
    from ..session import Session

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ATTEMPTS = 4
# Each begins with the letters themselves, which makes looking for them ten times as fast.
_HEADING = re.compile(rb"\n## Turn 0*(\d{1,15})\b")
_ID = re.compile(rb"id[\"']?:[ \t]*[\"']?([A-Za-z0-9][A-Za-z0-9_.-]{0,63})")
_IN_A_WORD = re.compile(rb"[A-Za-z0-9_-]")


class Seen(NamedTuple):
    snapshot: Snapshot
    files: dict[str, tuple[int, int]]  # size and checksum of the bytes that the places are right for


def look(session: Session) -> Seen:
    for _ in range(_ATTEMPTS):
        items, files, decayed_below = session._asker().ask(_question)
        contents = {kind.file: session.scope.read(kind.file) for kind in session.kinds if kind.file in files}
        edited = {file for file, content in contents.items() if not is_as_read(content, Splice(*files[file], []))}
        if not edited:
            break
    # What somebody keeps editing is left to them.
    steady = [item for item in items if item.file not in edited]
    known = {file: contents[file][: files[file][0]] for file in contents}
    return Seen(Snapshot(session.id, list(_as_they_stand(steady, known)), decayed_below), files)


def _as_they_stand(items: Sequence[Item], contents: Mapping[str, bytes]) -> Iterator[Item]:
    """In their order, with what only the bytes of their files tell."""
    for file, group in groupby(items, key=lambda item: item.file):
        found = list(group)
        if (content := contents.get(file)) is not None:
            found[-1] = found[-1]._replace(is_open=not format_of(kind_of_file(file)).is_ours(content, found[-1].start))
            if doubles := _doubles(file, content):
                found = [item._replace(is_double=item.id in doubles) for item in found]
        yield from found


def _doubles(file: str, content: bytes) -> set[str]:
    """Ids that seem to stand in the file more than once; some may be only words in a text, which does no harm."""
    if file == TURN.file:
        named = [f"{TURN.prefix}-{number.decode()}" for number in _HEADING.findall(b"\n" + content)]
    else:
        named = [found[1].decode() for found in _ID.finditer(content) if not _IN_A_WORD.match(content, found.start() - 1)]
    return {name for name, times in Counter(named).items() if times > 1}


def _question(view: View) -> tuple[list[Item], dict[str, tuple[int, int]], float]:
    from ..questions.doubles import NAMED
    from ..questions.priorities import source

    joined, columns = source(view)
    read = "a.last" if view.index.noted else "NULL"
    asked = (
        f"SELECT m.id, m.type, m.file, m.start, m.end, m.hash, {columns.priority}, m.at, m.accessed, {read}, m.standing, m.actor,"
        f" m.data {joined} WHERE m.scope = ? AND {NAMED} ORDER BY m.file, m.start"
    )
    (scope,) = view.scopes
    states = {file: state for (_, file), state in view.index.files(scope).items() if state.problem is None}
    rows = view.index.connection.execute(asked, (scope,))
    items = [_item(*row) for row in rows if row[2] in states]
    return items, {file: (state.size, state.checksum) for file, state in states.items()}, view.policy.decayed_below


def _item(
    memory_id: str, type: str, file: str, start: int, end: int, hash: str, priority: float, at: int | None, accessed: int | None,
    read: int | None, standing: str, actor: str, data: str,
) -> Item:  # fmt: skip
    value: dict[str, Any] = json.loads(data) if type not in (STATE, ARTIFACT) else {}
    times = [time for time in (at, accessed, read, _microseconds(value.get("updated_at"))) if time is not None]
    latest, made = max(times, default=None), _time(at)
    refs = [value.get("source"), value.get("target")] if type == RELATIONSHIP.name else value.get("memory_refs")
    is_turn = type == TURN.name
    is_summary = is_turn and value.get("type") == SUMMARY and SUMMARIZES in value
    return Item(
        memory_id, type, file, start, end, hash, priority, made, made if latest == at else _time(latest), standing == PINNED,
        not is_turn and is_resolved(value), str(value.get("confidence")).lower() == "explicit", is_summary, False, False,
        actor, str(value.get(TURN.text, "")) if is_turn else "",
        tuple(str(ref) for ref in refs) if isinstance(refs, list) else (),
    )  # fmt: skip


def _time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else EPOCH + timedelta(microseconds=microseconds)


def _microseconds(stamp: Any) -> int | None:
    try:
        return (parse_time(stamp) - EPOCH) // timedelta(microseconds=1) if isinstance(stamp, str) else None
    except (ValueError, OverflowError):
        return None


def look_further(session: Session, seen: Seen) -> Seen:
    history: list[Item] = []
    files = dict(seen.files)
    for name in sorted(session.scope.tree.sizes(session.scope.path(STATE_HISTORY))):
        agent = name.removesuffix(".yaml")
        if name.endswith(".yaml") and is_file_id(agent):
            kind = state_history(agent)
            content = session.scope.read(kind.file)
            files[kind.file] = (len(content), zlib.crc32(content))
            for memory_id, record in by_id(format_of(kind).parse(content).records).items():
                at = _time(_microseconds(record.value.get("timestamp")))
                history.append(Item(memory_id, kind.name, kind.file, record.start, record.end, hash_of(record.value), 0.0, at, at,
                                    actor=agent))  # fmt: skip
    return Seen(replace(seen.snapshot, history=history), files)
