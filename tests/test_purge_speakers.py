"""Who has said something that is purged is named no more, unless by something else: not by a summary, nor in the metadata."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from smp_client import Memory, Session
from smp_client.index import Index
from smp_client.indexing import outdated, refresh
from smp_client.maintain.compacting import compact
from smp_client.maintain.traces import places_with
from smp_daemon.ingest.metadata import bring_up_to_date

pytestmark = pytest.mark.usefixtures("short_grace")
LONG_AGO = "2025-01-01T00:00:00Z"


@pytest.fixture
def session(memory: Memory) -> Session:
    session = memory.create_session(id="s1", user="user-1")
    for number in range(8):
        session.add_turn("zzjane" if number == 3 else "bob", f"Number {number}: it must be done, and so it is. " * 3,
                         timestamp=LONG_AGO)  # fmt: skip
    return session


def agents(session: Session) -> dict[str, Any]:
    people = session.metadata()["participants"]
    assert isinstance(people, dict)
    assert isinstance(people["agents"], list)
    return {one.pop("agent_id"): one for one in map(dict, people["agents"])}


def count(memory: Memory, session: Session) -> None:
    """As the daemon does."""
    with closing(Index.in_memory()) as index:
        with index.batch():
            for scope, file in list(outdated(memory, index)):
                refresh(memory, index, scope, file)
        bring_up_to_date(session, index)


def places(memory: Memory) -> list[str]:
    return places_with(memory, [b"zzjane"])


def test_a_summary_says_nothing_of_who_spoke_in_a_turn_that_is_purged(session: Session, memory: Memory) -> None:
    compact(session, reduction_pct=60)
    (summary,) = [one for one in session.turns() if "Said by" in one.text]
    assert "bob (7), zzjane (1)" in summary.text
    assert memory.purge_now("s1", ["turn-4"]).problems == []
    assert "Summary of 7 turns" in session.get(summary.id).text
    assert session.get(summary.id).text.splitlines()[0].endswith("Said by bob (7).")
    assert places(memory) == []


def test_an_agent_is_in_the_metadata_for_as_long_as_something_of_it_is_kept(session: Session, memory: Memory) -> None:
    """By compaction, or in `deleted/`; not because of what was purged."""
    session.update_metadata(participants={"agents": [{"agent_id": "listed"}]})
    session.record_decision("of hers", made_by="zzjane")
    count(memory, session)
    assert {name: one.get("message_count") for name, one in agents(session).items()} == {"listed": None, "bob": 7, "zzjane": 1}
    compact(session, reduction_pct=60)
    session.delete("DEC-001", reason="r")
    count(memory, session)
    assert agents(session)["zzjane"]["message_count"] == 0
    memory.purge_now("s1", ["turn-4"])
    assert "zzjane" in agents(session)
    assert memory.purge_now("s1", ["DEC-001"]).problems == []
    assert agents(session).keys() == {"listed", "bob", "smp"}
    assert places(memory) == []
    memory.purge_now("s1", [one.id for one in session.evicted()])
    assert agents(session).keys() == {"listed"}


def test_an_agent_of_whom_a_person_has_said_more_stays(session: Session, memory: Memory) -> None:
    """Without what was counted."""
    session.update_metadata(participants={"agents": [{"agent_id": "zzjane", "role": "tests"}]})
    count(memory, session)
    assert agents(session)["zzjane"]["message_count"] == 1
    memory.purge_now("s1", ["turn-4"])
    count(memory, session)
    assert agents(session)["zzjane"] == {"role": "tests"}
    assert agents(session)["bob"]["message_count"] == 7


def test_an_agent_goes_from_the_archive_too(session: Session, memory: Memory) -> None:
    count(memory, session)
    memory.archive_session("s1")
    assert memory.purge_now("s1", ["turn-4"]).problems == []
    assert places(memory) == []
    memory.restore_session("s1")
    assert agents(memory.session("s1")).keys() == {"bob"}
