"""The cost of an import from the other layouts.

An import reads, renders and writes each entry once; nothing is locked or indexed for a single one.
So it stands beside two bare operations: the lines parsed and the bytes written, and the same with
every record rendered in between. Beyond that, an import names the fields and looks for secrets.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from smp_client import Memory
from smp_client.exchange.layouts.jsonl_checked import checksums
from smp_client.model.record import SESSION_KINDS, Kind
from smp_client.text.format import format_of
from smp_client.text.values import Value

from .measure import Bench, Row, Target, benchmark

ENTRIES_A_SECOND = 10_000
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
    few, many = (1_000, 1_000) if bench.quick else (10_000, 100_000)
    for layout, source, count in (
        ("one file per session", _source(bench.directory / f"s{few}.jsonl", few), few),
        ("a file per kind", _per_kind(bench.directory / "per-kind" / "s1", few), few),
        ("a log with checksums", _checked(bench.directory / "checked" / "s1", few), few),
        *(() if many == few else (("one file per session", _source(bench.directory / f"s{many}.jsonl", many), many),)),
    ):
        trees = bench.directory / "trees"
        written, records = _written(trees / "first", source)
        rounds = 3 if count > 10_000 else 9
        ours = partial(_import, trees, source)
        target = trees / "bare"
        for name, bare in (("lines parsed, bytes written", partial(_parse_and_write, source, written, target)),
                           ("and records rendered", partial(_parse_and_render, source, records, written, target))):  # fmt: skip
            times = bench.compare(ours, bare, rounds=rounds)
            note = f"{count / times[0].median_s:,.0f} a second"
            limit = Target(seconds=count / ENTRIES_A_SECOND)
            yield Row(f"import of {layout}", f"{count:,} entries", name, *times, limit, note)
        shutil.rmtree(trees)


# What is imported.


def _said(count: int) -> Iterator[tuple[int, str, str, dict[str, str]]]:
    """Of each entry its number, its kind, when it was and what it says."""
    for number, kind in zip(range(count), itertools.cycle(_KINDS), strict=False):
        yield number, kind, f"2026-01-11T14:{number // 60 % 60:02d}:{number % 60:02d}Z", _SAID[kind](number)


def _source(path: Path, count: int) -> Path:
    return _lines(path, ({"id": f"m{number:06d}", "type": kind, "ts": at, "data": said, "priority": 0.9, "access": 1}
                         for number, kind, at, said in _said(count)))  # fmt: skip


def _per_kind(folder: Path, count: int) -> Path:
    for kind, name in (("conversation", "conversation"), ("decision", "decisions"), ("finding", "findings"),
                       ("preference", "preferences")):  # fmt: skip
        entries = ({"id": f"{kind}-{number}", "timestamp": at, "decay_factor": 1.0, "access_count": 1, **said}
                   for number, one, at, said in _said(count) if one == kind)  # fmt: skip
        _lines(folder / f"{name}.jsonl", entries)
    (folder / "manifest.json").write_text(json.dumps({"session_id": folder.name, "version": "1.0"}))
    return folder


def _checked(folder: Path, count: int) -> Path:
    entries = ({"id": f"mem_{number:06d}", "session_id": folder.name, "timestamp": at, "type": kind, "content": said,
                "importance": 0.9, "decay_factor": 1.0, "tags": [], "references": []}
               for number, kind, at, said in _said(count))  # fmt: skip
    _lines(folder / "memory.jsonl", ({**entry, "checksum": next(checksums(entry))} for entry in entries))
    (folder / "metadata.json").write_text(json.dumps({"session_id": folder.name}))
    return folder


def _lines(path: Path, entries: Iterable[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


# Ours, and the bare operations.


def _written(root: Path, source: Path) -> tuple[bytes, list[tuple[Kind, dict[str, Value]]]]:
    """The bytes of all record files that the import makes, and their records."""
    Memory(root).exchange.import_(source)
    contents = [(kind, (root / "active" / source.stem / kind.file)) for kind in SESSION_KINDS]
    held = [(kind, path.read_bytes()) for kind, path in contents if path.exists()]
    records = [(kind, record.value) for kind, content in held for record in format_of(kind).parse(content).records]
    return b"".join(content for _, content in held), records


def _import(trees: Path, source: Path) -> None:
    gc.disable()  # as `smp import` does
    try:
        done = Memory(trees / str(next(_counter))).exchange.import_(source)
    finally:
        gc.enable()
    assert done.counts["added"]
    assert not done.problems


def _write(content: bytes, path: Path) -> None:
    with path.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())


def _parse(source: Path) -> None:
    for file in sorted(source.glob("*.jsonl")) if source.is_dir() else [source]:
        for line in file.read_bytes().splitlines():
            json.loads(line)


def _parse_and_write(source: Path, written: bytes, path: Path) -> None:
    _parse(source)
    _write(written, path)


def _parse_and_render(source: Path, records: list[tuple[Kind, dict[str, Value]]], written: bytes, path: Path) -> None:
    _parse(source)
    rendered = b"".join(format_of(kind).render(value, 2) for kind, value in records)
    assert len(rendered) <= len(written)
    _write(written, path)
