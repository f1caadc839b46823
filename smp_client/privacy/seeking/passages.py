"""Where a text stands in the content of a file: in which memory, in which of its fields, and on which line.

A text can stand in a value and not in its bytes, since YAML and JSON escape and fold, and in the bytes and not in a value, as in a
comment or in what cannot be read at all. So both are looked through, and what stands in both is told once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import SMPError
from ...records import kind_of_file
from ...scopes import ARTIFACTS, SUMMARY
from ...session_files import parse_artifact
from ...text.document import Bad, Lines
from ...text.format import format_of
from ...text.values import BadYaml, decode, load
from ..deleting.standing import holds_memories, id_of_file, is_record_file, type_of_file
from .needle import Excerpt, Needle, Span, excerpt

UNREADABLE = "unreadable"
_FEW = 200  # places of one memory, of which each is compared with each
_AROUND_CHARACTERS = 8
_NO_LEAVES = ("decay",)  # made up for a turn that nobody has read, and without content in any other case
# What every record has because of the format, and not because of what it says.
FIELDS = frozenset("""
    id timestamp version session decay priority base_priority last_accessed access_count tags turn_ref turn confidence pinned
    updated_at decision decisions made_by rationale agreed_by agents_involved alternatives_considered option rejected_because
    reversible implementation_impact finding findings discovered_by severity category location artifact section line_numbers
    impact root_cause resolution status resolved_at resolved_by action_taken verification next_steps preference preferences
    topic context source applies_to projects domains created_by learning learnings learned_by pattern patterns target
    relationship memory_relationships memory_refs references speaker type content last_id history state agent_state agent_id
    session_id last_updated user_profile created_at storage total_bytes quota_bytes utilization_pct last_compaction
    current_priority decay_rate last_decay_update participants user_id agents message_count last_active project_name
    project_phase primary_topic redacted
