"""The four forms of an export: each is written, and read, entry by entry.

    jsonl     one entry a line
    json      one document, with one entry a line as we write it
    yaml      one document for each entry
    markdown  for people: headings, and each entry whole in a fenced block of YAML

All of them hold the same, and what one of them holds can be read back from it. Whatever is not an entry is told with its line, and
reading goes on with the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import IO, NamedTuple

from ..text.values import BadYaml, Events, Value, decode, reading, render_entries
from . import json_form
from .entries import ENTRY_LEVELS, HEADER, Entry

FORMATS = ("yaml", "json", "jsonl", "markdown")
_ENDINGS = {name: name for name in FORMATS} | {"yml": "yaml", "ndjson": "jsonl", "md": "markdown"}
BEGINNING_BYTES = 4096
LINE_CAP_BYTES = 512 * 1024 * 1024  # longer than the largest file in base64
_TITLE_CHARACTERS = 80
_BACKTICKS = re.compile(r"`+")
_OPENING = re.compile(r"(`{3,}) ?ya?ml[ \t\r]*")
_SEPARATOR = re.compile(r"---[ \t\r]*")


class Read(NamedTuple):
    """What stands at a line: an entry, or why there is none."""

    line: int
    entry: Entry | None
    problem: str = ""
    is_sound: bool = False  # whether the entry need not be looked at: what it is made of was, when it was read


def format_of_name(name: str) -> str | None:
    """By the ending of a file's name."""
    return format_named(name.rpartition(".")[2])


def format_named(name: str) -> str | None:
    """A format by any of its names: `md` is Markdown."""
    return _ENDINGS.get(name.lower())


def recognise(beginning: bytes) -> str | None:
    """The form of an export that begins so; None where it is none of ours."""
    text = beginning.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if text.startswith("{"):
        first = text.partition("\n")[0]
        if re.match(r'\{\s*"smp_export"\s*:\s*\d+\s*,\s*"entries"', text):
            return "json"
        return "jsonl" if re.match(r'\{\s*"(?:smp_export|entry)"\s*:', first) else None
    if re.match(r"(?:---[ \t\r]*\n)?(?:smp_export|entry):", text):
        return "yaml"
    return "markdown" if re.search(r"^`{3,} ?ya?ml[ \t\r]*\n(?:smp_export|entry):", text, re.MULTILINE) else None


def write(given: Iterable[Entry], form: str, out: Callable[[bytes], object]) -> None:
    """Each entry as soon as it is there."""
    rendered = {"jsonl": json_form.render_lines, "json": json_form.render_document, "yaml": _yaml, "markdown": _markdown}[form]
    for piece in rendered(given):
        out(piece.encode())


def read(source: IO[bytes], form: str) -> Iterator[Read]:
    if form == "json":
        yield from (Read(*one) for one in json_form.read_document(source))
        return
    lines = _lines(source)
    if form == "jsonl":
        for number, line in lines:
            if line is None or line.strip():
                yield Read(number, *(json_form.parse(line) if line is not None else (None, _TOO_LONG)))
    else:
        yield from (_read_yaml if form == "yaml" else _read_markdown)(lines)


_TOO_LONG = f"a line of more than {LINE_CAP_BYTES:,} bytes"
Line = tuple[int, bytes | None]  # None where it is too long


def _lines(source: IO[bytes]) -> Iterator[Line]:
    number = 0
    while line := source.readline(LINE_CAP_BYTES):
        number += 1
        if len(line) < LINE_CAP_BYTES or line.endswith(b"\n"):
            yield number, line
            continue
        while line and not line.endswith(b"\n"):
            line = source.readline(LINE_CAP_BYTES)
        yield number, None


# YAML.


def _yaml(given: Iterable[Entry]) -> Iterator[str]:
    for entry in given:
        yield "---\n" + _document(entry)


def _document(entry: Entry) -> str:
    return "".join(line + "\n" for line in render_entries(entry, 0))


