"""What is archived is still found: by its summary, whoever keeps the index, and only while the session is nowhere else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from daemons import index_contents, rebuilt_contents, running, smp, status, wait_until, wait_until_true

from smp_client import Memory, Record, Session
from smp_client.check import check
from smp_client.index import Index
from smp_client.indexing import outdated, rebuild, refresh
from smp_client.maintain import summary_file
from smp_client.packing import Member
from smp_client.scopes import archived_scopes, directory_of, scopes
from smp_client.status import INDEX_FILE, read_status
from smp_client.sync import bring_up_to_date
from smp_daemon.ingest import indexer

NOW = datetime(2026, 3, 31, 12, tzinfo=UTC)
MEMBERS = [Member("conversation.md", 700, "0" * 64), Member("decisions.yaml", 300, "1" * 64)]
PACK = Member("archive.tar.gz", 512, "2" * 64)


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def opened(root: Path) -> Memory:
    return Memory(root, clock=lambda: NOW)


def fill(session: Session) -> Session:
    session.add_turn("user", "Which ledger do the invoices go to?", timestamp=ago(60))
    session.add_turn("architect", "The one in Zürich, " + "and nowhere else, " * 40, timestamp=ago(59))
    session.record_decision("Keep invoices for ten years", made_by="architect", tags=["billing.retention"], timestamp=ago(58),
                            implementation_impact="high")  # fmt: skip
    session.record_decision("Number them by month", made_by="clerk", status="superseded", timestamp=ago(57))
    session.record_finding("The ledger rounds twice", discovered_by="profiler", severity="critical", timestamp=ago(56))
    session.record_finding("A typing error", discovered_by="profiler", severity="info", timestamp=ago(55))
    session.resolve_finding("FIND-002", resolved_by="clerk", action_taken="Mended.")
    session.record_preference("Amounts in francs", topic="currency", confidence="explicit", created_by="user", timestamp=ago(54))
    return session


def pack_away(memory: Memory, session_id: str) -> None:
    """As archiving does, but for the archive itself."""
    describe(memory, session_id, "archived")
    leave(memory, session_id)


def describe(memory: Memory, session_id: str, state: str) -> None:
    content = summary_file.content(memory.session(session_id))
    why = "not used for 30 days"
    summary = summary_file.render(content, state=state, reason=why, archived_at=NOW, members=MEMBERS, archive=PACK)
    (memory.root / f"archived/{session_id}").mkdir()
    (memory.root / f"archived/{session_id}/summary.yaml").write_bytes(summary)


def leave(memory: Memory, session_id: str) -> None:
    (memory.root / f"active/{session_id}").rename(memory.root.parent / f"packed-{session_id}")


def bring_back(memory: Memory, session_id: str) -> None:
    (memory.root.parent / f"packed-{session_id}").rename(memory.root / f"active/{session_id}")
    shutil.rmtree(memory.root / f"archived/{session_id}")


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    """With one session that is in use, and one that is archived."""
    memory = opened(tmp_path / "sessions")
    fill(memory.create_session(id="old", user="user-1", project="Shop", topic="billing", tags=["money"]))
    new = memory.create_session(id="new", topic="shipping")
    new.record_decision("Ship invoices with the parcel", made_by="clerk", timestamp=ago(1))
    pack_away(memory, "old")
    return memory


def the_summary(memory: Memory) -> Record:
    (found,) = memory.by_type("summary", count_access=False)
    return found


# The file.


def test_a_summary_says_what_a_person_would_ask(tmp_path: Path) -> None:
    """Who, what, when and how much; decisions by their weight, findings that are open, preferences, and what was said last."""
    memory = opened(tmp_path / "sessions")
    session = fill(memory.create_session(id="old", user="user-1", project="Shop", phase="design", topic="billing", tags=["money"]))
    said: dict[str, Any] = {**summary_file.content(session)}
    assert [said[name] for name in ("session_id", "project", "phase", "topic", "user", "tags")] == [
        "old", "Shop", "design", "billing", "user-1", ["money"],
    ]  # fmt: skip
    assert (said["first_activity"], said["last_activity"]) == ("2026-01-30T12:00:00Z", "2026-02-05T12:00:00Z")
    assert {"name": "profiler", "memories": 2} in said["participants"]
    assert said["memories"] == {"conversation_turn": 2, "decision": 2, "finding": 2, "preference": 1}
    assert {"billing", "money", "currency", "billing.retention"} <= {topic["name"] for topic in said["topics"]}
    assert said["decisions"] == [
        {"id": "DEC-001", "made_by": "architect", "timestamp": "2026-02-01T12:00:00Z", "text": "Keep invoices for ten years"},
        {"id": "DEC-002", "made_by": "clerk", "timestamp": "2026-02-02T12:00:00Z", "status": "superseded",
         "text": "Number them by month"},
    ]  # fmt: skip
    assert said["open_findings"] == [{"id": "FIND-001", "severity": "critical", "text": "The ledger rounds twice"}]
    assert said["preferences"] == [{"id": "PREF-001", "confidence": "explicit", "text": "Amounts in francs"}]
    assert [turn["speaker"] for turn in said["last_turns"]] == ["user", "architect"]
    assert len(said["last_turns"][1]["text"]) <= 200
    assert said["sizes"]["session_bytes"] == session.size().total_bytes


def test_a_summary_is_read_back_as_it_was_rendered(tmp_path: Path) -> None:
    session = fill(opened(tmp_path / "sessions").create_session(id="old"))
    content = summary_file.content(session)
    rendered = summary_file.render(content, state="archiving", reason="by hand", archived_at=NOW, members=MEMBERS, archive=PACK)
    said: dict[str, Any] = {**summary_file.load(rendered)}
    assert rendered.startswith(b"version: 1\narchive:\n")
    assert {name: said[name] for name in content} == content
    assert said["members"][0] == {"path": "conversation.md", "bytes": 700, "sha256": "0" * 64}
    assert said["archive"] == {"file": "archive.tar.gz", "bytes": 512, "sha256": "2" * 64}
    assert (said["state"], said["reason"], said["total_bytes"], said["archived_at"]) == (
        "archiving", "by hand", 1000, "2026-03-31T12:00:00Z",
    )  # fmt: skip
    again = summary_file.render(said, state="archived", reason="by hand", archived_at=NOW, members=MEMBERS, archive=PACK)
    assert summary_file.load(again) == {**said, "state": "archived"}


def test_a_session_without_anything_has_a_summary_too(tmp_path: Path) -> None:
    """Also one whose metadata cannot be read."""
    memory = opened(tmp_path / "sessions")
    session = memory.create_session(id="old")
    (memory.root / "active/old/metadata.yaml").write_text("session: [\n")
    said: dict[str, Any] = {**summary_file.content(session)}
    assert (said["topic"], said["memories"], said["decisions"], said["last_activity"]) == (None, {}, [], None)
    pack_away(memory, "old")
    assert the_summary(memory).session == "old"


def test_a_summary_stays_small(tmp_path: Path) -> None:
    """However much a session holds, the fifty decisions that matter most are listed, and of each as much as can be read at once."""
    session = opened(tmp_path / "sessions").create_session(id="old")
    with session.transaction() as tx:
        for number in range(60):
            tx.record_decision(f"Decision {number}: " + "x" * 3000, made_by="clerk", pinned=number == 0)
    decisions: Any = summary_file.content(session)["decisions"]
    assert len(decisions) == 50
    assert decisions[0]["id"] == "DEC-001"
    assert max(len(decision["text"]) for decision in decisions) == 1000


# Being found: with no daemon, with an index that is behind, with none at all.


def with_nothing(memory: Memory) -> None:
    for name in (memory.root / INDEX_FILE).parent.glob("index.db*"):
        name.unlink()


def behind(memory: Memory) -> None:
    """An index that was made when the session was still active, and that nobody may change."""
    bring_back(memory, "old")
    bring_up_to_date(memory)
    pack_away(memory, "old")


def up_to_date(memory: Memory) -> None:
    bring_up_to_date(memory)


def in_memory(memory: Memory) -> None:
    """No index can be made: a directory stands in its place."""
    with_nothing(memory)
    (memory.root / INDEX_FILE).mkdir()


WAYS = [with_nothing, behind, up_to_date, in_memory]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_an_archived_session_is_found_by_what_it_said(memory: Memory, way: Callable[[Memory], None]) -> None:
    """By its decisions, findings, preferences, participants, topics and last turns; never by memories that are packed away."""
    way(memory)
    asked = opened(memory.root)
    for words in ("ledger rounds", "francs", "profiler", "Zürich", "ten years"):
        found = [record for record in asked.search(words) if record.session == "old"]
        assert [(record.id, record.type) for record in found] == [("summary", "summary")], words
    assert {(record.session, record.id) for record in asked.search("invoices")} == {("new", "DEC-001"), ("old", "summary")}
    assert [record.session for record in asked.by_topic("billing")] == ["old"]
    assert [record.session for record in asked.search(tags=["money"])] == ["old"]
    assert asked.search("typing error") == []


def test_a_summary_is_a_memory_like_any_other(memory: Memory) -> None:
    """It has a time, tags, a priority and all that the file says but for the list of what is packed; its session is plain."""
    found = the_summary(memory)
    assert (found.session, found.id, found.type, found.timestamp) == ("old", "summary", "summary", ago(54))
    assert {"money", "billing", "billing.retention"} <= set(found.tags)
    assert "members" not in found.data
    assert found.data["archive"]["file"] == "archive.tar.gz"
    assert found.data["decisions"][0]["text"] in found.text
    assert 0.3 <= found.priority <= 0.8
    assert memory.search(types=["summaries"])[0] == found
    assert [record.session for record in memory.by_time(ago(54), ago(54))] == ["old"]
    assert memory.similar("Keep invoices for ten years, in francs", types=["summary"])[0].session == "old"
    assert memory.related("summary") == []
    assert memory.similar("summary", types=["summary"]) == []


def test_a_specification_knows_an_archived_session_by_its_id(memory: Memory) -> None:
    by_session = memory.query({"aggregations": [{"function": "count", "by": "session"}], "limit": 0})
    assert by_session.aggregations["count_by_session"] == {"new": 1, "old": 1}
    named = {"filters": [{"field": "session", "operator": "equals", "value": "old"}], "include_related": True}
    assert [record.type for record in memory.query(named)] == ["summary"]
    other = {"filters": [{"field": "session", "operator": "not", "value": "old"}]}
    assert [record.session for record in memory.query(other)] == ["new"]
    begins = {"filters": [{"field": "session", "operator": "prefix", "value": "ol"}, {"field": "type", "operator": "equals",
                                                                                    "value": "summary"}]}  # fmt: skip
    assert len(memory.query(begins)) == 1
    figures = {"filters": [{"field": "memories.decision", "operator": "equals", "value": 2}]}
    assert [record.session for record in memory.query(figures)] == ["old"]


def test_what_is_archived_counts_less(memory: Memory) -> None:
    """The weight of the state of a session is in the score of its summary."""
    by_state = {record.session: (record.explanation or {})["session"] for record in memory.search("invoices", explain=True)}
    assert by_state == {"new": 1.0, "old": 0.4}


def test_the_other_questions_hold_with_archived_sessions(memory: Memory) -> None:
    """A summary is about the topics of its session; no timeline has it, and a session's own answers are as before."""
    topics = {topic.name: topic for topic in memory.topics()}
    assert topics["money"].related["summaries"] == ["old/summary"]
    assert [event.session for event in memory.timeline()] == ["new"]
    assert set(memory.summary().sessions) == {"global", "new", "old"}
    assert memory.summary().memories == {"decision": 1, "summary": 1}
    assert [session.id for session in memory.sessions()] == ["new"]
    new = memory.session("new")
    assert [record.session for record in new.search("invoices")] == ["new"]
    assert "ten years" not in new.context()
    assert new.by_type("summary") == []