""".split())  # fmt: skip  # noqa: SIM905  # so many in quotes could not be read
_OF_THE_FORMAT = re.compile(
    r"<!-- smp -->|# smp$|^# Conversation History$|^## Turn (?=\d)"
    r"|^\*\*(?:Session|Started|Participants|Format-Version|Last-Turn|Speaker|Type|Memory-Refs|Tags|Pinned|Decay|Fields):\*\*"
    rf"|(?:^[ \t]*(?:- )?|[{{,] ?)(?:{'|'.join(sorted(FIELDS))})(?=:)",
    re.MULTILINE,
)


class Found(NamedTuple):
    """The text on a line of a field, maybe more than once."""

    field: str
    line: int
    times: int
    excerpt: Excerpt


@dataclass(frozen=True)
class Passage:
    """A part of a file that belongs together: a memory, or what stands between two of them."""

    text: str
    first_line: int = 1
    value: Any = None  # nothing where it has none
    id: str = ""
    type: str = ""
    is_ours: bool = False  # it is in the format of SMP, whose own words nobody looks for


class _Hit(NamedTuple):
    field: str
    text: str
    span: Span


def passages_of(file: str, content: bytes, needle: Needle) -> Iterator[Passage]:
    """Of a file of this name in a session, or of any other; none where the text cannot stand in it."""
    text = text_of(content)
    if not _may_hold(text, needle):
        return
    if is_record_file(file):
        yield from _records(file, content)
        return
    is_memory = holds_memories(file, "") or file == "user-profile.yaml" or file == SUMMARY
    kind = "summary" if file == SUMMARY else type_of_file(file) if is_memory else ""
    yield Passage(text, 1, _value(file, content, text), id_of_file(file) if is_memory else "", kind, is_ours=is_memory)


def found_in(passage: Passage, needle: Needle) -> list[Found]:
    """Every line of every field, in the order of the lines."""
    if not _may_hold(passage.text, needle):
        return []
    raw_text = _OF_THE_FORMAT.sub(lambda own: "\0" * len(own[0]), passage.text) if passage.is_ours else passage.text
    raw = list(needle.find(raw_text))
    hits: list[_Hit] = []
    with suppress(RecursionError):  # JSON of somebody else can be deeper than we go: its bytes still tell
        hits = [_Hit(field, text, span) for field, text in _leaves(passage.value, passage.is_ours) for span in needle.find(text)]
    places = _matched(hits, passage.text, raw)
    unused = sorted(set(raw) - set(places.values()))
    lines = Lines(passage.text, "\n")
    told = [(lines.at(places[number].start if number in places else _escaped_at(passage.text, hit)), hit)
            for number, hit in enumerate(hits)]  # fmt: skip
    told += [(lines.at(span.start), _Hit("", *_on_its_line(passage.text, span))) for span in unused]
    grouped: dict[tuple[int, str], list[_Hit]] = {}
    for line, hit in told:
        grouped.setdefault((passage.first_line + line - 1, hit.field), []).append(hit)
    return [Found(field, line, len(group), excerpt(group[0].text, group[0].span))
            for (line, field), group in sorted(grouped.items())]  # fmt: skip


def _may_hold(text: str, needle: Needle) -> bool:
    """Only an escape can keep what a value says from standing in the bytes as well: white space is as good as any other."""
    return next(needle.find(text), None) is not None or "\\" in text or needle.is_quoted


def text_of(content: bytes) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace")
    return content.decode("utf-8", "replace")


def record_passage(file: str, raw: bytes, memory_id: str = "") -> Passage:
    """Of a record that was copied alone out of a file of this name."""
    from ...maintain.putting_back import value_of

    kind = kind_of_file(file)
    value = value_of(kind, raw)
    return Passage(text_of(raw), 1, value, memory_id or str((value or {}).get("id") or ""), kind.name, is_ours=True)


def _records(file: str, content: bytes) -> Iterator[Passage]:
    kind = kind_of_file(file)
    try:
        items = sorted(format_of(kind).parse(content).items(), key=lambda item: item.start)
    except SMPError:  # of a later version: its bytes can still be looked through
        yield Passage(text_of(content), is_ours=True)
        return
    end, line = 0, 1
    for item in items:
        yield Passage(text_of(content[end : item.start]), line, is_ours=True)
        line += content.count(b"\n", end, item.start)
        text = text_of(content[item.start : item.end])
        if isinstance(item, Bad):
            yield Passage(text, line, None, "", UNREADABLE, is_ours=True)
        else:
            yield Passage(text, line, item.value, str(item.value["id"]) if item.has_id else "", kind.name, is_ours=True)
        line += content.count(b"\n", item.start, item.end)
        end = item.end
    yield Passage(text_of(content[end:]), line, is_ours=True)


def _value(file: str, content: bytes, text: str) -> Any:
    """What a file says by its form; nothing where it has none that we know."""
    if file.startswith(f"{ARTIFACTS}/"):
        try:
            fields, said = parse_artifact(content)
        except SMPError:  # of a later version
            return text
        return {**fields, "content": said}
    with suppress(BadYaml, ValueError, RecursionError):
        if file.endswith((".yaml", ".yml")):
            return load(decode(content))
        if file.endswith((".json", ".jsonl", ".lock", ".log")):
            return _json(text)
        if file.endswith(".md") and text.startswith("---\n"):
            return load(text[4:].partition("\n---\n")[0])
    return None


def _json(text: str) -> Any:
    with suppress(ValueError):
        return json.loads(text)
    found = []
    for line in text.splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    # Behind the one line of a recorded transaction stands its checksum.
    said = [value for value in found if isinstance(value, (dict, list))]
    return said[0] if len(said) == 1 else said


def _leaves(value: Any, is_ours: bool, field: str = "") -> Iterator[tuple[str, str]]:
    """Every text and number with the way to it, and names that are not those of the format."""
    if isinstance(value, dict):
        for name, item in value.items():
            if not field and name in _NO_LEAVES:
                continue
            inner = f"{field}.{name}" if field else str(name)
            if not (is_ours and name in FIELDS):
                yield inner, str(name)
            yield from _leaves(item, is_ours, inner)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _leaves(item, is_ours, f"{field}[{number}]")
    elif value is not None and not isinstance(value, bool):
        yield field, str(value)


def _matched(hits: Sequence[_Hit], text: str, raw: Sequence[Span]) -> dict[int, Span]:
    """Which bytes each hit in a value stands in: first those around which the same stands, then the others in their order."""
    places: dict[int, Span] = {}
    free = dict.fromkeys(raw)
    if len(hits) <= _FEW and len(raw) <= _FEW:
        for number, hit in enumerate(hits):
            before, behind = _around(hit.text, hit.span)
            same = next((span for span in free if text.endswith(before, 0, span.start) and text.startswith(behind, span.end)), None)
            if same is not None:
                places[number] = same
                del free[same]
    left = [number for number in range(len(hits)) if number not in places]
    return places | dict(zip(left, free, strict=False))


def _escaped_at(text: str, hit: _Hit) -> int:
    """Where it stands in the bytes as YAML and JSON write it, or else where its field begins."""
    said = hit.text[hit.span.start : hit.span.end]
    forms = [json.dumps(said)[1:-1], json.dumps(said, ensure_ascii=False)[1:-1], said.replace("'", "''")]
    for form in forms:
        if (found := text.find(form)) >= 0:
            return found
    name = re.sub(r"\[\d+\]$", "", hit.field).rpartition(".")[2]
    field = re.search(rf"^[ \t]*(?:- )?[\"']?{re.escape(name)}[\"']?:", text, re.MULTILINE) if name else None
    return field.start() if field else 0


def _around(text: str, span: Span) -> tuple[str, str]:
    """On the same line, since the next one is indented in the file."""
    before = text[max(span.start - _AROUND_CHARACTERS, 0) : span.start].rpartition("\n")[2]
    return before, text[span.end : span.end + _AROUND_CHARACTERS].partition("\n")[0]


def _on_its_line(text: str, span: Span) -> tuple[str, Span]:
    """Where the bytes are all there is, what stands above and below has nothing to do with it."""
    start = text.rfind("\n", 0, span.start) + 1
    end = text.find("\n", span.end)
    return text[start : None if end < 0 else end], Span(span.start - start, span.end - start)