def _read_yaml(lines: Iterable[Line]) -> Iterator[Read]:
    """No line of a document of ours begins with `---`: what a text holds is indented."""
    held: list[bytes] = []
    first = 1
    for number, line in lines:
        if line is None:
            yield Read(number, None, _TOO_LONG)
        elif line.startswith(b"---") and _SEPARATOR.fullmatch(line.decode("utf-8", "replace").rstrip("\n")):
            yield from _parsed(held, first)
            held, first = [], number + 1
        else:
            held.append(line)
    yield from _parsed(held, first)


def _parsed(held: list[bytes], first: int) -> Iterator[Read]:
    content = b"".join(held)
    if not content.strip():
        return
    try:
        value = _load(decode(content))
    except BadYaml as problem:
        yield Read(first + problem.line, None, problem.problem)
        return
    if isinstance(value, dict):
        yield Read(first, value)
    elif value is not None:
        yield Read(first, None, "an entry must be a mapping")


def _load(text: str) -> Value:
    """Deeper than a file may be, because what an entry holds stands deeper in it than in its own file."""
    with reading():
        events = Events(text)
        start = events.open_document()
        if type(start).__name__ == "StreamEndEvent":
            return None
        value = events.build(start, -ENTRY_LEVELS)
        events.close_document()
        return value


# Markdown.


def _markdown(given: Iterable[Entry]) -> Iterator[str]:
    session = ""
    for entry in given:
        text = _document(entry)
        fence = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
        above = ""
        if entry.get("entry") != "end" and (name := str(entry.get("session", "global"))) != session and HEADER not in entry:
            session = name
            above = f"## {'Everywhere' if name == 'global' else f'Session {name}'}\n\n"
        yield f"{above}{_title(entry)}\n\n{fence}yaml\n{text}{fence}\n\n"


def _title(entry: Entry) -> str:
    kind = entry.get("entry")
    if HEADER in entry:
        return "# SMP export"
    if kind in ("memory", "evicted"):
        return f"### {_shown(entry, kind)}"
    named = {"session": "Metadata", "file": entry.get("file"), "state": f"State of {entry.get('agent')}", "archive": "Archived",
             "artifact": f"Artifact {entry.get('artifact')}", "access": "What was read", "profile": "Profile of the user",
             "bytes": entry.get("path"), "end": "End"}  # fmt: skip
    return f"{'##' if kind == 'end' else '###'} {_on_one_line(str(named.get(str(kind), kind)))}"


def _shown(entry: Entry, kind: str) -> str:
    from .entries import kind_of

    record = entry["record"]
    file = entry["file"] if kind == "memory" else entry["item"].get("file")
    known = kind_of(str(entry.get("session")), str(file))
    said = _on_one_line(str(record.get(known.text, "")) if known and known.text else "")
    more = " (taken out by compaction)" if kind == "evicted" else ""
    return f"{_on_one_line(str(record.get('id', 'without an id')))} {said}".rstrip() + more


def _on_one_line(text: str) -> str:
    """As a heading: on one line, and with nothing that Markdown or a terminal would make something of."""
    line = "".join(character for character in " ".join(text[: 4 * _TITLE_CHARACTERS].split()) if character.isprintable())
    line = re.sub(r"([\\`*_<>\[\]#])", r"\\\1", line[:_TITLE_CHARACTERS]) + ("…" if len(line) > _TITLE_CHARACTERS else "")
    return line.strip()


def _read_markdown(lines: Iterable[Line]) -> Iterator[Read]:
    """What is in the blocks; everything else is for people."""
    fence = ""
    held: list[bytes] = []
    first = 1
    for number, line in lines:
        text = "" if line is None else line.decode("utf-8", "replace").rstrip("\r\n")
        if line is None:
            yield Read(number, None, _TOO_LONG)
        elif not fence:
            if opening := _OPENING.fullmatch(text):
                fence, held, first = opening[1], [], number + 1
        elif text.rstrip() == fence:
            yield from _parsed(held, first)
            fence = ""
        else:
            held.append(line)
    if fence:
        yield Read(first, None, "the block is not closed: the file is cut off")
