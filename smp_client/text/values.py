"""YAML values: built straight from libyaml's events, and rendered as text that people like to read.

The subset is small on purpose. Aliases, anchors, tags, merge keys, duplicate keys and deep nesting
are refused before anything is constructed, so no input can blow up. Only `null`, `true`, `false`
and decimal numbers are not strings: `no`, `on` and timestamps stay what they look like.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import yaml

from ..model.deadline import step

Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"
# PyYAML types its events as having no attributes and its marks as optional; those of a parser have
# both.
Event: TypeAlias = Any

DEPTH_CAP = 64
_FLOW_WIDTH = 100
_WORD_CHARACTERS = 32

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_UNCLOSED = ("while scanning a quoted scalar", "found unexpected end of stream")


class BadYaml(ValueError):
    """Why a text cannot be read, with the line (from 0) where it goes wrong."""

    def __init__(self, problem: str, line: int = 0) -> None:
        self.problem = (
            problem  # which ends up in logs: it quotes nothing of the text, that may be a secret
        )
        self.line = line
        super().__init__(f"line {line + 1}: {self.problem}")


@contextmanager
def reading() -> Iterator[None]:
    """Turns everything that libyaml and its binding raise on bad input into BadYaml."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        if (error.context, error.problem) == _UNCLOSED and error.context_mark:
            # Noticed where the text ends, and to be mended where it begins.
            raise BadYaml("a quote is not closed", error.context_mark.line) from error
        mark = error.problem_mark or error.context_mark
        raise BadYaml(error.problem or "not YAML", mark.line if mark else 0) from error
    except yaml.YAMLError as error:
        raise BadYaml(str(error).replace("\n", " ")) from error
    except BadYaml:
        raise
    except (ValueError, IndexError, OverflowError, AttributeError, RecursionError) as error:
        raise BadYaml("not YAML") from error


class Events:
    """The events of one text, built into values node by node. Use it inside `reading()`."""

    def __init__(self, text: str) -> None:
        self.next: Callable[[], Event] = _Loader(text).get_event
        self._text = text
        self._key: Event | None = None
        self._scalar: Event | None = None
        self._closing: Event | None = None

    @property
    def end(self) -> int:
        """The index after the last character of what was built; comments and blank lines behind
        it do not count."""
        # A key may have an empty value, and so may a dash: then the sign is the end. A block
        # collection ends where the next token begins, so only the closing bracket of a flow
        # collection counts as content of its own.
        ends = [self._key.end_mark.index + 1] if self._key else [0]
        for event in (self._scalar, self._closing):
            if event is not None:
                end = event.end_mark.index
                ends += [end] if has_width(event) or self._text[end - 1 : end] in ("-", ":") else []
        return max(ends)

    @property
    def key_index(self) -> int:
        """Where the key that was read last begins."""
        return self._key.start_mark.index if self._key else 0

    @property
    def key_column(self) -> int:
        return self._key.start_mark.column if self._key else 0

    def open_document(self) -> Event:
        """The first node of the first document, or the end of the stream."""
        self.next()
        event = self.next()
        return self.next() if isinstance(event, yaml.DocumentStartEvent) else event

    def close_document(self) -> Event:
        """The end of the stream, which must come now."""
        event: Event
        while not isinstance(event := self.next(), yaml.StreamEndEvent):
            if type(event) is yaml.DocumentStartEvent:
                raise BadYaml("a second document begins here", line_of(event))
        return event

    def build(self, event: Event, depth: int = 0) -> Value:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            if event.tag is not None or event.anchor is not None:
                refuse_decoration(event)
            self._scalar = event
            return _resolve(event.value) if event.implicit[0] else event.value
        if kind is yaml.AliasEvent:
            raise BadYaml("aliases are not allowed", line_of(event))
        step()
        if depth >= DEPTH_CAP:
            raise BadYaml(f"nested deeper than {DEPTH_CAP} levels", line_of(event))
        refuse_decoration(event)
        if kind is yaml.SequenceStartEvent:
            return [self.build(first, depth + 1) for first in self.items(event)]
        mapping: dict[str, Value] = {}
        for key, first in self.entries(event):
            mapping[key] = self.build(first, depth + 1)
        return mapping

    def items(self, opening: Event) -> Iterator[Event]:
        """The first event of each item of an opened list; the caller builds each item before it
        takes the next."""
        while type(event := self.next()) is not yaml.SequenceEndEvent:
            yield event
        if opening.flow_style and has_width(event):
            self._closing = event

    def entries(self, opening: Event) -> Iterator[tuple[str, Event]]:
        """Key and first event of each value of an opened mapping; the caller builds each value
        before it takes the next."""
        seen: set[str] = set()
        while type(event := self.next()) is not yaml.MappingEndEvent:
            if type(event) is not yaml.ScalarEvent:
                raise BadYaml("a key must be a simple text", line_of(event))
            if event.tag is not None or event.anchor is not None:
                refuse_decoration(event)
            key: str = event.value
            if key == "<<" and event.implicit[0]:
                raise BadYaml("merge keys are not allowed", line_of(event))
            if key in seen:
                raise BadYaml("a key stands twice", line_of(event))
            seen.add(key)
            self._key = event
            yield key, self.next()
        if opening.flow_style and has_width(event):
            self._closing = event


def has_width(event: Event) -> bool:
    """Whether the event has a sign of its own in the text: neither an empty value nor the end of
    a collection without brackets."""
    width: int = event.end_mark.index - event.start_mark.index
    return width > 0


def line_of(event: Event) -> int:
    line: int = event.start_mark.line
    return line


