"""The four forms of an export: JSON lines, one JSON document, YAML documents, Markdown for people.

Each is written and read entry by entry, and all hold the same values. An entry that cannot be read
is reported with its line, and reading goes on with the next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import IO

from ..model.errors import Invalid
from ..model.quotation import shown
from ..text.values import BadYaml, decode, json_of, load, render_entries
from .entry import HEADER, VERSION, Entry, Read, kind_for

FORMATS = ("yaml", "json", "jsonl", "markdown")
BEGINNING_BYTES = 4096
_LINE_CAP_BYTES, _DOCUMENT_CAP_BYTES = 64 * 1024 * 1024, 512 * 1024 * 1024
_ENDINGS = {
    "yaml": "yaml",
    "yml": "yaml",
    "json": "json",
    "jsonl": "jsonl",
    "markdown": "markdown",
    "md": "markdown",
}
_BEGINNINGS = {
    "json": re.compile(r'\{\s*"smp_export"\s*:\s*\d+\s*,\s*"entries"'),
    "jsonl": re.compile(r'\{\s*"(?:smp_export|entry)"\s*:'),
    "yaml": re.compile(r"(?:---[ \t\r]*\n)?(?:smp_export|entry):"),
    "markdown": re.compile(r"(?s:.*?)^`{3,} ?ya?ml[ \t\r]*\n(?:smp_export|entry):", re.MULTILINE),
}
# Characters that a terminal would obey, or that a reader could take for the end of a line.
_ESCAPED = re.compile(r"[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]")
_FENCE = re.compile(r"(`{3,}) ?ya?ml[ \t\r]*")
_TITLE_CHARACTERS = 80
_Found = tuple[int, Entry, str]  # a line, the value that begins there, and why there is none


def format_named(name: str) -> str:
    """Return the format of this name. Raise if there is none."""
    form = _ENDINGS.get(name.lower())
    if form is None:
        raise Invalid([f"format {shown(name)} must be one of {', '.join(FORMATS)}"])
    return form


def format_of_file(name: str) -> str:
    """Return the format that the ending of a file's name means; YAML without an ending."""
    ending = PurePath(name).suffix
    if not ending:
        return FORMATS[0]
    form = _ENDINGS.get(ending[1:].lower())
    if form is None:
        endings = ", ".join(f".{one}" for one in _ENDINGS)
        advice = f"Choose one of {endings}, or say the format with --format, in Python format=."
        if name.lower().endswith((".gz", ".tar", ".tgz")):
            advice += " An exact export (--exact, in Python exact=True) is a .tar.gz."
        raise Invalid(
            [f"{ending!r} at the end of {name} is not a format of an export"], advice=advice
        )
    return form


def require_bundle_name(name: str) -> None:
    """Raise if a file for an exact export has the ending of another format."""
    ending = PurePath(name).suffix
    if ending[1:].lower() in _ENDINGS:
        said = f"{name} ends with {ending!r}, but an exact export is a bundle"
        raise Invalid([said], advice="Choose a name that ends with .tar.gz.")


def recognise(beginning: bytes) -> str | None:
    """Return the form of an export that begins with these bytes; None for anything else."""
    text = beginning.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    return next((form for form, begins in _BEGINNINGS.items() if begins.match(text)), None)


# Writing.


def write(entries: Iterable[Entry], form: str, out: Callable[[bytes], object]) -> None:
    """Write each entry as soon as it comes."""
    if form == "json":
        out(f'{{"{HEADER}": {VERSION}, "entries": ['.encode())
    session, between = "", b"\n"
    for entry in entries:
        if form == "jsonl":
            out(_dumped(entry) + b"\n")
        elif form == "json" and HEADER not in entry:
            out(between + _dumped(entry))
            between = b",\n"
        elif form == "yaml":
            out(b"---\n" + _document(entry).encode())
        elif form == "markdown":
            if (name := str(entry.get("session", session))) != session:
                session = name
                out(f"## Session {name}\n\n".encode())
            text = _document(entry)
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
            out(f"{_title(entry)}\n\n{fence}yaml\n{text}{fence}\n\n".encode())
    if form == "json":
        out(b"\n]}\n")


