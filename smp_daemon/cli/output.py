"""What commands print: fitted and coloured for a terminal; plain, aligned and whole for everything else.

A memory can hold any text, and whoever wrote it is not to drive the terminal of whoever reads it: what is printed goes through
`harmless`, `one_line` or `print_json`, also into a pipe, since that may end on a terminal as well.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from smp_client import Record

_LEAST_COLUMNS = 8  # what a column that gives way keeps while another one can
_PADDED_COLUMNS = 60  # in a pipe, one long cell is not to push all the others aside
_GAP = "  "
_LABEL_COLUMNS = 14
_MARKS = re.compile(r"\[[^\[\]]+\]$")
_MARKS_CHARACTERS, _LEAST_MARKED_COLUMNS = 200, 20
# Control characters and escape sequences, what turns the direction of the following text, and what is no character at all.
_DRIVING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def harmless(text: str) -> str:
    """The text with its lines, and with everything else that a terminal would obey written out: `\\x1b[31m`."""
    return _DRIVING.sub(_written_out, text.replace("\r\n", "\n").expandtabs(4))


def one_line(text: str) -> str:
    """The harmless text on one line, any white space as one blank."""
    return harmless(" ".join(text.split()))


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if character == "\ufe0f":  # makes an emoji of the narrow sign before it
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, columns: int) -> str:
    """The text in so many columns, with … where something is left out."""
    text, whole = text[: columns * 8], text  # marks without a width of their own could be stacked without end
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
    """Return the text in so many columns, as `cut`, but with the marks in brackets at its end; see `marked`."""
    marks = _MARKS.search(text[-_MARKS_CHARACTERS:])
    if marks is None or columns < _LEAST_MARKED_COLUMNS or width(text) <= columns:
        return cut(text, columns)
    shown = _end(marks[0], columns * 2 // 3)
    return f"{cut(text.removesuffix(marks[0]).rstrip(), columns - width(shown) - 1)} {shown}"


def short_time(time: object) -> str:
    """`2026-01-11 14:30`, in UTC; what is no time stays as it is."""
    from smp_client.timestamps import parse_time

    try:
        found = time if isinstance(time, datetime) else parse_time(str(time))
        return f"{found.astimezone(UTC):%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError):
        return "" if time is None else one_line(str(time))


def short_size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "KB", "MB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GB"


def on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def styled(text: str, **style: Any) -> str:
    """In colour on a terminal, unless NO_COLOR is set; see click.style."""
    return click.style(text, **style) if on_terminal() and not os.environ.get("NO_COLOR") else text


def say(text: str) -> None:
    """Prints; what the output's encoding does not have is written out."""
    encoding = _encoding()
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding))


def tell(text: str, *, err: bool = False, indent: int = 0) -> None:
    """Print a sentence on one line; on a terminal it is broken between words, further lines indented."""
    stream = sys.stderr if err else sys.stdout
    if stream is not None and stream.isatty():
        text = wrapped(text, shutil.get_terminal_size().columns, indent)
    if err:
        click.echo(text, err=True)
    else:
        say(text)


