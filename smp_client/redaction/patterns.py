r"""A person's own patterns: texts that are redacted because the settings say so.

A pattern is either simple (`ACME-######`: `#` is a digit, `*` a run of letters and digits) or a
regular expression. RE2 runs the expressions, because it needs time in proportion to the text
whatever the expression is. So it has no look-around and no back references. The module `regex` has
both and a timeout; but a write that meets the timeout could only fail, or keep the secret.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from .found import Found

PATTERNS_CAP = 100
REPLACEMENT = "[redacted: {kind}]"
SIMPLE = "3 to 100 letters, digits, blanks and .,:/@_-, with # for a digit and * for a word"
SIGNS = "3 to 60 characters that begin and end with a sign, such as [REDACTED]"
_EXPRESSION_CHARACTERS = 1000
_MEMORY_BYTES = 1 << 20  # for one compiled expression
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_KIND = "[a-z0-9_ ]{1,40}"  # as it stands in a replacement
_FIELDS = ("type", "name", "pattern", "regex", "replacement")


class Pattern(NamedTuple):
    """One own pattern. `name` is the kind of what it finds."""

    name: str
    simple: str = ""
    regex: str = ""
    replacement: str = ""  # empty: that of all

    def find(self, text: str) -> Iterator[Found]:
        """Yield every place where the pattern fits."""
        for match in _compiled(self.simple, self.regex).finditer(text):
            found = Found(*match.span(), self.name)
            if found.start < found.end:
                yield found


class _Match(Protocol):
    def span(self) -> tuple[int, int]: ...


class _Compiled(Protocol):
    def finditer(self, text: str, /) -> Iterator[_Match]: ...


def patterns_of(said: object) -> tuple[Pattern, ...]:
    """Return the patterns of a setting: a mapping of names, or a list with a `type` in each.

    Raises ValueError with the first mistake, and the pattern that it is in.
    """
    entries: list[tuple[object, object]] = []
    if isinstance(said, Mapping):
        entries = [*said.items()]
    elif isinstance(said, list):
        for number, one in enumerate(said, start=1):
            if not isinstance(one, Mapping):
                raise ValueError(f"pattern {number} must be a mapping with type and regex")
            entries.append((one.get("type", one.get("name")), one))
    else:
        raise ValueError("patterns must be a mapping or a list")
    if len(entries) > PATTERNS_CAP:
        raise ValueError(f"there may be at most {PATTERNS_CAP} patterns")
    patterns = tuple(_pattern_of(name, one) for name, one in entries)
    for one in patterns:
        if problem := problem_of(one):
            raise ValueError(problem)
    return patterns


def _pattern_of(name: object, said: object) -> Pattern:
    if not isinstance(said, Mapping):
        said = {"pattern": said}
    shown = repr(name)
    for key, value in said.items():
        if key not in _FIELDS:
            known = "regex, pattern and replacement"
            raise ValueError(f"pattern {shown} has the field {key!r}; it can have {known}")
        if not isinstance(value, str) or not value:
            raise ValueError(f"{key} of pattern {shown} must be a text that is not empty")
    if ("regex" in said) is ("pattern" in said):
        raise ValueError(f"pattern {shown} must have one of regex and pattern")
    texts = {key: str(value) for key, value in said.items()}
    own = texts.get("replacement", "")
    return Pattern(str(name), texts.get("pattern", ""), texts.get("regex", ""), own)


def problem_of(one: Pattern) -> str:
    """Return the mistake in a pattern; empty if it can be used."""
    if not isinstance(one.name, str) or not _NAME.fullmatch(one.name):
        right = "1 to 40 small letters, digits or '_', beginning with a letter"
        return f"the name of a pattern must be {right}, not {one.name!r}"
    problem = _problem_of_regex(one) if one.regex else _problem_of_simple(one)
    if not problem and one.replacement:
        problem = problem_of_replacement(one.replacement)
        problem = problem and f"in pattern {one.name!r}, {problem}"
    return problem


def _problem_of_simple(one: Pattern) -> str:
    is_plain = isinstance(one.simple, str) and re.fullmatch(r"[\w .,:/@#*-]{3,100}", one.simple)
    if not is_plain or len(re.findall(r"[^\W_]|#", one.simple)) < 2:
        return f"pattern {one.name!r} must be {SIMPLE}, or a mapping with a regex"
    # A word is read to its end, so that no text takes long.
    is_cut = re.search(r"\*(?:[^\W_]|[#*])", one.simple)
    return f"in pattern {one.name!r} a blank or a sign must stand behind *" if is_cut else ""


def _problem_of_regex(one: Pattern) -> str:
    import re2

    where = f"the regular expression of pattern {one.name!r}"
    if not isinstance(one.regex, str) or len(one.regex) > _EXPRESSION_CHARACTERS:
        return f"{where} must be a text of at most {_EXPRESSION_CHARACTERS} characters"
    try:
        compiled = _compiled("", one.regex)
    except re2.error as error:
        said = error.args[0] if error.args else ""
        why = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        return f"{where} is wrong: {why}. The syntax is RE2's, without look-around"
    except UnicodeError:
        return f"{where} is not a Unicode text"
    if any(True for _ in compiled.finditer("")):
        return f"{where} fits an empty text; let it need a character"
    return ""


def problem_of_replacement(text: object) -> str:
    """Return the mistake in a replacement; empty if it can be used.

    It must be told apart from the texts that people write, since it is not searched again.
    """
    is_text = isinstance(text, str) and text.isprintable() and 3 <= len(text) <= 60
    if is_text and isinstance(text, str) and not text[0].isalnum() and not text[-1].isalnum():
        is_whole = not re.search(r"[{}]", text.replace("{kind}", "", 1))
        if is_whole and not text[0].isspace() and not text[-1].isspace():
            return ""
    return f"a replacement must be {SIGNS}; it may have {{kind}} in it once, not {text!r}"


@functools.lru_cache(maxsize=PATTERNS_CAP)
def _compiled(simple: str, regex: str) -> _Compiled:
    if not regex:
        inner = re.escape(simple).replace(r"\#", r"\d").replace(r"\*", r"[^\W_]{1,64}+")
        return re.compile(rf"(?<![^\W_]){inner}(?![^\W_])", re.IGNORECASE)
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES
    compiled: Any = re2.compile(regex, options)
    return _Searchable(compiled)


class _Searchable:
    """An expression of RE2 that also reads a text that UTF-8 cannot encode."""

    def __init__(self, compiled: _Compiled) -> None:
        self._compiled = compiled

    def finditer(self, text: str, /) -> Iterator[_Match]:
        # One sign stands for one, so that places stay the same.
        return self._compiled.finditer(text.encode("utf-8", "replace").decode("utf-8"))


def placeholder(kind: str, replacement: str = REPLACEMENT) -> str:
    """Return the text that stands for a find of this kind."""
    return replacement.replace("{kind}", kind.replace("_", " "))


def said_of(patterns: tuple[Pattern, ...]) -> list[dict[str, str]]:
    """Return the setting that has these patterns, as `patterns_of` reads it."""
    names = ("type", "pattern", "regex", "replacement")
    pairs = (zip(names, one, strict=True) for one in patterns)
    return [{name: value for name, value in one if value} for one in pairs]


@functools.lru_cache(maxsize=16)
def placeholders(replacements: frozenset[str]) -> re.Pattern[str]:
    """Return the pattern of every text that stands for a secret, by these or by default."""
    forms = sorted({REPLACEMENT, *replacements}, key=lambda form: (-len(form), form))
    return re.compile("|".join(re.escape(form).replace(r"\{kind\}", _KIND) for form in forms))