def _dumped(entry: Entry) -> bytes:
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json_of(entry)).encode()


def _document(entry: Entry) -> str:
    return "".join(line + "\n" for line in render_entries(entry, 0))


def _title(entry: Entry) -> str:
    """Return a heading for people."""
    if HEADER in entry:
        return "# SMP export"
    said = f"{entry['entry']} {entry.get('id', '')}".capitalize()
    if (record := entry.get("record")) is not None:
        kind = kind_for(entry["session"], entry["file"])
        said = f"{record.get('id')} {record.get(kind.text, '') if kind else ''}"
    line = "".join(filter(str.isprintable, " ".join(said.split())[:_TITLE_CHARACTERS]))
    return f"### {line.strip()}"


# Reading.


def read(source: IO[bytes], form: str, name: str) -> Iterator[Read]:
    """Yield the entries of an export and check that it is whole. `name` calls it in messages."""
    readers = {"json": _in_document, "jsonl": _in_lines, "yaml": _in_documents,
               "markdown": _in_fences}  # fmt: skip
    count, end = 0, None
    for line, value, problem in readers[form](source):
        if not problem and not isinstance(value, dict):
            problem = "an entry must be a mapping"
        if problem:
            count += 1
            yield Read(f"{name}, line {line}", None, problem)
        elif value.get("entry") == "end":
            end = value.get("entries")
        else:
            count += HEADER not in value
            yield Read(f"{name}, line {line}", value)
    if end != count:
        why = "its end is missing" if end is None else f"it has {count:,} entries, not {end}"
        yield Read(name, None, f"the export is not whole: {why}")


def _loaded(line: bytes) -> tuple[Entry, str]:
    try:
        return json.loads(line), ""
    except UnicodeDecodeError as error:
        return {}, f"not UTF-8 at byte {error.start} of the line"
    except (ValueError, RecursionError) as error:
        return {}, f"not JSON: {error}"


def _in_lines(source: IO[bytes]) -> Iterator[_Found]:
    for number, line in _numbered(source):
        if line.strip():
            yield number, *_loaded(line.removeprefix(b"\xef\xbb\xbf"))


def _in_document(source: IO[bytes]) -> Iterator[_Found]:
    """Yield the entries of a JSON document, which is read as a whole."""
    value, problem = _loaded(source.read(_DOCUMENT_CAP_BYTES))
    listed = value.get("entries")
    if problem or not isinstance(listed, list):
        yield 1, {}, problem or "'entries' must be a list"
        return
    yield 1, {HEADER: value.get(HEADER)}, ""
    yield from ((1, entry, "") for entry in listed)


def _in_documents(source: IO[bytes]) -> Iterator[_Found]:
    """Yield the entries of YAML documents. Texts are indented: no line in one is `---`."""
    first, held = 1, list[bytes]()
    for number, line in _numbered(source):
        if line.rstrip() == b"---":
            yield from _parsed(held, first)
            first, held = number + 1, []
        else:
            held.append(line)
    yield from _parsed(held, first)


def _in_fences(source: IO[bytes]) -> Iterator[_Found]:
    """Yield the entries of the fenced blocks. Everything between them is for people."""
    first, held, fence = 1, list[bytes](), ""
    for number, line in _numbered(source):
        text = line.decode("utf-8", "replace").rstrip()
        opening = None if fence else _FENCE.fullmatch(text)
        if opening:
            first, held, fence = number + 1, [], opening[1]
        elif fence and text == fence:
            yield from _parsed(held, first)
            fence = ""
        else:
            held.append(line)
    if fence:
        yield first, {}, "the block is not closed: the file is cut off"


def _parsed(held: list[bytes], first: int) -> Iterator[_Found]:
    try:
        value = load(decode(b"".join(held)))
        if value is not None:
            yield first, value, ""  # type: ignore[misc]
    except BadYaml as problem:
        yield first + problem.line, {}, problem.problem


def _numbered(source: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    return enumerate(iter(lambda: source.readline(_LINE_CAP_BYTES), b""), 1)
