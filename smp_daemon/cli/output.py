"""Everything that commands print: texts, pairs, tables, JSON and outcomes.

On a terminal it is fitted and coloured; in a pipe it is plain, aligned and whole. A memory can hold
any text, and whoever wrote it must not drive the terminal of a reader. So every text goes through
`harmless`, `one_line` or `print_json`, also into a pipe, which may end on a terminal as well.
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
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from smp_client import Record
    from smp_client.model.outcome import Action, Outcome

NAMED = 5  # of a longer list, where it must be short
_LEAST_COLUMNS = 8  # a column that gives way keeps these while another one can
_PADDED_COLUMNS = 60  # in a pipe, one long cell must not push all the others aside
_GAP = "  "
_LABEL_COLUMNS = 14
_MARKS = re.compile(r"\[[^\[\]]+\]$")
_MARKS_CHARACTERS, _LEAST_MARKED_COLUMNS = 200, 20
# Characters that a terminal obeys, that turn the direction of text, or that are none at all.
_UNSEEN = r"\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_DRIVING = re.compile(rf"[\x00-\x08\x0b-\x1f{_UNSEEN}]")


# Texts.


def harmless(text: str) -> str:
    """Return the text with its lines; all else that a terminal obeys is written out: `\\x1b`."""
    return _DRIVING.sub(_written_out, text.replace("\r\n", "\n").expandtabs(4))


def one_line(text: str) -> str:
    """Return the harmless text on one line, any white space as one blank."""
    return harmless(" ".join(text.split()))


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


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
    """Return the text as `cut` does, but keep the marks in brackets at its end; see `marked`."""
    marks = _MARKS.search(text[-_MARKS_CHARACTERS:])
    if marks is None or columns < _LEAST_MARKED_COLUMNS or width(text) <= columns:
        return cut(text, columns)
    shown = _end(marks[0], columns * 2 // 3)
    return f"{cut(text.removesuffix(marks[0]).rstrip(), columns - width(shown) - 1)} {shown}"


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


def short_size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "KB", "MB"):
        if size < 1024:
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


def say(text: str) -> None:
    """Print; characters that the output's encoding does not have are written out."""
    encoding = _encoding()
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding))


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


def print_pairs(pairs: Mapping[str, object], *, cuts: bool = False) -> None:
    """Print each name and its value; an empty value is left out."""
    columns = terminal_columns() if on_terminal() else 0
    for name, value in pairs.items():
        text = f"{name:<{_LABEL_COLUMNS}}{one_line(str(value))}" if value else ""
        if columns:
            text = cut(text, columns) if cuts else wrapped(text, columns, _LABEL_COLUMNS)
        if text:
            say(styled(text[:_LABEL_COLUMNS], dim=True) + text[_LABEL_COLUMNS:])


def print_json(value: Any) -> None:
    """Print JSON that every reader takes: without NaN, and nothing that a terminal obeys."""
    is_ascii = _encoding().lower().replace("-", "") != "utf8"
    text = json.dumps(_finite(value), indent=1, ensure_ascii=is_ascii)
    say(re.sub(f"[{_UNSEEN}]", lambda found: f"\\u{ord(found[0]):04x}", text))


def _encoding() -> str:
    return getattr(sys.stdout, "encoding", None) or "utf-8"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def record_json(record: Record) -> dict[str, Any]:
    """Return a memory as every command prints it in JSON."""
    from smp_client.model.times import render_time

    when = render_time(record.timestamp) if record.timestamp else None
    return {
        "id": record.id, "session": record.session, "type": record.type, "timestamp": when,
        "by": record.by, "priority": record.priority, "text": record.text, "tags": record.tags,
        "data": record.data, "marks": record.marks,
    }  # fmt: skip


# Tables.


