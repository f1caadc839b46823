"""Four times the input takes about four times the steps, by every way in, whatever the input is.

Steps are counted and no time is measured: calls of functions, those of Python included, and what
a method looks at that reads a whole text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from smp_client import Memory, Session
from smp_client.model.record import kind_of_file
from smp_client.passes.check import check

Work = Callable[[], object]
Text = Callable[[int], str]
READS_ALL = ("strip", "lstrip", "rstrip", "split", "splitlines", "partition", "lower", "encode",
             "decode")  # fmt: skip
STAMP = "timestamp: 2026-01-01T00:00:00Z"


def steps(work: Work) -> int:
    counted = 0

    def note(_frame: FrameType, event: str, called: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")
        if event == "c_call" and called.__name__ in READS_ALL:
            counted += len(called.__self__) // 16 if isinstance(called.__self__, str | bytes) else 0

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


def require_proportion(make: Callable[[int], Work], size: int) -> None:
    make(size // 4)()  # what is loaded and cached by the first is not counted
    few, many = (steps(make(times * size)) for times in (1, 4))
    assert many < 6 * few, f"{few:,} steps at {size:,}, {many:,} at {4 * size:,}"


def finding(number: int, *more: str) -> str:
    head = f"  - id: FIND-{number:03d}\n    {STAMP}\n    discovered_by: a\n    finding: f{number}\n"
    return head + "".join(f"    {line}\n" for line in more)


def findings(of: Callable[[int], str]) -> Text:
    return lambda size: "version: 1\nfindings:\n" + "".join(map(of, range(1, size + 1)))


SAID: dict[str, Text] = {
    "placeholders": lambda size: "[redacted: api key] password=Hunter2x9 " * size,
    "keys that begin": lambda size: "-----BEGIN PRIVATE KEY-----\n" * size,
    "lines like turns": lambda size: "## Turn 1\n---\n" * size,
}
YAML: dict[str, Text] = {
    "records": findings(finding),
    "ids alone, unfinished": lambda size: "findings:\n" + "  - id: b\n" * size + "  - id: 'c",
    "unreadable": findings(lambda _: "  - a: [b\n"),
    "many keys": lambda size: "findings:\n" + finding(1, *(f"k{n}: v" for n in range(size))),
    "flow style": lambda size: "findings: [" + "{id: F, finding: x}, " * size + "]\n",
    "brackets": lambda size: "findings: " + "[" * size,
    "blank lines": lambda size: "findings:\n" + finding(1) + "\n" * 20 * size + "x",
}
MARKDOWN: dict[str, Text] = {
    "turns": lambda size: "".join(
        f"## Turn {number} - 2026-01-01 10:00:00\n\nhi\n\n---\n\n" for number in range(1, size)
    ),
    "headings": lambda size: "## Turn 1\n" * size,
    "rules": lambda size: "## Turn 1\n\n" + "---\n" * size + "x\n",
    "nested": lambda size: "## Turn 1\n**Fields:** " + "[" * size,
}
FILES = {f"findings.yaml {name}": text for name, text in YAML.items()}
FILES |= {f"conversation.md {name}": text for name, text in MARKDOWN.items()}


@pytest.fixture
def trees(tmp_path: Path) -> Callable[..., Session]:
    """Makes a session in a tree of its own, with a file of this content."""
    number = iter(range(1000))

    def made(file: str = "notes.md", content: str = "") -> Session:
        memory = Memory(tmp_path / str(next(number)))
        session = memory.create_session(id="s1", quota_bytes=1 << 30)
        (memory.root / "active/s1" / file).write_text(content)
        return session

    return made


@pytest.mark.parametrize("said", SAID)
def test_a_memory_is_added(trees: Callable[..., Session], said: str) -> None:
    def make(size: int) -> Work:
        session, text = trees(), SAID[said](size)
        return lambda: session.record_finding(text, discovered_by="a")

    require_proportion(make, 500)


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read(trees: Callable[..., Session], name: str) -> None:
    def make(size: int) -> Work:
        session = trees(name.partition(" ")[0], FILES[name](size))
        return lambda: check(session.memory)

    require_proportion(make, 200)


@pytest.mark.parametrize(("file", "head", "unfinished"), [
    ("findings.yaml", "findings:\n", "  - id: FIND-001 # smp\n"),
    ("conversation.md", "", "<!-- smp -->\n## Turn 1\n"),
])  # fmt: skip
def test_what_nobody_finished_is_set_aside_at_once(
    trees: Callable[..., Session], file: str, head: str, unfinished: str
) -> None:
    def make(size: int) -> Work:
        session, kind = trees(file, head + unfinished * size), kind_of_file(file)
        fields = {kind.text: "x", kind.actor: "a", "severity": "low", "type": "message"}
        return lambda: session.record(kind, fields)

    require_proportion(make, 200)
