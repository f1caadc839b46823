"""The rows as a table for people, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .measure import Row

HEADER = ("what", "size", "ours", "p99", "bare", "p99", "ratio", "target", "held", "against")
WIDTHS = (34, 21, 9, 9, 9, 9, 8, 12, 5, 0)


def heading() -> str:
    return _line(HEADER)


def line(row: Row) -> str:
    held = {True: "yes", False: "NO", None: ""}[row.held]
    times = [_amount(value, row.unit) for timing in (row.ours, row.bare) for value in (timing.median_s, timing.p99_s)]
    against = row.against + (f"  ({row.note})" if row.note else "")
    return _line((row.name, row.size, *times, f"{row.ratio:.2f} x", str(row.target or ""), held, against))


def as_json(theme: str, row: Row) -> dict[str, Any]:
    return {"theme": theme, **asdict(row), "ratio": row.ratio, "target": str(row.target) if row.target else None, "held": row.held}


def _line(cells: tuple[str, ...]) -> str:
    first, *others = (f"{cell:<{width}}" if index in (0, 1, 9) else f"{cell:>{width}}"
                      for index, (cell, width) in enumerate(zip(cells, WIDTHS, strict=True)))  # fmt: skip
    return "  ".join([first, *others]).rstrip()


def _amount(value: float, unit: str) -> str:
    return _time(value) if unit == "s" else f"{value:.3g} {unit}"


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}" if seconds * factor < 100 else f"{seconds * factor:.0f} {unit}"
    return f"{seconds * 1e9:.0f} ns"
