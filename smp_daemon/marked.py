"""A YAML file of settings, read so that each key keeps its line, and so that one mistake does not hide the next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import yaml

from smp_client.text.values import DEPTH_CAP, BadYaml, Event, Events, Value, decode, line_of, reading, refuse_decoration

Section: TypeAlias = "dict[str, Entry]"


@dataclass(frozen=True)
class Entry:
    line: int  # from 1
    value: Value | Section
    is_section: bool = False


@dataclass(frozen=True, order=True)
class Problem:
    line: int  # from 1; 0 where it concerns the whole file
    key: str
    says: str


@dataclass
class Marked:
    """What a text holds, as far as it could be read, and all that is wrong with it as YAML."""

    top: Section = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def parse(content: bytes) -> Marked:
    marked = Marked()
    try:
        with reading():
            _Reader(decode(content), marked.problems).read_into(marked.top)
    except BadYaml as error:
        # Behind such an error nothing can be read; what stands before it is checked all the same.
        marked.problems.append(Problem(error.line + 1, "", error.problem))
    return marked


class _Reader:
    def __init__(self, text: str, problems: list[Problem]) -> None:
        self._events = Events(text)
        self._next = self._events.next
        self._problems = problems

    def read_into(self, top: Section) -> None:
        first = self._events.open_document()
        if isinstance(first, yaml.StreamEndEvent):
            return
        if isinstance(first, yaml.MappingStartEvent):
            self._read_section(first, "", top, 0)
        elif self._read_value(first, "") is not None:
            self._problems.append(Problem(line_of(first) + 1, "", "the file must hold settings, each as `key: value`"))
        self._events.next = self._next
        self._events.close_document()

    def _read_section(self, start: Event, section: str, into: Section, depth: int) -> None:
        if depth >= DEPTH_CAP:
            raise BadYaml(f"nested deeper than {DEPTH_CAP} levels", line_of(start))
        self._note(start, section.removesuffix("."))
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            name = self._read_key(event, section, into)
            first = self._next()
            entries: Section = {}
            # Where the name is no good, what it names is still read, for its own mistakes.
            if isinstance(first, yaml.MappingStartEvent):
                into.setdefault(name, Entry(line_of(event) + 1, entries, is_section=True)) if name else None
                self._read_section(first, f"{section}{name}.", entries, depth + 1)
            else:
                known = len(self._problems)
                value = self._read_value(first, f"{section}{name}")
                if name and len(self._problems) == known:
                    into.setdefault(name, Entry(line_of(event) + 1, value))

    def _read_key(self, event: Event, section: str, into: Section) -> str:
        """The key; an empty one where it cannot be one, which is noted."""
        line = line_of(event) + 1
        key = event.value if isinstance(event, yaml.ScalarEvent) else ""
        if not isinstance(event, yaml.ScalarEvent):
            self._whole(event)
            self._problems.append(Problem(line, section.removesuffix("."), "a key must be a simple text"))
        elif not key or key == "<<":
            self._problems.append(Problem(line, section.removesuffix("."), "empty keys and merge keys are not allowed"))
            key = ""
        elif key in into:
            self._problems.append(Problem(line, f"{section}{key}", f"stands twice, first in line {into[key].line}"))
        self._note(event, f"{section}{key}")
        return str(key)

    def _note(self, event: Event, key: str) -> None:
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
            try:
                refuse_decoration(event)
            except BadYaml as error:
                self._problems.append(Problem(error.line + 1, key, error.problem))

    def _read_value(self, first: Event, key: str) -> Value:
        """Anything but a section. What is wrong inside it is noted, and reading goes on behind it."""
        rest = iter(self._whole(first)[1:])
        self._events.next = lambda: next(rest)
        try:
            return self._events.build(first)
        except BadYaml as error:
            self._problems.append(Problem(error.line + 1, key, error.problem))
            return None

    def _whole(self, first: Event) -> list[Event]:
        """All events of one node, so that a mistake in its middle does not leave the rest of it behind."""
        events, depth = [first], 0
        while True:
            depth += isinstance(events[-1], yaml.CollectionStartEvent) - isinstance(events[-1], yaml.CollectionEndEvent)
            if not depth:
                return events
            events.append(self._next())
