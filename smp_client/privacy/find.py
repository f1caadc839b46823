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
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ..change.holdings import in_bundle, place_of
from ..change.places import PROFILE, holds_memories, id_of_file, is_record_file, type_of_file
from ..disk import bundle
from ..disk.bundle import RECORD, SUMMARY, Bundle
from ..disk.rewrite import file_of_slot
from ..disk.scopes import ARCHIVE, BACKUP, EVICTED
from ..disk.session_files import METADATA
from ..disk.tree import DEEPEST
from ..model import layout
from ..model.errors import CorruptionDetected, InvalidQuery, SMPError
from ..model.layout import (
    ACTIVE,
    ARCHIVED,
    DELETED,
    GLOBAL,
    INDEX_FILE,
    LEAVING,
    QUARANTINE,
    RETIRED,
)
from ..model.record import GLOBAL_KINDS, SESSION_KINDS, kind_of_file, type_of
from ..text.edits import spans

if TYPE_CHECKING:
    from ..memory import Memory

_LEAST_CHARACTERS = 3
_LISTED = 10  # places in one note
_WHOLE_BYTES = 32 << 20  # no larger file is searched
_BEFORE_CHARACTERS, _EXCERPT_CHARACTERS = 40, 100
_PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf")
_ESCAPE = re.compile(
    r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})|\\([\"/\\ ])|\\[nrt]|\\\n[ \t]*(?:\\ )?|''"
)
_OWN_PLACES = {layout.JOURNAL: "journal", RETIRED: "retired", LEAVING: "leaving"}
_OWN_NAMES = frozenset((
    *(kind.file for kind in (*SESSION_KINDS, *GLOBAL_KINDS)), *layout.SESSION_DIRECTORIES,
    *layout.TOP_DIRECTORIES, METADATA, PROFILE, layout.ACCESS_LOG, SUMMARY, RECORD, ARCHIVE, BACKUP,
    "history", "rejected", "audit.log",
))  # fmt: skip


@dataclass(frozen=True)
class Occurrence:
    """A place where the text stands; with a problem, one that could not be searched."""

    session: str  # empty where it belongs to none
    place: str  # active, archived, evicted, deleted, global, inbox, rejected, quarantined …
    path: str  # the file below the root
    member: str = ""  # of a bundle, the file in it
    line: int = 0  # of the file or the member; 0 where it has none
    id: str = ""
    type: str = ""
    field: str = ""  # `name` where the text stands in the name of the file
    excerpt: str = ""
    start: int = 0  # of the text, in the excerpt
    end: int = 0
    count: int = 1  # on this line
    until: str = ""  # of what was deleted: when it can be restored at the latest
    problem: str = ""
    action: str = ""  # of what was deleted: delete, anonymize, or delete_session with its session
    batch: str = ""  # and under which it went

    @property
    def where(self) -> str:
        inner = f" ({self.member})" if self.member else ""
        return f"{self.path}{inner}:{self.line}" if self.line else f"{self.path}{inner}"


class _Owner(NamedTuple):
    """Whose lines of a file begin here: a memory's, the head's, or those of nobody."""

    line: int
    id: str = ""
    type: str = ""


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
    others = (".smp/",) if session is None else (".smp/", f"{DELETED}/")
    places: dict[str, dict[str, None]] = {opening: {}, "Nobody could search": {}}
    for one in _Search(memory, list(texts), session).run():
        if one.path.startswith(others):
            continue
        if one.problem:
            places["Nobody could search"][f"{one.path} ({one.problem.rstrip('.')})"] = None
        else:
            places[opening][one.path] = None
    notes: list[str] = []
    for begin, paths in places.items():
        more = f" and {len(paths) - _LISTED} more" if len(paths) > _LISTED else ""
        notes += [f"{begin} {', '.join([*paths][:_LISTED])}{more}."] if paths else []
    return notes


def pattern_of(texts: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern that finds these texts, in any case and with any white space."""
    forms: list[str] = []
    for text in texts:
        for form in ("NFC", "NFD"):
            words = unicodedata.normalize(form, text).split()
            forms.append(r"\s+".join(map(re.escape, words)))
    return re.compile("|".join(dict.fromkeys(forms)), re.IGNORECASE)


class _Search:
    def __init__(self, memory: Memory, texts: Sequence[str], session: str | None) -> None:
        self._tree, self._session, self._pattern = memory.tree, session, pattern_of(texts)

    def run(self) -> Iterator[Occurrence]:
        failed: list[str] = []
        walked = self._tree.walk("", lambda path, _: failed.append(path))
        # SMP's own files come last.
        for path, is_directory, is_deep in sorted(walked, key=lambda one: one.path[:4] == ".smp"):
            where = _where(path)
            is_derived = where.place == "derived" or path.startswith(INDEX_FILE)
            if self._session not in (None, where.session) or is_derived:
                continue
            where = replace(where, type="directory" if is_directory else "")
            if is_deep:
                problem = f"It is deeper than {DEEPEST} directories, and not searched."
                yield replace(where, problem=problem)
            if not path.startswith(".smp"):
                yield from self._named(where, path)
            if not is_directory:
                yield from self._in_file(where, path)
        for path in failed:
            where = _where(path)
            if self._session in (None, where.session):
                yield from self._in_file(where, path)  # says why it failed

    def _in_file(self, where: Occurrence, path: str) -> Iterator[Occurrence]:
        try:
            status = self._tree.stat(path)
            if stat.S_ISSOCK(status.st_mode):
                return
            if status.st_size > _WHOLE_BYTES:
                problem = f"It is larger than {_WHOLE_BYTES >> 20} MiB, and not searched."
                yield replace(where, problem=problem)
                return
            content = self._tree.read(path)
            if content.startswith(_PACKED):
                yield from self._in_bundle(where, bundle.unpacked(path, content))
            else:
                yield from self._in_content(where, _file(path), content)
        except FileNotFoundError:
            return  # it went meanwhile
        except CorruptionDetected as error:
            yield replace(where, problem=f"It is packed in another way, or damaged: {error}")
        except (SMPError, OSError) as error:
            yield replace(where, problem=f"It cannot be read: {error}")

    def _in_content(self, where: Occurrence, file: str, content: bytes) -> Iterator[Occurrence]:
        """A file of this name in a session, or any other."""
        found = list(self._in_text(where, _text(content)))
        owners = _owners(file, content, where.session) if found else []
        for one in found:
            owner = owners[bisect_right(owners, one.line, key=lambda owner: owner.line) - 1]
            yield replace(one, id=_printable(owner.id), type=type_of(owner.type))

    def _in_bundle(self, where: Occurrence, packed: Bundle) -> Iterator[Occurrence]:
        said, is_whole = packed.manifest, packed.path.endswith((f"/{ARCHIVE}", f"/{BACKUP}"))
        if where.place == "deleted":
            action = "delete_session" if is_whole else "delete"
            action = "anonymize" if said.kind == "undo" else action
            where = replace(where, action=action, until=said.until or "", batch=said.batch)
        where = replace(where, session=where.session or said.session)
        facts = {**asdict(said), "items": [dict(item.facts) for item in said.items if item.facts]}
        text = json.dumps(facts, ensure_ascii=False, indent=0)  # a fact a line
        kind = "summary" if said.kind == "archive" else ""
        yield from self._in_text(replace(where, member="manifest.json", type=kind), text)
        for file, content in packed.files() if is_whole else ():
            inner = replace(where, member=_printable(file))
            yield from [*self._named(inner, file), *self._in_content(inner, file, content)]
        for held in () if is_whole else in_bundle(packed, said.session, place_of(packed.path)):
            inner = replace(where, member=_printable(held.file), id=_printable(held.id))
            inner = replace(inner, type=type_of(held.type))
            yield from self._named(inner, held.file)
            for one in self._in_text(inner, _text(held.raw)):
                yield one if held.is_file else replace(one, line=0)

    def _in_text(self, where: Occurrence, text: str) -> Iterator[Occurrence]:
        """Each line that holds it: as it stands there, else without the escapes of YAML."""
        found: dict[int, Occurrence] = {}
        for version in dict.fromkeys((text, _ESCAPE.sub(_unescaped, text))):
            lines: dict[int, Occurrence] = {}
            number, at = 1, 0
            for match in self._pattern.finditer(version):
                start, end = match.span()
                number, at = number + version.count("\n", at, start), start
                begin, close = version.rfind("\n", 0, start) + 1, version.find("\n", end)
                begin += len(version[begin:start]) - len(version[begin:start].lstrip())
                line = version[begin : None if close < 0 else close].rstrip()
                shown = _around(replace(where, line=number), line, start - begin, end - begin)
                lines[number] = (
                    replace(lines[number], count=lines[number].count + 1)
                    if number in lines
                    else shown
                )
            found = lines | found
        for _, one in sorted(found.items()):
            yield one

    def _named(self, where: Occurrence, path: str) -> Iterator[Occurrence]:
        """The name itself, where somebody chose it."""
        name = path.rpartition("/")[2]
        match = self._pattern.search(name)
        if match and name not in _OWN_NAMES and place_of(path) != "evicted":
            yield _around(replace(where, field="name"), name, *match.span())


def _where(path: str) -> Occurrence:
    """Return of which session a file is, and in which place, by its name alone."""
    top, *inner = path.split("/")
    shown = _printable(path)
    if top == GLOBAL:
        return Occurrence(GLOBAL, GLOBAL, shown)
    if top == ".smp":
        session, plus, _ = inner[1].partition("+") if len(inner) > 1 else ("", "", "")
        place = _OWN_PLACES.get("/".join([top, *inner[:1]]), "other")
        return Occurrence(session if plus else "", place, shown)
    if top not in (ACTIVE, ARCHIVED, DELETED, QUARANTINE) or not inner:
        return Occurrence("", "other", shown)
    place = "quarantined" if top == QUARANTINE else top
    if top == ACTIVE and len(inner) > 2:
        drop = "rejected" if inner[2] == "rejected" else "inbox"
        place = {"inbox": drop, "indexes": "derived"}.get(inner[1], place)
    return Occurrence(
        inner[0], "evicted" if top == ARCHIVED and inner[-1].startswith(EVICTED) else place, shown
    )


def _file(path: str) -> str:
    """Return the name that a file has in its session."""
    if path.startswith(f"{RETIRED}/"):
        return file_of_slot(path.rpartition("/")[2].removesuffix(".old"))
    if path.startswith(f"{LEAVING}/"):
        return path.removeprefix(f"{LEAVING}/").partition("/")[2]
    top, _, rest = path.partition("/")
    return rest if top == GLOBAL else rest.partition("/")[2]


def _owners(file: str, content: bytes, session: str) -> list[_Owner]:
    """Return whose the lines of a file are, in their order."""
    if not holds_memories(file, GLOBAL if session == GLOBAL else ""):
        return [_Owner(0, type="summary" if file == SUMMARY else "")]
    if not is_record_file(file):
        return [_Owner(0, id_of_file(file), type_of_file(file))]
    kind = kind_of_file(file)
    try:
        head, records, _ = spans(kind, content)
    except SMPError:  # as of a newer version: its bytes can still be searched
        return [_Owner(0, type="unreadable")]
    owners, line = [_Owner(0, type="head")], 1 + head.count(b"\n")
    for span in records:
        owners.append(_Owner(line, span.id, kind.name if span.value else "unreadable"))
        line += span.raw.count(b"\n")
    return owners


def _around(where: Occurrence, text: str, start: int, end: int) -> Occurrence:
    """Return the occurrence with an excerpt on one line."""
    first = max(start - _BEFORE_CHARACTERS, 0)
    last = min(max(first + _EXCERPT_CHARACTERS, end), start + 2 * _EXCERPT_CHARACTERS, len(text))
    shown = "".join(one if one.isprintable() else " " for one in text[first:last])
    before, behind = "…" if first else "", "…" if last < len(text) else ""
    shift = len(before) - first
    return replace(
        where, excerpt=before + shown + behind, start=start + shift, end=min(end, last) + shift
    )


def _unescaped(match: re.Match[str]) -> str:
    """Return the character that an escape means, and white space for a line break."""
    if match[0].startswith("\\\n"):
        return "\n"
    number = int(match[1] or match[2] or "0", 16)
    if number:
        return " " if number == 10 or 0xD800 <= number < 0xE000 else chr(number)
    return "'" if match[0] == "''" else match[3] or " "


def _text(content: bytes) -> str:
    is_wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    return content.decode("utf-16" if is_wide else "utf-8", "replace")


def _printable(name: str) -> str:
    """Return the name of a file with escapes for bytes that are no character."""
    return name.encode("utf-8", "backslashreplace").decode()
