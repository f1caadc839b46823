"""What it costs to turn bytes into records and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import yaml

from smp_client.model.record import DECISION, TURN
from smp_client.text.document import RecordList
from smp_client.text.format import format_of
from smp_client.text.markdown import Conversation
from smp_client.text.yaml_list import YamlList, parse

from .measure import Bench, Row, Timing, benchmark
from .samples import content, count_in, megabyte_label, rendered


@benchmark("parse a record file")
def parse_file(bench: Bench) -> Iterator[Row]:
    for megabytes in bench.megabytes(1, 10):
        text = content(DECISION, count_in(DECISION, megabytes))
        for against, bare in (("libyaml's events", _events), ("yaml.load(CSafeLoader)", _load)):
            times = bench.compare(partial(parse, text, DECISION.key), partial(bare, text), rounds=10 if megabytes <= 1 else 3)
            yield Row("parse decisions", megabyte_label(megabytes), against, *times, note=_speeds(len(text), times))


@benchmark("parse a conversation")
def parse_turns(bench: Bench) -> Iterator[Row]:
    for megabytes in bench.megabytes(1, 10):
        text = content(TURN, count_in(TURN, megabytes))
        times = bench.compare(partial(Conversation().parse, text), partial(_split, text), rounds=10 if megabytes <= 1 else 3)
        yield Row("parse turns", megabyte_label(megabytes), "split into lines", *times, note=_speeds(len(text), times))


@benchmark("parse an appended tail")
def parse_appended(bench: Bench) -> Iterator[Row]:
    for megabytes in bench.megabytes(0, 1, 10):
        before = content(DECISION, count_in(DECISION, megabytes))
        added = rendered(DECISION, count_in(DECISION, megabytes) + 1)
        times = bench.compare(partial(_tail, before + added, len(before)), partial(_events, added), rounds=500)
        speeds = _speeds(len(added), times)
        yield Row("parse one more decision", megabyte_label(megabytes), "its libyaml events", *times, note=speeds)


@benchmark("render")
def render(bench: Bench) -> Iterator[Row]:
    text = rendered(DECISION, 1)
    value = _tail(text, 0).records[0].value
    times = bench.compare(partial(YamlList(DECISION).render, value, 2), partial(_dump, [value]), rounds=2000)
    yield Row("render one decision", f"{len(text)} bytes", "yaml.dump(CSafeDumper)", *times, note=_speeds(len(text), times))


def _tail(text: bytes, offset: int) -> RecordList:
    return format_of(DECISION).parse_tail(text, offset, 2)


def _events(text: bytes) -> None:
    next_event: Callable[[], Any] = yaml.CSafeLoader(text.decode()).get_event
    while type(next_event()) is not yaml.StreamEndEvent:
        pass


def _load(text: bytes) -> object:
    return yaml.load(text, Loader=yaml.CSafeLoader)


def _dump(value: object) -> bytes:
    return yaml.dump(value, Dumper=yaml.CSafeDumper, encoding="utf-8", sort_keys=False)


def _split(text: bytes) -> list[str]:
    return text.decode().split("\n")


def _speeds(size: int, times: tuple[Timing, Timing]) -> str:
    ours, bare = (f"{size / timing.median_s / 1e6:.3g}" for timing in times)
    return f"{ours} against {bare} MB/s"
