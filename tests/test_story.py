"""Eight sessions of one project over three months, told through the public face.

Things are decided, superseded, resolved, archived and compacted. After each step the context for a task
holds the memories that count and none that no longer hold.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from smp_client import Context, Memory, Session
from smp_client.passes.lifecycle import lifecycle

BEGIN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
LABEL = re.compile(r"^- \[([^,\]]+)", re.MULTILINE)


@dataclass
class Story:
    """A project whose clock the test sets."""

    root: Path
    now: datetime = BEGIN
    memory: Memory = field(init=False)

    def __post_init__(self) -> None:
        self.memory = Memory(self.root, clock=lambda: self.now)
        self.memory.create()

    def begin(self, day: int, name: str) -> Session:
        """Begin a session on a day of the story. What is due by then has been done, as the daemon would."""
        self.now = BEGIN + timedelta(days=day)
        lifecycle(self.memory)
        return self.memory.create_session(id=name, project="Shop", topic=name)

    def context(self, task: str, session: Session | None = None, agent: str | None = "claude") -> Context:
        if session is not None and agent is not None:
            return session.agent(agent).context(task=task)
        return self.memory.context(project="Shop", agent=agent, task=task)

    def ids(self, task: str) -> list[str]:
        return LABEL.findall(self.context(task))


@pytest.fixture
def story(tmp_path: Path, short_grace: None) -> Story:
    return Story(tmp_path / "sessions")


def test_what_seven_sessions_learned_the_next_one_knows(story: Story) -> None:
    # Day 0: the first decisions, a preference, and a plan.
    one = story.begin(0, "kickoff")
    one.add_turn("user", "Let's build a shop.")
    one.record_decision("Store orders in SQLite", made_by="claude", rationale="One machine is enough", tags=["storage"])
    one.record_decision("Log in with passwords", made_by="claude", tags=["login"])
    one.record_preference("Short answers, please", topic="style", confidence="explicit")
    one.agent("claude").save_state({"next_steps": ["sketch the data model"]})
    assert {"kickoff/DEC-001", "kickoff/PREF-001", "kickoff/claude"} <= set(story.ids("store the orders"))
    assert story.ids("store the orders")[0] == "kickoff/claude"

    # Day 2: a new session, empty, knows all of it; then it finds a problem.
    two = story.begin(2, "login")
    fresh = story.context("log in users", two)
    assert LABEL.findall(fresh)[:2] == ["kickoff/claude", "kickoff/PREF-001"]
    assert "kickoff/DEC-002" in LABEL.findall(fresh)
    assert "sketch the data model" in fresh
    two.record_finding("Passwords are stored without a salt", discovered_by="veritas", severity="critical")
    two.record_finding("The logout button is hard to see", discovered_by="veritas", severity="low")
    two.agent("claude").save_state({"next_steps": ["add a salt"]})
    found = story.ids("log in users")
    assert found.index("login/FIND-001") < found.index("login/FIND-002")
    assert "sketch the data model" not in story.context("log in users"), "the latest state counts"

    # Day 5: OAuth supersedes passwords, which resolves the finding. Both are of earlier sessions.
    three = story.begin(5, "oauth")
    oauth = three.record_decision("Log in with OAuth 2.0", made_by="claude", tags=["login"])
    three.supersede("kickoff/DEC-002", by=oauth.id)
    three.relate(oauth.id, "login/FIND-001", "resolves")
    found = story.ids("log in users")
    assert "oauth/DEC-001" in found
    assert not {"kickoff/DEC-002", "login/FIND-001"} & set(found)
    assert "login/FIND-002" in found
    [old] = [hit for hit in story.memory.search("passwords", types=["decision"]) if hit.id == "DEC-002"]
    assert old.marks == ("superseded by oauth/DEC-001",)
    assert not old.holds

    # Day 9: the preference is changed; the earlier one stays as history.
    four = story.begin(9, "style")
    four.record_preference("Long answers with examples", topic="style", confidence="explicit")
    found = story.ids("write an answer")
    assert "style/PREF-001" in found
    assert "kickoff/PREF-001" not in found
    assert story.memory.session("kickoff").get("PREF-001").text == "Short answers, please"

    # Day 40: kickoff and login have been idle for 30 days and are archived; they are still remembered.
    six = story.begin(40, "payment")
    archived = {session.session for session in story.memory.archived_sessions()}
    assert {"kickoff", "login"} <= archived
    found = story.ids("store the orders")
    assert "kickoff/DEC-001" in found
    assert not {"kickoff/DEC-002", "login/FIND-001", "kickoff/PREF-001"} & set(found)
    assert "login/FIND-002" in found
    six.record_decision("Take payments with a hosted page", made_by="claude", tags=["payment"])

    # Day 41: a decision of an archived session is superseded, and its archive stays as it is.
    archive = story.root / "archived/kickoff/archive.tar.gz"
    before = archive.read_bytes()
    seven = story.begin(41, "postgres")
    moved = seven.record_decision("Store orders in PostgreSQL", made_by="claude", tags=["storage"])
    seven.supersede("kickoff/DEC-001", by=moved.id)
    found = story.ids("store the orders")
    assert "postgres/DEC-001" in found
    assert "kickoff/DEC-001" not in found
    assert archive.read_bytes() == before
    assert not (story.root / "active/kickoff").exists()

    # Day 60: a long talk is compacted; what counts stays.
    nine = story.begin(60, "talk")
    for number in range(120):
        nine.add_turn("user", f"Thought {number} on colours and shapes of the shop window." * 5)
    nine.record_learning("Customers look at the window on Mondays", learned_by="claude")
    story.now += timedelta(days=20)
    nine.compact(reduction_pct=40)
    found = story.ids("the window of the shop")
    assert "talk/LEARN-001" in found
    assert {"style/PREF-001", "postgres/DEC-001", "oauth/DEC-001"} & set(found)

    # Day 95: everything before is archived. The last session knows what holds, and nothing that does not.
    ten = story.begin(95, "relaunch")
    assert len(story.memory.archived_sessions()) == 7
    text = story.context("plan the relaunch", ten)
    found = LABEL.findall(text)
    assert {"style/PREF-001", "postgres/DEC-001", "payment/DEC-001", "talk/LEARN-001"} <= set(found)
    ended = {"kickoff/DEC-001", "kickoff/DEC-002", "kickoff/PREF-001", "login/FIND-001"}
    assert not ended & set(found)
    assert "add a salt" in text, "the agent's last plan"

    # All of it follows from the files: without any derived file the context is the same.
    whole = story.context("plan the relaunch", ten)
    story.memory.close()
    for name in ("index.db", "index.db-wal", "index.db-shm"):
        (story.root / ".smp" / name).unlink(missing_ok=True)
    again = Memory(story.root, clock=lambda: story.now)
    assert again.session("relaunch").agent("claude").context(task="plan the relaunch") == whole
