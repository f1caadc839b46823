"""A YAML file of settings, read so that each key keeps its line."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import yaml

from smp_client.text.values import BadYaml, Event, Events, Value, decode, reading

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
        if opening.tag is not None or opening.anchor is not None:
            raise BadYaml("tags and anchors are not allowed", events.key_line)
        for name, first in events.entries():
            if not prefix and name in sections and isinstance(first, yaml.MappingStartEvent):
                take_in(first, f"{name}.")
            else:
                entries[prefix + name] = events.key_line + 1, events.build(first)

    try:
        with reading():
            events = Events(decode(content))
            first = events.open_document()
            if isinstance(first, yaml.StreamEndEvent):
                return {}, []
            if isinstance(first, yaml.MappingStartEvent):
                take_in(first, "")
            elif events.build(first) is not None:
                raise BadYaml("the file must hold settings, each as `key: value`")
            events.close_document()
    except BadYaml as error:
        return entries, [Problem(error.line + 1, "", error.problem)]
    return entries, []
