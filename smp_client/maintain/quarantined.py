"""What was set aside of a session, and holds words of memories that are purged.

It goes with them only where that is sure, because it may be the only copy of what somebody else wrote: a line by which they are
known, or a short text where it is the whole of a value. The name of a field, or of an agent, stands in everybody's records. Of a
file with several records only those go that are theirs. Where it is not sure it is kept, and told.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from ..files import Tree
from ..layout import QUARANTINE
from ..privacy.deleting.standing import is_record_file
from ..records import kind_of_file
from . import traces
from .doomed import Gone
from .traces import Telling

_WORD_CHARACTERS = 24  # a shorter word may be the name of a file, or of somebody
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ][\d:.]+(?:Z|[+-][\d:]+)?")
_FEW_CHARACTERS = 6
SHORTEST_CHARACTERS = 4  # of a text that is only told
_RECORD = re.compile(rb"^## Turn \d", re.MULTILINE), re.compile(rb"^[ \t]*- (?=\S)", re.MULTILINE)
_IDS = re.compile(rb"(?<![\w-])id[\"']?: ?[\"']?([\w.+-]+)|^## Turn (\d+)", re.MULTILINE)
_BEFORE_A_VALUE = rb"(?:^[ \t]*(?:- )?|: ?|[\[,] ?)[\"']?"
_AFTER_A_VALUE = rb"(?:[\"'][ \t]*[,}\]]?)?(?:[ \t]+#[^\n]*)?[ \t\r]*(?:\\n|[,}\]]|$)"


class Words(NamedTuple):
    """Short texts, each with the id of the memory that said it."""

    said: tuple[tuple[str, str], ...] = ()


def own_words(memories: Iterable[Gone], values: Iterable[dict[str, Any]], shortest: int = _FEW_CHARACTERS) -> Words:
    """What they said in few letters, where they have no line by which they are known."""
    fields = {gone.id: kind_of_file(gone.file).text for gone in memories if is_record_file(gone.file)}
    found: dict[tuple[str, str], None] = {}
    for value in values:
        memory_id = str(value.get("id"))
        lines = [line.strip() for line in str(value.get(fields.get(memory_id, ""), "")).splitlines()]
        if not any(map(is_telling, lines)):
            found.update(dict.fromkeys((memory_id, line) for line in lines if len(line) >= shortest))
    return Words(tuple(found))


def holding(
    tree: Tree, session_id: str, telling: Telling, words: Words, ids: Collection[str] = ()
) -> tuple[dict[str, bytes], list[str]]:
    """The files that are of these memories, each with what is left of it without them, and those that may be."""
    directory = f"{QUARANTINE}/{session_id}"
    paths = [path for path in tree.files_below(directory) if not path.endswith(".note.yaml")]
    sure = Telling([line for line in telling.lines if is_telling(line)])
    doubtful = Telling([line for line in telling.lines if not is_telling(line)])
    theirs: dict[str, bytes] = {}
    perhaps: list[str] = []
    for path in paths:
        found = _verdicts(tree, path, words)
        if sure.stand_in(tree, path) or True in found:
            rest = _rest(tree.read(path), sure, words, ids)
            if rest is None:
                perhaps.append(path)
            else:
                theirs[path] = rest
        elif found or doubtful.stand_in(tree, path):
            perhaps.append(path)
    return theirs, perhaps


def _rest(content: bytes, sure: Telling, words: Words, ids: Collection[str]) -> bytes | None:
    """Without the records that are theirs; None where others stand in one piece with them."""
    own = {memory_id.encode() for memory_id in ids}
    pieces, kept = _records(content), list[bytes]()
    for piece in pieces:
        named = _ids(piece)
        if not (sure.stand_in_bytes(piece) or True in _verdicts_on(piece, words) or (named and named <= own)):
            kept.append(piece)
        elif len(named - own) > 1:
            return None
    if len(kept) == len(pieces):
        # What is packed, or stands across the records.
        return b"" if len(pieces) == 1 and len(_ids(content) - own) < 2 else None
    return b"".join(kept)


def _records(content: bytes) -> list[bytes]:
    """Record by record, as far as that can be seen in what could not be read: what has no id belongs to what stands before it."""
    for begins in _RECORD:
        if starts := [found.start() for found in begins.finditer(content)]:
            break
    else:
        return [content]
    outermost = min(_indent(content, start) for start in starts)
    bounds = [0, *(start for start in starts if start and _indent(content, start) == outermost), len(content)]
    pieces = [content[bounds[0] : bounds[1]]]
    for start, end in itertools.pairwise(bounds[1:]):
        if _ids(pieces[-1]) and _ids(content[start:end]):
            pieces.append(content[start:end])
        else:
            pieces[-1] += content[start:end]
    return pieces


def _indent(content: bytes, start: int) -> int:
    return len(content[start : start + 100]) - len(content[start : start + 100].lstrip(b" \t"))


def _ids(piece: bytes) -> set[bytes]:
    return {found[1] or b"turn-" + found[2] for found in _IDS.finditer(piece)}


def stand_as_values(tree: Tree, path: str, words: Words) -> bool:
    """Whether one of them is the whole of a value there, and sure to be theirs."""
    return True in _verdicts(tree, path, words)


def is_telling(line: str) -> bool:
    """Whether a line is sure to be of those whose it is: not a word, or a time, that others can say too."""
    return len(line) >= (traces.LINE_CHARACTERS if " " in line else _WORD_CHARACTERS) and not _TIME.fullmatch(line)


def _verdicts(tree: Tree, path: str, words: Words) -> set[bool]:
    """Of each word that stands there whether it is sure to be theirs."""
    if not traces.found_in(tree, path, [said.encode("utf-8", "replace") for _, said in words.said]):
        return set()
    return _verdicts_on(tree.read(path), words)


def _verdicts_on(content: bytes, words: Words) -> set[bool]:
    found: set[bool] = set()
    content = content.replace(b"\0", b"\n")  # which ends a line in what an editor keeps
    for memory_id, said in words.said:
        word = re.escape(said.encode("utf-8", "replace"))
        if re.search(_BEFORE_A_VALUE + word + _AFTER_A_VALUE, content, re.MULTILINE):
            # Anybody may have said one common word: then it must be under the same id.
            found.add(not said.isalpha() or _has_id(content, memory_id))
        elif not said.isalpha() and re.search(word, content):
            found.add(False)
    return found


def _has_id(content: bytes, memory_id: str) -> bool:
    return memory_id.encode() in _ids(content)