def test_reading_a_summary_writes_nothing(memory: Memory) -> None:
    """No access log, no lock and no state of a session that is not there."""
    before = sorted(memory.root.glob("archived/**/*"))
    assert len(memory.search("invoices")) == 2
    assert sorted(memory.root.glob("archived/**/*")) == before
    assert not (memory.root / "active/old").exists()
    assert (memory.root / "active/new/access.log").read_text().endswith("DEC-001\n")


def test_a_resting_session_is_archived_under_an_index_that_is_behind(tmp_path: Path) -> None:
    """What the index still says of the state of the session wakes nothing."""
    memory = opened(tmp_path / "sessions")
    fill(memory.create_session(id="old")).update_metadata(status="decaying")
    bring_up_to_date(memory)
    pack_away(memory, "old")
    assert [record.type for record in memory.search("ledger")] == ["summary"]
    assert not (memory.root / "active/old").exists()


# Being a scope, and being none.


def test_a_session_that_is_in_use_has_no_summary_in_sight(memory: Memory) -> None:
    """While it is being archived or brought back, and where only evicted memories lie in its archive."""
    shutil.copytree(memory.root.parent / "packed-old", memory.root / "active/old")
    (memory.root / "archived/new").mkdir()
    (memory.root / "archived/new/evicted-20260101T000000-00000000.tar.gz").write_bytes(b"")
    assert scopes(memory) == ["global", "new", "old"]
    assert memory.by_type("summary") == []
    assert "FIND-001" in {record.id for record in memory.search("ledger rounds")}


