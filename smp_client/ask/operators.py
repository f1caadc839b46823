"""The operators of a question, as a tree: AND, OR, NOT and parentheses.

    security NOT deprecated         with the first word, without the second
    (jwt OR oauth) AND login

Operators are written in capitals, and stand between words: `and`, `or` and `not` are words. Words
beside each other are one group, of which any may match. NOT binds closest, then AND, then OR. Two
groups without an operator between them must both match.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

_OPERATOR = re.compile(r"(?<![^\s()])(?:AND|OR|NOT)(?![^\s()])")
_TOKEN = re.compile(
    r"""
    (?P<operator>(?<![^\s()])(?:AND|OR|NOT)(?![^\s()]))
    | (?P<open>(?:(?<![^\s(])|(?<=\bNOT)|(?<=\bAND)|(?<=\bOR))\()
    | (?P<close>\))
    | (?P<words>[+-]?"[^"]*"|[^\s()"]+(?:\([^()"]*\))?|["(])
    """,
    re.VERBOSE,
)
_PARENTHESES = "The parentheses do not match, so they were ignored."
_DEPTH_CAP = 6  # of parentheses: the parser of SQLite has a limit
_TOO_DEEP = f"The parentheses are more than {_DEPTH_CAP} deep, so they were ignored."


@dataclass(frozen=True)
class Group:
    """Words as they were typed, with their quotes and signs."""

    text: str


@dataclass(frozen=True)
class Without:
    part: Node


@dataclass(frozen=True)
class Every:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Some:
    parts: tuple[Node, ...]


Node = Group | Without | Every | Some


class Tree(NamedTuple):
    """The operators of a text, and sentences on those that make no sense."""

    root: Node
    notes: tuple[str, ...] = ()


def tree_of(text: str, most: int) -> Tree | None:
    """Return the tree of a text; None if it has no operators, or so many that it was pasted."""
    if not _OPERATOR.search(text):
        return None
    tokens = list(_tokens(text))
    count = sum(kind != "words" for kind, _ in tokens)
    if count > most or not any(kind == "operator" for kind, _ in tokens):
        return None
    notes: list[str] = []
    if problem := _problem(tokens):
        tokens = _grouped([one for one in tokens if one[0] not in ("open", "close")])
        notes.append(problem)
    reader = _Reader(tokens, notes)
    root = reader.some()
    return None if root is None else Tree(root, tuple(dict.fromkeys(reader.notes)))


_Piece = tuple[str, str]  # the kind of a token, and its text


def _tokens(text: str) -> Iterator[_Piece]:
    """Yield operators, parentheses, and the words between them as one token."""
    pieces = [(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(text)]
    yield from _grouped(pieces)


def _grouped(pieces: list[_Piece]) -> list[_Piece]:
    """Return the tokens with words beside each other as one."""
    found: list[_Piece] = []
    for kind, said in pieces:
        if kind == "words" and found and found[-1][0] == kind:
            found[-1] = (kind, f"{found[-1][1]} {said}")
        else:
            found.append((kind, said))
    return found


def _problem(tokens: list[_Piece]) -> str | None:
    """Return why the parentheses make no sense; None if they do."""
    depth = 0
    deepest = 0
    for kind, _ in tokens:
        depth += (kind == "open") - (kind == "close")
        deepest = max(deepest, depth)
        if depth < 0:
            return _PARENTHESES
    if depth:
        return _PARENTHESES
    return _TOO_DEEP if deepest > _DEPTH_CAP else None


@dataclass
class _Reader:
    """Reads tokens from left to right."""

    tokens: list[_Piece]
    notes: list[str] = field(default_factory=list)
    at: int = 0

    def some(self) -> Node | None:
        parts = [self.every()]
        while self._takes("operator", "OR"):
            parts.append(self._operand("OR", self.every(), parts[-1]))
        return _joined(Some, parts)

    def every(self) -> Node | None:
        parts = [self.one()]
        while self._next() not in ("", "OR", ")"):
            if self._takes("operator", "AND"):
                parts.append(self._operand("AND", self.one(), parts[-1]))
            else:
                parts.append(self.one())
        return _joined(Every, parts)

    def one(self) -> Node | None:
        """Return a group of words, or a part in parentheses, or one of them behind NOT."""
        if self._takes("operator", "NOT"):
            part = self._operand("NOT", self.one())
            if isinstance(part, Without):
                return part.part  # NOT NOT
            return None if part is None else Without(part)
        if self._takes("open", "("):
            inner = self.some()
            self._takes("close", ")")
            return inner
        if self.at < len(self.tokens) and self.tokens[self.at][0] == "words":
            self.at += 1
            return Group(self.tokens[self.at - 1][1])
        return None

    def _operand(self, operator: str, *sides: Node | None) -> Node | None:
        if None in sides:
            self.notes.append(f"{operator} has no words beside it, so it was ignored.")
        return sides[0]

    def _next(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def _takes(self, kind: str, said: str) -> bool:
        is_next = self.at < len(self.tokens) and self.tokens[self.at] == (kind, said)
        self.at += is_next
        return is_next


def _joined(sort: type[Every] | type[Some], parts: list[Node | None]) -> Node | None:
    found = [part for part in parts if part is not None]
    if len(found) < 2:
        return found[0] if found else None
    return sort(tuple(found))
