"""SQL with its parameters, put together: no text of a caller ever becomes part of a statement."""

from __future__ import annotations

from collections.abc import Iterable
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
