"""Which session a name means, in Python; the command asks the library."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from smp_client import Memory, SessionNotFound, SessionPutAway
from smp_client.model.layout import ACTIVE, ARCHIVED
from smp_client.session_name import session_id

pytestmark = pytest.mark.usefixtures("short_grace")
MARCH = datetime(2026, 3, 1, tzinfo=UTC)
OLD, NEW, OTHER = "session-2026-01-11-abc123", "session-2026-01-11-a4f000", "session-2026-02-03-abc999"


@pytest.fixture
def memory(memory: Memory) -> Memory:
    seconds = count()
    memory = Memory(memory.root, clock=lambda: MARCH + timedelta(seconds=next(seconds)))
    for name in (OLD, NEW, OTHER):
        memory.create_session(id=name)
    return memory


@pytest.mark.parametrize(("name", "meant"), [
    (OLD, OLD), ("session-2026-02", OTHER), ("session-2026-01-11-ab", OLD), ("abc999", OTHER), ("03-abc999", OTHER),
])  # fmt: skip
def test_a_beginning_or_the_last_part_will_do(memory: Memory, name: str, meant: str) -> None:
    assert memory.session(name).id == meant


@pytest.mark.parametrize(("name", "problem"), [
    ("session-2026-01", f"2 sessions fit 'session-2026-01': {NEW}, {OLD}. Give more of the id."),
    ("bc999", "There is no session 'bc999'"),  # a part of a part is none
])
def test_what_is_not_clear_is_an_error_with_the_candidates(memory: Memory, name: str, problem: str) -> None:
    with pytest.raises(SessionNotFound) as error:
        memory.session(name)
    assert problem in str(error.value)


def test_the_latest_is_the_one_that_was_written_last(memory: Memory) -> None:
    """In whatever state it is; reading, of one or of all, moves nothing."""
    assert memory.session("latest").id == OTHER
    memory.session(OLD).add_turn("user", "Hello")
    memory.session(OLD).deactivate("for now")
    assert memory.session("latest").id == OLD
    assert memory.search("hello")
    memory.session(NEW).summary()
    assert memory.session("latest").id == OLD
    memory.session("latest").add_turn("user", "Again")
    assert [turn.text for turn in memory.session(OLD).records("conversation_turn")] == ["Hello", "Again"]
    for name in (OLD, NEW, OTHER):
        memory.archive_session(name)
    with pytest.raises(SessionNotFound, match="There is no session 'latest'"):
        memory.session("latest")
    assert session_id(memory, "latest", [ARCHIVED]) == OTHER


@pytest.mark.parametrize("gone", ["archived", "deleted", "purged"])
def test_a_whole_id_never_becomes_another_session(memory: Memory, gone: str) -> None:
    """A program that still has the id of a session that went must not write into one that begins like it."""
    memory.create_session(id="main")
    memory.create_session(id="main-2")
    if gone == "archived":
        memory.archive_session("main")
    else:
        memory.delete_session("main", reason="r")
    if gone == "purged":
        memory.privacy.purge_now("main")
    with pytest.raises(SessionNotFound) as error:
        memory.session("main")
    assert isinstance(error.value, SessionPutAway) == (gone != "purged")
    assert gone in str(error.value)
    assert session_id(memory, "main-", [ACTIVE]) == "main-2"


def test_a_part_of_an_archived_id_is_refused_with_the_way_back(memory: Memory) -> None:
    memory.archive_session(OTHER)
    with pytest.raises(SessionPutAway, match=f"smp unarchive {OTHER}"):
        memory.session("abc999")
