"""The configuration file: what is wrong with it, how the sample is made. `settings.py` says what it holds."""

from __future__ import annotations

import difflib
import os
import stat
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smp_client import SMPError
from smp_client.text.values import Value, render_flow

from . import config_file
from .config_file import find
from .marked import Entry, Problem, Section, parse
from .settings import SECTIONS, SETTINGS, Configuration, Setting, assemble, plain, value_of
from .settings_upkeep import conflicts

READ_CAP_BYTES = 1024 * 1024
_IN_ORDER = (("watch.quiet_ms", "watch.longest_wait_ms"), ("indexes.active_every_s", "indexes.idle_every_s"))
_WIDTH = 110
_SHOWN_CHARACTERS = 60


class BadConfiguration(SMPError):
    """Everything that is wrong with a file; each of `problems` has its line and its key."""

    code = "MEM_E016"
    advice = "Nothing of this file is used until it is put right; `smp config sample` shows every setting."

    def __init__(self, file: Path, problems: list[Problem]) -> None:
        self.file = file
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join([*(_sentence(file, problem) for problem in self.problems), self.advice]), advice="")
        self.advice = type(self).advice


@dataclass(frozen=True)
class Loaded:
    """A configuration, the file that it is from (None: all defaults), and the line of each setting that stands in it."""

    configuration: Configuration
    file: Path | None
    lines: Mapping[str, int]


def load(named: str | Path | None = None) -> Configuration:
    """The configuration of the named file, or of the one that is found; raises BadConfiguration and changes nothing."""
    return read(named).configuration


def read(named: str | Path | None = None) -> Loaded:
    file = find(named)
    return Loaded(Configuration(), None, {}) if file is None else _check(file, _content(file))


def _content(file: Path) -> bytes:
    try:
        # Opening a FIFO would wait for its other end.
        if not stat.S_ISREG(file.stat().st_mode):
            raise BadConfiguration(file, [Problem(0, "", "it is not a plain file")])
        if file.stat().st_size > READ_CAP_BYTES:
            raise BadConfiguration(file, [Problem(0, "", f"it is larger than {READ_CAP_BYTES} bytes")])
        return file.read_bytes()
    except OSError as error:
        raise BadConfiguration(file, [Problem(0, "", f"it cannot be read: {error.strerror or error}")]) from error


def _check(file: Path, content: bytes) -> Loaded:
    marked = parse(content)
    problems, values, lines = list(marked.problems), dict[str, Any](), dict[str, int]()
    for key, entry in _entries(marked.top, problems):
        lines[key] = entry.line
        try:
            values[key] = SETTINGS[key].kind.accept(entry.value)  # type: ignore[arg-type]  # a section is no entry here
        except ValueError as error:
            problems.append(Problem(entry.line, key, _unfit(SETTINGS[key], entry.value, str(error))))
    configuration = assemble(values)
    bad = {problem.key for problem in problems}
    for keys, says in _conflicts(configuration):
        if not bad & set(keys):
            problems.append(Problem(*max((lines.get(key, 0), key) for key in keys), says))
    if problems:
        raise BadConfiguration(file, problems)
    return Loaded(configuration, file, lines)


def _entries(top: Section, problems: list[Problem]) -> Iterator[tuple[str, Entry]]:
    """The settings that stand in a file, by their whole names; notes what is no setting."""
    for name, entry in top.items():
        if name not in SECTIONS:
            yield from _known(name, entry, problems)
        elif entry.is_section:
            assert isinstance(entry.value, dict)
            for inner, below in entry.value.items():
                assert isinstance(below, Entry)
                yield from _known(f"{name}.{inner}", below, problems)
        elif entry.value is not None:  # nothing at all is what is left when every line of a section is made a comment
            keys = ", ".join(key for key in SETTINGS if key.startswith(f"{name}."))
            problems.append(Problem(entry.line, name, f"must hold settings of its own, indented below it: {keys}"))