@pytest.mark.parametrize("planted", ["a link", "a file", "an empty directory", "a wrong name"])
def test_what_is_no_archive_is_no_scope(memory: Memory, planted: str) -> None:
    place = memory.root / "archived" / ("no.session" if planted == "a wrong name" else "odd")
    if planted == "a link":
        place.symlink_to(memory.root / "archived/old")
    elif planted == "a file":
        place.write_text("archive: {}")
    else:
        place.mkdir()
    if planted == "a wrong name":
        (place / "summary.yaml").write_text("archive: {}")
    assert archived_scopes(memory) == ["archived/old"]
    assert the_summary(memory).session == "old"


@pytest.mark.parametrize("content", ["archive: [", "archive: 7\n", "version: 9\narchive: {}\n"])
def test_a_summary_that_cannot_be_read_is_complained_of(memory: Memory, content: str) -> None:
    """It hides no other memory; what was known of it stays known, and smp check names it."""
    bring_up_to_date(memory)

    def complaints() -> list[str]:
        return [complaint.scope for complaint in check(memory) if complaint.file == "summary.yaml"]

    assert complaints() == []
    (memory.root / "archived/old/summary.yaml").write_text(content)
    assert complaints() == ["archived/old"]
    assert {record.session for record in memory.search("invoices")} == {"new", "old"}


