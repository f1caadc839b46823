"""The contract of every question: the same answers with a daemon, with an index that is behind, with none, and across sessions."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon, settings_file, smp, wait_until

from smp_client import Invalid, InvalidQuery, Memory, MemoryNotFound, Session
from smp_client.model.layout import INDEX_FILE

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def opened(root: Path) -> Memory:
    """With a clock that stands still, and without counting, so that every answer can be compared with every other."""
    return Memory(root, clock=lambda: NOW, count_access=False)


def build(root: Path) -> None:
    """What the index knows where it is behind."""
    memory = opened(root)
    s1 = memory.create_session(id="s1", user="user", project="Shop", topic="authentication", tags=["oauth"])
    s1.add_turn("user", "Let us review the authentication requirements.", timestamp=ago(40))
    s1.add_turn("architect", "OAuth tokens should expire within the hour.", timestamp=ago(19))
    s1.add_turn("veritas", "As was agreed before, see the note.", memory_refs=["DEC-001"], timestamp=ago(18))
    s1.add_turn("user", "Lunch is at noon.", timestamp=ago(17))
    s1.record_decision("Use OAuth 2.0 with signed tokens", made_by="architect", rationale="Every library supports it.", turn_ref=2,
                       confidence="high", tags=["security.authentication"], timestamp=ago(19))  # fmt: skip
    s1.record_decision("Encrypt the database at rest", made_by="architect", confidence="medium",
                       tags=["Security.Storage", "database"], timestamp=ago(16))  # fmt: skip
    s1.record_finding("Administrators have no second factor", discovered_by="veritas", severity="critical",
                      tags=["mfa", "security"], timestamp=ago(15))  # fmt: skip
    s1.record_finding("The orders report is slow", discovered_by="profiler", tags=["performance"], timestamp=ago(14))
    s1.record_finding("The ledger rounds twice", discovered_by="profiler", tags=["billing"], timestamp=ago(200))
    s1.record_preference("Second factor for administrators", topic="mfa_requirements", confidence="explicit", created_by="user",
                         applies_to={"domains": ["compliance"]}, timestamp=ago(12))  # fmt: skip
    s1.record_learning("The vendor answers within a day", learned_by="veritas", references=["FIND-001"], timestamp=ago(11))
    s1.relate("DEC-001", "FIND-001", "addresses", timestamp=ago(10))
    s1.save_agent_state("veritas", {"current_context": {"focus_area": "passwords"}})
    s1.save_artifact("report-1", "# Report\n\nNothing yet.\n")
    for name in ("s2", "old"):
        other = memory.create_session(id=name, topic="billing")
        other.record_decision("Keep invoices for ten years", made_by="architect", tags=["billing.retention"], timestamp=ago(9))
    memory.create_session(id="gone").record_decision("Keep invoices for one year", made_by="nobody", timestamp=ago(8))
    memory.everywhere.record_pattern("Invoices are asked for in January", learned_by="veritas", tags=["billing"], timestamp=ago(7))


def change(root: Path) -> None:
    """What it does not: written with the library, appended, edited and removed by hand."""
    memory, folder = opened(root), root / "active/s1"
    s1 = memory.session("s1")
    s1.add_turn("architect", "The archive is encrypted with rotated keys.", timestamp=ago(3))
    s1.record_decision("Rotate the signing keys every quarter", made_by="architect", confidence="low", tags=["security.keys"],
                       timestamp=ago(2))  # fmt: skip
    s1.relate("DEC-003", "DEC-001", "follows", timestamp=ago(2))
    s1.resolve_finding("FIND-003", resolved_by="user", action_taken="Rounded once.")
    with (folder / "findings.yaml").open("a") as file:
        file.write('  - {id: FIND-050, finding: "Tokens are logged in clear text", discovered_by: auditor, severity: critical,\n'
                   '     timestamp: "2026-01-30T12:00:00Z", tags: [security.logging], references: [DEC-003]}\n')  # fmt: skip
    s1.relate("LEARN-001", "FIND-050", "explains", timestamp=ago(2))  # closes a circle
    edit(folder / "findings.yaml", lambda text: re.sub(r"  - id: FIND-002.*?(?=  - )", "", text, flags=re.DOTALL))
    edit(folder / "decisions.yaml", lambda text: text.replace("database", "archive"))
    (folder / "artifacts/report-1.md").unlink()
    s1.save_artifact("report-2", "# Report\n\nKeys were rotated on time.\n", created_by="auditor", tags=["security.keys"])
    s1.save_agent_state("veritas", {"current_context": {"focus_area": "certificates"}})
    memory.session("old").update_metadata(status="decaying")
    shutil.rmtree(root / "active/gone")
    memory.create_session(id="new", topic="billing").record_decision("Send invoices by mail", made_by="clerk", timestamp=ago(1))
    memory.everywhere.record_preference("Invoices in plain words", topic="billing.style", confidence="explicit", timestamp=ago(1))


def edit(file: Path, change: Callable[[str], str]) -> None:
    """As an editor does: another file takes the place of the old."""
    text = file.read_text()
    assert change(text) != text
    new = file.with_name(".new")
    new.write_text(change(text))
    new.rename(file)


class Tree:
    """One root, and what its index is like whenever a question comes."""

    def __init__(self, way: str, directory: Path) -> None:
        self.way, self.root = way, directory / "sessions"
        self.index = self.root / INDEX_FILE
        self.saved = directory / "index.db"
        opened(self.root).create()
        # The daemon goes by the real clock, for which all of this is long ago.
        never = {"idle_after_hours": 800000, "decaying_after_days": 36000, "archive_after_days": 36500}
        ageless = settings_file(directory, lifecycle=never)
        self.daemon = Daemon([self.root], directory / "log", ageless) if way in ("daemon", "stopped", "unindexed") else None
        if self.daemon:
            self.daemon.wait_ready()
        build(self.root)
        if way != "nothing":
            self.sync()
        if way == "behind":
            shutil.copy(self.index, self.saved)
        if way in ("stopped", "unindexed"):
            assert self.daemon
            self.daemon.pause()
        change(self.root)
        if way == "daemon":
            self.sync()

    def sync(self) -> None:
        found = smp("sync", "--root", self.root)
        assert found.returncode == 0, found.stderr

    def prepare(self) -> None:
        """A question of the test before may have made the index true."""
        if self.way not in ("daemon", "stopped"):
            for file in self.index.parent.glob("index.db*"):
                file.unlink()
        if self.way == "behind":
            shutil.copy(self.saved, self.index)


SOURCES = {
    "daemon": "index",  # one that is up and has caught up
    "behind": "index and files",  # no daemon, and an index of before the changes
    "nothing": "index and files",  # neither a daemon nor an index: it is made
    "stopped": "index and files",  # a daemon that leads and does nothing, with an index of before the changes
    "unindexed": "files",  # such a daemon, and no index
}


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Tree]]:
    known: dict[str, Tree] = {}

    def tree(way: str) -> Tree:
        if way not in known:
            known[way] = Tree(way, tmp_path_factory.mktemp(way))
        known[way].prepare()
        return known[way]

    yield tree
    for made in known.values():
        if made.daemon:
            made.daemon.kill()


@pytest.fixture(params=SOURCES)
def tree(trees: Callable[[str], Tree], request: pytest.FixtureRequest) -> Tree:
    return trees(request.param)


@pytest.fixture
def everything(trees: Callable[[str], Tree]) -> Memory:
    """An index that is behind: whichever way it is answered, the answers are the same."""
    return opened(trees("behind").root)


@pytest.fixture
def s1(everything: Memory) -> Session:
    return everything.session("s1")


def ids(found: Any) -> list[str]:
    return [record.id for record in found]


def places(found: Any) -> list[tuple[str, str]]:
    return [(record.session, record.id) for record in found]


# What it is answered from.


def test_an_answer_says_what_it_was_answered_from(tree: Tree) -> None:
    """The index where it is true, the index and the files where it is behind, else the files."""
    memory, expected = opened(tree.root), SOURCES[tree.way]
    # A daemon that has just begun may still be writing what it derives from the files.
    wait_until(lambda: memory.session("s1").by_type("decision").source == expected, expected)
    tree.prepare()
    wait_until(lambda: opened(tree.root).search("invoices").source == expected, expected)


QUESTIONS: dict[str, Callable[[Memory], Any]] = {
    "all": lambda m: m.search(limit=None),
    "newest": lambda m: m.search(sort="newest", limit=None),
    "priority": lambda m: m.search(sort="priority", limit=None),
    "topic": lambda m: m.by_topic("security"),
    "agent": lambda m: m.by_agent("architect"),
    "time": lambda m: m.by_time("last 16 days"),
    "related": lambda m: m.session("s1").related("FIND-001", depth=3),
    "global": lambda m: m.everywhere.search(limit=None),
    "specification": lambda m: m.query({"filters": [{"field": "decay.priority", "operator": "greaterThan", "value": 0.5}]}),
}
TEXTS = ("tokens", "invoices", "second factor", "key*", '"signed tokens"', "report -slow", "database")


def shown(found: Any) -> list[Any]:
    return [(record.session, record.id, record.text, record.data, record.priority, record.path, record.marks) for record in found]


def test_every_way_gives_the_very_same(tree: Tree, tmp_path: Path) -> None:
    """Order, texts, fields, priorities and paths are those of a copy of the files that was never indexed before."""
    for part in ("active", "global"):
        shutil.copytree(tree.root / part, tmp_path / "copy" / part)
    reference, asked = opened(tmp_path / "copy"), opened(tree.root)
    for name, question in QUESTIONS.items():
        assert shown(question(asked)) == shown(question(reference)), name
    for text in TEXTS:
        assert places(asked.search(text)) == places(reference.search(text)), text
    for whole in (lambda m: m.topics(), lambda m: m.timeline(), lambda m: m.session("s1").summary(), lambda m: m.summary()):
        assert whole(asked) == whole(reference)


# One memory.


def test_get_gives_each_kind_of_memory_as_it_is_now(s1: Session) -> None:
    """Those that are new, edited and kept; one that was removed by hand is not there."""
    assert s1.get("DEC-002").text == "Encrypt the archive at rest"
    assert s1.get("FIND-003").data["resolution"]["status"] == "resolved"
    assert s1.get("turn-5").type == "turn"
    assert s1.get("REL-002").data["relationship"] == "follows"
    assert s1.get("veritas").data["current_context"] == {"focus_area": "certificates"}
    assert "rotated on time" in s1.get("report-2").text
    assert (s1.get("FIND-050").by, s1.get("FIND-050").file) == ("auditor", "active/s1/findings.yaml")
    for missing in ("FIND-002", "report-1"):
        with pytest.raises(MemoryNotFound):
            s1.get(missing)
    with pytest.raises(Invalid):
        s1.get("../metadata")


# Lists.

SECURITY = {"DEC-001", "DEC-002", "DEC-003", "FIND-001", "FIND-050", "report-2", "turn-3"}
LISTS: list[tuple[Callable[[Session], Any], set[str]]] = [
    # a topic is everything below it, however it is written; a turn is about what it says
    (lambda s: s.by_topic("security"), SECURITY),
    (lambda s: [*s.by_topic("performance"), *s.by_topic("secur"), *s.by_agent("nobody")], set()),
    (lambda s: s.by_topic("archive"), {"DEC-002", "turn-5"}),
    (lambda s: s.by_topic("compliance"), {"PREF-001"}),
    (lambda s: s.by_agent("veritas"), {"turn-3", "FIND-001", "LEARN-001", "veritas"}),
    (lambda s: s.by_type("conversation"), {f"turn-{number}" for number in range(1, 6)}),
    (lambda s: s.search(tags=["mfa", "security.keys"]), {"FIND-001", "DEC-003", "report-2"}),
    (lambda s: s.search("tokens", tags=["security.logging"]), {"FIND-050"}),
    (lambda s: s.search("tokens", agents=["auditor", "nobody"]), {"FIND-050"}),
    (lambda s: s.search(confidence=["high", "explicit"]), {"DEC-001", "PREF-001"}),
    (lambda s: s.search("tokens", until="18 days ago"), {"DEC-001", "turn-2"}),
    (lambda s: [*s.search(types=[]), *s.search(agents=[])], set()),
    # by text: what was written, and nothing that is gone
    (lambda s: s.search("encryption"), {"DEC-002", "turn-5"}),  # stemmed
    (lambda s: s.search("database"), set()),  # edited away
    (lambda s: s.search("slow"), set()),  # removed by hand
    (lambda s: s.search("passwords"), set()),  # of the state before
    (lambda s: s.search("certificates"), {"veritas"}),
    (lambda s: s.search("nothing yet"), set()),  # of the artifact that was removed
    (lambda s: s.search("library supports"), {"DEC-001"}),  # in another field
    (lambda s: s.search("auditor"), {"FIND-050", "report-2"}),  # who
    (lambda s: s.search("mfa"), {"FIND-001", "PREF-001"}),  # a tag; a topic
]


@pytest.mark.parametrize(("question", "expected"), LISTS)
def test_a_list_has_what_it_asks_for(
    s1: Session, question: Callable[[Session], Any], expected: set[str]
) -> None:
    found = ids(question(s1))
    assert set(found) == expected
    assert len(found) == len(expected)


def test_a_time_includes_both_its_ends_and_runs_forward(s1: Session) -> None:
    assert ids(s1.by_time(ago(17), ago(15))) == ["turn-4", "DEC-002", "FIND-001"]
    assert ids(s1.by_time(end=ago(19))) == ["FIND-003", "turn-1", "turn-2", "DEC-001"]
    assert ids(s1.by_time("yesterday", "yesterday")) == ["FIND-050"]


# Search.


def test_what_has_decayed_can_be_left_out(s1: Session) -> None:
    """FIND-003 is 200 days old and at its least priority, 0.3; turn-1 of 40 days ago, at 0.1, is below what counts as decayed."""
    assert (s1.get("FIND-003").priority, s1.get("turn-1").priority) == (0.3, 0.1)
    assert set(ids(s1.search(limit=None))) - set(ids(s1.search(include_decayed=False, limit=None))) == {"turn-1"}
    assert "FIND-003" not in ids(s1.search(min_priority=0.31, limit=None))


def test_the_orders(s1: Session) -> None:
    found = {sort: s1.search(sort=sort, limit=None) for sort in ("relevance", "priority", "importance", "newest", "oldest")}
    for sort, whole in found.items():
        assert ids(s1.search(sort=sort, limit=3)) == ids(whole)[:3], sort
    timed = [record.timestamp for record in found["oldest"] if record.timestamp]
    assert timed == sorted(timed)
    priorities = [record.priority for record in found["priority"]]
    assert priorities == sorted(priorities, reverse=True)
    assert {record.type for record in found["importance"][:5]} == {"decision", "finding"}
    assert ids(s1.search("tokens", sort="oldest"))[0] == "turn-2"


def test_pages_of_many_answers_cover_everything_once(tmp_path: Path) -> None:
    """Also where there are more than can all be weighed with care for the first page; the order does not depend on the page."""
    words = ("keys", "archive", "factor", "ledger")
    session = opened(tmp_path / "sessions").create_session(id="s1")
    with session.transaction() as tx:
        for number in range(300):
            said = f"tokens {' '.join(words[: number % 5])} {number}"
            tx.add_turn("user", said + " more" * (number % 90), timestamp=ago(number / 10))
            tx.record_finding(said, discovered_by="a", timestamp=ago(300 - number))
    for text in ("", "tokens", "what about the tokens and the keys of the archive?"):
        whole = ids(session.search(text, limit=1000))
        assert len(whole) == len(set(whole)) == 600
        pages = [ids(session.search(text, limit=25, offset=start)) for start in range(0, 625, 25)]
        assert [memory_id for page in pages for memory_id in page] == whole, text


# Likeness and connections.


def test_similar_memories(s1: Session) -> None:
    """To a memory: all but itself, the likest first. To a text, the same as for a memory with that text."""
    found = s1.similar("PREF-001")
    assert found[0].id == "FIND-001"
    assert "PREF-001" not in ids(found)
    assert set(ids(s1.similar("Second factor for administrators"))[:2]) == {"PREF-001", "FIND-001"}
    assert ids(s1.similar("the of and")) == ids(s1.similar("")) == ids(s1.similar("zyx")) == []


def test_related_memories_one_step_away(s1: Session) -> None:
    """By a relationship, a reference, the turn it came from, a turn that refers to it, and a shared tag; both ways."""
    found = {record.id: record.path for record in s1.related("DEC-001") if len(record.path) == 1}
    assert found == {
        "FIND-001": ("DEC-001 addresses FIND-001",), "DEC-003": ("DEC-003 follows DEC-001",),
        "turn-2": ("DEC-001 comes from turn-2",), "turn-3": ("turn-3 refers to DEC-001",),
    }  # fmt: skip
    back = {record.id: record.path for record in s1.related("FIND-001")}
    assert back == {
        "DEC-001": ("DEC-001 addresses FIND-001",),
        "LEARN-001": ("LEARN-001 refers to FIND-001",),
        # Relationships lead one step further.
        "DEC-003": ("DEC-001 addresses FIND-001", "DEC-003 follows DEC-001"),
    }
    shared = {record.id: record.path for record in s1.related("report-2")}
    assert shared == {"DEC-003": ("report-2 shares security.keys with DEC-003",)}
    only = {"filters": [{"field": "id", "operator": "equals", "value": "DEC-001"}]}
    assert set(ids(s1.query({**only, "include_related": True}).related)) == set(found)
    assert s1.query(only).related == []


def test_related_memories_further_away_and_in_circles(s1: Session) -> None:
    """Nearest first, each once, with the whole way there; FIND-050 → DEC-003 → DEC-001 → FIND-001 → LEARN-001."""
    steps = {depth: set(ids(s1.related("FIND-050", depth=depth))) for depth in (1, 2, 3, 10)}
    assert steps[1] == {"DEC-003", "LEARN-001"}
    assert steps[2] == steps[1] | {"DEC-001", "FIND-001", "report-2"}
    assert steps[3] == steps[10] == steps[2] | {"turn-2", "turn-3"}
    found = s1.related("FIND-050", depth=10)
    assert [len(record.path) for record in found] == sorted(len(record.path) for record in found)
    paths = {record.id: record.path for record in found}
    assert paths["turn-3"] == ("FIND-050 refers to DEC-003", "DEC-003 follows DEC-001", "turn-3 refers to DEC-001")
    assert set(ids(s1.related("FIND-050", depth=10, types=["turn"]))) == {"turn-2", "turn-3"}
    assert ids(s1.related("FIND-050", depth=10, limit=2, offset=1)) == ids(found)[1:3]


def test_related_refuses_what_is_not_there(s1: Session, everything: Memory) -> None:
    with pytest.raises(MemoryNotFound):
        s1.related("FIND-002")
    for depth in (0, 11, "2", True):
        with pytest.raises(InvalidQuery):
            s1.related("DEC-001", depth=depth)  # type: ignore[arg-type]
    with pytest.raises(InvalidQuery, match="several sessions"):
        everything.related("DEC-001")


# The whole.


def test_the_whole(s1: Session, everything: Memory) -> None:
    """Topics, events and a summary, of a session and of all."""
    topics = {topic.name: topic for topic in s1.topics()}
    assert set(topics["security"].related["findings"]) == {"FIND-001", "FIND-050"}
    assert not {"performance", "database"} & topics.keys()
    refs = [event.ref for event in s1.timeline()]
    assert (refs[0], "FIND-002" in refs) == ("FIND-003", False)
    with pytest.raises(InvalidQuery):
        s1.timeline("soon")
    summary = s1.summary()
    assert (summary.memories["turn"], summary.memories["decision"]) == (5, 3)
    assert set(ids(summary.open_findings)) == {"FIND-001", "FIND-050"}
    assert ids(summary.preferences) == ["PREF-001"]
    assert summary.participants["architect"] == 5
    of_all = {topic.name: topic for topic in everything.topics()}
    assert set(of_all["billing"].related["decisions"]) == {"s2/DEC-001", "old/DEC-001"}


# Across sessions.


def test_a_question_to_the_memory_is_one_to_all_sessions_and_to_what_holds_everywhere(everything: Memory) -> None:
    assert sorted(places(everything.search("invoices"))) == [
        ("global", "GPREF-001"), ("global", "PAT-001"), ("new", "DEC-001"), ("old", "DEC-001"), ("s2", "DEC-001"),
    ]  # fmt: skip
    assert set(places(everything.by_topic("billing"))) == {
        ("s2", "DEC-001"), ("old", "DEC-001"), ("global", "PAT-001"), ("global", "GPREF-001"), ("s1", "FIND-003"),
    }  # fmt: skip
    assert places(everything.by_agent("clerk")) == [("new", "DEC-001")]
    assert {session for session, _ in places(everything.similar("Keep invoices for ten years"))} >= {"s2", "old"}


def test_a_question_is_kept_to_a_project(memory: Memory) -> None:
    """To sessions that name it, however it is written, to those that name none, and to what holds everywhere; archived or not."""
    for name, project in (("a", "E-Commerce"), ("b", "Blog"), ("c", None), ("d", "e commerce")):
        memory.create_session(id=name, project=project).record_decision(f"Cache {name}", made_by="jane")
    memory.everywhere.record_preference("Cache with care")
    for name in ("b", "d"):
        memory.archive_session(name, reason="done")

    def sessions(**options: Any) -> set[str]:
        return {record.session for record in memory.search("cache", types=["decision", "preference"], **options)}

    assert sessions() == {"a", "b", "c", "d", "global"}
    assert sessions(project="E-Commerce") == sessions(project="e commerce") == {"a", "c", "d", "global"}
    assert sessions(project="blog") == {"b", "c", "global"}
    asked = memory.session("a")
    assert asked.search("cache", project="blog") == asked.by_topic("cache", project="blog") == []
