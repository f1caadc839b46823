"""What the tests of the other layouts share: reading a path, importing it, and putting together again what was read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layouts_data import Entry

from smp_client import Memory
from smp_client.exchange.entries import kind_of, problem_of
from smp_client.exchange.importing import Imported, Importing
from smp_client.exchange.layouts import checked, per_kind, read, recognise, removed, single
from smp_client.exchange.layouts.sessions import DELETED, GONE
from smp_client.exchange.layouts.shaping import IMPORTED, Ids
from smp_client.records import Kind
from smp_client.text.values import canonical

Records = list[tuple[str, dict[str, Any]]]  # file and record


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def stream(path: Path, layout: str | None = None) -> tuple[list[Entry], list[str]]:
    """All entries, each sound, and all problems."""
    entries: list[Entry] = []
    problems: list[str] = []
    for found in recognise(path, layout):
        for one in read(found):
            if one.entry is None:
                problems.append(one.problem)
            else:
                assert one.entry["entry"] in (DELETED, GONE) or problem_of(one.entry) is None, one.entry
                entries.append(one.entry)
    return entries, problems


def records(entries: Iterable[Entry], session: str | None = None) -> Records:
    """Those that stand in their files and those that are deleted, without the places of deleted turns."""
    return [(entry["file"], entry["record"]) for entry in entries
            if entry["entry"] in ("memory", DELETED) and session in (None, entry["session"])
            and not (entry["record"].get("type") == "deleted" and IMPORTED not in entry["record"])]  # fmt: skip


def by_id(entries: Iterable[Entry]) -> dict[str, dict[str, Any]]:
    return {record["id"]: record for _, record in records(entries)}


def ids_of(held: Records) -> Ids:
    """As whoever writes a layout again has to make it: from the records alone."""
    ids = Ids()
    for _, record in held:
        notes = record[IMPORTED]
        ids.know(record["id"], notes.get("id", record["id"]))
    return ids


def multiset(entries: Iterable[Any]) -> list[bytes]:
    return sorted(canonical(entry) for entry in entries)


def take_in(memory: Memory, path: Path, layout: str | None = None) -> tuple[Imported, int, list[str]]:
    """An import from its beginning to its end."""
    taken = removed.Removed()
    importing = Importing(memory, path.name)
    result = importing.take_all(taken.take_out(one for found in recognise(path, layout) for one in read(found)))
    put = taken.put(memory)
    return result, put.count, put.problems


def on_disk(memory: Memory, session: str) -> Records:
    """Every memory of a session as it stands in its files or in `deleted/`."""
    from smp_client.privacy.deleting.standing import standing
    from smp_client.privacy.deleting.store import Store

    held = [(one.file, one.value) for one in standing(memory, session, []) if one.id and kind_of(session, one.file)]
    store = Store(memory, session)
    return held + [(item["file"], store.copy(item)[1]) for item in store.items()]


def kind(file: str) -> Kind:
    """Of a session's record file."""
    found = kind_of("s", file)
    assert found
    return found


def written_single(held: Records) -> list[bytes]:
    ids = ids_of(held)
    return multiset(single.theirs(kind(file), record, ids) for file, record in held)


def written_per_kind(held: Records) -> dict[str, list[bytes]]:
    ids = ids_of(held)
    files = {one.file: name for name, one in per_kind.KINDS.items()}
    return {name: multiset(per_kind.theirs(kind(file), record, ids) for file, record in held if file == ours)
            for ours, name in files.items()}  # fmt: skip


def written_checked(held: Records) -> list[bytes]:
    ids = ids_of(held)
    return multiset(checked.theirs(kind(file), record, ids, "s1") for file, record in held)


def bare(log: Iterable[Entry]) -> list[bytes]:
    return multiset({name: value for name, value in entry.items() if name != "checksum"} for entry in log)


def live(lines: list[Entry]) -> list[Entry]:
    return [line for line in lines if "type" in line]
