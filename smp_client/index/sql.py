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
        return cls(word.join(part.text for part in listed), tuple(value for part in listed for value in part.parameters))


def compose(template: str, *parts: Sql) -> Sql:
    """The template with its parts in the places of `{}`, and their parameters in that order."""
    return Sql(template.format(*(part.text for part in parts)), tuple(value for part in parts for value in part.parameters))


def bound(value: Any) -> Sql:
    return Sql("?", (value,))


def some(tests: Sequence[Sql]) -> Sql:
    """That one of them holds."""
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
    """That it is on the right side of each bound, given with its symbol."""
    tests = [compose(f"{{}} {symbol} {{}}", expression, bound(value)) for symbol, value in bounds]
    return compose("({})", Sql.joined(" AND ", tests))


def is_like(expression: Sql, part: str, *, at_the_beginning: bool = False) -> Sql:
    """That a text has this part, in upper or lower case."""
    # LIKE is fast, but knows upper and lower case only in ASCII; `_` is any character.
    like = re.sub(r"[^\x00-\x7f]", "_", re.sub(r"[%_\\]", r"\\\g<0>", part)) + "%"
    test = compose("{} LIKE {} ESCAPE '\\'", expression, bound(like if at_the_beginning else f"%{like}"))
    if part.isascii():
        return test
    exact = "".join(map(_either_case, part)) + "*"
    return compose("({} AND {} GLOB {})", test, expression, bound(exact if at_the_beginning else f"*{exact}"))


def glob(text: str) -> str:
    """A pattern for just this text."""
    return re.sub(r"[*?[]", r"[\g<0>]", text)


def _either_case(character: str) -> str:
    forms = {form for form in (character, character.lower(), character.upper()) if len(form) == 1}
    return f"[{''.join(sorted(forms))}]" if len(forms) > 1 else glob(character)
