"""Every place below the root where a text stands: in memories anywhere, and in other files.

Files are read as they are, one at a time; nothing is locked or changed, and no link is followed.
Bundles are unpacked. It is a plain search of lines, so words of the format itself are found too.
The case of letters does not matter, an accent may be a character of its own, and any white space is
as good as any other. The index and `indexes/` are made from the files and not searched.
"""

from __future__ import annotations

import json
import re
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from ..change.holdings import holds_memories, id_of_file, type_of_file
from ..disk import audit, bundle, tombstones
from ..disk.bundle import Bundle
from ..model.errors import InvalidQuery, SMPError
from ..model.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, INDEX_FILE, QUARANTINE
from ..model.record import kind_of_file, type_of
from ..text.edits import spans
from ..text.version import is_record_file

if TYPE_CHECKING:
    from ..memory import Memory

_LEAST_CHARACTERS = 3
_LISTED = 10  # places in one note
_WHOLE_BYTES = 32 << 20  # no larger file is searched
_BEFORE_CHARACTERS, _EXCERPT_CHARACTERS = 40, 100
_DERIVED = re.compile(rf"{ACTIVE}/[^/]+/indexes/|{re.escape(INDEX_FILE)}")
_PACKED = b"\x1f\x8b"
_ESCAPE = re.compile(
    r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})|\\([\"/\\ ])|\\[nrt]|\\\n[ \t]*(?:\\ )?|''"
)


@dataclass(frozen=True)
class Occurrence:
    """A place where the text stands; with a problem, one that could not be searched."""

    session: str  # empty where it belongs to none
    place: str  # active, archived, deleted, global, quarantine, other, or internal in .smp/
    path: str  # the file below the root
    member: str = ""  # of a bundle, the file in it
    line: int = 0  # of the file or the member; 0 where it has none
    id: str = ""
    type: str = ""
    excerpt: str = ""
    until: str = ""  # of what was deleted: when it can be restored at the latest
    problem: str = ""

    @property
    def where(self) -> str:
        inner = f" ({self.member})" if self.member else ""
        return f"{self.path}{inner}:{self.line}" if self.line else f"{self.path}{inner}"


def all_about(memory: Memory, text: str, session: str | None = None) -> Iterator[Occurrence]:
    """Yield the places as they are found. Raises InvalidQuery for a text that is too short."""
    if not isinstance(text, str) or len(text.strip()) < _LEAST_CHARACTERS:
        problem = f"The text to find must have at least {_LEAST_CHARACTERS} characters."
        raise InvalidQuery(problem, advice="Give more of it: less stands everywhere.")
    memory.require()
    return _Search(memory, [text], session).run()


def notes_about(
    memory: Memory, texts: Iterable[str], opening: str, session: str | None = None
) -> list[str]:
    """Return a note of the files that hold one of these texts, and of those not searched.

    SMP's own files do not count. In one session, its deleted bundles do not count either.
    """
    others = ("internal",) if session is None else ("internal", DELETED)
    places: dict[str, dict[str, None]] = {}
    for one in _Search(memory, list(texts), session).run():
        if one.place not in others and one.path not in (audit.FILE, tombstones.FILE):
            begin = "Nobody could search" if one.problem else opening
            places.setdefault(begin, {})[one.path] = None
    notes: list[str] = []
    for begin, paths in places.items():
        more = f" and {len(paths) - _LISTED} more" if len(paths) > _LISTED else ""
        notes.append(f"{begin} {', '.join([*paths][:_LISTED])}{more}.")
    return notes


class _Search:
    def __init__(self, memory: Memory, texts: Sequence[str], session: str | None) -> None:
        self._tree, self._session = memory.tree, session
        words = [unicodedata.normalize("NFC", text).split() for text in texts]
        forms = dict.fromkeys(r"\s+".join(map(re.escape, some)) for some in words)
        self._pattern = re.compile("|".join(forms), re.IGNORECASE)

    def run(self) -> Iterator[Occurrence]:
        # SMP's own files come last.
        walked = sorted(self._tree.walk(""), key=lambda one: one.path.startswith(".smp"))
        for path, is_directory, problem in walked:
            where = _where(path)
            if self._session not in (None, where.session) or _DERIVED.match(path):
                continue
            if problem:
                yield replace(where, problem=f"It is not searched: {problem}")
            if where.place != "internal":
                yield from self._in_name(where, path)
            if not is_directory:
                yield from self._in_file(where, path)

    def _in_file(self, where: Occurrence, path: str) -> Iterator[Occurrence]:
        try:
            status = self._tree.stat(path)
            if stat.S_ISSOCK(status.st_mode):
                return
            if status.st_size > _WHOLE_BYTES:
                problem = f"It is larger than {_WHOLE_BYTES >> 20} MiB, and not searched."
                yield replace(where, problem=problem)
                return
            top, _, rest = path.partition("/")
            file = rest if top == GLOBAL else rest.partition("/")[2]
            yield from self._in_content(where, file, self._tree.read(path))
        except FileNotFoundError:
            return  # it went meanwhile
        except (SMPError, OSError) as error:
            yield replace(where, problem=f"It cannot be read: {error}")

    def _in_content(self, where: Occurrence, file: str, content: bytes) -> Iterator[Occurrence]:
        """Search a file of this name in a session, or any other."""
        if content.startswith(_PACKED):
            yield from self._in_bundle(where, bundle.unpacked(where.path, content))
        elif any(map(self._pattern.search, _versions(content))):
            for line, memory_id, kind, raw in _parts(file, content, where.session):
                inner = replace(where, id=_printable(memory_id), type=kind and type_of(kind))
                yield from self._in_text(inner, raw, line)

    def _in_bundle(self, where: Occurrence, packed: Bundle) -> Iterator[Occurrence]:
        said = packed.manifest
        until = said.until or where.until if where.place == DELETED else ""
        where = replace(where, session=where.session or said.session, until=until)
        facts = {**asdict(said), "items": [dict(item.facts) for item in said.items if item.facts]}
        text = json.dumps(facts, ensure_ascii=False, indent=0)  # a fact a line
        yield from self._in_text(replace(where, member="manifest.json"), text.encode())
        for item, raw in packed.pieces():
            inner = replace(where, member=_printable(item.file))
            yield from self._in_name(inner, item.file)
            if item.is_file:
                yield from self._in_content(inner, item.file, raw)
            else:
                inner = replace(inner, id=_printable(item.id), type=type_of(item.type))
                yield from (replace(one, line=0) for one in self._in_text(inner, raw))

    def _in_text(self, where: Occurrence, raw: bytes, first: int = 1) -> Iterator[Occurrence]:
        """Yield each line that holds it: as it stands there, or without the escapes of YAML."""
        found: dict[int, Occurrence] = {}
        for text in _versions(raw):
            number, at = first, 0
            for match in self._pattern.finditer(text):
                start, end = match.span()
                number, at = number + text.count("\n", at, start), start
                if number not in found:
                    excerpt = _around(text, start, end)
                    found[number] = replace(where, line=number, excerpt=excerpt)
        yield from (one for _, one in sorted(found.items()))

    def _in_name(self, where: Occurrence, path: str) -> Iterator[Occurrence]:
        """Yield the name of a file or a directory itself."""
        name = path.rpartition("/")[2]
        if self._pattern.search(unicodedata.normalize("NFC", name)):
            yield replace(where, excerpt=f"name: {_printable(name)}")


def _where(path: str) -> Occurrence:
    """Return of which session a file is, and in which place, by its name alone."""
    top, *inner = path.split("/")
    shown = _printable(path)
    if top == GLOBAL:
        return Occurrence(GLOBAL, GLOBAL, shown)
    if top in (ACTIVE, ARCHIVED, DELETED, QUARANTINE) and inner:
        return Occurrence(inner[0], top, shown)
    return Occurrence("", "internal" if top == ".smp" else "other", shown)


def _parts(file: str, content: bytes, session: str) -> Iterator[tuple[int, str, str, bytes]]:
    """Yield the parts of a file: first line, id, type and bytes of its head and its memories."""
    if not holds_memories(file, GLOBAL if session == GLOBAL else ""):
        yield 1, "", "", content
    elif not is_record_file(file):
        yield 1, id_of_file(file), type_of_file(file), content
    else:
        kind = kind_of_file(file)
        try:
            head, records, *_ = spans(kind, content)
        except SMPError:  # as of a newer version: its bytes can still be searched
            head, records = content, []
        yield 1, "", "", head
        line = 1 + head.count(b"\n")
        for span in records:
            yield line, span.id, kind.name if span.value else "", span.raw
            line += span.raw.count(b"\n")


def _versions(content: bytes) -> list[str]:
    """Return a text as it stands there, and without the escapes of YAML."""
    text = content.decode("utf-8", "replace")
    texts = [text, _ESCAPE.sub(_unescaped, text)] if "\\" in text or "''" in text else [text]
    return [unicodedata.normalize("NFC", one) for one in texts]


def _unescaped(match: re.Match[str]) -> str:
    """Return the character that an escape means, and white space for a line break."""
    if match[0].startswith("\\\n"):
        return "\n"
    number = int(match[1] or match[2] or "0", 16)
    if number:
        return " " if number == 10 or 0xD800 <= number < 0xE000 else chr(number)
    return "'" if match[0] == "''" else match[3] or " "


def _around(text: str, start: int, end: int) -> str:
    """Return the words around a place, on one line."""
    begin, close = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    line = text[max(begin, start - _BEFORE_CHARACTERS) : len(text) if close < 0 else close]
    return "".join(one if one.isprintable() else " " for one in line[:_EXCERPT_CHARACTERS]).strip()


def _printable(name: str) -> str:
    """Return the name of a file with escapes for bytes that are no character."""
    return name.encode("utf-8", "backslashreplace").decode()
