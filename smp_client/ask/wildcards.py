"""The words that a pattern stands for: `auth*`, `*ization`, `depr?cated`.

A star is any number of letters, a question mark is one. FTS5 itself finds words by their beginning,
but among stems: `authentication` is `authent` there. So other patterns, and beginnings that no stem
has, are compared with the texts, accents included. Only memories with these very words answer then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..index.sql import Sql
from .bm25 import hits, owned
from .text import Expansion, begun, quoted

if TYPE_CHECKING:
    from .priorities import View

_WORDS_CAP = 200  # words that one pattern stands for: of more, the most frequent
_TEXT = "m.text || ' ' || m.more || ' ' || m.actor || ' ' || m.tags"
_RUN = re.compile(r"[a-z0-9]+")
_LETTER = r"[^\W_]"


def expander(view: View, notes: list[str]) -> Callable[[str], Expansion]:
    """Return the function that expands patterns over the memories of a view, and adds notes."""

    def expand(pattern: str) -> Expansion:
        if pattern.endswith("*") and not re.search(r"[*?]", pattern[:-1]):
            beginning = begun(pattern)
            if hits(view.index.connection, [owned(view, beginning.match)])[0]:
                return beginning
        words = _fitting(view, pattern)
        if not words:
            return Expansion(quoted(pattern))
        if len(words) > _WORDS_CAP:
            said = f"{pattern} stands for {len(words):,} words"
            notes.append(f"{said}; the {_WORDS_CAP} most frequent were looked for.")
        frequent = sorted(words, key=lambda word: len(words[word]), reverse=True)[:_WORDS_CAP]
        keys = {key for word in frequent for key in words[word]}
        exact = Sql("m.key IN (SELECT value FROM json_each(?))", (json.dumps([*keys]),))
        return Expansion(" OR ".join(map(quoted, sorted(frequent))), exact)

    return expand


def _fitting(view: View, pattern: str) -> dict[str, list[int]]:
    """Return the words of the memories that fit a pattern, each with the keys of its memories."""
    word = _compiled(pattern)
    scopes = view.within("m.scope")
    asked = f"SELECT m.key, {_TEXT} FROM memories m WHERE {scopes.text}"
    given = scopes.parameters
    if runs := _RUN.findall(pattern):
        # SQLite leaves out most texts by their longest letters, far faster than Python reads them.
        asked += f" AND {_TEXT} LIKE ?"
        given = (*given, f"%{max(runs, key=len)}%")
    found: dict[str, list[int]] = {}
    for key, text in view.index.execute(asked, given):
        for one in {*word.findall(text.lower())}:
            found.setdefault(one, []).append(key)
    return found


def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern as a regular expression that reads each letter a few times at most.

    A part between two stars stands where it fits first: if the rest fits anywhere, it fits behind.
    """
    first, *others = (_fixed(part) for part in pattern.split("*"))
    inner = first
    for part in others[:-1]:
        inner += f"(?>{_LETTER}*?{part})"
    for part in others[-1:]:
        inner += f"{_LETTER}*{part}"
    return re.compile(f"(?<!{_LETTER}){inner}(?!{_LETTER})")


def _fixed(part: str) -> str:
    """Return a part without stars, which is as long as it says, as a regular expression."""
    return "".join(_LETTER if one == "?" else re.escape(one) for one in part)
