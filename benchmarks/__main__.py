"""Runs the benchmarks: `python -m benchmarks [--only NAME] [--quick] [--json]`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from . import table
from .measure import BENCHMARKS, Bench, Row
from .themes import THEMES


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="smp-benchmark-", dir=arguments.directory) as directory:
        bench = Bench(Path(directory), arguments.quick)
        if arguments.json:
            rows = [table.as_json(theme, row) for theme, row in _rows(bench, arguments.only)]
            print(json.dumps({"python": platform.python_version(), "cores": os.cpu_count(), "rows": rows}, indent=2))
        else:
            _print(bench, arguments.only)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Our times against the bare operation's.")
    parser.add_argument("--only", action="append", metavar="NAME", help="only the benchmarks whose theme or name has this in it")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds, and nothing above 1 MB")
    parser.add_argument("--json", action="store_true", help="all rows as JSON, times in seconds")
    # Not /tmp, which is often kept in memory, where fsync costs nothing.
    parser.add_argument("--directory", default="/var/tmp", help="where to work; a directory on the disk to measure (%(default)s)")
    parser.add_argument("--list", action="store_true", help="only list the benchmarks")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{benchmark.theme}: {benchmark.name}" for benchmark in BENCHMARKS))
        sys.exit()
    return arguments


def _rows(bench: Bench, only: list[str] | None) -> Iterator[tuple[str, Row]]:
    order = [theme.__name__.rpartition(".")[2] for theme in THEMES]
    for benchmark in sorted(BENCHMARKS, key=lambda benchmark: order.index(benchmark.theme)):
        if not only or any(name in f"{benchmark.theme}: {benchmark.name}" for name in only):
            for row in benchmark.rows(bench):
                yield benchmark.theme, row


def _print(bench: Bench, only: list[str] | None) -> None:
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {bench.directory.parent}. Ours and bare by turns; medians.")
    shown = None
    for theme, row in _rows(bench, only):
        if theme != shown:
            print(f"\n{theme.upper()}\n{table.heading()}")
            shown = theme
        print(table.line(row), flush=True)


main()
