"""SQL with its parameters, put together: no text of a caller ever becomes part of a statement."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

PATTERN_CAP_CHARACTERS = 4_000  # SQLite takes no pattern longer than 50,000 bytes


class Sql(NamedTuple):
    """A piece of SQL with the parameters of its question marks, in their order."""

    text: str
    parameters: tuple[Any, ...] = ()

    @classmethod
    def joined(cls, word: str, parts: Iterable[Sql]) -> Sql:
        listed = list(parts)
        return compose(word.join(["{}"] * len(listed)), *listed)


def compose(template: str, *parts: Sql) -> Sql:
    """Return the template with its parts in the places of `{}`."""
    parameters = tuple(value for part in parts for value in part.parameters)
    return Sql(template.format(*(part.text for part in parts)), parameters)


def bound(value: Any) -> Sql:
    return Sql("?", (value,))


def some(tests: Sequence[Sql]) -> Sql:
    """Return the condition that one of these holds."""
    return compose("({})", Sql.joined(" OR ", tests)) if tests else Sql("0")


def negated(test: Sql) -> Sql:
    # Of a field that is absent, the test is null rather than false.
    return compose("({}) IS NOT TRUE", test)


def is_one_of(expression: Sql, values: Sequence[Any]) -> Sql:
    # Many values travel as one parameter, of which SQLite has only so many.
    if len(values) == 1:
        return compose("{} = {}", expression, bound(values[0]))
    return compose("{} IN (SELECT value FROM json_each({}))", expression, bound(json.dumps(values)))


def is_within(expression: Sql, bounds: Sequence[tuple[str, Any]]) -> Sql:
    """Return the condition that it is on the right side of each bound, given with its symbol."""
    tests = [compose(f"{{}} {symbol} {{}}", expression, bound(value)) for symbol, value in bounds]
    return compose("({})", Sql.joined(" AND ", tests))


def is_like(expression: Sql, part: str, *, at_the_beginning: bool = False) -> Sql:
    """Return the condition that a text has this part, in upper or lower case."""
    any_text = "" if at_the_beginning else "%"
    # LIKE is fast, but knows upper and lower case only in ASCII; `_` is any character.
    like = re.sub(r"[^\x00-\x7f]", "_", re.sub(r"[%_\\]", r"\\\g<0>", part))
    test = compose("{} LIKE {} ESCAPE '\\'", expression, bound(f"{any_text}{like}%"))
    if part.isascii():
        return test
    exact = "".join(map(_either_case, part))
    pattern = bound(f"{any_text.replace('%', '*')}{exact}*")
    return compose("({} AND {} GLOB {})", test, expression, pattern)


def glob(text: str) -> str:
    """Return a pattern for just this text."""
    return re.sub(r"[*?[]", r"[\g<0>]", text)


def _either_case(character: str) -> str:
    forms = {form for form in (character, character.lower(), character.upper()) if len(form) == 1}
    return f"[{''.join(sorted(forms))}]" if len(forms) > 1 else glob(character)


def leaves(data: str, path: str, which: str) -> str | None:
    """Return the values at a dotted path of a JSON mapping, as a JSON list; None where none is.

    Lists on the way are looked through, and a list at its end gives its items. `single` leaves
    those out, and `parts` are only those, and the keys of mappings.
    """
    found: list[Any] = [json.loads(data)]
    for name in path.split("."):
        mappings = (item for value in found for item in _items(value) if isinstance(item, dict))
        found = [mapping[name] for mapping in mappings if name in mapping]
    found = [value for value in found if value is not None]
    if which == "single":
        found = [value for value in found if not isinstance(value, list)]
    elif which == "parts":
        found = [list(value) if isinstance(value, dict) else value for value in found]
        found = [value for value in found if isinstance(value, list)]
    if not found:
        return None
    said = json.dumps([item for value in found for item in _items(value)])
    return said.replace("Infinity", "9e999")  # as SQLite writes it


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
