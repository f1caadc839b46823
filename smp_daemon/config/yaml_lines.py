"""A YAML file of settings, read so that each key keeps its line."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import yaml

from smp_client.text import values
from smp_client.text.values import BadYaml, Event, Events, Value, decode, line_of, reading

Entries = dict[str, tuple[int, Value]]  # line (from 1) and value, by whole key: `watch.quiet_ms`


@dataclass(frozen=True, order=True)
class Problem:
    line: int  # from 1; 0 where it concerns the whole file
    key: str
    says: str


def parse(content: bytes, sections: Container[str]) -> tuple[Entries, list[Problem]]:
    """Return the entries of a file. A mistake of the YAML ends the reading and is returned.

    The keys below one of `sections` are entries of their own. All other values are plain values.
    """
    entries: Entries = {}

    def take_in(opening: Event, prefix: str) -> None:
        values.refuse_decoration(opening)
        for name, first in events.entries(opening):
            if not prefix and name in sections and isinstance(first, yaml.MappingStartEvent):
                take_in(first, f"{name}.")
            else:
                line = text.count("\n", 0, events.key_index) + 1
                entries[prefix + name] = line, events.build(first)

    try:
        with reading():
            text = decode(content)
            events = Events(text)
            first = events.open_document()
            if isinstance(first, yaml.StreamEndEvent):
                return {}, []
            if isinstance(first, yaml.MappingStartEvent):
                take_in(first, "")
            elif events.build(first) is not None:
                raise BadYaml("the file must hold settings, each as `key: value`", line_of(first))
            events.close_document()
    except BadYaml as error:
        return entries, [Problem(error.line + 1, "", error.problem)]
    return entries, []
