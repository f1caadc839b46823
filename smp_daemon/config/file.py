"""The configuration file: checked as a whole, all mistakes at once, and written as a sample."""

from __future__ import annotations

import difflib
import os
import stat
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from smp_client import SMPError
from smp_client.text.values import Value, decode, render_flow
from smp_client.text.values import load as load_yaml

from . import SYSTEM_FILE, find
from .settings import SECTIONS, SETTINGS, Configuration

READ_CAP_BYTES = 1024 * 1024
# The first must be less than the second, counted in units of the first.
_IN_ORDER = (
    ("lifecycle.idle_after_hours", "lifecycle.decaying_after_days", 24),
    ("lifecycle.decaying_after_days", "lifecycle.archive_after_days", 1),
    ("compaction.gentle_at_pct", "compaction.forced_at_pct", 1),
)
_SHOWN_CHARACTERS = 60


class BadConfiguration(SMPError):
    """Every mistake in a file: sentences by their settings; "" is for the file as a whole."""

    code = "MEM_E016"
    advice = "Nothing of it is used until it is put right; `smp config sample` shows every setting."

    def __init__(self, file: Path, problems: Mapping[str, str]) -> None:
        self.file, self.problems = file, problems
        named = [": ".join(filter(None, (str(file), *pair))) for pair in problems.items()]
        sentences = [text if text.endswith("?") else f"{text}." for text in named]
        super().__init__("\n".join([*sentences, self.advice]), advice="")
        self.advice = type(self).advice


def load(named: str | Path | None = None) -> Configuration:
    """Read and check the named file, or the one that `find` returns.

    Raise BadConfiguration where anything in it is wrong.
    """
    file = find(named)
    configuration = Configuration(file=file)
    if file is None:
        return configuration
    problems: dict[str, str] = {}
    try:
        for key, value in _entries(load_yaml(decode(_read(file)))):
            try:
                _check_key(key, value)
                if key in SETTINGS:
                    configuration.given.add(key)
                    configuration[key] = _accepted(key, value)
            except ValueError as error:
                problems[key] = str(error)
    except OSError as error:
        problems[""] = f"it cannot be read: {error.strerror or error}"
    except ValueError as error:
        problems[""] = str(error)
    for keys, says in _conflicts(configuration):
        if not problems.keys() & set(keys):
            problems[keys[-1]] = says
    if problems:
        raise BadConfiguration(file, problems)
    return configuration


def _read(file: Path) -> bytes:
    # Opening a FIFO would wait for its other end.
    if not stat.S_ISREG(file.stat().st_mode):
        raise ValueError("it is not a plain file")
    if file.stat().st_size > READ_CAP_BYTES:
        raise ValueError(f"it is larger than {READ_CAP_BYTES} bytes")
    return file.read_bytes()


def _entries(value: Value) -> Iterator[tuple[str, Value]]:
    """Yield the keys of a file, with their sections before them: `watch.polling_s`."""
    if not isinstance(value, dict | None):
        raise ValueError("the file must hold settings, each as `key: value`")
    for name, inner in (value or {}).items():
        if name in SECTIONS and isinstance(inner, dict):
            yield from ((f"{name}.{key}", item) for key, item in inner.items())
        else:
            yield name, inner


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
        yield ("roots", "log.file"), "the log must not be in a tree that the daemon watches"


def sample() -> str:
    """Return `config/smp.yaml`: every setting with its default and its sentence."""
    head = (
        "The settings of SMP with their defaults, as `smp config sample` prints them."
        " Keep only the lines that you change. Found at: smp --config FILE, the variable"
        " SMP_CONFIG,"
        f" ~/.config/smp/smp.yaml ($XDG_CONFIG_HOME/smp/smp.yaml), {SYSTEM_FILE}."
        " `smp config check` names every mistake in it."
    )
    lines, section = _comment(head, ""), ""
    for key, setting in SETTINGS.items():
        before, dot, name = key.rpartition(".")
        indent = "  " if dot else ""
        lines.append("")
        if dot and before != section:
            section = before
            lines.append(f"{section}:")
        lines += _comment(f"{setting.says} Must be {setting.type.says}.", indent)
        lines.append(f"{indent}{name}: {render_flow(plain(setting.default))}")
    return "\n".join(lines) + "\n"


def _comment(text: str, indent: str) -> list[str]:
    start = f"{indent}# "
    return textwrap.wrap(text, 100, initial_indent=start, subsequent_indent=start,
                         break_long_words=False, break_on_hyphens=False)  # fmt: skip


def plain(value: Any) -> Value:
    """Return the value of a setting as a file holds it."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
