"""The conversation: turns in Markdown, each with the bytes it stands in.

A turn is a heading, a few `**Name:** value` lines, a blank line, the text as it was said, and a
closing `---`. Lines of the text that look like these are escaped with a backslash, as Markdown
itself does, so every text comes back the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from ..model.layout import FORMAT_VERSION
from ..model.times import parse_time, render_time, same_time
from .document import CUT_OFF, Bad, Lines, Located, RecordList
from .values import DEPTH_CAP, BadYaml, Value, decode, load, render_flow

# Stands before a turn that the library wrote: such a turn is closed by `---`, so one that is not
# is torn.
MARK = b"<!-- smp -->\n"

_OPENING = MARK + b"## Turn "
_HEADING = re.compile(
    rb"^(?:\xef\xbb\xbf)?(?:<!-- smp -->\r?\n)?## Turn (\d{1,15})\b[^\n]*(?:\n|\Z)", re.MULTILINE
)
_STAMP = re.compile(r"## Turn \d+\s*-\s*(.+?)\s*$")
_CLOSING = re.compile(rb"^---[ \t\r]*(?:\n|\Z)", re.MULTILINE)
_FIELD = re.compile(r"\*\*([^*:\n]{1,64}):\*\*[ \t]*(.*)(?:\n|\Z)")
# Every line that begins with `---`, not only one that is nothing else: cut off in the middle it
# would be nothing else.
_ESCAPE = re.compile(r"^(\\*)(?=## Turn \d|---|<!-- smp -->)", re.MULTILINE)
_UNESCAPE = re.compile(r"^\\(\\*)(?=## Turn \d|---|<!-- smp -->)", re.MULTILINE)
# On disk under these names; every further field of a turn is in one JSON object under `Fields`.
_NAMES = {
    "speaker": "Speaker",
    "type": "Type",
    "memory_refs": "Memory-Refs",
    "tags": "Tags",
    "pinned": "Pinned",
    "decay": "Decay",
}
_KEYS = {name: key for key, name in _NAMES.items()}
_render_json = json.JSONEncoder(ensure_ascii=False).encode
_ELSEWHERE = frozenset(("id", "turn", "timestamp", "content", "decay"))


def render_header(session_id: str, started: datetime, participants: list[str]) -> bytes:
    return (
        f"# Conversation History\n**Session:** {session_id}\n"
        f"**Started:** {started:%Y-%m-%d %H:%M:%S} UTC\n"
        f"**Participants:** {', '.join(participants)}\n"
        f"**Format-Version:** {FORMAT_VERSION}\n\n---\n\n"
    ).encode()


def render_turn(turn: Mapping[str, Value]) -> bytes:
    lines = [f"## Turn {turn['turn']}"]
    if "timestamp" in turn:
        lines[0] += " - " + same_time(str(turn["timestamp"])).replace("T", " ").removesuffix("Z")
    further = {key: value for key, value in turn.items() if key not in _ELSEWHERE}
    lines += [f"**{name}:** {_render_field(further.pop(key))}" for key, name in _NAMES.items()
              if key in further and _has_line(key, further[key])]  # fmt: skip
    if further:
        lines.append(f"**Fields:** {_render_json(further)}")
    if "decay" in turn and turn["decay"] != _unread(turn):
        lines.append(f"**Decay:** {render_flow(turn['decay'])}")
    text = str(turn["content"])
    if "---" in text or "## Turn " in text or "<!-- smp -->" in text:
        text = _ESCAPE.sub(r"\1\\", text)
    return MARK + "\n".join([*lines, "", text, "", "---", "", ""]).encode()


def parse(content: bytes) -> RecordList:
    """Never raises on content; the head holds the highest turn number that a rewrite has written
    down."""
    found = parse_tail(content, 0)
    first = min((item.start for item in found.items()), default=len(content))
    for name, value in _FIELD.findall(content[:first].decode("utf-8", "replace")):
        if name in ("Format-Version", "Last-Turn") and re.fullmatch(r"[0-9]{1,15}", value.strip()):
            found.head["version" if name == "Format-Version" else "last_id"] = int(value)
    return found


def parse_tail(content: bytes, offset: int) -> RecordList:
    headings = list(_HEADING.finditer(content, offset))
    found = RecordList(listed=True)
    ends = [*(heading.start() for heading in headings[1:]), len(content)]
    lines = Lines(content, b"\n")
    for heading, end in zip(headings, ends, strict=False):
        found.take(_read_turn(content, heading, end, lines.at(heading.start())))
    return found


def last_turns(content: bytes, count: int) -> list[Located]:
    """The last turns in a piece of a conversation that may begin in the middle of a turn; none
    where it holds too few."""
    # The piece may begin behind a backslash or within a mark, so what its first heading is cannot
    # be told.
    first = _HEADING.search(content)
    records = parse_tail(content, first.end()).records if first else []
    return records[-count:] if len(records) >= count > 0 else []


def find_turn(content: bytes, number: int) -> Located | None:
    """The last turn of that number: a hand-made double is appended behind the original."""
    for heading in reversed(
        [heading for heading in _HEADING.finditer(content) if int(heading[1]) == number]
    ):
        following = _HEADING.search(content, heading.end())
        item = _read_turn(content, heading, following.start() if following else len(content))
        if isinstance(item, Located):
            return item
    return None


def highest(found: RecordList) -> int:
    """The highest number that a turn has had."""
    numbers = [record.value["turn"] for record in found.records] + [found.head.get("last_id", 0)]
    numbers += [int(bad.problem.split(":")[0].removeprefix("turn ")) for bad in found.bad]
    return max(number for number in numbers if isinstance(number, int))


def torn(content: bytes) -> int | None:
    """Return where turns of ours that were never closed begin, or a part of a mark and heading,
    if the file ends with one."""
    at, end = None, len(content)
    for heading in reversed(list(_HEADING.finditer(content))):
        if not is_marked(content, heading.start()) or _CLOSING.search(content, heading.end(), end):
            break
        at = end = heading.start()
    if at is not None:
        return at
    # A turn that a person wrote may end without a closing line.
    for size in range(len(_OPENING), 0, -1):
        at = len(content) - size
        if content.endswith(_OPENING[:size]) and content[:at][-1:] in (b"", b"\n"):
            return at
    return None


def is_marked(content: bytes, start: int) -> bool:
    return content.startswith(MARK[:-1], start)


def separator(content: bytes) -> bytes:
    """What must stand before a new turn: a blank line. One that a person left open stays open;
    the new heading ends it."""
    return (
        b""
        if not content or content.endswith((b"\n\n", b"\r\n\r\n"))
        else b"\n"
        if content.endswith(b"\n")
        else b"\n\n"
    )


def with_last_turn(content: bytes, highest_ever: int) -> bytes:
    line = b"**Last-Turn:** %d\n" % highest_ever
    first = _HEADING.search(content)
    end = first.start() if first else len(content)
    known = re.compile(rb"^\*\*Last-Turn:\*\*[^\n]*(?:\n|\Z)", re.MULTILINE).search(content, 0, end)
    if known:
        return content[: known.start()] + line + content[known.end() :]
    version = re.compile(rb"^\*\*Format-Version:\*\*[^\n]*\n", re.MULTILINE).search(content, 0, end)
    at = version.end() if version else 0
    return content[:at] + line + content[at:]


def with_version(head: bytes) -> bytes:
    """Return the head of a conversation with the present version in the place of its own."""
    line = b"**Format-Version:** %d" % FORMAT_VERSION
    return re.sub(rb"^\*\*Format-Version:\*\*[^\n]*", line, head, count=1, flags=re.MULTILINE)


def _read_turn(content: bytes, heading: re.Match[bytes], end: int, line: int = 1) -> Located | Bad:
    closing = _closing(content, heading, end)
    try:
        if closing is None and end == len(content) and is_marked(content, heading.start()):
            raise BadYaml(CUT_OFF)
        text = decode(content[heading.start() : closing.start() if closing else end])
        value = _read_fields(text, int(heading[1]), closed=closing is not None)
    except (BadYaml, ValueError, RecursionError) as problem:
        return Bad(heading.start(), end, line, f"turn {int(heading[1])}: {_told(problem)}")
    return Located(heading.start(), end, value)


def own_end(content: bytes, turn: Located) -> int:
    """Return where a turn ends without what stands below its closing line."""
    heading = _HEADING.match(content, turn.start)
    closing = _closing(content, heading, turn.end) if heading else None
    return closing.end() if closing else turn.end


def _told(problem: Exception) -> str:
    """Return the problem without a word of the turn, for logs."""
    if isinstance(problem, BadYaml):
        return str(problem)
    return (
        problem.msg
        if isinstance(problem, json.JSONDecodeError)
        else "a time or a number cannot be read"
    )


def _closing(content: bytes, heading: re.Match[bytes], end: int) -> re.Match[bytes] | None:
    """In a text of ours `---` is escaped, so the first one closes; people write rules into
    theirs, so there only one at the end."""
    closings = list(_CLOSING.finditer(content, heading.end(), end))
    if is_marked(content, heading.start()):
        return closings[0] if closings else None
    return closings[-1] if closings and not content[closings[-1].end() : end].strip() else None


def _read_fields(text: str, number: int, *, closed: bool) -> dict[str, Value]:
    text = text.removeprefix("<!-- smp -->\r\n").removeprefix("<!-- smp -->\n")
    heading, _, rest = text.partition("\n")
    if heading.endswith("\r"):
        # An editor turned the line ends of the file around: turn those of the text back.
        rest = rest.replace("\r\n", "\n")
    fields: dict[str, Value] = {}
    at = 0
    while field := _FIELD.match(rest, at):
        at = field.end()
        fields.update(_read_field(field[1], field[2].strip()))
    body = rest[at:].removeprefix("\n")
    body = body.removesuffix("\n").removesuffix("\n") if closed else body.rstrip("\n")
    turn: dict[str, Value] = {"id": f"turn-{number}", "turn": number, **_read_stamp(heading)}
    turn = {
        **turn,
        **{key: value for key, value in fields.items() if key not in turn},
        "content": _UNESCAPE.sub(r"\1", body),
    }
    return turn if "decay" in turn or "timestamp" not in turn else {**turn, "decay": _unread(turn)}


def _read_stamp(heading: str) -> dict[str, Value]:
    stamp = _STAMP.match(heading)
    return (
        {"timestamp": render_time(parse_time(stamp[1].removesuffix(" UTC").replace(" ", "T", 1)))}
        if stamp
        else {}
    )


def _has_line(key: str, value: Value) -> bool:
    """Whether a field comes back the same from a line of its own; all others are in `Fields`."""
    return isinstance(
        value,
        str if key in ("speaker", "type") else list if key in ("tags", "memory_refs") else bool,
    )


def _unread(turn: Mapping[str, Value]) -> Value:
    """The decay of a turn that nobody has read yet: not written down, so that a conversation
    stays pleasant to read."""
    return {
        "priority": 1.0,
        "last_accessed": turn.get("timestamp"),
        "access_count": 0,
        "base_priority": 1.0,
    }


def _read_field(name: str, value: str) -> dict[str, Value]:
    key = _KEYS.get(name)
    if name == "Fields":
        further = json.loads(value)
        _refuse_depth(further)
        return further if isinstance(further, dict) else {"fields": further}
    if key in ("memory_refs", "tags"):
        listed = load(value)
        return {key: listed if isinstance(listed, list) else [value]}
    if key in ("pinned", "decay"):
        return {key: load(value)}
    text = json.loads(value) if value.startswith('"') else value
    return {key or name.lower().replace("-", "_").replace(" ", "_"): text}


def _refuse_depth(value: Value) -> None:
    """As deep as YAML may be, so that whoever walks through a record need not fear for the
    stack."""
    level = [value]
    for _ in range(DEPTH_CAP + 1):
        level = [item for outer in level for item in _items(outer)]
        if not level:
            return
    raise BadYaml(f"nested deeper than {DEPTH_CAP} levels")


def _items(value: Value) -> Iterable[Value]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _render_field(value: Value) -> str:
    """Names as they are; a text that would not come back the same is quoted as in JSON."""
    if not isinstance(value, str):
        return render_flow(value)
    plain = value == value.strip() and value.isprintable() and not value.startswith('"')
    return value if plain and value else json.dumps(value, ensure_ascii=True)
