from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Programs


@pytest.fixture(scope="session")
def runner() -> Iterator[Programs]:
    with Programs() as programs:
        yield programs
