"""What it costs to bring memories in from another layout.

An import reads, renders and writes each entry once; nothing is locked or indexed for a single one. So it stands beside two bare
operations: the lines parsed and the bytes that came of them written, and the same with every record rendered in between.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from smp_client import Memory
from smp_client.exchange.pieces import render
from smp_client.formats import format_of
from smp_client.records import SESSION_KINDS, Kind
from smp_client.values import Value

from .measure import Bench, Row, benchmark

_SAID: dict[str, Callable[[int], dict[str, str]]] = {
    "conversation": lambda number: {"role": "user", "content": f"Message {number}: what does the checkout ask of a new customer?"},
    "decision": lambda number: {"decision": f"Use OAuth 2.0 for part {number}", "by": "architect",
                                "rationale": "Everybody knows it, and there are libraries for it"},
    "finding": lambda number: {"issue": f"No second factor in part {number}", "severity": "critical"},
    "preference": lambda number: {"key": f"depth_{number}", "value": "thorough"},
}  # fmt: skip
_KINDS = ("conversation", "conversation", "conversation", "decision", "conversation", "finding", "conversation", "preference")
_counter = itertools.count()


@benchmark("import")
def import_layout(bench: Bench) -> Iterator[Row]:
    for count in (1_000,) if bench.quick else (10_000, 100_000):
        source = _source(bench.directory / f"s{count}.jsonl", count)
        trees = bench.directory / f"trees-{count}"
        written, records = _written(trees / "first", source)
        rounds = 3 if count > 10_000 else 9
        ours = partial(_import, trees, source)
        target = trees / "bare"
        for name, bare in (("lines parsed, bytes written", partial(_parse_and_write, source, written, target)),
                           ("and records rendered", partial(_parse_and_render, source, records, written, target))):  # fmt: skip
            times = bench.compare(ours, bare, rounds=rounds)
            note = f"{count / times[0].median_s:,.0f} a second"
            yield Row("import of one file per session", f"{count:,} entries", name, *times, note=note)
        shutil.rmtree(trees)


def _source(path: Path, count: int) -> Path:
    lines = ({"id": f"m{number:06d}", "type": kind, "ts": f"2026-01-11T14:{number // 60 % 60:02d}:{number % 60:02d}Z",
              "data": _SAID[kind](number), "priority": 0.9, "access": 1}
             for number, kind in zip(range(count), itertools.cycle(_KINDS), strict=False))  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _written(root: Path, source: Path) -> tuple[bytes, list[tuple[Kind, dict[str, Value]]]]:
    """The bytes of all record files that the import makes, and their records."""
    Memory(root).import_(source)
    contents = [(kind, (root / "active" / source.stem / kind.file)) for kind in SESSION_KINDS]
    held = [(kind, path.read_bytes()) for kind, path in contents if path.exists()]
    records = [(kind, record.value) for kind, content in held for record in format_of(kind).parse(content).records]
    return b"".join(content for _, content in held), records


def _import(trees: Path, source: Path) -> None:
    done = Memory(trees / str(next(_counter))).import_(source)
    assert done.added
    assert not done.problems


def _write(content: bytes, path: Path) -> None:
    with path.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())


def _parse(source: Path) -> None:
    for line in source.read_bytes().splitlines():
        json.loads(line)


def _parse_and_write(source: Path, written: bytes, path: Path) -> None:
    _parse(source)
    _write(written, path)


def _parse_and_render(source: Path, records: list[tuple[Kind, dict[str, Value]]], written: bytes, path: Path) -> None:
    _parse(source)
    rendered = b"".join(render(kind, value) for kind, value in records)
    assert len(rendered) <= len(written)
    _write(written, path)
