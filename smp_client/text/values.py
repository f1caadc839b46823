"""YAML values: built straight from libyaml's events, and rendered as text that people like to read.

The subset is small on purpose. Aliases, anchors, tags, merge keys, duplicate keys and deep nesting
are refused before anything is constructed, so no input can blow up. Only `null`, `true`, `false`
and decimal numbers are not strings: `no`, `on` and timestamps stay texts.

The hash of values tells whether a memory is unchanged.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from ..model.deadline import ITEMS_A_STEP, step

Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"
Event: TypeAlias = Any  # PyYAML types its events as having no attributes

DEPTH_CAP = 64
_FLOW_WIDTH = 100
_WORD_CHARACTERS = 32

if TYPE_CHECKING:
    import yaml as yaml
else:

    class _Late:
        """PyYAML, imported with the first parse: a program that only appends does without."""

        def __getattr__(self, name: str) -> Any:
            import yaml

            setattr(self, name, found := getattr(yaml, name))
            return found

    yaml = _Late()


class BadYaml(ValueError):
    """Why a text cannot be read, with the line (from 0) where it goes wrong.

    The problem ends up in logs, so it quotes nothing of the text, which may be a secret.
    """

    def __init__(self, problem: str, line: int = 0) -> None:
        self.problem = problem
        self.line = line
        super().__init__(f"line {line + 1}: {self.problem}")


@contextmanager
def reading() -> Iterator[None]:
    """Turn everything that libyaml and its binding raise on bad input into BadYaml."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadYaml(error.problem or "not YAML", mark.line if mark else 0) from error
    except yaml.YAMLError as error:
        raise BadYaml(str(error).replace("\n", " ")) from error
    except BadYaml:
        raise
    except (ValueError, IndexError, OverflowError, AttributeError, RecursionError) as error:
        raise BadYaml("not YAML") from error


class Events:
    """The events of one text, built into values node by node, inside `reading()`."""

    def __init__(self, text: str) -> None:
        loader = getattr(yaml, "CSafeLoader", None) or yaml.SafeLoader
        self.next: Callable[[], Event] = loader(text).get_event
        self._scalars = 0  # that were built

    def open_document(self) -> Event:
        """Return the first node of the first document, or the end of the stream."""
        self.next()
        event = self.next()
        return self.next() if isinstance(event, yaml.DocumentStartEvent) else event

    def close_document(self) -> None:
        """Raise BadYaml where another document follows."""
        while not isinstance(event := self.next(), yaml.StreamEndEvent):
            line: int = event.start_mark.line
            if isinstance(event, yaml.DocumentStartEvent):
                raise BadYaml("a second document begins here", line)

    def build(self, event: Event, depth: int = 0) -> Value:
        """Return the value of the node that begins with this event."""
        kind: Any = type(event)
        if kind is yaml.AliasEvent:
            raise BadYaml("aliases are not allowed", event.start_mark.line)
        if event.tag is not None or event.anchor is not None:
            raise BadYaml("tags and anchors are not allowed", event.start_mark.line)
        if kind is yaml.ScalarEvent:
            self._scalars += 1
            if not self._scalars % ITEMS_A_STEP:
                step()
            return _resolve(event.value) if event.implicit[0] else event.value
        step()
        if depth >= DEPTH_CAP:
            raise BadYaml(f"nested deeper than {DEPTH_CAP} levels", event.start_mark.line)
        if kind is yaml.SequenceStartEvent:
            return [self.build(first, depth + 1) for first in self.items()]
        mapping: dict[str, Value] = {}
        for key, first in self.entries():
            mapping[key] = self.build(first, depth + 1)
        return mapping

    def items(self) -> Iterator[Event]:
        """Yield the first event of each item of a list. The caller builds it before the next."""
        while type(event := self.next()) is not yaml.SequenceEndEvent:
            yield event

    def entries(self) -> Iterator[tuple[str, Event]]:
        """Yield each key of a mapping with the first event of its value. The caller builds it."""
        seen: set[str] = set()
        event: Event
        while type(event := self.next()) is not yaml.MappingEndEvent:
            line = event.start_mark.line
            if type(event) is not yaml.ScalarEvent or event.tag is not None or event.anchor:
                raise BadYaml("a key must be a simple text", line)
            key: str = event.value
            if key == "<<" and event.implicit[0]:
                raise BadYaml("merge keys are not allowed", line)
            if key in seen:
                raise BadYaml("a key stands twice", line)
            seen.add(key)
            yield key, self.next()


def load(text: str) -> Value:
    """Return the value of a text with one document; None of an empty one."""
    with reading():
        events = Events(text)
        first = events.open_document()
        if isinstance(first, yaml.StreamEndEvent):
            return None
        value = events.build(first)
        events.close_document()
        return value


