"""Readers of the three other layouts, as somebody would write them who has only their documents. They know nothing of SMP."""

from __future__ import annotations

import hashlib
import json
import math
import re
from datetime import datetime
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


def lines(path: Path) -> list[Entry]:
    """Every line is one complete object, and the last one ends like the others."""
    content = path.read_bytes()
    assert not content or content.endswith(b"\n")
    found = [json.loads(line) for line in content.decode("utf-8").split("\n")[:-1]]
    assert all(isinstance(one, dict) for one in found)
    return found


# 003: one file per session, scanned.

BASE = {"conversation": 1.0, "decision": 0.95, "finding": 0.9, "preference": 0.85}
RATE = {"conversation": 0.05, "decision": 0.03, "finding": 0.04, "preference": 0.02}


def query_single(path: Path, type: str | None = None, topic: str | None = None, min_priority: float = 0) -> list[Entry]:
    """The document's own query."""
    results = []
    for memory in lines(path):
        if memory.get("deleted"):
            continue
        if type and memory["type"] != type:
            continue
        if min_priority and memory["priority"] < min_priority:
            continue
        if topic and topic not in str(memory["data"]):
            continue
        results.append(memory)
    return sorted(results, key=lambda memory: -memory["priority"])


def decayed(memory: Entry, now: datetime) -> float:
    """The document's own decay, which knows four types."""
    days = (now - datetime.fromisoformat(memory["ts"])).days
    return BASE[memory["type"]] * math.exp(-RATE[memory["type"]] * days) + min(0.2, float(memory["access"]) * 0.02)


# 001: a file per kind, with an index.

PER_KIND = ("conversation.jsonl", "decisions.jsonl", "findings.jsonl", "preferences.jsonl")


class PerKindSession:
    """Loads a session as the document's query does: manifest, index, entries by id."""

    def __init__(self, folder: Path) -> None:
        self.manifest: Entry = json.loads((folder / "manifest.json").read_text("utf-8"))
        self.index: Entry = json.loads((folder / "index.json").read_text("utf-8"))
        self.files = {name: lines(folder / name) for name in PER_KIND}
        self.entries = [entry for name in PER_KIND for entry in self.files[name]]
        self.by_id = {entry["id"]: entry for entry in self.entries}
        self.size_bytes = sum((folder / name).stat().st_size for name in PER_KIND)

    def search(self, text: str) -> set[str]:
        """Ids that any of the words leads to."""
        return {found for term in re.findall(r"\w+", text.lower()) for found in self.index["inverted_index"].get(term, [])}

    def check(self) -> None:
        statistics = self.manifest["statistics"]
        assert statistics["total_messages"] == len(self.files["conversation.jsonl"])
        assert statistics["total_decisions"] == len(self.files["decisions.jsonl"])
        assert statistics["total_findings"] == len(self.files["findings.jsonl"])
        assert statistics["size_bytes"] == self.size_bytes
        assert self.index["version"] == 1
        known = {one for one in self.by_id if isinstance(one, (str, int))}
        for part in ("inverted_index", "topic_index", "temporal_index"):
            for key, ids in self.index[part].items():
                assert len(ids) == len(set(ids)) > 0, key
                assert set(ids) <= known, (part, key)
        for hour, ids in self.index["temporal_index"].items():
            assert re.fullmatch(r"\d{4}-\d{2}-\d{2}T\d{2}", hour)
            assert ids


# 004: one log, read at byte offsets.


def checksum(entry: Entry) -> str:
    """Sorted keys, no whitespace, without the checksum itself."""
    bare = {name: value for name, value in entry.items() if name != "checksum"}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode("utf-8")).hexdigest()


class CheckedSession:
    """Reads entries at the places that the index names, and verifies each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.metadata: Entry = json.loads((folder / "metadata.json").read_text("utf-8"))
        self.index: Entry = json.loads((folder / "index.json").read_text("utf-8"))
        self.tombstones = lines(folder / "tombstones.jsonl")
        self.log = lines(folder / "memory.jsonl")

    def read(self, memory_id: str) -> Entry:
        """At its byte offset, up to the end of the line."""
        place = self.index["entries"][memory_id]
        with (self._folder / "memory.jsonl").open("rb") as opened:
            opened.seek(place["byte_offset"])
            entry: Entry = json.loads(opened.readline())
        assert entry["checksum"] == checksum(entry), memory_id
        return entry

    def by_tag(self, tag: str) -> list[Entry]:
        return [self.read(one) for one in self.index["tags"].get(tag, [])]

    def check(self) -> None:
        assert self.index["version"] == 1
        assert self.metadata["total_entries"] == len(self.log)
        files = ("memory.jsonl", "index.json", "tombstones.jsonl")
        assert self.metadata["total_size_bytes"] == sum((self._folder / name).stat().st_size for name in files)
        types = [entry.get("type") for entry in self.log]
        for name in ("conversation", "decision", "finding", "preference"):
            assert self.metadata["statistics"][f"{name}s"] == types.count(name)
        indexed = self.index["entries"]
        assert {str(entry["id"]) for entry in self.log} == set(indexed)
        for memory_id, place in indexed.items():
            entry = self.read(memory_id)
            assert str(entry["id"]) == memory_id
            assert self.log[place["line_number"] - 1] == entry
            for name in ("type", "timestamp", "tags", "importance"):
                assert place[name] == entry.get(name)
            assert memory_id in self.index["types"][entry["type"]]
            for tag in entry.get("tags") or []:
                assert memory_id in self.index["tags"][tag]
        for listed in (*self.index["tags"].values(), *self.index["types"].values()):
            assert set(listed) <= set(indexed)
        gone = {mark["id"] for mark in self.tombstones}
        assert not gone & set(indexed)
