"""Settings as a file holds them: `config/smp.yaml`, and the values in effect."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from smp_client.model.priority import Rule
from smp_client.text.values import Value, render_flow

from . import location
from .settings import SECTIONS, SETTINGS, Configuration

_WIDTH = 100


def sample() -> str:
    """Return `config/smp.yaml`: every setting with its default and its sentence."""
    head = (
        "The settings of SMP with their defaults, as `smp config sample` prints them."
        " Keep only the lines that you change.",
        "Found at: smp --config FILE, the variable SMP_CONFIG, ~/.config/smp/smp.yaml"
        " ($XDG_CONFIG_HOME; on macOS ~/Library/Application Support/smp/smp.yaml),"
        f" {location.SYSTEM_FILE}. `smp config check` names every mistake in it.",
    )
    lines = [*_comment(head[0], ""), "#", *_comment(head[1], "")]
    section = ""
    for key, setting in SETTINGS.items():
        lines.append("")
        indent = "  " if "." in key else ""
        if indent and not key.startswith(f"{section}."):
            section = key.partition(".")[0]
            lines += [*_comment(SECTIONS[section], ""), f"{section}:"]
        lines += _comment(f"{setting.says} Must be {setting.type.says}.", indent)
        lines.append(f"{indent}{key.split('.')[-1]}: {render_flow(plain(setting.default))}")
    return "\n".join(lines) + "\n"


def _comment(text: str, indent: str) -> list[str]:
    start = f"{indent}# "
    return textwrap.wrap(
        text, _WIDTH, initial_indent=start, subsequent_indent=start,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def shown(configuration: Configuration) -> dict[str, Value]:
    """Return every value by its whole name, as a file would hold it."""
    return {key: plain(configuration[key]) for key in SETTINGS}


def plain(value: Any) -> Value:
    """Return the value of a setting as a file holds it."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, Rule):
        return [value.base, value.rate, value.boost, value.floor]
    return str(value) if isinstance(value, Path) else value