def wrapped(text: str, columns: int, indent: int = 0) -> str:
    """Return the text in lines of so many columns, broken between words; a longer word stays whole."""
    first = text.lstrip()
    lines = [text[: len(text) - len(first)]]
    for number, word in enumerate(first.split(" ")):
        line = f"{lines[-1]} {word}" if number else lines[-1] + word
        if width(line) <= columns or indent + width(word) > columns or not number:
            lines[-1] = line
        else:
            lines.append(" " * indent + word)
    return "\n".join(lines)


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print the fields as YAML; on a terminal long lines are broken between words."""
    from smp_client.text.values import render_entries

    lines = harmless("\n".join(render_entries(dict(fields), 0))).split("\n")
    if on_terminal():
        columns = shutil.get_terminal_size().columns
        lines = [wrapped(line, columns, len(line) - len(line.lstrip()) + 2) for line in lines]
    say("\n".join(lines))


def short_path(path: str) -> str:
    """Return the path, on a terminal from the working directory if it leads below that."""
    inner = os.path.relpath(path) if on_terminal() else path
    return path if inner.startswith("..") else inner


def print_pairs(pairs: Mapping[str, object], *, cuts: bool = False) -> None:
    """Print names and what there is to say of each; nothing of those of which there is nothing."""
    columns = shutil.get_terminal_size().columns if on_terminal() else 0
    for name, value in pairs.items():
        text = f"{name:<{_LABEL_COLUMNS}}{one_line(str(value))}" if value else ""
        if columns:
            text = cut(text, columns) if cuts else wrapped(text, columns, _LABEL_COLUMNS)
        if text:
            say(styled(text[:_LABEL_COLUMNS], dim=True) + text[_LABEL_COLUMNS:])


def print_json(value: Any) -> None:
    """As JSON that every reader takes: without NaN, and with everything escaped that a terminal would obey."""
    text = json.dumps(_finite(value), indent=1, ensure_ascii=_encoding().lower().replace("-", "") != "utf8")
    say(re.sub(r"[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text))


def _encoding() -> str:
    return getattr(sys.stdout, "encoding", None) or "utf-8"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def record_json(record: Record) -> dict[str, Any]:
    """A memory as every command gives it in JSON."""
    from smp_client.timestamps import render_time

    return {
        "id": record.id,
        "session": record.session,
        "type": record.type,
        "timestamp": render_time(record.timestamp) if record.timestamp else None,
        "by": record.by,
        "priority": record.priority,
        "text": record.text,
        "tags": record.tags,
        "data": record.data,
        "marks": record.marks,
    }


def marked(text: str, marks: Sequence[str]) -> str:
    """Return the text of a memory with its marks in brackets behind it."""
    return f"{text} [{', '.join(marks)}]" if marks else text


@dataclass(frozen=True)
class Shown:
    """One thing that `smp show` shows: its bytes where it is a memory, its JSON, and a function that prints it."""

    raw: bytes | None
    json: Callable[[], dict[str, Any]]
    show: Callable[[], None]


def present(found: Sequence[Shown], *, raw: bool, as_json: bool) -> None:
    """Print one thing, or several; one alone is no list in JSON. Bytes are exact, but for a terminal that they could drive."""
    if as_json:
        print_json([one.json() for one in found] if len(found) > 1 else found[0].json())
    elif raw:
        content = b"".join(one.raw or b"" for one in found)
        if on_terminal():
            say(harmless(content.decode("utf-8", "backslashreplace").removesuffix("\n")))
        else:
            click.echo(content, nl=False)
    else:
        for number, one in enumerate(found):
            if number:
                say("")
            one.show()


@dataclass(frozen=True)
class Column:
    """A column of a table. Where a terminal has no room for the whole table, columns yield in this order:

    `ends`: of an id or a path only the end is shown that tells the rows apart;
    `spare`: the column is left out, the last one first;
    `least`: a text that would get fewer columns than these goes to a line of its own below its row;
    `gives_way`: the column is cut before the others are.
    """

    title: str
    right: bool = False
    ends: bool = False
    spare: bool = False
    least: int = 0
    gives_way: bool = False
    style: Callable[[str], dict[str, Any]] | None = None


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
    """Print the titles and a line for each row; an empty cell is a `-`. In a pipe every column and cell is whole."""
    titles = [column.title for column in columns]
    cells = [[one_line("" if cell is None else str(cell)) or "-" for cell in row] for row in rows]
    natural = {place: max(width(row[place]) for row in (titles, *cells)) for place in range(len(columns))}
    terminal = shutil.get_terminal_size().columns if on_terminal() else 0
    if terminal:
        widths = _fit(columns, cells, natural, terminal)
    else:
        widths = {place: min(each, _PADDED_COLUMNS) for place, each in natural.items()}
    below = [place for place, column in enumerate(columns) if column.least and place not in widths]
    lines = [styled(_line(columns, titles, widths, fits=bool(terminal), is_title=True), bold=True)]
    for row in cells:
        lines.append(_line(columns, row, widths, fits=bool(terminal)))
        for place in below:
            label = f"{titles[place].lower()}: " if len(below) > 1 else ""
            if row[place] != "-":
                lines.append(cut_text(f"    {label}{row[place]}", terminal))
    say("\n".join(lines))


def _line(
    columns: Sequence[Column], row: Sequence[str], widths: Mapping[int, int], *, fits: bool, is_title: bool = False
) -> str:
    cells: list[str] = []
    for place, size in widths.items():
        column, text = columns[place], row[place]
        shown = text if not fits else _end(text, size) if column.ends and not is_title else cut_text(text, size)
        padding = " " * (size - width(shown))
        coloured = styled(shown, **column.style(text)) if column.style and not is_title else shown
        cells.append(padding + coloured if column.right else coloured + padding)
    return _GAP.join(cells).rstrip()


def _fit(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], natural: Mapping[int, int], terminal: int
) -> dict[int, int]:
    """Return the widths of the columns that stand side by side; see Column for how they yield."""
    widths = {place: min(each, terminal) for place, each in natural.items()}

    def is_too_wide() -> bool:
        needed = sum(min(each, columns[place].least or each) for place, each in widths.items())
        return needed + len(_GAP) * (len(widths) - 1) > terminal

    for place, column in enumerate(columns):
        if column.ends and is_too_wide():
            widths[place] = min(widths[place], _least_end(column.title, {row[place] for row in cells}))
    for place, column in reversed(list(enumerate(columns))):
        if column.spare and is_too_wide():
            del widths[place]
    if is_too_wide():
        widths = {place: each for place, each in widths.items() if not columns[place].least}
    room = max(terminal - len(_GAP) * (len(widths) - 1), len(widths))
    while sum(widths.values()) > room:
        texts = [place for place in widths if columns[place].least and widths[place] > columns[place].least]
        giving = [place for place in widths if columns[place].gives_way and widths[place] > _LEAST_COLUMNS]
        widths[max(texts or giving or list(widths), key=lambda place: widths[place])] -= 1
    return widths


def _least_end(title: str, values: Collection[str]) -> int:
    """Return the columns that show the last part of each value, and each of them as another one."""
    size = max([len(title), *(min(width(value), len(value.rpartition("-")[2]) + 1) for value in values)])
    while len({_end(value, size) for value in values}) < len(values):
        size += 1
    return size


def _end(text: str, columns: int) -> str:
    """Return the end of the text in so many columns, with … where its beginning is left out."""
    return text if width(text) <= columns else "…" + cut(text[::-1], columns)[:-1][::-1].lstrip(" -_/")
