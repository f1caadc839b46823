"""Entries as JSON: one a line, or all in one document.

JSON has no word for what is no finite number: it is `{"$smp": "nan"}`, and likewise `inf` and `-inf`. A mapping of a memory that
has just the key `$smp` itself is `{"$smp": [value]}`.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import IO, Any

from .entries import HEADER, VERSION, Entry

_MARK = "$smp"
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
# What a terminal would obey, or a reader could take for the end of a line.
_ESCAPED = re.compile(r"[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]")
_CHUNK = 1 << 20
_HEAD_CAP_CHARACTERS = 1 << 16
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[{}\[\]]|\n')
# A line that begins so begins an entry, as no other line of ours does: there reading goes on behind something malformed.
_RESTART = re.compile(r'[ \t]*\{ ?"entry"')
_HEAD = re.compile(r'\ufeff?\s*\{\s*"smp_export"\s*:\s*(\d{1,9})\s*,\s*"entries"\s*:\s*\[')
OneRead = tuple[int, Entry | None, str]


def dumps(entry: Entry) -> str:
    try:
        text = json.dumps(entry, ensure_ascii=False, allow_nan=False)
        if f'"{_MARK}"' in text:
            text = json.dumps(_encoded(entry), ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_encoded(entry), ensure_ascii=False, allow_nan=False)
    return text if text.isascii() and "\x7f" not in text else _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def loads(text: str) -> Any:
    """Raises ValueError, or RecursionError where it is nested too deep."""
    value = json.loads(text, parse_constant=_refuse)
    return _decoded(value) if f'"{_MARK}"' in text else value


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _encoded(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {_MARK: "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    if isinstance(value, list):
        return [_encoded(item) for item in value]
    if isinstance(value, dict):
        inner = {key: _encoded(item) for key, item in value.items()}
        return {_MARK: [inner[_MARK]]} if inner.keys() == {_MARK} else inner
    return value


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_MARK}:
        held = value[_MARK]
        if isinstance(held, str) and held in _FLOATS:
            return _FLOATS[held]
        if isinstance(held, list) and len(held) == 1:
            return {_MARK: _decoded(held[0])}
    return {key: _decoded(item) for key, item in value.items()}


def render_lines(given: Iterable[Entry]) -> Iterator[str]:
    for entry in given:
        yield dumps(entry) + "\n"


def render_document(given: Iterable[Entry]) -> Iterator[str]:
    yield f'{{"{HEADER}": {VERSION}, "entries": ['
    between = "\n"
    for entry in given:
        if HEADER not in entry:
            yield between + dumps(entry)
            between = ",\n"
    yield "\n]}\n"


def parse(line: bytes) -> tuple[Entry | None, str]:
    """One entry, or why there is none."""
    try:
        value = loads(line.decode().lstrip("\ufeff"))
    except UnicodeDecodeError as error:
        return None, f"not UTF-8 at byte {error.start} of the line"
    except json.JSONDecodeError as error:
        return None, no_json(error)
    except (ValueError, RecursionError) as error:
        return None, f"not JSON: {error}"
    return (value, "") if isinstance(value, dict) else (None, "an entry must be a mapping")


def no_json(error: json.JSONDecodeError) -> str:
    """Some of its messages end with the word that leads to the place, and some do not."""
    return f"not JSON: {error.msg.removesuffix(' at')} at character {error.pos + 1}"


def read_document(source: IO[bytes]) -> Iterator[OneRead]:
    """The header, and the entries of the list, in any layout: also all in one line, or each over many."""
    yield from _Scan(source).entries()


class _Scan:
    """Looks for where each entry ends, without holding more than one of them and a piece of the source."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        # What is not UTF-8 must come out again as it is, so that it is told and not mended.
        self._decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
        self._buffer = ""
        self._at = 0  # up to where it was looked through
        self._keep = 0  # where the entry begins that is being looked through; what stands before is done with
        self._line = 1
        self._ended = False

    def entries(self) -> Iterator[OneRead]:
        if (version := self._head()) is None:
            yield 1, None, 'it does not begin with {"smp_export": 1, "entries": ['
            return
        yield 1, {HEADER: version}, ""
        depth, line = 0, self._line
        for sign in self._tokens():
            if sign == "\n":
                if depth and _RESTART.match(self._ahead()):
                    yield line, None, "the entry is not closed"
                    depth = 0
            elif sign in "{[":
                if not depth:
                    self._keep, line = self._at - 1, self._line
                depth += 1
            elif sign in "}]":
                if not depth:
                    return  # the end of the list
                depth -= 1
                if not depth:
                    yield line, *parse(self._buffer[self._keep : self._at].encode("utf-8", "surrogateescape"))
            elif not depth:
                yield self._line, None, "an entry must be a mapping"
            if not depth:
                self._keep = self._at
        yield (line if depth else self._line), None, "the document is not closed: the file is cut off"

    def _head(self) -> int | None:
        """The version that stands before the list."""
        while not (found := _HEAD.match(self._buffer)):
            if len(self._buffer) > _HEAD_CAP_CHARACTERS or not self._more():
                return None
        self._line += self._buffer.count("\n", 0, found.end())
        self._at = self._keep = found.end()
        return int(found[1])

    def _tokens(self) -> Iterator[str]:
        """Brackets, texts and line ends."""
        while True:
            found = _TOKEN.search(self._buffer, self._at)
            quote = self._buffer.find('"', self._at, found.start() if found else len(self._buffer))
            if found is not None and quote < 0:
                self._at = found.end()
                self._line += found[0] == "\n"
                yield found[0]
                continue
            # A text that is not closed, because more has to be read, or because it never is: no text goes over a line end.
            end = self._buffer.find("\n", quote) if quote >= 0 else -1
            if end >= 0:
                self._at = end
            elif not self._more():
                return

    def _ahead(self) -> str:
        while len(self._buffer) < self._at + 64 and self._more():
            pass
        return self._buffer[self._at : self._at + 64]

    def _more(self) -> bool:
        """In ever larger pieces, so that a long text is not looked through again and again."""
        if self._ended:
            return False
        self._buffer, self._at, self._keep = self._buffer[self._keep :], self._at - self._keep, 0
        piece = self._source.read(max(_CHUNK, len(self._buffer)))
        self._ended = not piece
        self._buffer += self._decode(piece, not piece)
        return bool(piece)
