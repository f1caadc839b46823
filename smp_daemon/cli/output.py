"""Everything that commands print: texts, tables, JSON and outcomes.

A memory can hold any text, and whoever wrote it must not drive the terminal of a reader. So every
text goes through `harmless`, `one_line` or `print_json`, also into a pipe.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from smp_client import Record
    from smp_client.change.holdings import Holding
    from smp_client.model.outcome import Outcome
    from smp_client.session import RecordFiles

    _Files = TypeVar("_Files", bound=RecordFiles)

NAMED = 5  # of a longer list, where it must be short
_PADDED_COLUMNS = 60  # one long cell must not push all the others aside
_LEAST_TEXT = 30  # columns; further columns make room for the last one
_EXCERPT = 240  # characters of a long text in a list
_STEM = 5  # letters: a word is found in its other forms, too
_GAP = "  "  # between two columns
_BAR_COLUMNS = 20
_REDRAWN_S = 0.2
_SEVERITY_STYLES: dict[str, dict[str, Any]] = {
    "critical": {"fg": "red", "bold": True},
    "high": {"fg": "red"},
    "medium": {"fg": "yellow"},
}
HEALTH_STYLES: dict[str, dict[str, Any]] = {
    "ok": {"fg": "green"},
    "degraded": {"fg": "yellow"},
    "down": {"fg": "red"},
    "unknown": {"fg": "red"},
}
_TITLES = {"timestamp": "WHEN", "about": "WHAT", "bytes_freed": "FREED", "total_bytes": "SIZE",
           "utilization_pct": "FULL_%", "recovery_deadline": "UNTIL"}  # fmt: skip
_TIME = re.compile(r"\A(\d{4}-\d\d-\d\d)T(\d\d:\d\d)[\d:.]*Z\Z")
# Characters that a terminal obeys, that turn the direction of text, or that are none at all.
_UNSEEN = r"\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_DRIVING = re.compile(rf"[\x00-\x08\x0b-\x1f{_UNSEEN}]")


def harmless(text: str) -> str:
    """Return the text with its lines; all else that a terminal obeys is written out: `\\x1b`."""
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n").expandtabs(4)
    return _DRIVING.sub(lambda found: ascii(found[0])[1:-1].replace("\\r", "\\x0d"), text)


def one_line(text: str) -> str:
    """Return the harmless text on one line, any white space as one blank."""
    return harmless(" ".join(text.split()))


def width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    wide = 0 if text.isascii() else sum(unicodedata.east_asian_width(one) in "WF" for one in text)
    return len(text) + wide


def cut(text: str, columns: int) -> str:
    """Return the text in so many columns, with … where something is left out."""
    if width(text) <= columns:
        return text
    text = text[: columns - 1]
    while width(text) > columns - 1:
        text = text[:-1]
    return text.rstrip() + "…"


def excerpt(text: str, words: Sequence[str], room: int = _EXCERPT) -> str:
    """Return the part of a long text around the first of these words, on one line."""
    text = " ".join(text.split())
    if len(text) <= room:
        return text
    lower = text.lower()
    places = [at for word in words if (at := lower.find(word[:_STEM].lower())) >= 0]
    start = max(min(places, default=0) - room // 4, 0)
    if start:
        start = text.find(" ", start) + 1  # a whole word
    return ("…" if start else "") + cut(text[start:], room)


def counted(count: int, noun: str) -> str:
    """Return `1 memory`, `1,200 memories`."""
    many = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{count:,} {noun if count == 1 else many}"


def listed(names: Sequence[str], most: int = NAMED) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def short_time(time: object) -> str:
    """Return `2026-01-11 14:30`; a text that is no time in UTC stays as it is."""
    text = one_line("" if time is None else str(time))
    return _TIME.sub(r"\1 \2", text) if text.endswith("Z") else text


def short_size(size_bytes: float) -> str:
    for unit in ("B", "KB", "MB"):
        if abs(size_bytes) < 1024:
            return f"{size_bytes:.{0 if unit == 'B' else 1}f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} GB"


def short_type(type: str) -> str:
    """Return the name of a type, as options take it, or of an action."""
    return {"agent_state": "state"}.get(type, type.replace("_", " "))


def record_json(record: Record) -> dict[str, Any]:
    """Return a memory as every command prints it."""
    from smp_client.model.times import render_time

    names = ("id", "session", "type", "timestamp", "by", "priority", "text", "tags", "data",
             "marks")  # fmt: skip
    said = {name: getattr(record, name) for name in names}
    time = render_time(record.timestamp) if record.timestamp else None
    return {**said, "timestamp": time, "text": text_of(record)}


def text_of(record: Any) -> str:
    """Return the text of a memory or an event; that of a relationship is only its name."""
    if record.type != "relationship":
        return str(record.text)
    fields = getattr(record, "further", None) or getattr(record, "data", {})
    return " ".join(str(fields.get(name) or "?") for name in ("source", "relationship", "target"))


def part(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the mapping of this name; an empty one where a person wrote something else."""
    found = fields.get(name)
    return found if isinstance(found, dict) else {}


