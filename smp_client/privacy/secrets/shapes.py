"""What secrets and personal data look like: one question each, answered with spans."""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase

from .issued import ISSUED_KINDS, issued
from .named import NAMED_KINDS, named
from .personal import PERSONAL_KINDS, personal
from .spans import Found, joined

__all__ = ["PERSONAL_KINDS", "SECRET_KINDS", "Found", "holds_secret", "personal", "secrets"]

SECRET_KINDS: tuple[str, ...] = tuple(dict.fromkeys((*ISSUED_KINDS, *NAMED_KINDS)))
_PASSES = 8
_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)


def holds_secret(text: str) -> bool:
    """Return whether there is a secret in a text; a second one, glued to the first, does not matter for that."""
    return bool(_once(text))


def secrets(text: str) -> list[Found]:
    """Every secret in a text, of which only the secret itself, not the name before it; never overlapping, in order."""
    found = _once(text)
    # One that was glued to another shows only when that is gone; so what is left after a redaction holds none.
    passes = _PASSES
    while passes and (more := _once(_without(text, found)) if found else []):
        found, passes = joined([*found, *more]), passes - 1
    return found


def _once(text: str) -> list[Found]:
    folded = _folded(text)
    found = issued(text, folded) + named(text, folded)
    return joined(found) if len(found) > 1 else found


def _without(text: str, found: list[Found]) -> str:
    """The text with brackets where the secrets were, as long as it was."""
    parts, at = [], 0
    for start, end, _ in found:
        parts += [text[at:start], f"[{' ' * (end - start - 2)}]"[: end - start]]
        at = end
    return "".join([*parts, text[at:]])


def _folded(text: str) -> str:
    """The text in small letters, each where it was: where `lower` makes two letters of one, only those of ASCII are changed."""
    small = text.lower()
    return small if len(small) == len(text) else text.translate(_SMALL)
