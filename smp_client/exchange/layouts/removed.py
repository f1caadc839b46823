"""Memories that come as deleted: into `deleted/{session}/`, where `smp restore` finds them.

They are no part of an export, which has the files of `deleted/` instead, so the streams of other layouts have them as entries of
their own: `deleted`, with `session`, `file`, `type`, `record` and `deletion` (`deleted_at`, `deleted_by`, `reason`). `take_out`
leaves them out of what the importer is given and holds them; `put` stores them when their session is there. The time to restore
them begins with the import: here they were never deleted before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...errors import SMPError
from ...layout import ACTIVE
from ...maintain.putting_back import value_of
from ...timestamps import parse_time
from ..entries import Entry, kind_of, storable_problem
from ..formats import Read
from ..pieces import render
from .sessions import DELETED

if TYPE_CHECKING:
    from ...memory import Memory
    from ...privacy.standing import Standing


@dataclass
class Removed:
    """What was taken out of a stream, by session."""

    entries: dict[str, list[Entry]] = field(default_factory=dict)

    def take_out(self, given: Iterable[Read]) -> Iterator[Read]:
        for read in given:
            if read.entry is not None and read.entry.get("entry") == DELETED:
                self.entries.setdefault(read.entry["session"], []).append(read.entry)
            else:
                yield read

    def put(self, memory: Memory, *, dry_run: bool = False) -> tuple[int, list[str]]:
        """Stores all of them; gives back how many are new (of a dry run, how many there are), and what could not be stored."""
        if dry_run:
            return sum(map(len, self.entries.values())), []
        count, problems = 0, list[str]()
        for session, entries in self.entries.items():
            try:
                added, further = put(memory, session, entries)
                count += added
                problems += further
            except (SMPError, OSError) as error:
                problems.append(f"{session}: {len(entries):,} deleted memories were not taken in: {error}")
        return count, problems


def put(memory: Memory, session: str, entries: Iterable[Entry]) -> tuple[int, list[str]]:
    """Those that are neither deleted here already, nor purged, nor back in their file; doing it again adds nothing."""
    from ...maintain import purged
    from ...privacy.redaction import harmless
    from ...privacy.reworking import locked, new_batch, settle
    from ...privacy.standing import standing
    from ...privacy.store import Store, copies_of, new_item

    problems: list[str] = []
    with locked(memory, session, "importing"):
        settle(memory, session)
        store = Store(memory, session)
        store.require_no_session()
        items = store.items()
        known = {(item["file"], item["id"]) for item in items}
        known |= {(one.file, one.id) for one in standing(memory, session, [])}
        gone = purged.memories(memory.tree, session)
        taken, batch = set(store.members()), new_batch(memory)
        added, copies = [], dict[str, bytes]()
        for entry in entries:
            one = _standing(session, entry, problems)
            if one is None or (one.file, one.id) in known or one.id in gone:
                continue
            # Why it was deleted is kept as well, and may quote what it was deleted for.
            said = {name: harmless(text) if isinstance(text, str) else text for name, text in entry["deletion"].items()}
            item = new_item(one, taken, said, now=memory.options.clock(), days=memory.options.retention.deleted_days, batch=batch)
            item["deleted_at"] = _earlier(said.get("deleted_at"), item["deleted_at"])
            added.append(item)
            taken.add(item["copy"])
            copies |= copies_of(item, one)
            known.add((one.file, one.id))
        if added:
            store.save([*items, *added], copies)
    return len(added), problems


def _standing(session: str, entry: Entry, problems: list[str]) -> Standing | None:
    """As it would stand in its file."""
    from ...privacy.standing import Standing

    kind, value = kind_of(session, entry["file"]), entry["record"]
    try:
        if kind is None or (problem := storable_problem(value, 2)):
            raise ValueError(problem if kind else f"no memories are kept in a file {entry['file']!r}")
        raw = render(kind, value)
        found = value_of(kind, raw)
        if found is None or found.get("id") != value["id"]:
            raise ValueError("it cannot be written")
    except (ValueError, KeyError, TypeError) as error:
        problems.append(f"{session}: deleted {value.get('id')}: {error}")
        return None
    return Standing(session, "active", f"{ACTIVE}/{session}/{kind.file}", kind.file, kind.name, str(found["id"]), found, raw)


def _earlier(said: object, now: str) -> str:
    """When it was deleted there; not behind this moment, whatever a clock said."""
    return said if isinstance(said, str) and parse_time(said) <= parse_time(now) else now
