"""`sessions/{session}/memory.jsonl` with checksums, its metadata, tombstones, and an index that knows where each entry begins."""

from __future__ import annotations

import json
from typing import Any

from .. import checked, own, shaping
from ..checked import INDEX, MEMORY, METADATA, TOMBSTONES
from ..shaping import Values
from .entries import CHECKED
from .sessions import Held, Lines
from .shared import Shared
from .target import Target

_COUNTED = {"conversation": "conversations", "decision": "decisions", "finding": "findings", "preference": "preferences"}
_MADE_HERE = frozenset(("id", "created_at", "last_accessed", "status", "participants", "context", "decay_config",
                        "compaction_config", "preferences", "statistics", shaping.IMPORTED))  # fmt: skip
_USUAL_CONFIG: Values = {
    "version": "1.0",
    "storage": {"root_directory": "./memory", "max_session_size_mb": 10, "compaction_threshold": 0.9, "auto_compact": True},
    "concurrency": {"lock_timeout_ms": 5000, "max_retries": 3, "retry_backoff_ms": 100},
    "decay": {"enabled": True, "update_interval_minutes": 60, "min_decay_factor": 0.1,
              "type_specific": {"conversation": {"half_life_hours": 168}, "decision": {"half_life_hours": 720},
                                "finding": {"half_life_hours": 336}, "preference": {"decay_enabled": False}}},
    "performance": {"cache_size": 100, "batch_write_interval_ms": 1000, "index_in_memory": True},
    "integrity": {"enable_checksums": True, "checksum_algorithm": "sha256"},
}  # fmt: skip
_INDEXED = ("type", "timestamp", "tags", "importance")
_USUAL_DECAY: Values = {"enabled": True, "half_life_hours": 168, "min_decay_factor": 0.1}


class CheckedLayout:
    way = CHECKED

    def __init__(self, target: Target, now: str) -> None:
        self._target, self._now = target, now
        self.shared = Shared(CHECKED.layout)
        self.entries = 0
        self._sessions: dict[str, Values] = {}
        self._topics: dict[str, dict[str, None]] = {}
        target.make_directory("sessions")

    def session(self, held: Held, name: str, marks: list[Values]) -> None:
        folder = f"sessions/{name}"
        self._target.make_directory(folder)
        forms = _forms(held)
        counts = dict.fromkeys(_COUNTED.values(), 0)
        with self._target.lines(f"{folder}/{MEMORY}") as log, self._target.lines(f"{folder}/{INDEX}") as file:
            index = _Index(file, self._now)
            for _, entry in held.entries(CHECKED, name):
                entry["checksum"] = checked.checksum(entry, forms.get(entry.get("id"), "canonical"))
                index.add(entry, *log.add(entry))
                if isinstance(sort := entry.get("type"), str) and sort in _COUNTED:
                    counts[_COUNTED[sort]] += 1
            index.finish()
        with self._target.lines(f"{folder}/{TOMBSTONES}") as tombstones:
            written: list[Any] = []  # two memories that had one id were deleted by one mark
            for mark in marks:
                key = mark.get("id")
                # Where the id was given again since, it would delete that one.
                if mark not in written and (not isinstance(key, (str, int)) or key not in held.live):
                    tombstones.add(mark)
                    written.append(mark)
        self.entries += log.count
        metadata = self._metadata(held, name, counts)
        metadata |= {"total_entries": log.count, "total_size_bytes": log.bytes + file.bytes + tombstones.bytes}
        self._target.put_json(f"{folder}/{METADATA}", metadata)
        for other, content in held.files.items():
            if other not in checked.FILES:
                self._target.put(f"{folder}/{other}", content)
        about = ("user_id", "created_at", "last_accessed", "total_entries", "total_size_bytes")
        self._sessions[name] = {part: metadata.get(part) for part in about}
        for tag in index.tags:
            self._topics.setdefault(tag, {})[name] = None

    def _metadata(self, held: Held, name: str, counts: dict[str, int]) -> Values:
        session = held.session
        metadata = checked.metadata_of(session)
        metadata.setdefault("session_id", name)
        if held.notes.get("layout") != CHECKED.layout:
            metadata |= {"session_id": name, "version": 1, "user_id": metadata.get("user_id") or shaping.UNKNOWN}
            metadata["created_at"] = metadata.get("created_at") or held.first
            metadata["last_accessed"] = metadata.get("last_accessed") or metadata["created_at"]
            metadata = {"decay_config": _USUAL_DECAY, "preferences": {}, **metadata}
        known = metadata.get("statistics")
        metadata["statistics"] = {**(known if isinstance(known, dict) else {}), **counts}
        if held.metadata and (held.notes.get("layout") != CHECKED.layout or session.keys() - _MADE_HERE):
            metadata[own.FIELD] = {"metadata": held.metadata}
        return metadata

    def finish(self) -> None:
        self._target.make_directory("indices")
        head: Values = {"version": 1, "last_updated": self._now}
        self._target.put_json("indices/global_index.json", {**head, "sessions": self._sessions})
        topics = {tag: list(names) for tag, names in sorted(self._topics.items())}
        self._target.put_json("indices/topic_index.json", {**head, "topics": topics})
        config = json.dumps(_USUAL_CONFIG, indent=2).encode() + b"\n"
        self._target.put("config.json", self.shared.config or config)


class _Index:
    """Written while the log is: an entry of it is not held, only which ids a tag and a type have."""

    def __init__(self, out: Lines, now: str) -> None:
        self._out = out
        self._seen: set[str] = set()
        self.tags: dict[str, dict[str, None]] = {}
        self._types: dict[str, list[str]] = {}
        out.write(f'{{"version":1,"last_updated":{json.dumps(now)},"entries":{{')

    def add(self, entry: Values, number: int, offset: int) -> None:
        key = entry.get("id")
        if not isinstance(key, (str, int)) or str(key) in self._seen:
            return
        key = str(key)
        importance, factor = (shaping.share(entry.get(name), 1.0) for name in ("importance", "decay_factor"))
        tags = entry.get("tags")
        told = {"line_number": number, "byte_offset": offset, **{name: entry.get(name) for name in _INDEXED},
                "current_relevance": round(importance * factor, 4)}  # fmt: skip
        self._out.write(("," if self._seen else "") + f"\n{_text(key)}:{_text(told)}")
        self._seen.add(key)
        for tag in tags if isinstance(tags, list) else []:
            if isinstance(tag, str):
                self.tags.setdefault(tag, {})[key] = None
        if isinstance(sort := entry.get("type"), str):
            self._types.setdefault(sort, []).append(key)

    def finish(self) -> None:
        tags = {tag: list(ids) for tag, ids in sorted(self.tags.items())}
        self._out.write(f'}},\n"tags":{_text(tags)},\n"types":{_text(self._types)}}}\n')


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _forms(held: Held) -> dict[Any, str]:
    """Which way of taking a checksum the program had from which it came, by id."""
    return {key: form for key, form in held.forms.items() if form in checked.FORMS}
