"""Counts of the things that make code hard to carry, for `test_architecture.py`."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import NamedTuple

_LAYOUT_TOKENS = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_BRANCHES = (
    ast.If,
    ast.For,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.Assert,
    ast.comprehension,
    ast.match_case,
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
MANY_BRANCHES = 15


class Density(NamedTuple):
    tokens: int
    code_lines: int
    packed_assignments: int  # `a, b = x, y` of unrelated values
    any_parameters: int
    tangled_functions: int


def density(paths: list[Path]) -> Density:
    """Return the sum of the counts over modules."""
    counted = [_density_of(path.read_text()) for path in paths]
    return Density(*(sum(column) for column in zip(*counted, strict=True)))


def _density_of(text: str) -> Density:
    nodes = list(ast.walk(ast.parse(text)))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    tokens, code_lines = _tokens(text, _docstring_lines(nodes))
    return Density(
        tokens,
        code_lines,
        sum(_is_packed(node) for node in nodes),
        sum(_any_parameters(function) for function in functions),
        sum(_branches(function) >= MANY_BRANCHES for function in functions),
    )


def _docstring_lines(nodes: list[ast.AST]) -> set[int]:
    lines: set[int] = set()
    for node in nodes:
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines.update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return lines


def _tokens(text: str, skipped: set[int]) -> tuple[int, int]:
    count = 0
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT_TOKENS and token.start[0] not in skipped:
            count += 1
            lines.update(range(token.start[0], token.end[0] + 1))
    return count, len(lines)


def _is_packed(node: ast.AST) -> bool:
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    if not isinstance(node.targets[0], ast.Tuple):
        return False
    return not _names(node.targets[0]) & _names(node.value)  # a swap packs nothing


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _any_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    named += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    annotations = [ast.unparse(one.annotation) for one in named if one.annotation is not None]
    return sum(re.search(r"\bAny\b", annotation) is not None for annotation in annotations)


def _branches(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    inner = list(ast.walk(function))
    joined = [len(node.values) - 1 for node in inner if isinstance(node, ast.BoolOp)]
    return sum(isinstance(node, _BRANCHES) for node in inner) + sum(joined)
