"""Settings as a file holds them: `config/smp.yaml`, and the values in effect."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from smp_client.model.priority import Rule
from smp_client.text.values import Value, render_flow

from . import location
from .settings import SETTINGS, Configuration


def sample() -> str:
    """Return `config/smp.yaml`: every setting with its default and its sentence."""
    head = (
        "The settings of SMP with their defaults, as `smp config sample` prints them."
        " Keep only the lines that you change. Found at: smp --config FILE, the variable"
        " SMP_CONFIG, ~/.config/smp/smp.yaml ($XDG_CONFIG_HOME; on macOS"
        f" ~/Library/Application Support/smp/smp.yaml), {location.SYSTEM_FILE}."
        " `smp config check` names every mistake in it."
    )
    lines = _comment(head, "")
    section = ""
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
