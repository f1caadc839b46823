"""Everything that commands print: texts, pairs, tables, JSON and outcomes.

On a terminal it is fitted and coloured; in a pipe it is plain, aligned and whole. A memory can hold
any text, and whoever wrote it must not drive the terminal of a reader. So every text goes through
`harmless`, `one_line` or `print_json`, also into a pipe, which may end on a terminal as well.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from smp_client import Record
    from smp_client.change.holdings import Holding
    from smp_client.model.outcome import Action, Outcome

NAMED = 5  # of a longer list, where it must be short
_PADDED_COLUMNS = 60  # in a pipe, one long cell must not push all the others aside
_LEAST_TEXT = 30  # a last column that would get fewer columns stands below its row
_LABEL_COLUMNS = 14
_MARKS = re.compile(r" (\[[^\[\]]+\])$")
# Characters that a terminal obeys, that turn the direction of text, or that are none at all.
_UNSEEN = r"\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_DRIVING = re.compile(rf"[\x00-\x08\x0b-\x1f{_UNSEEN}]")


# Texts.


def harmless(text: str) -> str:
    """Return the text with its lines; all else that a terminal obeys is written out: `\\x1b`."""
    text = text.replace("\r\n", "\n").expandtabs(4)
    return _DRIVING.sub(lambda found: ascii(found[0])[1:-1].replace("\\r", "\\x0d"), text)


def one_line(text: str) -> str:
    """Return the harmless text on one line, any white space as one blank."""
    return harmless(" ".join(text.split()))


def width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if character == "\ufe0f":  # makes an emoji of the narrow sign before it
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, columns: int) -> str:
    """Return the text in so many columns, with … where something is left out."""
    text, whole = text[: columns * 8], text  # marks without a width could be stacked without end
    if text == whole and width(text) <= columns:
        return text
    used = 0
    for index, character in enumerate(text):
        used += _columns(character)
        if used > columns - 1:
            text = text[:index]
            break
    return text.rstrip() + "…"


def cut_text(text: str, columns: int) -> str:
    """Return the text as `cut` does, but keep the marks at its end, if there is room for both."""
    marks = _MARKS.search(text)
    if marks is None or width(text) <= columns or width(marks[1]) > columns - 10:
        return cut(text, columns)
    return f"{cut(text[: marks.start()], columns - width(marks[1]) - 1)} {marks[1]}"


def marked(text: str, marks: Sequence[str]) -> str:
    """Return the text of a memory with its marks in brackets behind it."""
    return f"{text} [{', '.join(marks)}]" if marks else text


def wrapped(text: str, columns: int, indent: int = 0) -> str:
    """Return the text in lines of so many columns, broken between words; no word is cut."""
    first = text.lstrip()
    lines = [text[: len(text) - len(first)]]
    for number, word in enumerate(first.split(" ")):
        line = f"{lines[-1]} {word}" if number else lines[-1] + word
        if width(line) <= columns or indent + width(word) > columns or not number:
            lines[-1] = line
        else:
            lines.append(" " * indent + word)
    return "\n".join(lines)


def counted(count: int, noun: str) -> str:
    """Return `1 memory`, `1,200 memories`."""
    many = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{count:,} {noun if count == 1 else many}"


def listed(names: Sequence[str], most: int = NAMED) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def short_time(time: object) -> str:
    """Return `2026-01-11 14:30`, in UTC; a text that is no time stays as it is."""
    from smp_client.model.times import parse_time

    try:
        found = time if isinstance(time, datetime) else parse_time(str(time))
        return f"{found.astimezone(UTC):%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError):
        return "" if time is None else one_line(str(time))


def short_size(size_bytes: int | None) -> str:
    if size_bytes is None:
        return ""
    size = float(size_bytes)
    for unit in ("B", "KB", "MB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GB"


def short_type(type: str) -> str:
    from smp_client.model.record import type_of

    return {"agent_state": "state"}.get(type, type_of(type))


def short_path(path: str) -> str:
    """Return the path, on a terminal from the working directory if it leads below that."""
    inner = os.path.relpath(path) if on_terminal() else path
    return path if inner.startswith("..") else inner


# Printing.


def on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def terminal_columns() -> int:
    return shutil.get_terminal_size().columns


def styled(text: str, **style: Any) -> str:
    """Return the text in colour on a terminal, unless NO_COLOR is set; see click.style."""
    is_coloured = on_terminal() and not os.environ.get("NO_COLOR")
    return click.style(text, **style) if is_coloured else text


def say(text: str = "") -> None:
    """Print; characters that the output's encoding does not have are written out."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        click.echo(text.encode(encoding, "backslashreplace").decode(encoding))
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        sys.stdout = None  # Python would try once more when it ends
        said = f"the output cannot be written: {error.strerror}. The command may have changed"
        raise click.ClickException(f"{said} something: look before you repeat it.") from error


