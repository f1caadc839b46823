"""Any bytes and any JSON as the input of an import: an outcome or a plain error, no traceback."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from smp_client import Memory, SMPError
from smp_client.exchange.forms import FORMATS

_texts = st.one_of(st.text(max_size=20), st.sampled_from([
    "s1", "DEC-001", "turn-1", "decisions.yaml", "conversation.md", "memory", "../x", "global",
    "2026-01-11T14:30:00Z", "latest", "conversation", "decision", "preference", "\ud800", "\x00",
    "a" * 200, "User: Hi\nAssistant: Ho", "---\nupdated: x\n---\n- (a) b"]))  # fmt: skip
_scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), _texts)
_json = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4),
    max_leaves=10,
)
_keys = st.sampled_from([
    "id", "type", "ts", "data", "timestamp", "content", "checksum", "tags", "references",
    "priority", "access", "decay", "turn", "metadata", "context", "role", "message", "confidence",
    "severity", "status", "importance", "decay_factor", "imported", "deleted", "key", "value",
    "speaker"])  # fmt: skip
_entry = st.dictionaries(_keys, _json, max_size=8)
_named = st.tuples(_entry, st.sampled_from(["DEC-001", "a"])).map(lambda two: {**two[0],
                                                                               "id": two[1]})  # fmt: skip
_files_of_ours = ["decisions.yaml", "conversation.md", "agent-states/a.yaml", "artifacts/a.md", "x"]
_own = st.fixed_dictionaries(
    {"entry": st.sampled_from(["session", "memory", "tombstone", "end"])},
    optional={"session": _texts, "place": _texts, "type": _texts, "metadata": _entry, "id": _texts,
              "file": st.sampled_from(_files_of_ours), "record": _entry | _named, "entries": _json,
              "written_at": _texts})  # fmt: skip
_log_lines = st.sampled_from([
    "User: Hi", "**Bob:** Ho", "```", "Decision: x", "---", "## Turn 1 - 2026-01-11", "# T", "",
    "<!-- smp -->", "- (decision by a) b", "[14:30] a: b", "updated: 2026", "**Speaker:** x",
    "[99:99] user: b", "Participants: a, b"])  # fmt: skip


def dumped(values: list[Any]) -> bytes:
    lines = (json.dumps(value).encode("utf-8", "surrogatepass") + b"\n" for value in values)
    return b"".join(lines)


_lines = st.lists(st.one_of(_entry, _json), max_size=5).map(dumped)
_one = st.lists(_json, min_size=1, max_size=1).map(dumped)
_log = st.one_of(
    st.binary(max_size=300), st.lists(_log_lines, max_size=12).map(lambda log: "\n".join(log).encode())
)
_own_file = st.one_of(_one, st.builds(
    lambda key, value: key + b": " + value, st.sampled_from([b"session", b"decisions"]), _one))  # fmt: skip
_files = {"s1.jsonl": _lines, "memory.jsonl": _lines, "conversation.jsonl": _lines,
          "decisions.jsonl": _lines, "manifest.json": _one, "metadata.json": _one,
          "tombstones.jsonl": _lines, "../../shared/user-preferences.json": _one,
          "talk.md": _log, ".memlog.md": _log, "conversation.md": _log, "metadata.yaml": _own_file,
          "decisions.yaml": _own_file, "artifacts.tar.gz": st.binary(max_size=40)}  # fmt: skip


def imported(source: Path | io.BytesIO, root: Path) -> None:
    """Whatever comes in is in the tree afterwards, and a second import adds nothing."""
    memory = Memory(root)
    try:
        done = memory.exchange.import_(source)
    except SMPError:
        return
    if isinstance(source, io.BytesIO):
        source.seek(0)
    again = memory.exchange.import_(source)
    assert again.counts["added"] == 0, (done, again)
    for session in memory.sessions():
        assert session.problems() == []


@settings(max_examples=50, deadline=None)
@given(st.lists(_own, max_size=5))
def test_any_export(entries: list[Any]) -> None:
    end = {"entry": "end", "entries": len(entries)}
    content = dumped([{"smp_export": 1}, *entries, end])
    with tempfile.TemporaryDirectory() as directory:
        imported(io.BytesIO(content), Path(directory) / "sessions")


@settings(max_examples=50, deadline=None)
@given(st.fixed_dictionaries({}, optional=_files))
def test_any_json_or_log_in_any_layout(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory) / "in/sessions/s1"
        folder.mkdir(parents=True)
        (folder.parent.parent / "shared").mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        imported(folder.parent.parent, Path(directory) / "sessions")


@settings(max_examples=25, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 2000), st.sampled_from(FORMATS))
def test_an_export_with_damaged_bytes(noise: bytes, at: int, form: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        memory = Memory(Path(directory) / "source")
        memory.create_session(id="s1").record_decision("Use OAuth", made_by="a")
        stream = io.BytesIO()
        memory.exchange.export(stream, format=form)
        content = stream.getvalue()
        place = at % len(content)
        damaged = content[:place] + noise + content[place + len(noise) :]
        imported(io.BytesIO(damaged), Path(directory) / "out")
