"""What `smp import` does with a path: says what it has found there, and, if asked to, takes the steps around an import.

A migration is five steps: a backup, the import with what logs mark, the first priorities, a comparison of both sides, and cleaning
up, which is left to the user.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from .output import Column, one_line, print_table, say, short_size
from .progress import each, progress

if TYPE_CHECKING:
    from smp_client import Memory
    from smp_client.exchange.backup import BackedUp
    from smp_client.exchange.importing import Imported
    from smp_client.exchange.layouts import Found
    from smp_client.exchange.verifying import Verified

LAYOUTS = ("smp", "jsonl", "jsonl-per-kind", "jsonl-checked", "markdown-log")
_NAMED = 3  # reasons for each layout
_KEPT_DAYS = 30
_BEGINS = {"jsonl": b"\n", "json": b"\n", "yaml": b"---\n", "markdown": b"```yaml\n"}  # once for each entry, or nearly


def look(path: str, layout: str | None, *, extract: bool) -> list[Found]:
    from smp_client.exchange.elsewhere import found_at

    return found_at(path, layout, extract=extract)


def say_found(found: Sequence[Found]) -> None:
    """Which layouts there are, and why that is thought."""
    for one in found:
        count = f": {len(one.sessions):,} session{'' if len(one.sessions) == 1 else 's'}" if one.layout != "smp" else ""
        more = f"; and {len(one.reasons) - _NAMED:,} more" if len(one.reasons) > _NAMED else ""
        say(one_line(f"found {one.layout}{count} ({'; '.join(one.reasons[:_NAMED])}{more})"))


def found_json(found: Sequence[Found]) -> list[dict[str, Any]]:
    return [{"layout": one.layout, "path": str(one.path), "sessions": one.sessions, "reasons": one.reasons,
             "came_from": one.came_from} for one in found]  # fmt: skip


def places_of(found: Sequence[Found]) -> dict[str, list[str]]:
    """Where each session was read, below the path."""
    places: dict[str, list[str]] = {}
    for one in found:
        for session, those in one.came_from.items():
            places.setdefault(session, []).extend(place or "." for place in those)
    return places


def entries_in(found: Sequence[Found]) -> int | None:
    """About how many entries there are, for how far it is; only for a person, who is to see it."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    from smp_client import SMPError
    from smp_client.exchange import formats

    total = 0
    for one in found:
        for file in one.files() if one.layout != "markdown-log" else ():
            # What cannot be read is told by whoever reads it.
            with suppress(SMPError, OSError), os.fdopen(one.source.tree.open(file, os.O_RDONLY), "rb") as lines:
                piece = lines.read(1 << 20)
                form = formats.recognise(piece) or ("jsonl" if file.endswith((".jsonl", ".ndjson", ".json")) else "")
                while piece and form in _BEGINS:
                    total += piece.count(_BEGINS[form])
                    piece = lines.read(1 << 20)
    return total or None


# Around an import.


def back_up(memory: Memory, found: Sequence[Found]) -> BackedUp:
    from smp_client.exchange.backup import back_up

    files = sum(len(one.files()) for one in found)
    with progress("copying", files) as advance:
        return back_up(memory, found, advance)


def say_backup(memory: Memory, found: Sequence[Found], done: BackedUp | None) -> None:
    from smp_client.exchange.backup import directory_of

    if done is None:
        count, place = sum(len(one.files()) for one in found), directory_of(memory, found[0].path)
        say(one_line(f"backup: {_files(count)} would be copied to {place}"))
    else:
        how = "" if done.is_new else ", made before and left as it is"
        say(one_line(f"backup: {_files(done.files)}, {short_size(done.bytes)}, in {done.path}{how}"))


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"


def set_priorities(memory: Memory, done: Imported) -> int:
    """The decay pass over what was imported, also by a run that was cut off; how many sessions."""
    from smp_client.layout import ACTIVE, GLOBAL
    from smp_client.maintain.decay import decay

    names = [name for name in done.sessions if name == GLOBAL or memory.tree.exists(f"{ACTIVE}/{name}")]
    with each(names, "setting priorities") as them:
        for name in them:
            outcome = decay(memory.everywhere if name == GLOBAL else memory.session(name))
            done.problems += outcome.problems
    return len(names)


def verify(memory: Memory, found: Sequence[Found]) -> Verified:
    with progress("comparing", entries_in(found)) as advance:
        return memory.verify_import(found, advance=advance)


def say_verified(done: Verified) -> None:
    """The counts of each session, and what is not as it was; exactly what is missing is told on stderr."""
    columns: list[tuple[str, Callable[[Any], int]]] = [
        ("THERE", lambda one: one.source), ("HERE", lambda one: one.found), ("MISSING", lambda one: one.missing),
        ("CHANGED", lambda one: one.changed), ("UPDATED", lambda one: one.updated), ("ONLY HERE", lambda one: one.extra),
    ]  # fmt: skip
    rows = [(name, *(f"{count(one):,}" for _, count in columns), "same" if one.source_sha256 == one.tree_sha256 else "differs")
            for name, one in done.sessions.items()]  # fmt: skip
    if rows:
        print_table([Column("SESSION", keeps=True), *(Column(name, right=True) for name, _ in columns), Column("CONTENT")], rows)
    counts = {"of them deleted or purged here": done.total("deleted"), "of them put away by compaction": done.total("put_away"),
              f"line{'' if done.quarantined == 1 else 's'} in quarantine": done.quarantined}  # fmt: skip
    away = "".join(f", {count:,} {what}" for what, count in counts.items() if count)
    end = "nothing is lost" if done.is_whole else "not everything is as it was"
    say(f"{done.total('found') + done.total('updated'):,} of {done.total('source'):,} memories are here{away}; {end}")


def say_notes(done: Verified) -> None:
    for note in done.notes:
        click.echo(one_line(f"note: {note}"), err=True)


def problems_of(done: Verified) -> list[str]:
    return [*done.missing, *done.changed]


def verified_json(done: Verified) -> dict[str, Any]:
    return {"is_whole": done.is_whole, **asdict(done)}


def say_what_is_left(backup: BackedUp) -> None:
    """The last step is nobody's but the user's."""
    listed = backup.path / "backup.json"
    say(one_line(f"The old files are as they were, and listed in {listed}: remove them when you like, and keep the backup for"
                 f" {_KEPT_DAYS} days."))  # fmt: skip