@dataclass(frozen=True)
class Column:
    """A column of a table. Where a terminal has no room for the table, columns yield in this order:

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


_SIGNS: dict[str, dict[str, Any]] = {
    ">": {"right": True}, "~": {"ends": True}, "?": {"spare": True}, "-": {"gives_way": True},
    "@": {"style": lambda _: {"fg": "cyan"}},
}  # fmt: skip


def columns_of(titles: str) -> list[Column]:
    """Return columns from their titles: `ID@`, `SESSION~`, `TYPE?`, `SIZE>?`, `TEXT:40`.

    `>` is right, `~` ends, `?` spare, `-` gives way, `@` cyan, a number the least columns; `_` in a
    title is a blank.
    """
    found: list[Column] = []
    for part in titles.split():
        name, _, least = part.partition(":")
        title = name.rstrip("".join(_SIGNS))
        how: dict[str, Any] = {}
        for sign in name[len(title) :]:
            how |= _SIGNS[sign]
        found.append(Column(title.replace("_", " "), least=int(least or 0), **how))
    return found


def print_table(columns: str | Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
    """Print titles and a line for each row; an empty cell is a `-`. A pipe gets whole cells."""
    columns = columns_of(columns) if isinstance(columns, str) else columns
    titles = [column.title for column in columns]
    cells = [[one_line("" if cell is None else str(cell)) or "-" for cell in row] for row in rows]
    natural = {place: max(width(row[place]) for row in (titles, *cells))
               for place in range(len(columns))}  # fmt: skip
    terminal = terminal_columns() if on_terminal() else 0
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
    columns: Sequence[Column], row: Sequence[str], widths: Mapping[int, int], *, fits: bool,
    is_title: bool = False,
) -> str:  # fmt: skip
    cells: list[str] = []
    for place, size in widths.items():
        column, text = columns[place], row[place]
        shown = text
        if fits:
            shown = _end(text, size) if column.ends and not is_title else cut_text(text, size)
        padding = " " * (size - width(shown))
        if column.style and not is_title:
            shown = styled(shown, **column.style(text))
        cells.append(padding + shown if column.right else shown + padding)
    return _GAP.join(cells).rstrip()


def _fit(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], natural: Mapping[int, int],
    terminal: int,
) -> dict[int, int]:  # fmt: skip
    """Return the widths of the columns that stand side by side; see Column for how they yield."""
    widths = {place: min(each, terminal) for place, each in natural.items()}

    def is_too_wide() -> bool:
        needed = sum(min(each, columns[place].least or each) for place, each in widths.items())
        return needed + len(_GAP) * (len(widths) - 1) > terminal

    for place, column in enumerate(columns):
        if column.ends and is_too_wide():
            least = _least_end(column.title, {row[place] for row in cells})
            widths[place] = min(widths[place], least)
    for place, column in reversed(list(enumerate(columns))):
        if column.spare and is_too_wide():
            del widths[place]
    if is_too_wide():
        widths = {place: each for place, each in widths.items() if not columns[place].least}
    room = max(terminal - len(_GAP) * (len(widths) - 1), len(widths))
    while sum(widths.values()) > room:
        texts = [place for place in widths if 0 < columns[place].least < widths[place]]
        giving = [place for place in widths
                  if columns[place].gives_way and widths[place] > _LEAST_COLUMNS]  # fmt: skip
        widths[max(texts or giving or list(widths), key=lambda place: widths[place])] -= 1
    return widths


def _least_end(title: str, values: Collection[str]) -> int:
    """Return the columns that show the last part of each value, and each of them as another one."""
    parts = (min(width(value), len(value.rpartition("-")[2]) + 1) for value in values)
    size = max([len(title), *parts])
    while len({_end(value, size) for value in values}) < len(values):
        size += 1
    return size


def _end(text: str, columns: int) -> str:
    """Return the end of the text in so many columns, with … where its beginning is left out."""
    if width(text) <= columns:
        return text
    return "…" + cut(text[::-1], columns)[:-1][::-1].lstrip(" -_/")


# Outcomes.


def finish(
    outcome: Outcome, *, as_json: bool, note: str = "", nothing: str = "There is nothing to do.",
    **further: Any,
) -> NoReturn:  # fmt: skip
    """Print the outcome, and exit with 1 if it has a problem. `further` is for JSON alone."""
    if as_json:
        print_json({**outcome_json(outcome), **further})
    else:
        if outcome.actions:
            _print_actions(outcome)
            if note and not outcome.dry_run:
                tell(note)
        elif nothing and not outcome.problems:
            tell(nothing)
        print_problems(outcome)
    sys.exit(1 if outcome.problems else 0)


def print_problems(outcome: Outcome) -> None:
    """Print notes and problems on stderr."""
    for note in outcome.notes:
        tell(f"note: {note}", err=True)
    for problem in outcome.problems:
        tell(f"smp: {problem}", err=True)


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "dry_run": outcome.dry_run, "actions": [*map(action_json, outcome.actions)],
        "problems": outcome.problems, "notes": outcome.notes, "bytes_freed": outcome.bytes_freed,
        "counts": dict(outcome.counts),
    }  # fmt: skip


def action_json(action: Action) -> dict[str, Any]:
    names = ("session", "type", "about", "reason", "bytes_freed", "batch", "place")
    said = asdict(action)
    return {name: said[name] if said[name] != "" else None for name in names}


def _print_actions(outcome: Outcome) -> None:
    most = NAMED if on_terminal() else len(outcome.ids)
    sizes = [action.bytes_freed for action in outcome.actions]
    title, sign = ("FREED", "") if min(sizes) >= 0 else ("SIZE", "-")
    size_title = f"{title}>" if any(sizes) else ""
    rows: list[list[object]] = []
    for action, size in zip(outcome.actions, sizes, strict=True):
        about = "" if action.about == (action.session,) else listed(action.about, most)
        freed = (sign if size > 0 else "+") + short_size(abs(size)) if size else None
        rows.append([action.session, action.type.replace("_", " "), about,
                     *([freed] if any(sizes) else []), action.reason])  # fmt: skip
    print_table(f"SESSION~ ACTION WHAT- {size_title} REASON:20", rows)
    would, freed_bytes = "would be " if outcome.dry_run else "", outcome.bytes_freed
    done = "freed" if freed_bytes > 0 else "taken up"
    size_said = f", {short_size(abs(freed_bytes))} {would}{done}" if freed_bytes else ""
    counts = {name: count for name, count in outcome.counts.items() if "bytes" not in name}
    total = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
    total = total or counted(len(outcome.actions), "action") + size_said
    say(total + ("; nothing was changed" if outcome.dry_run else ""))


def asks(*, yes: bool) -> bool:
    """Whether a person is there to be asked."""
    return not yes and sys.stdin is not None and sys.stdin.isatty()


def confirm(question: str, stays: str) -> None:
    """Ask a person on stderr, since stdout may lead elsewhere; a no ends the command."""
    if not click.confirm(one_line(question), err=True):
        click.echo(stays, err=True)
        sys.exit(1)
