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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from smp_client import Record

_LEAST_COLUMNS = 8  # what a column that gives way keeps while another one can
_PADDED_COLUMNS = 60  # in a pipe, one long cell is not to push all the others aside
_GAP = "  "
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
    """A column of a table. `gives_way` says that it is cut before the others; `style` what click.style gets for a cell."""

    title: str
    right: bool = False
    gives_way: bool = False
    keeps: bool = False  # it is cut only where nothing else is left to cut
    style: Callable[[str], dict[str, Any]] | None = None


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
    """One line for each row, below the titles; an empty cell is a `-`. Put the column with the long texts last."""
    titles = [column.title for column in columns]
    cells = [[one_line("" if cell is None else str(cell)) or "-" for cell in row] for row in rows]
    natural = [max(width(row[place]) for row in (titles, *cells)) for place in range(len(columns))]
    widths = [min(each, _PADDED_COLUMNS) for each in natural]
    if fits := on_terminal():
        widths = _fit(natural, columns, shutil.get_terminal_size().columns)
    lines = [styled(_line([_cell(*each, None, fits=fits) for each in zip(titles, widths, columns, strict=True)]), bold=True)]
    for row in cells:
        lines.append(_line([_cell(*each, each[2].style, fits=fits) for each in zip(row, widths, columns, strict=True)]))
    say("\n".join(lines))


def _line(cells: Sequence[str]) -> str:
    return _GAP.join(cells).rstrip()


def _cell(text: str, columns: int, column: Column, style: Callable[[str], dict[str, Any]] | None, *, fits: bool) -> str:
    shown = cut(text, columns) if fits else text
    padding = " " * (columns - width(shown))
    coloured = styled(shown, **style(text)) if style else shown
    return padding + coloured if column.right else coloured + padding


def _fit(natural: Sequence[int], columns: Sequence[Column], terminal: int) -> list[int]:
    """The widths with which a line fits: those that give way get smaller first, always the widest of them, then all."""
    room = max(terminal - len(_GAP) * (len(columns) - 1), len(columns))
    widths = [min(each, room) for each in natural]
    while sum(widths) > room:
        giving = [place for place, column in enumerate(columns) if column.gives_way and widths[place] > _LEAST_COLUMNS]
        others = [place for place, column in enumerate(columns) if not column.keeps and widths[place] > 1]
        widest = max(giving or others or range(len(columns)), key=lambda place: widths[place])
        widths[widest] -= 1
    return widths
