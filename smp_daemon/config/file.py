"""The configuration file, read and checked as a whole: all bad settings are reported at once."""

from __future__ import annotations

import difflib
import os
import stat
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from smp_client import SMPError
from smp_client.text.values import BadYaml, Event, Events, Value, decode, reading, render_flow

from .location import find
from .settings import SECTIONS, SETTINGS, Configuration

READ_CAP_BYTES = 1024 * 1024
# The first must be less than the second, counted in units of the first.
_IN_ORDER = (
    ("watch.quiet_ms", "watch.longest_wait_ms", 1),
    ("lifecycle.idle_after_hours", "lifecycle.decaying_after_days", 24),
    ("lifecycle.decaying_after_days", "lifecycle.archive_after_days", 1),
    ("compaction.gentle_at_pct", "compaction.forced_at_pct", 1),
)
_SHOWN_CHARACTERS = 60
Entries = dict[str, tuple[int, Value]]  # line (from 1) and value, by whole key: `watch.quiet_ms`


@dataclass(frozen=True, order=True)
class Problem:
    line: int  # from 1; 0 where it concerns the whole file
    key: str
    says: str


class BadConfiguration(SMPError):
    """Every mistake in a file; each of `problems` has its line and its key."""

    code = "MEM_E016"
    advice = "Nothing of it is used until it is put right; `smp config sample` shows every setting."

    def __init__(self, file: Path, problems: list[Problem]) -> None:
        self.file = file
        self.problems = tuple(sorted(problems))
        sentences = []
        for problem in self.problems:
            where = f"{file}:{problem.line}" if problem.line else str(file)
            text = ": ".join(filter(None, (where, problem.key, problem.says)))
            sentences.append(text if text.endswith("?") else f"{text}.")
        super().__init__("\n".join([*sentences, self.advice]), advice="")
        self.advice = type(self).advice


def load(named: str | Path | None = None) -> Configuration:
    """Read and check the named file, or the one that `find` returns.

    Raise BadConfiguration where anything in it is wrong.
    """
    file = find(named)
    if file is None:
        return Configuration()
    try:
        # Opening a FIFO would wait for its other end.
        says = "" if stat.S_ISREG(file.stat().st_mode) else "it is not a plain file"
        if not says and file.stat().st_size > READ_CAP_BYTES:
            says = f"it is larger than {READ_CAP_BYTES} bytes"
        content = b"" if says else file.read_bytes()
    except OSError as error:
        says = f"it cannot be read: {error.strerror or error}"
    if says:
        raise BadConfiguration(file, [Problem(0, "", says)])
    configuration = Configuration(file=file)
    entries, problems = _parse(content)
    for key, (line, value) in entries.items():
        try:
            _check_key(key, value)
            if key in SETTINGS:
                configuration.lines[key] = line
                configuration[key] = _accepted(key, value)
        except ValueError as error:
            problems.append(Problem(line, key, str(error)))
    bad = {problem.key for problem in problems}
    for keys, says in _conflicts(configuration):
        if not bad & set(keys):
            place = max((configuration.lines.get(key, 0), key) for key in keys)
            problems.append(Problem(*place, says))
    if problems:
        raise BadConfiguration(file, problems)
    return configuration


def _parse(content: bytes) -> tuple[Entries, list[Problem]]:
    """Return the entries of a file. A mistake of the YAML ends the reading and is returned.

    The keys below a section are entries of their own. All other values are plain values.
    """
    entries: Entries = {}

    def take_in(opening: Event, prefix: str) -> None:
        if opening.tag is not None or opening.anchor is not None:
            raise BadYaml("tags and anchors are not allowed", events.key_line)
        for name, first in events.entries():
            if not prefix and name in SECTIONS and isinstance(first, yaml.MappingStartEvent):
                take_in(first, f"{name}.")
            else:
                entries[prefix + name] = events.key_line + 1, events.build(first)

    try:
        with reading():
            events = Events(decode(content))
            first = events.open_document()
            if isinstance(first, yaml.MappingStartEvent):
                take_in(first, "")
            elif isinstance(first, yaml.StreamEndEvent):
                return {}, []
            elif events.build(first) is not None:
                raise BadYaml("the file must hold settings, each as `key: value`")
            events.close_document()
    except BadYaml as error:
        return entries, [Problem(error.line + 1, "", error.problem)]
    return entries, []


def _check_key(key: str, value: Value) -> None:
    # A section is empty where every line of it is made a comment.
    if key in SECTIONS and value is not None:
        keys = ", ".join(name for name in SETTINGS if name.startswith(f"{key}."))
        raise ValueError(f"must hold settings of its own, indented below it: {keys}")
    if key not in SECTIONS and key not in SETTINGS:
        # A setting of this name in another section, or one that is spelt nearly so.
        near = [known for known in SETTINGS if known.split(".")[-1] == key.split(".")[-1]]
        near = near or difflib.get_close_matches(key, [*SETTINGS, *SECTIONS], n=1)
        raise ValueError("there is no such setting" + (f"; is {near[0]} meant?" if near else ""))


def _accepted(key: str, value: Value) -> Any:
    """Return the value as the program uses it. Raise ValueError with a sentence."""
    try:
        return SETTINGS[key].type.accept(value)
    except ValueError as error:
        shown = textwrap.shorten(render_flow(value), _SHOWN_CHARACTERS, placeholder="…")
        reason = f": {error}" if str(error) else ""
        raise ValueError(f"must be {SETTINGS[key].type.says}, not {shown}{reason}") from error


def _conflicts(configuration: Configuration) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the keys of settings that contradict each other, with a sentence."""
    for low, high, factor in _IN_ORDER:
        if configuration[low] >= configuration[high] * factor:
            yield (low, high), f"{low} must be less than {high}"
    real = [Path(os.path.realpath(root)) for root in configuration["roots"]]
    if len(set(real)) < len(real) or any(root in other.parents for root in real for other in real):
        yield ("roots",), "a root stands twice, or holds another of the roots"
    log = configuration["log.file"]
    if log is not None and any(root in Path(os.path.realpath(log)).parents for root in real):
        # Each line would be a change of the tree, and cause the next line.
        yield ("log.file", "roots"), "the log must not be in a tree that the daemon watches"
