"""Redaction: a memory without the secrets in its texts, each replaced by its kind.

A text is looked at alone and with the key it stands under: `{"password": "…"}` is a secret although
the text alone says nothing. Keys are never changed, so a key that is itself a secret is refused.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..model import errors
from ..model.deadline import step
from ..model.errors import Invalid
from ..model.quotation import shown
from .found import Found, joined
from .patterns import (
    REPLACEMENT,
    Pattern,
    patterns_of,
    placeholder,
    placeholders,
    problem_of,
    problem_of_replacement,
)

if TYPE_CHECKING:
    from ..text.values import Value

T = TypeVar("T")

FIELD = "redacted"  # of a record: how many secrets of each kind were redacted
WORD = "redacted"  # stands for a secret where only a name may stand: a tag, an id
UNLOCKED = ("report", "redact", "off")
PERSONAL_KINDS = ("email", "ip_address", "path", "phone")
_DEPTH_CAP = 64
_ROUNDS = 64  # far more than any text needs
_KEY_CHARACTERS = 16  # no shorter key is a secret by its shape
# In one entry of a list, how the key and the value are called: `{name: DB_PASSWORD, value: …}`.
_KEY_PARTS, _VALUE_PARTS = ("name", "key", "topic", "variable"), ("value", "preference")
_NAMES_ONLY = frozenset(("tags", "source", "target", "memory_refs", "references"))


class _Redaction(NamedTuple):
    enabled: bool = True
    personal: tuple[str, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    unlocked_edits: str = "report"
    replacement: str = REPLACEMENT


class Redaction(_Redaction):
    """The data that a write takes out: secrets, `personal` kinds, and own `patterns`.

    The patterns are a mapping as in the settings, or a list of names with simple patterns.
    `replacement` stands for everything that is redacted; `{kind}` in it is the kind.
    `unlocked_edits` says whether the daemon reports or redacts secrets in edited files.
    """

    def __new__(
        cls,
        enabled: bool = True,
        personal: tuple[str, ...] = (),
        patterns: Mapping[str, str | Mapping[str, str]] | Iterable[Pattern | tuple[str, str]] = (),
        unlocked_edits: str = "report",
        replacement: str = REPLACEMENT,
    ) -> Redaction:
        try:
            given = patterns_of(patterns) if isinstance(patterns, Mapping) else patterns
        except ValueError as error:
            raise Invalid([str(error)]) from error
        own = tuple(Pattern(*one) for one in given)
        self = super().__new__(cls, enabled, personal, own, unlocked_edits, replacement)
        problems = [problem for one in own if (problem := problem_of(one))]
        if problem := problem_of_replacement(replacement):
            problems.append(problem)
        for kind in self.personal:
            if kind not in PERSONAL_KINDS:
                problems.append(f"kind {shown(kind)} must be one of {', '.join(PERSONAL_KINDS)}")
        if self.unlocked_edits not in UNLOCKED:
            problems.append(f"'unlocked_edits' must be one of {', '.join(UNLOCKED)}")
        if problems:
            raise Invalid(problems)
        return self

    def redacted_value(self, value: T) -> tuple[T, Counter[str]]:
        """Redact every text in a value, and count the kinds. A clean value is returned itself."""
        kinds: Counter[str] = Counter()
        if self.is_clean((value,)):
            return value, kinds
        return self._value(value, "", kinds, 0), kinds

    def is_clean(self, values: Iterable[Any]) -> bool:
        """Return whether none of these values holds a secret."""
        if not self.enabled:
            return True
        from .named import Bond, kind_of
        from .secrets import secrets

        texts: dict[str, None] = {}  # words and times come again and again
        for key, text in itertools.chain.from_iterable(_texts(value, "") for value in values):
            if key and kind_of(key, text, Bond.GIVEN):
                return False
            texts[text] = None
        whole = "\n".join(texts)  # mostly nothing is found, so all are asked at once
        if secrets(whole) or self._personal(whole):
            return False
        # An own expression may speak of the beginning or the end of a text.
        return not any(self._own(text) for text in texts) if self.patterns else True

    def redacted_fields(self, fields: Mapping[str, Value]) -> tuple[dict[str, Value], Counter[str]]:
        """Redact the fields of a record. `redacted` counts the secrets, also those of before."""
        new, kinds = self.redacted_value(fields if isinstance(fields, dict) else dict(fields))
        return (with_counts(new, new.get(FIELD), kinds) if kinds else new), kinds

    def spotted(self, value: Any) -> Counter[str]:
        """Count the kinds in texts and keys."""
        try:
            return self.redacted_value(value)[1]
        except SecretKey as found:
            return found.kinds

    def secrets_by_key(self, value: Any) -> list[str]:
        """Return the texts that are secrets by the keys they stand under."""
        from .named import Bond, kind_of

        found: list[str] = []
        for key, text in _texts(value, ""):
            if key and kind_of(key, text, Bond.GIVEN):
                found.append(text)
        return found

    def require_clean_name(self, what: str, name: object) -> None:
        """Raise Invalid where a name is a secret: a name cannot be redacted."""
        if isinstance(name, str) and (kinds := self.redacted_value(name)[1]):
            problem = f"looks like a secret ({listed_kinds(kinds)}), and cannot be redacted"
            raise Invalid([f"the name of {what} {problem}"])

    def _value(self, value: Any, key: str, kinds: Counter[str], depth: int) -> Any:
        if isinstance(value, str):
            if key in _NAMES_ONLY and not any(map(str.isspace, value)):
                found = list(self._found(value, ""))
                kinds.update(one.kind for one in found)
                return WORD if found else value
            return self._text(value, key, kinds)
        if depth > _DEPTH_CAP or not isinstance(value, (list, dict)):
            return value
        if isinstance(value, list):
            return [self._value(item, key, kinds, depth + 1) for item in value]
        part, paired = _pair_of(value)
        new: dict[str, Any] = {}
        for name, item in value.items():
            is_long = isinstance(name, str) and len(name) >= _KEY_CHARACTERS
            if is_long and (in_key := Counter(one.kind for one in self._found(name, ""))):
                raise SecretKey(in_key)
            new[name] = self._value(item, paired if name == part else name, kinds, depth + 1)
        return new

    def _text(self, text: str, key: str, kinds: Counter[str]) -> str:
        def find(text: str) -> Iterator[tuple[int, int, str]]:
            for start, end, kind in self._found(text, key):
                kinds[kind] += 1
                yield start, end, placeholder(kind, own.get(kind, self.replacement))

        own = {one.name: one.replacement for one in self.patterns if one.replacement}
        return replaced(text, find)

    def _found(self, text: str, key: str) -> Iterator[Found]:
        """Yield, in order, the spans to be redacted that are not placeholders already."""
        step()
        found = [*secrets_under(key, text), *self._personal(text), *self._own(text)]
        if not found:
            return
        known = frozenset((self.replacement, *(one.replacement for one in self.patterns)))
        standing = placeholders(known - {""})
        bare = standing.sub(lambda match: " " * len(match[0]), text)
        found = [one for one in found if any(map(str.isalnum, bare[one.start : one.end]))]
        # A placeholder is replaced as a whole or not at all, so that the rounds come to an end.
        spans = [match.span() for match in standing.finditer(text)]
        yield from joined(_widened(one, spans) for one in found)

    def _personal(self, text: str) -> list[Found]:
        """Return the personal data in a text that are redacted."""
        if not self.personal:
            return []
        from .personal import personal

        return [one for one in personal(text) if one.kind in self.personal]

    def _own(self, text: str) -> list[Found]:
        """Return the finds of own patterns in a text."""
        return [found for pattern in self.patterns for found in pattern.find(text)]


OFF = Redaction(enabled=False)


class SecretKey(Invalid):
    """A key of a mapping is a secret, of these kinds."""

    def __init__(self, kinds: Counter[str]) -> None:
        self.kinds = kinds
        problem = f"a key of a mapping looks like a secret ({listed_kinds(kinds)})"
        super().__init__([f"{problem}; put it into a value, where it is redacted"])


def replaced(text: str, find: Callable[[str], Iterable[tuple[int, int, str]]]) -> str:
    """Replace each find until there is none: beside a new text another one can come about."""
    for _ in range(_ROUNDS):
        pieces: list[str] = []
        at = 0
        for start, end, new in find(text):
            pieces += [text[at:start], new]
            at = end
        if not pieces:
            return text
        text = "".join([*pieces, text[at:]])
    return text


def listed_kinds(kinds: Mapping[str, int]) -> str:
    """Return the kinds as a person reads them: `2 × github token, password`."""
    counts = [(f"{count} × " if count > 1 else "", kind) for kind, count in sorted(kinds.items())]
    return ", ".join(count + kind.replace("_", " ") for count, kind in counts)


def with_counts(
    fields: Mapping[str, Value], before: Value, kinds: Mapping[str, int]
) -> dict[str, Value]:
    """Return the fields with the counts of now and before, by kind; `decay` stays the last."""
    known = before.items() if isinstance(before, dict) else ()
    counts = Counter({kind: count for kind, count in known if type(count) is int})
    counts.update(kinds)
    new = {name: value for name, value in fields.items() if name not in (FIELD, "decay")}
    decay = {"decay": fields["decay"]} if "decay" in fields else {}
    return {**new, FIELD: dict(sorted(counts.items())), **decay}


def harmless(text: str) -> str:
    """Return the text as it may stand in a message or a note, whatever is configured."""
    return Redaction().redacted_value(text)[0]


errors.conceal = harmless


def _widened(one: Found, standing: Iterable[tuple[int, int]]) -> Found:
    """Return a find together with the placeholders that it touches."""
    start = one.start
    end = one.end
    for first, last in standing:
        if first < one.end and one.start < last:
            start = min(start, first)
            end = max(end, last)
    return Found(start, end, one.kind)


def secrets_under(key: str, text: str) -> list[Found]:
    """Return the secrets in a text that stands under a key, which may name it a secret."""
    from .named import Bond, kind_of
    from .secrets import secrets

    kind = kind_of(key, text, Bond.GIVEN) if key else None
    return [Found(0, len(text), kind)] if kind else secrets(text)


def _texts(value: Any, key: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield every text with the key it stands under, and long keys."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, list) and depth <= _DEPTH_CAP:
        for item in value:
            yield from _texts(item, key, depth + 1)
    elif isinstance(value, dict) and depth <= _DEPTH_CAP:
        part, paired = _pair_of(value)
        for name, item in value.items():
            if len(name) >= _KEY_CHARACTERS:
                yield "", name
            yield from _texts(item, paired if name == part else name, depth + 1)


def _pair_of(value: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return which part stands under a key that another part names, and that key."""
    for part in _VALUE_PARTS:
        if isinstance(value.get(part), str):
            for name in _KEY_PARTS:
                if isinstance(key := value.get(name), str) and 0 < len(key) <= 128:
                    # A preference of one word may be about secrets: `topic: token`, `JWT`.
                    is_about = name == "topic" and not any(map(str.isdigit, value[part]))
                    return (None, "") if is_about else (part, key)
    return None, ""
