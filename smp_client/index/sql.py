"""SQL with its parameters, put together: no text of a caller ever becomes part of a statement."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class Sql(NamedTuple):
    """A piece of SQL with the parameters of its question marks, in their order."""

    text: str
    parameters: tuple[Any, ...] = ()

    @classmethod
    def joined(cls, word: str, parts: Iterable[Sql]) -> Sql:
        listed = list(parts)
        parameters = tuple(value for part in listed for value in part.parameters)
        return cls(word.join(part.text for part in listed), parameters)

    def wrapped(self, around: str) -> Sql:
        """Return this piece in the place of `{}`, as in `NOT ({})`."""
        return Sql(around.replace("{}", self.text), self.parameters)


def within(column: str, scopes: Sequence[str]) -> Sql:
    """Return the condition that the column names one of the scopes."""
    if len(scopes) == 1:
        return Sql(f"{column} = ?", tuple(scopes))
    return Sql(f"{column} IN (SELECT value FROM json_each(?))", (json.dumps(list(scopes)),))