def _known(key: str, entry: Entry, problems: list[Problem]) -> Iterator[tuple[str, Entry]]:
    if key not in SETTINGS:
        problems.append(Problem(entry.line, key, f"there is no such setting{_nearest(key)}"))
    elif entry.is_section and getattr(SETTINGS[key].kind, "takes_mapping", False):
        yield key, Entry(entry.line, _mapping(entry))
    elif entry.is_section:
        problems.append(Problem(entry.line, key, f"must be {SETTINGS[key].kind.says}, not further settings"))
    else:
        yield key, entry


def _mapping(entry: Entry) -> Value:
    """The value of a setting that is itself a mapping, of simple values."""
    assert isinstance(entry.value, dict)
    found: dict[str, Value] = {}
    for name, below in entry.value.items():
        assert isinstance(below, Entry)
        found[name] = None if below.is_section else below.value  # type: ignore[assignment]  # only a section holds entries
    return found


def _nearest(key: str) -> str:
    """A question with the setting that was probably meant, if one is near."""
    last = key.rpartition(".")[2]
    elsewhere = [known for known in SETTINGS if known.rpartition(".")[2] == last]
    near = elsewhere or difflib.get_close_matches(key, [*SETTINGS, *SECTIONS], n=1)
    return f"; is {near[0]} meant?" if near else ""


def _unfit(setting: Setting, value: Value | Section, reason: str) -> str:
    shown = render_flow(value)  # type: ignore[arg-type]  # a section never gets here
    if len(shown) > _SHOWN_CHARACTERS:
        shown = shown[:_SHOWN_CHARACTERS] + "…"
    return f"must be {setting.kind.says}, not {shown}" + (f": {reason}" if reason else "")


def _conflicts(configuration: Configuration) -> Iterator[tuple[tuple[str, ...], str]]:
    """What does not go together: the keys that it is about, and a sentence."""
    for shorter, longer in _IN_ORDER:
        if value_of(configuration, shorter) > value_of(configuration, longer):
            yield (shorter, longer), f"{shorter} must not be longer than {longer}"
    yield from conflicts(configuration.lifecycle, configuration.compaction)
    log = configuration.log
    real = [Path(os.path.realpath(root)) for root in configuration.roots]
    for number, root in enumerate(real):
        if any(root == other or root in other.parents for other in [*real[:number], *real[number + 1 :]]):
            yield ("roots",), f"{configuration.roots[number]} stands twice, or holds another of the roots"
            break
    if log.file is not None and any(root in Path(os.path.realpath(log.file)).parents for root in real):
        yield ("log.file", "roots"), "the log must not be in a tree that the daemon watches: each line would cause the next"


def _sentence(file: Path, problem: Problem) -> str:
    where = f"{file}:{problem.line}" if problem.line else str(file)
    text = f"{where}: {problem.key}: {problem.says}" if problem.key else f"{where}: {problem.says}"
    return text if text.endswith("?") else f"{text}."


def sample() -> str:
    """`config/smp.yaml`: every setting with its default, and what it is for."""
    lines = [
        "# The settings of SMP with their defaults, as `smp config sample` prints them. Keep only what you change.",
        "#",
        "# Found at: smp --config FILE, the variable SMP_CONFIG, ~/.config/smp/smp.yaml ($XDG_CONFIG_HOME; on macOS",
        f"# ~/Library/Application Support/smp/smp.yaml), {config_file.SYSTEM_FILE}. `smp config check` says what is wrong with it.",
    ]
    section = ""
    for setting in SETTINGS.values():
        lines.append("")
        if setting.section != section:
            section = setting.section
            lines += [*_comment(SECTIONS[section], ""), f"{section}:"]
        indent = "  " if section else ""
        lines += _comment(f"{setting.says} Must be {setting.kind.says}.", indent)
        lines.append(f"{indent}{setting.key.rpartition('.')[2]}: {render_flow(plain(setting.default))}")
    return "\n".join(lines) + "\n"


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ", break_long_words=False)


def shown(configuration: Configuration) -> dict[str, Value]:
    """Every value by its whole name, as a file would hold it."""
    return {key: plain(value_of(configuration, key)) for key in SETTINGS}
