"""The front door: every error that leaves the library is an SMPError with a code.

`front_door` decorates each public class. Inside the library the layers may raise OSError, which
tells them more; at the door it becomes StorageFailed, with the system's error as its cause.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import wraps
from types import FunctionType, GeneratorType
from typing import ParamSpec, TypeVar, cast

from . import errors

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

_PUBLIC = ("__init__", "__enter__", "__exit__")  # although their names begin with an underscore


def front_door(public: C) -> C:
    """Guard every public method and property that this class itself defines."""
    for name, member in list(vars(public).items()):
        if name.startswith("_") and name not in _PUBLIC:
            continue
        if isinstance(member, FunctionType):
            setattr(public, name, guarded(member))
        elif isinstance(member, property) and member.fget is not None:
            setattr(public, name, property(guarded(member.fget), member.fset))
    return public


def guarded(function: Callable[P, R], name: str = "") -> Callable[P, R]:
    """Return the function with SMPErrors for the failures of disk and index.

    If the function is a generator, each of its steps is guarded. Messages call it by `name`.
    """
    name = name or function.__qualname__

    @wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> R:
        try:
            answer = function(*given, **named)
        except BrokenPipeError:
            raise  # nobody reads the caller's own stream
        except errors.SMPError as error:
            _report(error, given)
            raise
        except _failures() as error:
            failed = errors.storage_failed(_failing(name, given), error)
            _report(failed, given)
            raise failed from error
        if isinstance(answer, GeneratorType):
            return cast("R", _guarded_steps(answer, _failing(name, given)))
        return answer

    return call


def _guarded_steps(answers: Iterator[R], failing: str) -> Iterator[R]:
    try:
        yield from answers
    except BrokenPipeError:
        raise
    except _failures() as error:
        raise errors.storage_failed(failing, error) from error


def _failing(name: str, given: tuple[object, ...]) -> str:
    """Return the beginning of a message: the method, and the root of its object."""
    root = _root_of(given)
    return f"{name} failed in {root}" if root else f"{name} failed"


def _root_of(given: tuple[object, ...]) -> str:
    """Return the root of the object whose method is called; "" where it has none."""
    one: object = given[0] if given else None
    for owner in ("session", "_session", "memory", "tree"):
        one = getattr(one, "__dict__", {}).get(owner, one)
    root = getattr(one, "path", None)
    return root if isinstance(root, str) else ""


def _report(error: errors.SMPError, given: tuple[object, ...]) -> None:
    """Report an error once, although it passes several guarded methods."""
    root = _root_of(given)
    if root and not error.is_reported:
        error.is_reported = True
        errors.report(root, error)


def _failures() -> tuple[type[Exception], ...]:
    """Return the errors of disk and index. Python asks for them only after an error."""
    sqlite3 = sys.modules.get("sqlite3")  # a program that only writes does not load it
    return (OSError,) if sqlite3 is None else (OSError, sqlite3.Error)
