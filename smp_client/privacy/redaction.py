"""Secrets are taken out of what is written, before it is: what every door of the memory asks.

In the text a secret becomes `[redacted: github token]`, and the record says of which kinds how many there were, never what they
were. A text is judged by its shape, and by the key that it stands under: `{"password": "…"}` is a secret although the text alone
says nothing. Keys are never changed, so a key that is itself a secret is refused.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..deadline import deadline, step
from ..errors import Invalid, TookTooLong
from .patterns import PATTERNS_CAP, matches, problem_of, spans

if TYPE_CHECKING:
    from ..text.values import Value
    from .secrets.spans import Found

T = TypeVar("T")

FIELD = "redacted"  # in a record, a state, an artifact's front matter, the metadata: how many of each kind were taken out
WORD = "redacted"  # what stands for one where only a name may stand: a tag, an id
NOT_SEARCHED = "not_searched"  # a kind: what took too long to be searched
UNLOCKED = ("report", "redact", "off")
_DEPTH_CAP = 64
_ROUNDS = 8
_QUOTED_CHARACTERS = 200
_KEY_CHARACTERS = 16  # no shorter key is a secret by its shape
_PLACEHOLDER = re.compile(r"\[redacted: [a-z0-9_ ]{1,40}\]")
# In keys that may say that what stands under them is secret; whether it is, the shapes say.
_NAMING = (
    "pass", "pwd", "secret", "token", "key", "cred", "auth", "bearer", "cookie", "salt", "sign", "private", "session", "conn",
    "dsn", "url", "uri", "jwt", "otp", "pin", "phrase", "login", "kennwort", "contrase",
)  # fmt: skip
# What a mapping that is one entry of a list calls its key and its value: `{name: DB_PASSWORD, value: …}`.
_KEY_PARTS, _VALUE_PARTS = ("name", "key", "topic", "variable"), ("value", "preference")
_WITHOUT_TEXT = frozenset((int, float, bool, type(None)))
_NAMES_ONLY = frozenset(("tags", "source", "target", "memory_refs", "references"))


@dataclass(frozen=True)
class Redaction:
    """What is taken out at a write. Secrets by their shapes always are; `personal` are further kinds, `patterns` a name and a
    regular expression each. `unlocked_edits` is for the daemon: what it does about secrets that came in past the library."""

    enabled: bool = True
    personal: tuple[str, ...] = ()
    patterns: tuple[tuple[str, str], ...] = ()
    unlocked_edits: str = "report"

    def __post_init__(self) -> None:
        problems = [problem for name, pattern in self.patterns if (problem := problem_of(name, pattern))]
        if len(self.patterns) > PATTERNS_CAP:
            problems.append(f"there may be {PATTERNS_CAP} patterns, not {len(self.patterns)}")
        if self.personal:
            from .secrets.shapes import PERSONAL_KINDS

            known = ", ".join(PERSONAL_KINDS)
            problems += [f"kind {kind!r} must be one of {known}" for kind in self.personal if kind not in PERSONAL_KINDS]
        if self.unlocked_edits not in UNLOCKED:
            problems.append(f"'unlocked_edits' must be one of {', '.join(UNLOCKED)}")
        if problems:
            raise Invalid(problems)

    def redacted_text(self, text: str) -> tuple[str, Counter[str]]:
        """The text without what is to be taken out, and how many of each kind that was."""
        kinds: Counter[str] = Counter()
        return (self._text(text, "", kinds) if self.enabled and not self._is_clean([text]) else text), kinds

    def redacted_value(self, value: T) -> tuple[T, Counter[str]]:
        """The same for all texts in mappings and lists; the value itself where there was nothing to take out."""
        kinds: Counter[str] = Counter()
        if not self.enabled:
            return value, kinds
        texts: list[str] = []
        _gather(value, "", texts, 0)
        return (value if not texts or self._is_clean(texts) else self._value(value, "", kinds, 0)), kinds

    def is_clean(self, values: Iterable[Any]) -> bool:
        """Whether there is nothing to take out of any of many; cheaper than to ask of each."""
        texts: list[str] = []
        for value in values if self.enabled else ():
            _gather(value, "", texts, 0)
        return not texts or self._is_clean(texts)

    def redacted_fields(self, fields: Mapping[str, Value]) -> tuple[dict[str, Value], Counter[str]]:
        """The fields of a record, or the parts of a file; what was taken out before is counted with it, in `redacted`."""
        new, kinds = self.redacted_value(fields if isinstance(fields, dict) else dict(fields))
        return (with_counts(new, new.get(FIELD), kinds) if kinds else new), kinds

    def spotted(self, value: Any) -> Counter[str]:
        """Of which kinds there is something in it, in texts or keys; `not_searched` where that takes too long."""
        try:
            with deadline():
                return self.redacted_value(value)[1]
        except SecretKey as found:
            return found.kinds
        except TookTooLong:
            return Counter({NOT_SEARCHED: 1})

    def require_clean_name(self, what: str, name: object) -> None:
        """Raises where a name that becomes one of a file, or of somebody, is a secret: nothing can stand in its place."""
        if isinstance(name, str) and (kinds := self.redacted_text(name)[1]):
            raise Invalid([f"the name of {what} looks like a secret ({told(kinds)}), and cannot be redacted"])

    def _is_clean(self, texts: list[str]) -> bool:
        """Whether nothing is to be found in any of them; asked of all at once, since mostly nothing is."""
        _, holds_secret, personal = _shapes()
        whole = "\n".join(dict.fromkeys(texts))  # names, words and times come again and again
        if holds_secret(whole) or (self.personal and any(found.kind in self.personal for found in personal(whole))):
            return False
        return not matches(self.patterns, texts)

    def _value(self, value: Any, key: str, kinds: Counter[str], depth: int, is_all: bool = True) -> Any:
        if isinstance(value, str):
            is_name = key in _NAMES_ONLY and _is_one_word(value)
            return self._name(value, kinds) if is_name else self._text(value, key, kinds, is_all)
        if depth > _DEPTH_CAP:
            return value
        if isinstance(value, list):
            return [self._value(item, key, kinds, depth + 1, is_all=False) for item in value]
        if not isinstance(value, dict):
            return value
        paired = _pair_of(value)
        new: dict[str, Any] = {}
        for name, item in value.items():
            self._require_clean_key(name)
            new[name] = self._value(item, paired.get(name) or name, kinds, depth + 1, not (name in paired and "topic" in value))
        return new

    def _require_clean_key(self, key: object) -> None:
        if isinstance(key, str) and len(key) >= _KEY_CHARACTERS and (kinds := Counter(one.kind for one in self._found(key, ""))):
            raise SecretKey(kinds)

    def _name(self, text: str, kinds: Counter[str]) -> str:
        found = list(self._found(text, ""))
        kinds.update(one.kind for one in found)
        return WORD if found else text

    def _text(self, text: str, key: str, kinds: Counter[str], is_all: bool = True) -> str:
        """Until nothing is found any more: what stood beside something that is gone can have a shape now that it had not."""
        for _ in range(_ROUNDS):
            pieces: list[str] = []
            position = 0
            for start, end, kind in self._found(text, key, is_all):
                kinds[kind] += 1
                pieces += [text[position:start], placeholder(kind)]
                position = end
            if not pieces:
                return text
            text = "".join([*pieces, text[position:]])
        return text

    def _found(self, text: str, key: str, is_all: bool = True) -> Iterable[Found]:
        """What is to be taken out of a text that stands under a key, in order and never overlapping."""
        step()
        from .secrets.spans import Found, joined

        secrets, _, personal = _shapes()
        found = secrets(text)
        if key and _is_naming(key):
            head, tail = around(key, text, is_all)
            found += [Found(max(one.start - len(head), 0), min(one.end - len(head), len(text)), one.kind)
                      for one in secrets(head + text + tail) if one.end > len(head)]  # fmt: skip
        if self.personal:
            found += [one for one in personal(text) if one.kind in self.personal]
        found += [Found(*span) for span in spans(self.patterns, text)]
        return _not_redacted_yet(text, joined(found)) if found else found


OFF = Redaction(enabled=False)


class SecretKey(Invalid):
    """A key of a mapping that is a secret, of which it holds the kinds."""

    def __init__(self, kinds: Counter[str]) -> None:
        self.kinds = kinds
        super().__init__([f"a key of a mapping looks like a secret ({told(kinds)}); put it into a value, where it is redacted"])


def placeholder(kind: str) -> str:
    return f"[redacted: {kind.replace('_', ' ')}]"


def told(kinds: Mapping[str, int]) -> str:
    """The kinds as a person reads them: `2 × github token, password`."""
    return ", ".join((f"{count} × " if count > 1 else "") + kind.replace("_", " ") for kind, count in sorted(kinds.items()))


def with_counts(fields: Mapping[str, Value], before: Value, kinds: Mapping[str, int]) -> dict[str, Value]:
    """The fields with what was taken out now and before, by kind; `decay` stays the last."""
    known = before if isinstance(before, dict) else {}
    counts = Counter({kind: count for kind, count in known.items() if isinstance(count, int) and not isinstance(count, bool)})
    counts.update(kinds)
    new = {name: value for name, value in fields.items() if name not in (FIELD, "decay")}
    return {**new, FIELD: dict(sorted(counts.items())), **({"decay": fields["decay"]} if "decay" in fields else {})}


def around(key: str, text: str, is_all: bool = True) -> tuple[str, str]:
    """What a text is looked at with that stands under a key: all of the value, as if it stood in quotes. A word that is one of
    a list, or said of a topic, is not in quotes: it can be a rule, or what somebody prefers."""
    is_quoted = (is_all or " " in text) and len(text) <= _QUOTED_CHARACTERS and not any(sign in text for sign in "\"'`\n\\")
    return (f'{key}: "', '"') if is_quoted else (f"{key}: ", "")


def harmless(text: str) -> str:
    """The text as it may stand in a message or a note, whatever is configured."""
    return Redaction().redacted_text(text)[0]


@functools.cache
def _shapes() -> tuple[Callable[[str], list[Found]], Callable[[str], bool], Callable[[str], list[Found]]]:
    """Loaded with the first write, and not by whoever only reads."""
    from .secrets.shapes import holds_secret, personal, secrets

    return secrets, holds_secret, personal


@functools.lru_cache(maxsize=1024)
def _is_naming(key: str) -> bool:
    low = key.lower()
    return any(part in low for part in _NAMING)


def _gather(value: Any, key: str, texts: list[str], depth: int, is_all: bool = True) -> None:
    """All texts that are to be looked at, those under a telling key once more together with it; long keys too."""
    if isinstance(value, str):
        texts.append(value)
        if key and _is_naming(key):
            texts.append(value.join(around(key, value, is_all)))
    elif isinstance(value, list) and depth <= _DEPTH_CAP:
        for item in value:
            _gather(item, key, texts, depth + 1, is_all=False)
    elif isinstance(value, dict) and depth <= _DEPTH_CAP:
        paired = _pair_of(value)
        for name, item in value.items():
            if len(name) >= _KEY_CHARACTERS:
                texts.append(name)
            kind = type(item)
            if kind in _WITHOUT_TEXT:
                continue
            under = (paired.get(name) or name) if paired else name
            if kind is str:
                texts.append(item)
                if _is_naming(under):
                    texts.append(item.join(around(under, item, not (name in paired and "topic" in value))))
            else:
                _gather(item, under, texts, depth + 1)


def _is_one_word(text: str) -> bool:
    return not any(character.isspace() for character in text)


def _pair_of(value: Mapping[str, Any]) -> dict[str, str]:
    """Which part of it stands under a key that another part names; only what is one word can be such a value."""
    for part in _VALUE_PARTS:
        if part in value and isinstance(said := value[part], str) and _is_one_word(said):
            key = next((value[name] for name in _KEY_PARTS if isinstance(value.get(name), str)), None)
            return {part: key} if key and len(key) <= 128 else {}
    return {}


def _not_redacted_yet(text: str, found: Iterable[Found]) -> Iterator[Found]:
    """Yield the finds that hold a letter or digit outside of placeholders, which stand where a secret was before."""
    bare = _PLACEHOLDER.sub(lambda match: " " * len(match[0]), text)
    return (one for one in found if any(map(str.isalnum, bare[one.start : one.end])))
