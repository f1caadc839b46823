"""The four forms of an export: JSON lines, one JSON document, YAML documents, Markdown for people.

Each is written and read entry by entry, and all hold the same values. An entry that cannot be read
is reported with its line, and reading goes on with the next. JSON has no NaN: it becomes null.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO, cast

from ..text.fingerprint import json_of
from ..text.values import BadYaml, decode, load, render_entries
from .entry import HEADER, VERSION, Entry, Read, kind_for

FORMATS = ("yaml", "json", "jsonl", "markdown")
BEGINNING_BYTES = 4096
_LINE_CAP_BYTES = 64 * 1024 * 1024
_DOCUMENT_CAP_BYTES = 512 * 1024 * 1024
_ENDINGS = {name: name for name in FORMATS} | {"yml": "yaml", "ndjson": "jsonl", "md": "markdown"}
_GZIP = b"\x1f\x8b"
# Characters that a terminal would obey, or that a reader could take for the end of a line.
_ESCAPED = re.compile(r"[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]")
_OPENING = re.compile(r"(`{3,}) ?ya?ml[ \t\r]*")
_TITLE_CHARACTERS = 80


def format_named(name: str) -> str | None:
    """Return the format that a name or the ending of a file's name means."""
    return _ENDINGS.get(name.rpartition(".")[2].lower())


def recognise(beginning: bytes) -> str | None:
    """Return the form of an export that begins with these bytes; None for anything else."""
    text = plain(beginning).decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if re.match(r'\{\s*"smp_export"\s*:\s*\d+\s*,\s*"entries"', text):
        return "json"
    if re.match(r'\{\s*"(?:smp_export|entry)"\s*:', text):
        return "jsonl"
    if re.match(r"(?:---[ \t\r]*\n)?(?:smp_export|entry):", text):
        return "yaml"
    is_markdown = re.search(r"^`{3,} ?ya?ml[ \t\r]*\n(?:smp_export|entry):", text, re.MULTILINE)
    return "markdown" if is_markdown else None


def plain(beginning: bytes) -> bytes:
    """Return the first bytes of a file, unpacked where it is packed with gzip."""
    if not beginning.startswith(_GZIP):
        return beginning
    try:
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(beginning, BEGINNING_BYTES)
    except zlib.error:
        return b""


def write(entries: Iterable[Entry], form: str, out: Callable[[bytes], object]) -> None:
    """Write each entry as soon as it comes."""
    if form == "json":
        out(f'{{"{HEADER}": {VERSION}, "entries": ['.encode())
    session, between = "", "\n"
    for entry in entries:
        if form == "jsonl":
            out(_dumps(entry) + b"\n")
        elif form == "json" and HEADER not in entry:
            out(between.encode() + _dumps(entry))
            between = ",\n"
        elif form == "yaml":
            out(b"---\n" + _document(entry).encode())
        elif form == "markdown":
            if "entry" in entry and (name := str(entry.get("session", session))) != session:
                session = name
                title = "Everywhere" if name == "global" else f"Session {name}"
                out(f"## {title}\n\n".encode())
            out(_block(entry).encode())
    if form == "json":
        out(b"\n]}\n")


def read(source: IO[bytes], form: str, name: str) -> Iterator[Read]:
    """Yield the entries of an export and check that it is whole. `name` calls it in messages."""
    beginning = source.read(len(_GZIP))
    source.seek(-len(beginning), 1)
    packed = gzip.GzipFile(fileobj=source) if beginning == _GZIP else source
    given = cast("IO[bytes]", packed)
    readers = {"json": _read_document, "jsonl": _read_lines, "yaml": _read_yaml,
               "markdown": _read_markdown}  # fmt: skip
    count, end = 0, None
    try:
        for line, entry, problem in readers[form](given):
            if entry is not None and entry.get("entry") == "end":
                end = entry.get("entries")
                continue
            count += entry is None or HEADER not in entry
            yield Read(f"{name}, line {line}", entry, problem)
    except (OSError, EOFError, zlib.error) as error:
        yield Read(name, None, f"the rest cannot be read: {error}")
    if end != count:
        is_there = isinstance(end, int)
        why = f"it has {count:,} entries, not {end:,}" if is_there else "its end is missing"
        yield Read(name, None, f"the export is not whole: {why}")


