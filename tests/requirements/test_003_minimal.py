"""Document 003, the minimal design: its own data and calls."""

from __future__ import annotations

import json
from pathlib import Path

from smp_client import Memory

LINES = """
{"id":"m001","type":"conversation","ts":"2026-01-11T14:30:00Z","data":{"role":"user","content":"Hello"},"priority":1.0,"access":0}
{"id":"m002","type":"decision","ts":"2026-01-11T14:31:00Z","data":{"decision":"Use OAuth","by":"architect"},"priority":0.95,"access":3}
{"id":"m003","type":"finding","ts":"2026-01-11T14:32:00Z","data":{"issue":"Missing MFA","severity":"critical"},"priority":0.9,"access":1}
{"id":"m004","type":"preference","ts":"2026-01-11T14:33:00Z","data":{"key":"verification_depth","value":"thorough"},"priority":0.85,"access":5}
"""


def test_1_3_a_preference_comes_back_as_it_was(tmp_path: Path) -> None:
    source = tmp_path / "chat-1.jsonl"
    source.write_text(LINES.lstrip())
    memory = Memory(tmp_path / "sessions")
    memory.exchange.import_(source)
    memory.exchange.export_layout(tmp_path / "out", layout="jsonl")
    (written,) = (tmp_path / "out").rglob("*.jsonl")
    entries = [json.loads(line) for line in written.read_text().splitlines()]
    (preference,) = [one["data"] for one in entries if one["type"] == "preference"]
    assert (preference["key"], preference["value"]) == ("verification_depth", "thorough")
