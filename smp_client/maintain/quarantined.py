"""What was set aside of a session, and holds words of memories that are purged.

It goes with them only where that is sure, because it may be the only copy of what somebody else wrote: a line by which they are
known, or a short text where it is the whole of a value. The name of a field, or of an agent, stands in everybody's records. Where
it is not sure it is kept, and told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
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
_BEFORE_A_VALUE = rb"(?:^[ \t]*(?:- )?|: ?|[\[,] ?)[\"']?"
_AFTER_A_VALUE = rb"(?:[\"'][ \t]*[,}\]]?)?[ \t\r]*(?:\\n|[,}\]]|$)"


class Words(NamedTuple):
    """Short texts, each with the id of the memory that said it."""

    said: tuple[tuple[str, str], ...] = ()


def own_words(memories: Iterable[Gone], values: Iterable[dict[str, Any]]) -> Words:
    """What they said in few letters, where they have no line by which they are known."""
    fields = {gone.id: kind_of_file(gone.file).text for gone in memories if is_record_file(gone.file)}
    found: dict[tuple[str, str], None] = {}
    for value in values:
        memory_id = str(value.get("id"))
        lines = [line.strip() for line in str(value.get(fields.get(memory_id, ""), "")).splitlines()]
        if not any(map(is_telling, lines)):
            found.update(dict.fromkeys((memory_id, line) for line in lines if len(line) >= _FEW_CHARACTERS))
    return Words(tuple(found))


def holding(tree: Tree, session_id: str, telling: Telling, words: Words) -> tuple[list[str], list[str]]:
    """The files that are of these memories, and those that may be."""
    directory = f"{QUARANTINE}/{session_id}"
    paths = [f"{directory}/{name}" for name in tree.list(directory) if not name.endswith(".note.yaml")]
    sure = Telling([line for line in telling.lines if is_telling(line)])
    doubtful = Telling([line for line in telling.lines if not is_telling(line)])
    theirs: list[str] = []
    perhaps: list[str] = []
    for path in paths:
        found = _verdicts(tree, path, words)
        if sure.stand_in(tree, path) or True in found:
            theirs.append(path)
        elif found or doubtful.stand_in(tree, path):
            perhaps.append(path)
    return theirs, perhaps


def is_telling(line: str) -> bool:
    """Whether a line is sure to be of those whose it is: not a word, or a time, that others can say too."""
    return len(line) >= (traces.LINE_CHARACTERS if " " in line else _WORD_CHARACTERS) and not _TIME.fullmatch(line)


def _verdicts(tree: Tree, path: str, words: Words) -> set[bool]:
    """Of each word that stands there whether it is sure to be theirs."""
    if not traces.found_in(tree, path, [said.encode("utf-8", "replace") for _, said in words.said]):
        return set()
    content = tree.read(path)
    found: set[bool] = set()
    for memory_id, said in words.said:
        word = re.escape(said.encode("utf-8", "replace"))
        if re.search(_BEFORE_A_VALUE + word + _AFTER_A_VALUE, content, re.MULTILINE):
            # Anybody may have said one common word: then it must be under the same id.
            found.add(not said.isalpha() or _has_id(content, memory_id))
        elif not said.isalpha() and re.search(word, content):
            found.add(False)
    return found


def _has_id(content: bytes, memory_id: str) -> bool:
    return re.search(rb"\bid[\"']?: [\"']?" + re.escape(memory_id.encode()) + rb"\b(?!-)", content) is not None