def held_text(one: Holding) -> str:
    """Return the text of a memory wherever it is; of a state, all its texts."""
    from smp_client.change.select import texts_of
    from smp_client.model.record import kind_of_file

    text = one.value.get("content" if one.is_file else kind_of_file(one.file).text)
    return str(text or "; ".join(texts_of(one.value)))


def on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


say = click.echo


@contextmanager
def progress(label: str, hidden_s: float = 1.0) -> Iterator[Callable[[], None]]:
    """Show on a terminal how far the work inside has come; yield a counter of its items.

    The line on stderr appears when the work takes longer than `hidden_s`, with the time left as
    soon as the work knows how many pieces it has.
    """
    from smp_client.model.progress import watched

    if sys.stderr is None or not sys.stderr.isatty():
        yield _nothing
        return
    line = _ProgressLine(label, time.monotonic(), hidden_s)
    try:
        with watched(line.reach):
            yield line.count
    finally:
        line.clear()


def _nothing() -> None:
    """Count for nobody."""


@dataclass
class _ProgressLine:
    """One line of a terminal: a label, a bar, and the time left."""

    label: str
    began: float
    hidden_s: float
    items: int = 0
    share: float = 0.0
    shown: str = ""
    drawn: float = 0.0

    def count(self) -> None:
        """Count one item, of nobody knows how many."""
        self.items += 1
        self._draw()

    def reach(self, done: int, total: int) -> None:
        """Note that so many pieces of the work are done."""
        self.share = done / total
        if done == total:
            self.clear()  # before anything else is printed
        else:
            self._draw()

    def clear(self) -> None:
        if self.shown:
            click.echo(f"\r{' ' * len(self.shown)}\r", nl=False, err=True)
            self.shown = ""

    def _draw(self) -> None:
        at = time.monotonic()
        if at - self.began < self.hidden_s or at - self.drawn < _REDRAWN_S:
            return
        self.drawn = at
        parts = [self.label]
        if self.items:
            parts.append(f"{self.items:,}")
        if self.share:
            full = round(self.share * _BAR_COLUMNS)
            left_s = (at - self.began) * (1 - self.share) / self.share
            parts.append("█" * full + "░" * (_BAR_COLUMNS - full))
            parts.append(f"{self.share:.0%}, {left_s // 60:.0f}:{left_s % 60:02.0f} left")
        text = " ".join(parts)
        click.echo(f"\r{text:<{len(self.shown)}}", nl=False, err=True)
        self.shown = text


# Colours, which only a terminal gets.


def is_coloured() -> bool:
    """Return whether to print colours: see no-color.org."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return on_terminal() and not is_plain


def styled(text: str, style: Mapping[str, Any]) -> str:
    return click.style(text, **style) if style and is_coloured() else text


def style_of_row(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the style of a memory that no longer holds; none of others."""
    marks = row.get("marks") or ()
    return {"dim": True} if any(not mark.startswith("archived") for mark in marks) else {}