def tell(text: str, *, err: bool = False, indent: int = 0) -> None:
    """Print a sentence on one line; on a terminal it is broken between words."""
    text = text[: len(text) - len(text.lstrip())] + one_line(text)
    stream = sys.stderr if err else sys.stdout
    if stream is not None and stream.isatty():
        text = wrapped(text, terminal_columns(), indent)
    if err:
        click.echo(text, err=True)
    else:
        say(text)


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print the fields as YAML; on a terminal long lines are broken between words."""
    from smp_client.text.values import render_entries

    lines = harmless("\n".join(render_entries(dict(fields), 0))).split("\n")
    if on_terminal():
        columns = terminal_columns()
        lines = [wrapped(line, columns, len(line) - len(line.lstrip()) + 2) for line in lines]
    say("\n".join(lines))


def print_pairs(pairs: Mapping[str, object]) -> None:
    """Print each name and its value; an empty value is left out."""
    for name, value in pairs.items():
        if value:
            text = f"{name:<{_LABEL_COLUMNS}}{one_line(str(value))}"
            if on_terminal():
                text = wrapped(text, terminal_columns(), _LABEL_COLUMNS)
            say(styled(text[:_LABEL_COLUMNS], dim=True) + text[_LABEL_COLUMNS:])


def print_json(value: Any) -> None:
    """Print JSON that every reader takes: without NaN, and nothing that a terminal obeys."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    is_ascii = encoding.lower().replace("-", "") != "utf8"
    text = json.dumps(_finite(value), indent=1, ensure_ascii=is_ascii)
    say(re.sub(f"[{_UNSEEN}]", lambda found: f"\\u{ord(found[0]):04x}", text))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def record_json(record: Record) -> dict[str, Any]:
    """Return a memory as every command prints it in JSON."""
    from smp_client.model.times import render_time

    names = (
        "id",
        "session",
        "type",
        "timestamp",
        "by",
        "priority",
        "text",
        "tags",
        "data",
        "marks",
    )
    time = render_time(record.timestamp) if record.timestamp else None
    return {name: time if name == "timestamp" else getattr(record, name) for name in names}


def held_text(one: Holding) -> str:
    """Return the text of a memory wherever it is; of a state, all its texts."""
    from smp_client.change.select import texts_of
    from smp_client.model.record import kind_of_file

    text = one.value.get("content" if one.is_file else kind_of_file(one.file).text)
    return str(text or "; ".join(texts_of(one.value)))


# Tables.


@dataclass
class _Column:
    title: str
    signs: str
    cells: list[str]
    size: int

    def shown(self, text: str, *, is_title: bool = False) -> str:
        text = cut_text(text, self.size) if on_terminal() else text
        padding = " " * (self.size - width(text))
        text = styled(text, fg="cyan") if "@" in self.signs and not is_title else text
        return padding + text if ">" in self.signs else text + padding


def print_table(titles: str, rows: Sequence[Sequence[object]]) -> None:
    """Print titles and a line for each row; an empty cell is a `-`, `_` in a title a blank.

    Signs behind a title: `>` right, `@` in colour. On a terminal that is too narrow, of `~` only
    the ends of ids are shown, `?` is left out, and the last column is cut or stands below its row.
    A pipe gets whole cells.
    """
    columns: list[_Column] = []
    for place, name in enumerate(titles.split()):
        title = name.rstrip(">@~?")
        texts = ("" if row[place] is None else str(row[place]) for row in rows)
        cells = [one_line(text) or "-" for text in texts]
        size = max(map(width, (title, *cells)))
        columns.append(_Column(title.replace("_", " "), name[len(title) :], cells, size))
    below: list[str] = []
    if on_terminal():
        below = _fit(columns, terminal_columns())
    else:
        for column in columns:
            column.size = min(column.size, _PADDED_COLUMNS)
    head = "  ".join(column.shown(column.title, is_title=True) for column in columns)
    lines = [styled(head.rstrip(), bold=True)]
    for number in range(len(rows)):
        cells = [column.shown(column.cells[number]) for column in columns]
        lines += ["  ".join(cells).rstrip(), *below[number : number + 1]]
    say("\n".join(lines))


