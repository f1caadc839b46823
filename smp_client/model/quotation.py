"""A value as a message quotes it: short, and without secrets, however long the value is."""

from __future__ import annotations

from . import errors

_CHARACTERS = 80
_LOOKED_AT = 10_000  # characters of a text: nobody reads further, and a search takes time


def shown(value: object) -> str:
    """Return the value as it may stand in a message."""
    try:
        text = repr(_begun(value))
    except (ValueError, RecursionError):
        # Python refuses to write out a number of thousands of digits, or lists in lists in lists.
        return f"a {type(value).__name__} too large to show"
    # Before it is cut: half a secret has no shape.
    text = errors.conceal(text[:_LOOKED_AT])
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}…"


def _begun(value: object) -> object:
    """Return the beginning of a text without secrets, and any other value as it is."""
    return errors.conceal(value[:_LOOKED_AT]) if isinstance(value, str) else value