def style_of_cell(row: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the style of a cell: ids stand out, and so do bad findings and states."""
    if key == "id":
        return {"fg": "cyan"}
    if key in ("severity", "type"):
        return _SEVERITY_STYLES.get(str(row.get("severity")).lower(), {})
    return {}


def tell(text: str, *, err: bool = False) -> None:
    """Print a sentence on one line."""
    click.echo(text[: len(text) - len(text.lstrip())] + one_line(text), err=err)


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print the fields as YAML."""
    from smp_client.text.values import render_entries

    say(harmless("\n".join(render_entries(dict(fields), 0))))


def print_pairs(pairs: Mapping[str, object]) -> None:
    """Print each name and its value, also one of counts or a list; an empty one is left out."""
    for name, value in pairs.items():
        if isinstance(value, dict):
            value = [f"{short_type(str(key))} {count}" for key, count in value.items()]
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        if value:
            say(f"{name.replace('_', ' '):<16}{short_time(text)}")


def print_json(value: Any) -> None:
    """Print JSON with nothing in it that a terminal obeys."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    is_ascii = encoding.lower().replace("-", "") != "utf8"
    text = json.dumps(value, indent=1, ensure_ascii=is_ascii)
    say(re.sub(f"[{_UNSEEN}]", lambda found: f"\\u{ord(found[0]):04x}", text))


def print_table(columns: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each row. A column is the key of its cells, followed by signs.

    `>` is right; `?` is left out where it is empty, or where a terminal is too narrow. A line that
    is still too wide for a terminal is cut; a pipe gets all of it.
    """
    room = os.get_terminal_size(sys.stdout.fileno()).columns if on_terminal() else 0
    table: list[_Column] = []
    for word in columns.split():
        key = word.rstrip(">?")
        cells = [_cell(row, key) for row in rows]
        if "?" not in word or {*cells} != {"-"}:
            title = _TITLES.get(key, key.upper()).replace("_", " ")
            table.append(_Column(key, word[len(key) :], [title, *cells]))
    for column in reversed(table[:-1]) if room else ():
        needed = sum(one.size for one in table[:-1]) + 2 * len(table)
        if "?" in column.signs and needed + min(table[-1].size, _LEAST_TEXT) > room:
            table.remove(column)
    lines = [_line(table, 0, room)]
    lines += [_line(table, number, room, row) for number, row in enumerate(rows, 1)]
    say("\n".join(lines))


@dataclass
class _Column:
    """One column of a table: the title, then a cell for each row."""

    key: str
    signs: str
    cells: list[str]

    @cached_property  # every line asks for it
    def size(self) -> int:
        return min(max(map(width, self.cells)), _PADDED_COLUMNS)

    def padded(self, number: int, size: int) -> str:
        blanks = " " * (size - width(self.cells[number]))
        return blanks + self.cells[number] if ">" in self.signs else self.cells[number] + blanks


def _line(
    table: Sequence[_Column], number: int, room: int, row: Mapping[str, Any] | None = None
) -> str:
    """Return one line of a table, cut to a terminal's room and coloured on it."""
    cells = [column.padded(number, column.size) for column in table]
    plain = _GAP.join(cells).rstrip()
    if room:
        plain = cut(plain, room)
    if not is_coloured():
        return plain
    style = {"bold": True} if row is None else style_of_row(row)
    if style or row is None:
        return click.style(plain, **style)
    line = ""
    at = 0
    for column, cell in zip(table, cells, strict=True):
        end = at + len(cell)
        line += styled(plain[at:end], style_of_cell(row, column.key)) + plain[end : end + len(_GAP)]
        at = end + len(_GAP)
    return line


def _cell(row: Mapping[str, Any], key: str) -> str:
    """Return a value as a table shows it; an empty one is a `-`."""
    value = row.get(key)
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, (list, tuple)):
        value = listed(value, NAMED if on_terminal() else len(value))
    elif "bytes" in key:
        value = short_size(value) if value else ""
    elif key == "type" and value:
        value = short_type(value)
    elif key == "text" and row.get("marks"):
        value = f"{value} [{', '.join(row['marks'])}]"
    return short_time(value) or "-"


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    names = ("session", "type", "about", "reason", "bytes_freed", "batch", "place")
    actions = [{name: None if getattr(action, name) == "" else getattr(action, name)
                for name in names} for action in outcome.actions]  # fmt: skip
    said = {name: getattr(outcome, name) for name in ("dry_run", "problems", "notes")}
    said |= {"bytes_freed": outcome.bytes_freed, "counts": dict(outcome.counts)}
    return {**said, "actions": actions}


def print_actions(outcome: Outcome) -> None:
    rows = [{**row, "action": row["type"].replace("_", " "),
             "about": [name for name in row["about"] if name != row["session"]]}
            for row in outcome_json(outcome)["actions"]]  # fmt: skip
    print_table("session action about bytes_freed>? reason", rows)
    counts = {name: count for name, count in outcome.counts.items() if "bytes" not in name}
    total = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
    size, would = short_size(outcome.bytes_freed), "to be " if outcome.dry_run else ""
    freed = f", {size} {would}freed" if outcome.bytes_freed > 0 else ""
    total = total or counted(len(rows), "action") + freed
    say(total + ("; nothing was changed" if outcome.dry_run else ""))


def for_each(files: Sequence[_Files], do: Callable[[_Files], Outcome], *, dry_run: bool) -> Outcome:
    """Return the outcome of all. Of several, one that fails stops no other."""
    from smp_client import SMPError
    from smp_client.model.outcome import Outcome

    whole = Outcome(dry_run=dry_run)
    for one in files:
        try:
            part = do(one)
        except (SMPError, OSError) as error:
            if len(files) == 1:
                raise
            part = Outcome(problems=[str(error)])
        name = one.scope.name
        part.problems = [text if name in text else f"{name}: {text}" for text in part.problems]
        whole.add(part)
    return whole