Line = tuple[int, Entry | None, str]


def _numbered(source: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := source.readline(_LINE_CAP_BYTES):
        number += 1
        yield number, line


def _dumps(entry: Entry) -> bytes:
    text = json_of(entry)
    if not text.isascii():
        text = _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return text.encode()


def _loads(line: bytes) -> tuple[Entry | None, str]:
    try:
        value = json.loads(line)
    except UnicodeDecodeError as error:
        return None, f"not UTF-8 at byte {error.start} of the line"
    except (ValueError, RecursionError) as error:
        return None, f"not JSON: {error}"
    return (value, "") if isinstance(value, dict) else (None, "an entry must be a mapping")


def _read_lines(source: IO[bytes]) -> Iterator[Line]:
    for number, line in _numbered(source):
        if line.strip():
            yield number, *_loads(line.removeprefix(b"\xef\xbb\xbf"))


def _read_document(source: IO[bytes]) -> Iterator[Line]:
    """Yield the entries of a JSON document, which is read as a whole."""
    value, problem = _loads(source.read(_DOCUMENT_CAP_BYTES))
    listed = value.get("entries") if value else None
    if value is None or not isinstance(listed, list):
        yield 1, None, problem or "'entries' must be a list"
        return
    yield 1, {HEADER: value.get(HEADER)}, ""
    for entry in listed:
        is_entry = isinstance(entry, dict)
        yield 1, entry if is_entry else None, "" if is_entry else "an entry must be a mapping"


def _document(entry: Entry) -> str:
    return "".join(line + "\n" for line in render_entries(entry, 0))


def _read_yaml(source: IO[bytes]) -> Iterator[Line]:
    """Yield one entry a document. Texts are indented, so no line inside one begins with `---`."""
    held: list[bytes] = []
    first = 1
    for number, line in _numbered(source):
        if line.rstrip() == b"---":
            yield from _parsed(held, first)
            held, first = [], number + 1
        else:
            held.append(line)
    yield from _parsed(held, first)


def _parsed(held: list[bytes], first: int) -> Iterator[Line]:
    content = b"".join(held)
    if not content.strip():
        return
    try:
        value = load(decode(content))
    except BadYaml as problem:
        yield first + problem.line, None, problem.problem
        return
    if isinstance(value, dict):
        yield first, value, ""
    elif value is not None:
        yield first, None, "an entry must be a mapping"


def _block(entry: Entry) -> str:
    """Return an entry in Markdown: a heading for people, and the values in a fenced block."""
    text = _document(entry)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{_title(entry)}\n\n{fence}yaml\n{text}{fence}\n\n"


def _title(entry: Entry) -> str:
    if HEADER in entry:
        return "# SMP export"
    name, record = str(entry.get("entry")), entry.get("record")
    if isinstance(record, dict):
        kind = kind_for(str(entry.get("session")), str(entry.get("file")))
        said = f"{record.get('id')} {record.get(kind.text, '') if kind and kind.text else ''}"
    else:
        said = f"{name.capitalize()} {entry.get('id', '')}"
    line = " ".join(said.split())[:_TITLE_CHARACTERS]
    title = re.sub(r"([\\`*_<>\[\]#])", r"\\\1", "".join(filter(str.isprintable, line)))
    return f"{'##' if name == 'end' else '###'} {title.strip()}"


def _read_markdown(source: IO[bytes]) -> Iterator[Line]:
    """Yield the entries of the fenced blocks. Everything between them is for people."""
    fence, first = "", 1
    held: list[bytes] = []
    for number, line in _numbered(source):
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if not fence:
            if opening := _OPENING.fullmatch(text):
                fence, held, first = opening[1], [], number + 1
        elif text.rstrip() == fence:
            yield from _parsed(held, first)
            fence = ""
        else:
            held.append(line)
    if fence:
        yield first, None, "the block is not closed: the file is cut off"