def decode(content: bytes) -> str:
    """Return the text without byte order marks, of which libyaml would not count one more."""
    try:
        return content.decode().lstrip("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start)
        raise BadYaml(f"not UTF-8 at byte {error.start}", line) from error


_NUMBER = re.compile(
    r"[-+]?(?:(?P<int>0|[1-9][0-9]{0,299})|(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
)
_WORDS: dict[str, Value] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


def _resolve(text: str) -> Value:
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in "0123456789+-." and (match := _NUMBER.fullmatch(text)):
        if match["int"] is not None:
            return int(text)
        number = float(text)
        if not text.lstrip("+-").isdigit() and math.isfinite(number):
            return number
    return text


# A text that any YAML reader, also one of version 1.1, takes as a string without quotes.
_PLAIN = re.compile(r"[A-Za-z](?:[A-Za-z0-9_./()@+%=-]| (?=[A-Za-z0-9(]))*")
_NOT_PLAIN = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
# Characters that YAML cannot print, line breaks and byte order marks.
_ODD = r"\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff"
_ESCAPED = re.compile(rf'[\x00-\x1f"\\{_ODD}]')
_NOT_LITERAL = re.compile(rf"[\x00-\x08\x0b-\x1f{_ODD}]")


def render_entries(mapping: Mapping[str, Value], indent: int) -> list[str]:
    """Return the lines of a mapping in block style."""
    lines: list[str] = []
    margin = " " * indent
    for key, value in mapping.items():
        head = f"{margin}{_render_text(key)}:"
        if isinstance(value, str):
            if "\n" in value and _literal_fits(value):
                lines.append(f"{head} |" if value.endswith("\n") else f"{head} |-")
                inner = value.removesuffix("\n").split("\n")
                lines += [f"{margin}  {line}" if line else "" for line in inner]
            else:
                lines.append(f"{head} {_render_text(value)}")
        elif isinstance(value, dict) and value:
            lines += [head, *render_entries(value, indent + 2)]
        elif isinstance(value, list) and not _fits_on_line(value):
            lines.append(head)
            for item in value:
                if isinstance(item, dict) and item:
                    entries = render_entries(item, indent + 4)
                    lines += [f"{margin}  - {entries[0].lstrip()}", *entries[1:]]
                else:
                    lines.append(f"{margin}  - {render_flow(item)}")
        else:
            lines.append(f"{head} {render_flow(value)}")
    return lines


def render_lines(mapping: Mapping[str, Value], indent: int = 0) -> str:
    """Return the text of a mapping in block style."""
    return "".join(f"{line}\n" for line in render_entries(mapping, indent))


def render_flow(value: Value) -> str:
    """Return the value on one line."""
    if isinstance(value, str):
        return _render_text(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        # A reader of YAML 1.1 knows a number with an exponent only by its point.
        shown = repr(value)
        return shown if "." in shown else shown.replace("e", ".0e")
    if isinstance(value, dict):
        entries = [f"{_render_text(key)}: {render_flow(item)}" for key, item in value.items()]
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, list):
        return "[" + ", ".join([render_flow(item) for item in value]) + "]"
    return repr(value)


def _fits_on_line(value: list[Value]) -> bool:
    is_nested = any(isinstance(item, (dict, list)) for item in value)
    return not is_nested and len(render_flow(value)) <= _FLOW_WIDTH


def _render_text(text: str) -> str:
    return _quote_word(text) if len(text) <= _WORD_CHARACTERS else _quote(text)


def _quote(text: str) -> str:
    """Return the text as it is where every reader takes it for a text, else in quotes."""
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_PLAIN:
        return text
    return '"' + _ESCAPED.sub(_escape, text) + '"'


_quote_word = functools.lru_cache(maxsize=4096)(_quote)  # keys, names and tags come again


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in '"\\':
        return "\\" + character
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character) or f"\\u{ord(character):04x}"


def _literal_fits(text: str) -> bool:
    """Return whether `|` shows the text exactly: no odd characters, no white space at its ends."""
    body = text.removesuffix("\n")
    has_space = body.startswith((" ", "\n", "\t")) or body.endswith((" ", "\n", "\t"))
    return "\n" in body and not has_space and "\n\t" not in text and not _NOT_LITERAL.search(text)


# The hash by which a memory is known to be unchanged, and the JSON that it is taken of.

json_of = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def hash_of(value: Mapping[str, Value]) -> str:
    """Return the hash of a record's fields. It does not depend on the style they are written in."""
    return stored(value)[2]


def hash_of_bytes(content: bytes) -> str:
    """Return the hash of a memory that is a whole file."""
    import hashlib  # late: OpenSSL takes 3 ms to load, and a program that only appends needs none

    return hashlib.sha256(content).hexdigest()[:32]


def stored(value: Mapping[str, Value]) -> tuple[Mapping[str, Value], str, str]:
    """Return the fields in the order of storing, the JSON of them, and its hash.

    `id` comes first and `decay` last, as SMP renders them: where a person has written them
    is no difference.
    """
    names = list(value)
    order = sorted(names, key=lambda name: (name != "id") + (name == "decay"))
    if order != names:
        value = {name: value[name] for name in order}
    data = json_of(value)
    return value, data, hash_of_bytes(data.encode())


def summary_hash(value: Mapping[str, Value]) -> str:
    """Return the hash of what a summary says. To be read, pinned or superseded is no change."""
    return hash_of({name: value.get(name) for name in ("id", "content", "summarizes")})
