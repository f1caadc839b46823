"""Unlocked writers that cross an exchange of the library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from smp_client.disk.tree import Tree


@contextmanager
def at_the_exchange(
    monkeypatch: pytest.MonkeyPatch,
    *,
    before: Callable[[], None] | None = None,
    after: Callable[[], None] | None = None,
) -> Iterator[None]:
    """Call an unlocked writer just before or just after the next exchange."""
    honest = Tree.exchange
    pending = {"before": before, "after": after}

    def crossed(tree: Tree, one: str, other: str) -> None:
        if first := pending.pop("before", None):
            first()
        honest(tree, one, other)
        if then := pending.pop("after", None):
            then()

    with monkeypatch.context() as patch:
        patch.setattr(Tree, "exchange", crossed)
        yield
    assert not pending, "no file was exchanged"
