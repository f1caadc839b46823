"""The contract of every question: the same answers with a daemon, with an index that is behind, with none, and across sessions."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon, smp

from smp_client import Invalid, InvalidQuery, Memory, MemoryNotFound, Session, SessionNotFound
from smp_client.status import INDEX_FILE

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
    s1.add_turn("user", "Let us review the authentication requirements.", timestamp=ago(20))
    s1.add_turn("architect", "OAuth tokens should expire within the hour.", timestamp=ago(19))
    s1.add_turn("veritas", "As was agreed before, see the note.", memory_refs=["DEC-001"], timestamp=ago(18))
    s1.add_turn("user", "Lunch is at noon.", timestamp=ago(17))
    s1.record_decision("Use OAuth 2.0 with signed tokens", made_by="architect", rationale="Every library supports it.", turn_ref=2,
                       confidence="high", tags=["security.authentication"], timestamp=ago(19))  # fmt: skip
    s1.record_decision("Encrypt the database at rest", made_by="architect", confidence="medium", tags=["Security.Storage", "database"],
                       timestamp=ago(16))  # fmt: skip
    s1.record_finding("Administrators have no second factor", discovered_by="veritas", severity="critical", tags=["mfa", "security"],
                      timestamp=ago(15))  # fmt: skip
    s1.record_finding("The orders report is slow", discovered_by="profiler", severity="low", tags=["performance"], timestamp=ago(14))
    s1.record_finding("The ledger rounds twice", discovered_by="profiler", tags=["billing"], timestamp=ago(200))
    s1.record_preference("Second factor for administrators", topic="mfa_requirements", confidence="explicit", created_by="user",
                         applies_to={"domains": ["compliance"]}, timestamp=ago(12))  # fmt: skip
    s1.record_learning("The vendor answers within a day", learned_by="veritas", references=["FIND-001"], timestamp=ago(11))
    s1.relate("DEC-001", "FIND-001", "resolves", timestamp=ago(10))
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
    edit(folder / "findings.yaml", lambda text: re.sub(r"  - id: FIND-002.*?(?=  - )", "", text, flags=re.DOTALL))
    edit(folder / "decisions.yaml", lambda text: text.replace("Encrypt the database", "Encrypt the archive").replace("- database", "- archive"))
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
        self.daemon = Daemon([self.root], directory / "log") if way in ("daemon", "stopped", "unindexed") else None
        if self.daemon:
            self.daemon.wait_ready()
        build(self.root)
        if way != "nothing":
            self.sync()
        if way == "behind":
            shutil.copy(self.index, self.saved)
        if way in ("stopped", "unindexed"):
            assert self.daemon
            self.daemon.process.send_signal(signal.SIGSTOP)
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
def everything(tree: Tree) -> Memory:
    return opened(tree.root)


@pytest.fixture
def s1(everything: Memory) -> Session:
    return everything.session("s1")


def ids(found: Any) -> list[str]:
    return [record.id for record in found]


def places(found: Any) -> list[tuple[str, str]]:
    return [(record.session, record.id) for record in found]


# What it is answered from.


def test_an_answer_says_what_it_was_answered_from(tree: Tree, everything: Memory) -> None:
    """The index where it is true, the index and the files where it is behind, the files where there is none to be had."""
    assert everything.session("s1").by_type("decision").source == SOURCES[tree.way]
    tree.prepare()
    assert opened(tree.root).search("invoices").source == SOURCES[tree.way]


QUESTIONS: dict[str, Callable[[Memory], Any]] = {
    "all": lambda m: m.search(limit=None),
    "newest": lambda m: m.search(sort="newest", limit=None),
    "oldest": lambda m: m.search(sort="oldest", limit=None),
    "priority": lambda m: m.search(sort="priority", limit=None),
    "importance": lambda m: m.search(sort="importance", limit=None),
    "topic": lambda m: m.by_topic("security"),
    "agent": lambda m: m.by_agent("architect"),
    "time": lambda m: m.by_time("last 16 days"),
    "related": lambda m: m.session("s1").related("FIND-001", depth=3),
    "related invoices": lambda m: m.session("s2").related("DEC-001"),
    "global": lambda m: m.everywhere.search(limit=None),
    "specification": lambda m: m.query({"filters": [{"field": "decay.priority", "operator": "greaterThan", "value": 0.5}]}),
}
TEXTS = ("tokens", "invoices", "second factor", "encrypted archive", "key*", '"signed tokens"', "report -slow", "certificates", "database")


def shown(found: Any) -> list[Any]:
    return [(record.session, record.id, record.text, record.data, record.priority, record.path) for record in found]


def test_every_way_gives_the_very_same(tree: Tree, tmp_path: Path) -> None:
    """Order, texts, fields, priorities and paths are those of a copy of the files that was never indexed before; of a search by
    text, the same memories."""
    for part in ("active", "global"):
        shutil.copytree(tree.root / part, tmp_path / "copy" / part)
    reference, asked = opened(tmp_path / "copy"), opened(tree.root)
    for name, question in QUESTIONS.items():
        assert shown(question(asked)) == shown(question(reference)), name
    for text in TEXTS:
        assert sorted(places(asked.search(text))) == sorted(places(reference.search(text))), text
    for whole in (lambda m: m.topics(), lambda m: m.timeline(), lambda m: m.session("s1").summary(), lambda m: m.summary()):
        assert whole(asked) == whole(reference)


# One memory.


def test_get_gives_each_kind_of_memory_as_it_is_now(s1: Session) -> None:
    """Those that are new, edited and kept; one that was removed by hand is not there."""
    assert s1.get("DEC-001").text == "Use OAuth 2.0 with signed tokens"
    assert s1.get("DEC-002").text == "Encrypt the archive at rest"
    assert s1.get("DEC-003").tags == ["security.keys"]
    assert s1.get("FIND-050").data["discovered_by"] == "auditor"
    assert s1.get("FIND-003").data["resolution"]["status"] == "resolved"
    assert s1.get("turn-5").type == "conversation_turn"
    assert s1.get("REL-002").data["relationship"] == "follows"
    assert s1.get("veritas").data["current_context"] == {"focus_area": "certificates"}
    assert "rotated on time" in s1.get("report-2").text
    for missing in ("FIND-002", "DEC-004", "turn-6", "report-1", "nobody"):
        with pytest.raises(MemoryNotFound):
            s1.get(missing)
    with pytest.raises(Invalid):
        s1.get("../metadata")


def test_get_from_global_and_from_a_session_that_is_new_or_gone(everything: Memory) -> None:
    assert everything.everywhere.get("PAT-001").text == "Invoices are asked for in January"
    assert everything.everywhere.get("GPREF-001").text == "Invoices in plain words"
    assert everything.session("new").get("DEC-001").text == "Send invoices by mail"
    with pytest.raises(SessionNotFound):
        everything.session("gone")


# Lists.


def test_a_topic_is_everything_below_it_however_it_is_written(s1: Session) -> None:
    assert set(ids(s1.by_topic("security"))) == {"DEC-001", "DEC-002", "DEC-003", "FIND-001", "FIND-050", "report-2", "turn-3"}
    assert set(ids(s1.by_topic("SECURITY.storage"))) == {"DEC-002"}
    assert ids(s1.by_topic("performance")) == ids(s1.by_topic("database")) == ids(s1.by_topic("secur")) == []
    assert ids(s1.by_topic("archive")) == ["DEC-002", "turn-5"]


def test_a_turn_is_about_what_it_says_and_refers_to(s1: Session) -> None:
    assert set(ids(s1.by_topic("authentication"))) == {"turn-1"}
    assert set(ids(s1.by_topic("security.authentication"))) == {"DEC-001", "turn-3"}
    assert set(ids(s1.by_topic("signing_keys", types=["turn"]))) == set()
    assert set(ids(s1.by_topic("rotated-keys"))) == {"turn-5"}


def test_a_preference_is_about_its_topic_and_its_domains(s1: Session) -> None:
    assert ids(s1.by_topic("mfa_requirements")) == ids(s1.by_topic("compliance")) == ["PREF-001"]


@pytest.mark.parametrize("topic", ["", "*", "'", "a'b", '"', "%", "security.", ".", "(", "a OR b", "\0", "\ud800", "é" * 1000])
def test_any_text_may_be_asked_for_as_a_topic(s1: Session, topic: str) -> None:
    assert ids(s1.by_topic(topic)) == []


def test_what_an_agent_or_a_person_has_contributed(s1: Session) -> None:
    assert set(ids(s1.by_agent("architect"))) == {"turn-2", "turn-5", "DEC-001", "DEC-002", "DEC-003"}
    assert set(ids(s1.by_agent("veritas"))) == {"turn-3", "FIND-001", "LEARN-001", "veritas"}
    assert set(ids(s1.by_agent("auditor"))) == {"FIND-050", "report-2"}
    assert ids(s1.by_agent("profiler")) == ["FIND-003"]
    assert set(ids(s1.by_agent("user"))) == {"turn-1", "turn-4", "PREF-001"}
    assert ids(s1.by_agent("nobody")) == []


def test_a_time_includes_both_its_ends_and_runs_forward(s1: Session) -> None:
    assert ids(s1.by_time(ago(17), ago(15))) == ["turn-4", "DEC-002", "FIND-001"]
    assert ids(s1.by_time(end=ago(19))) == ["FIND-003", "turn-1", "DEC-001", "turn-2"]
    assert ids(s1.by_time("2026-01-28T12:00:00Z", "2026-01-30")) == ["turn-5", "DEC-003", "REL-002", "FIND-050"]
    assert ids(s1.by_time(date(2026, 1, 30), date(2026, 1, 30))) == ["FIND-050"]
    assert ids(s1.by_time("yesterday", "yesterday")) == ["FIND-050"]
    assert ids(s1.by_time("last 3 days", types=["decision", "turn"])) == ["turn-5", "DEC-003"]
    assert ids(s1.by_time(ago(15), ago(17))) == []
    assert ids(s1.by_time(ago(17), ago(15), sort="newest")) == ["FIND-001", "DEC-002", "turn-4"]


def test_a_type_has_the_names_that_people_use(s1: Session) -> None:
    expected = {
        "decision": ["DEC-001", "DEC-002", "DEC-003"], "finding": ["FIND-001", "FIND-003", "FIND-050"], "preference": ["PREF-001"],
        "learning": ["LEARN-001"], "relationship": ["REL-001", "REL-002"], "agent_state": ["veritas"], "artifact": ["report-2"],
        "conversation_turn": [f"turn-{number}" for number in range(1, 6)], "pattern": [],
    }  # fmt: skip
    assert {name: sorted(ids(s1.by_type(name))) for name in expected} == expected
    assert sorted(ids(s1.by_type("turn"))) == sorted(ids(s1.by_type("conversation"))) == expected["conversation_turn"]
    assert sorted(ids(s1.by_type("findings"))) == expected["finding"]
    with pytest.raises(InvalidQuery, match="type 'thought' must be one of"):
        s1.by_type("thought")
