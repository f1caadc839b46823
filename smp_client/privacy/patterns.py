"""A user's own patterns, matched by an engine that can be given up.

Python's `re` cannot be interrupted: a slow pattern on the wrong text stops every thread of a
process, its signal handlers too. So own patterns go through `regex`, which understands the
patterns of `re` and takes a limit on time. A pattern is tried on long runs of its own characters
before it is accepted.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import TookTooLong

PATTERNS_CAP, PATTERN_CAP_CHARACTERS = 100, 1000
LIMIT_S = 1.0  # for one pattern and one text
_TRIAL_S = 0.25
_TRIAL_CHARACTERS = 3000
_NAME = r"[a-z][a-z0-9_]{0,39}"
_USUAL = "aA0 .-_x"

Patterns = tuple[tuple[str, str], ...]  # each a name and a regular expression


def spans(patterns: Patterns, text: str) -> Iterator[tuple[int, int, str]]:
    """Yield where each pattern matches, with its name. Raise TookTooLong where one is too slow."""
    for name, compiled in _compiled(patterns):
        try:
            for match in compiled.finditer(text, timeout=LIMIT_S):
                if match.end() > match.start():
                    yield match.start(), match.end(), name
        except TimeoutError:
            raise _too_slow(name) from None


def matches(patterns: Patterns, texts: Iterable[str]) -> bool:
    """Return whether any pattern matches in any of the texts."""
    return bool(patterns) and any(next(spans(patterns, text), None) for text in texts)


def _too_slow(name: str) -> TookTooLong:
    sentence = (
        f"The pattern {name!r} of redaction.patterns took longer than {LIMIT_S:g} s on one text."
    )
    return TookTooLong(sentence, advice="Make the pattern simpler; nothing was written.")


def problem_of(name: object, pattern: object) -> str | None:
    """Return what is wrong with a pattern; None where it can be used."""
    if not isinstance(name, str) or not re.fullmatch(_NAME, name):
        right = "1 to 40 small letters, digits or '_', beginning with a letter"
        return f"the name of a pattern must be {right}, not {name!r}"
    if not isinstance(pattern, str) or len(pattern) > PATTERN_CAP_CHARACTERS:
        return f"pattern {name!r} must be a text of at most {PATTERN_CAP_CHARACTERS} characters"
    return _problem_of_expression(name, pattern)


@functools.lru_cache(maxsize=256)
def _problem_of_expression(name: str, pattern: str) -> str | None:
    import regex

    try:
        compiled = regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        return f"pattern {name!r} is no regular expression: {error}"
    try:
        if compiled.search("", timeout=_TRIAL_S):
            return f"pattern {name!r} matches the empty text, so it would match everywhere"
        for mark in dict.fromkeys(_USUAL + "".join(filter(str.isalnum, pattern))):
            list(compiled.finditer(mark * _TRIAL_CHARACTERS + "\n!", timeout=_TRIAL_S))
    except TimeoutError:
        return (
            f"pattern {name!r} takes too long on long runs of one character:"
            " avoid repeating what repeats, as in (a+)+"
        )
    return None


@functools.lru_cache(maxsize=32)
def _compiled(patterns: Patterns) -> tuple[tuple[str, Any], ...]:
    import regex

    return tuple((name, regex.compile(pattern)) for name, pattern in patterns)