def refuse_decoration(event: Event) -> None:
    if event.anchor is not None:
        raise BadYaml("anchors are not allowed", line_of(event))
    if event.tag is not None:
        raise BadYaml("tags are not allowed", line_of(event))


def load(text: str) -> Value:
    """The value of a text with one document; None of an empty one."""
    with reading():
        events = Events(text)
        first = events.open_document()
        if isinstance(first, yaml.StreamEndEvent):
            return None
        value = events.build(first)
        events.close_document()
        return value


def decode(content: bytes) -> str:
    """The text without byte order marks, of which libyaml would not count one more."""
    try:
        return content.decode().lstrip("\ufeff")
    except UnicodeDecodeError as error:
        raise BadYaml(
            f"not UTF-8 at byte {error.start}", content.count(b"\n", 0, error.start)
        ) from error


_NUMBER = re.compile(
    r"[-+]?(?:(?P<int>0|[1-9][0-9]{0,299})|(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
)
_WORDS: dict[str, Value] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    ".nan": math.nan, ".NaN": math.nan, ".NAN": math.nan,
    ".inf": math.inf, ".Inf": math.inf, ".INF": math.inf,
    "-.inf": -math.inf, "-.Inf": -math.inf, "-.INF": -math.inf,
}  # fmt: skip


def _resolve(text: str) -> Value:
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in "0123456789+-." and (match := _NUMBER.fullmatch(text)):
        if match["int"] is not None:
            return int(text)
        if not text.lstrip("+-").isdigit():
            return float(text)
    return text


# A text that any YAML reader, also one of version 1.1, takes as a string without quotes.
_PLAIN = re.compile(r"[A-Za-z](?:[A-Za-z0-9_./()@+%=-]| (?=[A-Za-z0-9(]))*")
_NOT_PLAIN = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
# What may stand unescaped in a quoted text: printable in YAML and not a line break or a byte order
# mark.
_ESCAPED = re.compile(r'[\x00-\x1f"\\\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]')
_NOT_LITERAL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def render_entries(mapping: Mapping[str, Value], indent: int) -> list[str]:
    """The lines of a mapping in block style."""
    lines: list[str] = []
    margin = " " * indent
    for key, value in mapping.items():
        head = f"{margin}{_render_text(key)}:"
        if isinstance(value, str) and "\n" in value and _literal_fits(value):
            lines.append(f"{head} |{'' if value.endswith(chr(10)) else '-'}")
            lines += [
                f"{margin}  {line}" if line else "" for line in value.removesuffix("\n").split("\n")
            ]
        elif (short := _render_short(value)) is not None:
            lines.append(f"{head} {short}")
        else:
            lines.append(head)
            lines += _render_block(value, indent + 2)
    return lines


def render_flow(value: Value) -> str:
    """The value on one line."""
    if render := _RENDERED_ALIKE.get(type(value)):
        return render(value)
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(
                [f"{_render_text(key)}: {render_flow(item)}" for key, item in value.items()]
            )
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join([render_flow(item) for item in value]) + "]"
    return _render_scalar(value)


def _render_block(value: Value, indent: int) -> list[str]:
    if isinstance(value, dict):
        return render_entries(value, indent)
    assert isinstance(value, list)
    lines: list[str] = []
    for item in value:
        if isinstance(item, dict) and item:
            inner = render_entries(item, indent + 2)
            lines.append(f"{' ' * indent}- {inner[0][indent + 2 :]}")
            lines += inner[1:]
        else:
            lines.append(f"{' ' * indent}- {render_flow(item)}")
    return lines


def _render_short(value: Value) -> str | None:
    """Scalars, and the lists of scalars that fit on a line; None for what needs a block."""
    if render := _RENDERED_ALIKE.get(type(value)):
        return render(value)
    if isinstance(value, dict):
        return None if value else "{}"
    if isinstance(value, list):
        if any(isinstance(item, (dict, list)) for item in value):
            return None
        line = render_flow(value)
        return line if len(line) <= _FLOW_WIDTH else None
    return _render_scalar(value)


def _render_scalar(value: Value) -> str:
    if isinstance(value, str):
        return _render_text(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _render_float(value) if isinstance(value, float) else repr(value)


def _render_float(value: float) -> str:
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    # A reader of YAML 1.1 knows a number with an exponent only by its point.
    shown = repr(value)
    return shown if "." in shown else shown.replace("e", ".0e")


def _render_text(text: str) -> str:
    return _render_word(text) if len(text) <= _WORD_CHARACTERS else _quote(text)


# By the exact type: what almost every value is.
_RENDERED_ALIKE: dict[type, Callable[[Any], str]] = {
    str: _render_text,
    int: repr,
    float: _render_float,
}


@functools.lru_cache(maxsize=4096)
def _render_word(text: str) -> str:
    """Keys, names and tags, which come again and again."""
    return _quote(text)


def _quote(text: str) -> str:
    """As it is where any reader takes that for the same text, else in quotes."""
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_PLAIN:
        return text
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in '"\\':
        return "\\" + character
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character) or f"\\u{ord(character):04x}"


def _literal_fits(text: str) -> bool:
    """Whether `|` shows the text exactly: no odd characters, and neither its start nor its end
    in white space."""
    return (
        "\n" in text.removesuffix("\n")
        and not text.startswith((" ", "\n", "\t"))
        and not text.endswith("\n\n")
        and "\n\t" not in text
        and text.removesuffix("\n")[-1] not in " \t"
        and not _NOT_LITERAL.search(text)
    )


def canonical(value: Value) -> bytes:
    """The same bytes for the same value, whatever its style was: for hashes."""
    return _dense(value).encode("utf-8", "surrogatepass")


_dense = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode
