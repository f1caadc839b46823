from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Programs


@pytest.fixture(scope="session")
def runner() -> Iterator[Programs]:
    with Programs() as programs:
        yield programs


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes next may remove what nobody has open."""
    monkeypatch.setattr("smp_client.change.latecomers.GRACE_S", -1.0)
    monkeypatch.setattr("smp_client.disk.rewrite.GRACE_S", -1.0)
    monkeypatch.setattr("smp_client.passes.tidy.ABANDONED_S", -1.0)
