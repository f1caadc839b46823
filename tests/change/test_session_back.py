"""A session that is brought back while somebody looks for it: it is in its place or put away, and
never said to be nowhere.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from smp_client import Memory, Session, SessionNotFound, SessionPutAway
from smp_client.disk import scope as put_away


def archived(memory: Memory) -> Callable[[], object]:
    memory.archive_session("s1", reason="test")
    return lambda: memory.restore_session("s1")


def deleted(memory: Memory) -> Callable[[], object]:
    memory.delete_session("s1", reason="test")
    return lambda: memory.undelete_session("s1")


USES: dict[str, Callable[[Session], object]] = {
    "write": lambda session: session.record_decision("Second", made_by="a"),
    "read": lambda session: session.records("decision"),
    "transaction": lambda session: session.update("DEC-001", confidence="high"),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("put", [archived, deleted])
def test_it_comes_back_between_two_looks(
    memory: Memory, session: Session, monkeypatch: pytest.MonkeyPatch, short_grace: None,
    put: Callable[[Memory], Callable[[], object]], use: Callable[[Session], object],
) -> None:  # fmt: skip
    """Just after its directory was missed, and before anybody looked where it was put."""
    session.record_decision("First", made_by="a")
    bring_back, missing = put(memory), put_away.missing
    looked: list[SessionNotFound] = []

    def late(*arguments: object) -> SessionNotFound:
        if not looked:
            bring_back()
        looked.append(missing(*arguments))  # type: ignore[arg-type]
        return looked[-1]

    monkeypatch.setattr(put_away, "missing", late)
    use(session)
    assert looked, "the test did not get between the two looks"
    assert memory.session("s1").records("decision")[0].text == "First"


def test_a_session_that_is_nowhere_is_not_said_to_be_away(memory: Memory, session: Session) -> None:
    (memory.root / "active/s1").rename(memory.root / "moved-away")
    with pytest.raises(SessionNotFound) as raised:
        session.record_decision("Second", made_by="a")
    assert not isinstance(raised.value, SessionPutAway)