def _fit(columns: list[_Column], room: int) -> list[str]:
    """Make the table fit, see `print_table`; return the lines that stand below its rows."""
    text, below = columns[-1], []

    def lacking(least: int) -> int:
        others = sum(column.size + 2 for column in columns if column is not text)
        return others + min(text.size, least) - room

    for column in columns:
        if "~" in column.signs and lacking(_LEAST_TEXT) > 0:
            ends = [f"…{cell.rpartition('-')[2]}" for cell in column.cells]
            if len({*ends}) == len({*column.cells}):  # names that commands take, and still differ
                column.cells = [min(pair, key=len) for pair in zip(ends, column.cells, strict=True)]
                column.size = max(map(width, (column.title, *column.cells)))
    for column in reversed(columns[:-1]):
        if "?" in column.signs and lacking(_LEAST_TEXT) > 0:
            columns.remove(column)
    if lacking(_LEAST_TEXT) > 0 and len(columns) > 1:
        columns.pop()
        text.size = -2
        below = [cut_text(f"    {cell}", room) for cell in text.cells]
    text.size -= max(lacking(text.size), 0) if text in columns else 0
    while lacking(text.size) > 0:
        max(columns, key=lambda one: one.size).size -= 1
    return below


# Outcomes.


def finish(
    outcome: Outcome, *, as_json: bool, note: str = "", nothing: str = "There is nothing to do.",
    body: Callable[[], None] | None = None, **further: Any,
) -> NoReturn:  # fmt: skip
    """Print the outcome, and exit with 1 if it has a problem.

    `body` prints it in place of the table of actions; `further` is for JSON alone.
    """
    if as_json:
        print_json({**outcome_json(outcome), **further})
        sys.exit(1 if outcome.problems else 0)
    if body is not None:
        body()
    elif outcome.actions:
        _print_actions(outcome)
    elif not outcome.problems:
        tell(nothing)
    if note and outcome.actions and not outcome.dry_run:
        tell(note)
    for sentence in outcome.notes:
        tell(f"note: {sentence}", err=True)
    for problem in outcome.problems:
        tell(f"smp: {problem}", err=True)
    sys.exit(1 if outcome.problems else 0)


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    names = ("dry_run", "problems", "notes", "bytes_freed")
    said = {name: getattr(outcome, name) for name in names}
    actions = [action_json(action) for action in outcome.actions]
    return {**said, "actions": actions, "counts": dict(outcome.counts)}


def action_json(action: Action) -> dict[str, Any]:
    names = ("session", "type", "about", "reason", "bytes_freed", "batch", "place")
    said = {name: getattr(action, name) for name in names}
    return {name: None if value == "" else value for name, value in said.items()}


def _print_actions(outcome: Outcome) -> None:
    most = NAMED if on_terminal() else len(outcome.ids)
    sizes = any(action.bytes_freed for action in outcome.actions)
    rows: list[list[object]] = []
    for action in outcome.actions:
        about = "" if action.about == (action.session,) else listed(action.about, most)
        freed = [short_size(action.bytes_freed) if action.bytes_freed else None] if sizes else []
        rows.append([action.session, action.type.replace("_", " "), about, *freed, action.reason])
    print_table(f"SESSION~ ACTION WHAT {'FREED>' if sizes else ''} REASON", rows)
    would, freed_bytes = "would be " if outcome.dry_run else "", outcome.bytes_freed
    done = "freed" if freed_bytes > 0 else "taken up"
    size = f", {short_size(abs(freed_bytes))} {would}{done}" if freed_bytes else ""
    counts = {name: count for name, count in outcome.counts.items() if "bytes" not in name}
    total = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
    total = total or counted(len(outcome.actions), "action") + size
    say(total + ("; nothing was changed" if outcome.dry_run else ""))


def is_asked() -> bool:
    """Return whether a person is there to be asked. A script, which has no terminal, never is."""
    return sys.stdin is not None and sys.stdin.isatty()


def confirm(question: str, stays: str) -> None:
    """Ask a person on stderr, since stdout may lead elsewhere; a no ends the command."""
    if not click.confirm(one_line(question), err=True):
        click.echo(stays, err=True)
        sys.exit(1)