@pytest.mark.parametrize("content", ["", "archive: {}\n", "archive: {topics: 7, decisions: [1, {id: []}], tags: {}, memories: 1}"])
def test_a_summary_of_another_form_does_no_harm(memory: Memory, content: str) -> None:
    (memory.root / "archived/old/summary.yaml").write_text(content)
    assert len(memory.by_type("summary")) == (1 if "topics" in content else 0)
    assert memory.topics()
    for command in (("show", "old"), ("sessions", "--all"), ("search", "invoices")):
        assert "Traceback" not in smp(*command, "--root", memory.root).stderr


# The index that is kept.


def contents(memory: Memory, index: Index) -> bool:
    fresh = Index.in_memory()
    rebuild(memory, fresh)
    return fresh.contents() == index.contents()


@pytest.mark.parametrize("notice", ["active/old", "archived/old", "archived/old/summary.yaml", "active/old/decisions.yaml"])
def test_one_notice_is_enough_to_archive_a_session(memory: Memory, notice: str) -> None:
    """Whichever of its two places it names. Seen to fail, with a notice of `active/`, where only that place was looked at."""
    bring_back(memory, "old")
    index = Index.in_memory()
    rebuild(memory, index)
    pack_away(memory, "old")
    taken = indexer.take_in(memory, index, [notice])
    assert taken.vanished == {"old"}
    indexer.forget(index, taken.vanished)
    assert contents(memory, index)


def test_one_notice_is_enough_to_bring_a_session_back(memory: Memory) -> None:
    """That of its directory in `active/`."""
    index = Index.in_memory()
    rebuild(memory, index)
    bring_back(memory, "old")
    taken = indexer.take_in(memory, index, ["active/old"])
    assert taken.vanished == {"archived/old"}
    indexer.forget(index, taken.vanished)
    assert contents(memory, index)


