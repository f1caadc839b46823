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

from .output import Column, one_line, print_table, say, short_size, tell
from .progress import each, progress

if TYPE_CHECKING:
    from smp_client import Memory
    from smp_client.exchange.backup import BackedUp
    from smp_client.exchange.importing import Imported
    from smp_client.exchange.layouts import Found
    from smp_client.exchange.verifying import Compared, Verified

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
    from smp_client.exchange.backup import directory_of, not_backed_up

    if done is None:
        count, place = len(not_backed_up(memory, found)), directory_of(memory, found[0].path)
        say(one_line(f"backup: {_files(count)} would be copied to {place}{' and a number' if place.exists() and count else ''}"))
    else:
        how = "" if done.is_new else ", made before and left as it is"
        how = f"; what has not changed since is in {done.earlier[0]}" if done.is_new and done.earlier else how
        say(one_line(f"backup: {_files(done.files)}, {short_size(done.bytes)}, in {done.path}{how}"))


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"


def set_priorities(memory: Memory, done: Imported) -> int:
    """The decay pass over what was imported, also by a run that was cut off; how many sessions."""
    from smp_client.layout import ACTIVE, GLOBAL
    from smp_client.passes.decay import decay

    names = [name for name in done.sessions if name == GLOBAL or memory.tree.exists(f"{ACTIVE}/{name}")]
    with each(names, "setting priorities") as them:
        for name in them:
            outcome = decay(memory.everywhere if name == GLOBAL else memory._session(name))
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
    rows = [(name, *(f"{count(one):,}" for _, count in columns), _content(one)) for name, one in done.sessions.items()]
    if rows:
        print_table([Column("SESSION", ends=True), *(Column(name, right=True) for name, _ in columns), Column("CONTENT")], rows)
    counts = {"of them changed here since": done.total("updated"), "of them deleted or purged here": done.total("deleted"),
              "of them put away by compaction": done.total("put_away"),
              f"line{'' if done.quarantined == 1 else 's'} in quarantine": done.quarantined,
              f"line{'' if done.removed == 1 else 's'} that cannot be read and {'is' if done.removed == 1 else 'are'} not in"
              " quarantine": done.removed}  # fmt: skip
    away = "".join(f", {count:,} {what}" for what, count in counts.items() if count)
    end = "not everything is as it was" if done.missing or done.changed else "not everything could be read"
    end = f"nothing {'else ' if done.removed else ''}is lost" if done.is_whole else end
    say(f"{done.total('found') + done.total('updated'):,} of {done.total('source'):,} memories are here{away}; {end}")


def _content(one: Compared) -> str:
    """What the digests say, and what else there is beside memories."""
    if one.missing or one.changed or one.others:
        return "differs"
    return "same" if one.source_sha256 == one.tree_sha256 else "changed here"


def say_notes(done: Verified) -> None:
    for note in done.notes:
        tell(one_line(f"note: {note}"), err=True)


def problems_of(done: Verified) -> list[str]:
    return [*done.missing, *done.changed, *done.unread]


def verified_json(done: Verified) -> dict[str, Any]:
    return {"is_whole": done.is_whole, **asdict(done)}


def in_the_way(memory: Memory, found: Sequence[Found], done: Imported, verified: Verified) -> list[str]:
    """Why the old files are still needed."""
    from smp_client.exchange.backup import not_backed_up
    from smp_client.exchange.layouts.sources import is_lost

    counts = {"missing here": len(verified.missing), "different here": len(verified.changed),
              "that could not be read": len(verified.unread)}  # fmt: skip
    reasons = [f"{count:,} thing{'' if count == 1 else 's'} {what}" for what, count in counts.items() if count]
    if not reasons and (lost := [problem for problem in done.problems if is_lost(problem)]):
        reasons.append(f"{len(lost):,} thing{'' if len(lost) == 1 else 's'} that could not be taken in")
    if left := [name for name, became in done.sessions.items() if became in ("refused", "left out")]:
        reasons.append(f"{', '.join(left[:3])}{' and more' if len(left) > 3 else ''} not taken in")
    if done.differing:
        reasons.append(f"{done.differing:,} changed on both sides")
    changed = not_backed_up(memory, found)
    return reasons + ([f"{_files(len(changed))} written to since the backup, {changed[0]} among them"] if changed else [])


def say_what_is_left(backup: BackedUp, reasons: Sequence[str]) -> None:
    """The last step is nobody's but the user's."""
    listed = " and ".join(str(place / "backup.json") for place in [*backup.earlier, backup.path])
    if reasons:
        say(one_line(f"Keep the old files ({', '.join(reasons)}): see to that, and give this command again."))
        return
    say(one_line(f"The old files are as they were, and listed in {listed}: remove them when you like, and keep the backup for"
                 f" {_KEPT_DAYS} days. It holds all that they said, also what is a secret or is deleted here later, until you"
                 " remove it."))  # fmt: skip
