"""`sessions/{session}/` with a file per kind, a manifest and an index of words, topics and hours; `shared/`, `archive/`,
`config.json`.

An archived session is packed as the layout does it, with its manifest beside it. What was deleted has no place here.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from ....files import sync
from ....records import FINDING, TURN, Kind
from ....timestamps import parse_time, render_time
from ...entries import ARCHIVED
from .. import own, per_kind, shaping
from ..per_kind import KINDS, MANIFEST
from ..shaping import Values
from .entries import PER_KIND
from .sessions import Held, dense
from .shared import Shared
from .target import Target

INDEX = "index.json"
_FILE_OF = {kind.name: name for name, kind in KINDS.items()}
_COUNTED = {"conversation.jsonl": "total_messages", "decisions.jsonl": "total_decisions", "findings.jsonl": "total_findings"}
_NO_WORDS = frozenset(("id", "timestamp", "decay_factor", "references", "learned_from", "last_accessed", "last_decay_update",
                       "access_count", "conversation_id", "parent_message_id", "role", own.FIELD))  # fmt: skip
_WORD = re.compile(r"\w+")
_MADE_HERE = frozenset(("id", "created_at", "last_accessed", "status", "participants", "context", "statistics", shaping.IMPORTED))
_USUAL_CONFIG: Values = {
    "memory_config": {
        "version": "1.0",
        "storage": {"root_path": ".bmad/memory", "format": "jsonl", "encoding": "utf-8", "max_session_size_mb": 10,
                    "compression": {"enabled": False, "algorithm": "gzip"}},
        "concurrency": {"lock_timeout_ms": 5000, "lock_retry_interval_ms": 100, "max_concurrent_writes": 10},
        "indexing": {"enabled": True, "update_strategy": "incremental", "rebuild_threshold_writes": 1000, "cache_size_mb": 5},
        "decay": {"enabled": True, "update_interval_hours": 24, "minimum_factor": 0.1,
                  "rates": {"conversation": 0.1, "decision": 0.02, "finding": 0.05, "preference": 0.01}},
        "compaction": {"enabled": True, "trigger_threshold_mb": 9, "keep_percentage": 0.8, "strategy": "relevance_based"},
        "privacy": {"auto_redaction": True, "auto_purge": True, "audit_deletions": True,
                    "retention_days": {"conversation": 90, "decision": 365, "finding": 180, "preference": 730}},
        "performance": {"batch_write_size": 100, "index_cache_ttl_seconds": 300, "lazy_load": True},
    }
}  # fmt: skip


class PerKindLayout:
    way = PER_KIND

    def __init__(self, target: Target, now: str) -> None:
        self._target, self._now = target, now
        self.shared = Shared(PER_KIND.layout)
        self.entries = 0
        target.make_directory("sessions")

    def session(self, held: Held, name: str, marks: list[Values]) -> None:
        folder = f"sessions/{name}"
        self._target.make_directory(folder)
        index = Index()
        with ExitStack() as opened:
            files = {file: opened.enter_context(self._target.lines(f"{folder}/{file}")) for file in KINDS}
            for kind, entry in held.entries(PER_KIND, name):
                files[_FILE_OF.get((kind or FINDING).name, _FILE_OF[FINDING.name])].add(entry)
                index.add(kind or FINDING, entry)
        self.entries += sum(lines.count for lines in files.values())
        manifest = self._manifest(held, name)
        counts = {_COUNTED[file]: lines.count for file, lines in files.items() if file in _COUNTED}
        known = manifest.get("statistics")
        manifest["statistics"] = {
            **(known if isinstance(known, dict) else {}), **counts, "size_bytes": sum(lines.bytes for lines in files.values()),
            "last_accessed": manifest.get("updated_at"),
        }  # fmt: skip
        self._target.put_json(f"{folder}/{MANIFEST}", manifest)
        told = {"session_id": name, "created_at": self._now, **index.told(), "version": 1}
        self._target.put(f"{folder}/{INDEX}", dense(told) + b"\n")
        for file, content in held.files.items():
            if file not in per_kind.FILES:
                self._target.put(f"{folder}/{file}", content)
        if marks:
            held.leave_out("the fact that memories were deleted")
        if held.place == ARCHIVED:
            self._pack(held, name, folder, manifest)

    def _manifest(self, held: Held, name: str) -> Values:
        session = held.session
        manifest = per_kind.manifest_of(session)
        manifest.setdefault("session_id", name)
        if held.notes.get("layout") != PER_KIND.layout:
            manifest |= {"session_id": name, "version": "1.0"}
            manifest["created_at"] = manifest.get("created_at") or held.first
            manifest["updated_at"] = manifest.get("updated_at") or manifest["created_at"]
        if held.metadata and (held.notes.get("layout") != PER_KIND.layout or session.keys() - _MADE_HERE):
            manifest[own.FIELD] = {"metadata": held.metadata}
        return manifest

    def _pack(self, held: Held, name: str, folder: str, manifest: Values) -> None:
        """As the layout puts a session away: packed, and what is known of it beside."""
        self._target.make_directory("archive")
        packed = f"archive/{name}.tar.gz"
        files = [*KINDS, MANIFEST, INDEX, *(file for file in held.files if file not in per_kind.FILES)]
        with (
            self._target.open_archive(packed) as raw,
            gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as compressed,
            tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for file in files:
                content = self._target.read(f"{folder}/{file}")
                member = tarfile.TarInfo(f"{name}/{file}")
                member.size, member.mode = len(content), 0o600
                archive.addfile(member, io.BytesIO(content))
            archive.close()
            compressed.close()
            raw.flush()
            sync(raw.fileno())
        size = sum(self._target.size(f"{folder}/{file}") for file in files)
        told = {"archived_at": held.summary.get("archived_at"), "original_size_bytes": size,
                "compressed_size_bytes": self._target.size(packed)}  # fmt: skip
        self._target.put_json(f"archive/{name}.manifest.json", {**manifest, **told})
        self._target.remove(folder)

    def finish(self) -> None:
        for name, document in self.shared.documents(self._now).items():
            self._target.make_directory("shared")
            self._target.put_json(f"shared/{name}", document)
        self.entries += self.shared.count
        self._target.put("config.json", self.shared.config or dense(_USUAL_CONFIG) + b"\n")


@dataclass
class Index:
    """Which entries a word, a topic, an hour leads to."""

    words: dict[str, dict[Any, None]] = field(default_factory=dict)
    topics: dict[str, dict[Any, None]] = field(default_factory=dict)
    hours: dict[str, dict[Any, None]] = field(default_factory=dict)

    def add(self, kind: Kind, entry: Values) -> None:
        key = entry.get("id")
        if not isinstance(key, (str, int)):
            return
        for text in _texts(entry):
            for word in set(_WORD.findall(text.lower())):
                self.words.setdefault(word, {})[key] = None
        for topic in _topics(kind, entry):
            self.topics.setdefault(topic, {})[key] = None
        if (at := shaping.time_of(entry.get("timestamp"))) is not None:
            self.hours.setdefault(render_time(parse_time(at))[:13], {})[key] = None

    def told(self) -> Values:
        parts = {"inverted_index": self.words, "topic_index": self.topics, "temporal_index": self.hours}
        return {name: {key: list(ids) for key, ids in sorted(part.items())} for name, part in parts.items()}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, part in value.items():
            if name not in _NO_WORDS:
                yield from _texts(part)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _topics(kind: Kind, entry: Values) -> Iterator[str]:
    around, tags = entry.get("context"), entry.get("tags")
    named = [around.get("topic") if kind is TURN and isinstance(around, dict) else None, entry.get("topic")]
    named += tags if isinstance(tags, list) else []
    named += [entry.get("category")] if kind is not TURN else []
    yield from (topic for topic in named if isinstance(topic, str) and topic)