def test_a_scan_moves_a_session(memory: Memory) -> None:
    bring_back(memory, "old")
    index = Index.in_memory()
    rebuild(memory, index)
    for move, gone in ((pack_away, "old"), (bring_back, "archived/old")):
        move(memory, "old")
        taken = indexer.scan(memory, index, lambda: None)
        assert taken.vanished == {gone}
        assert not {scope for scope in taken.inboxes if "/" in scope}
        indexer.forget(index, taken.vanished)
        assert contents(memory, index)


def test_an_archive_that_no_longer_counts_is_forgotten_without_a_daemon(memory: Memory) -> None:
    """Its file is still there and the session is back: one look is enough, and nothing is left to do. Seen to fail, never done,
    where `refresh` took the summary in again."""
    index = Index.in_memory()
    rebuild(memory, index)
    shutil.copytree(memory.root.parent / "packed-old", memory.root / "active/old")
    for scope, file in list(outdated(memory, index)):
        refresh(memory, index, scope, file)
    assert list(outdated(memory, index)) == []
    assert contents(memory, index)


def test_the_index_says_how_many_are_archived(memory: Memory) -> None:
    bring_up_to_date(memory)
    assert read_status(memory).root.sessions == {"active": 1, "archived": 1}
    assert directory_of("archived/old") == "archived/old"


def test_a_daemon_follows_a_session_into_the_archive_and_back(tmp_path: Path) -> None:
    """By its notices alone; a later change of the state in the summary, too. That sessions are archived is no reason to doubt the
    tree; seen to fail, with one removed beside them, where `believe_vanished` did not ask where they are."""
    memory = opened(tmp_path / "sessions")
    names = ("one", "two", "three", "four")
    for name in names:
        fill(memory.create_session(id=name, topic="billing"))
    with running(memory.root, log=tmp_path / "log"):
        wait_until_true(memory.root)
        for name in names[:3]:
            describe(memory, name, "archiving")
        for name in names:
            leave(memory, name)
        wait_until_true(memory.root)
        assert status(memory.root)["roots"][0]["sessions"] == {"archived": 3}
        summary = memory.root / "archived/one/summary.yaml"
        summary.write_text(summary.read_text().replace("state: archiving", "state: archived"))
        wait_until(lambda: index_contents(memory.root) == rebuilt_contents(memory.root), "the new state is known")
        assert len(memory.search("ledger rounds", types=["summary"])) == 3
        bring_back(memory, "two")
        wait_until(lambda: status(memory.root)["roots"][0]["sessions"] == {"archived": 2, "active": 1}, "one is back")
        wait_until_true(memory.root)
        assert not (memory.root / "archived/one/indexes").exists()


# The commands.


def test_the_commands_show_what_is_archived(memory: Memory) -> None:
    """`smp search` finds it, `smp show` says what it was and how it comes back, `smp sessions --all` lists it."""
    root = ("--root", memory.root)
    found = smp("search", "francs", *root).stdout
    assert all(part in found for part in ("summary", "old", "Amounts in francs"))
    assert smp("search", "--type", "summary", *root).stdout == smp("search", "--type", "summary", "--no-count", *root).stdout
    for command in (("show", "old"), ("show", "old", "summary")):
        shown = smp(*command, *root)
        assert shown.returncode == 0, shown.stderr
        for part in ("archived", "Shop", "Keep invoices for ten years", "FIND-001", "profiler 2", "smp unarchive old"):
            assert part in shown.stdout
    assert smp("show", "old", "--raw", *root).stdout == (memory.root / "archived/old/summary.yaml").read_text()
    assert '"id": "summary"' in smp("show", "old", "--json", *root).stdout
    refused = smp("show", "old", "DEC-001", *root)
    assert refused.returncode != 0
    assert "unarchive old" in refused.stderr
    assert "old" not in smp("sessions", *root).stdout
    assert "archived" in smp("sessions", "--all", *root).stdout
    listed = smp("sessions", "--state", "archived", *root).stdout
    assert [line.split()[0] for line in listed.splitlines()] == ["ID", "old"]
