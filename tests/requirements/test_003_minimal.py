"""Document 003, the minimal design: its own data and calls."""

from __future__ import annotations

import json
from pathlib import Path

from smp_client import Memory


def entry(number: int, type: str, priority: float, access: int, **data: str) -> str:
    at = f"2026-01-11T14:3{number - 1}:00Z"
    about = {"id": f"m00{number}", "type": type, "ts": at, "data": data}
    return json.dumps({**about, "priority": priority, "access": access})


LINES = [
    entry(1, "conversation", 1.0, 0, role="user", content="Hello"),
    entry(2, "decision", 0.95, 3, decision="OAuth", by="architect"),
    entry(3, "finding", 0.9, 1, issue="No MFA", severity="critical"),
    entry(4, "preference", 0.85, 5, key="verification_depth", value="thorough"),
]


def test_1_3_a_preference_comes_back_as_it_was(tmp_path: Path) -> None:
    source = tmp_path / "chat-1.jsonl"
    source.write_text("\n".join(LINES) + "\n")
    memory = Memory(tmp_path / "sessions")
    memory.exchange.import_(source)
    memory.exchange.export_layout(tmp_path / "out", layout="jsonl")
    (written,) = (tmp_path / "out").rglob("*.jsonl")
    entries = [json.loads(line) for line in written.read_text().splitlines()]
    (preference,) = [one["data"] for one in entries if one["type"] == "preference"]
    assert (preference["key"], preference["value"]) == ("verification_depth", "thorough")
