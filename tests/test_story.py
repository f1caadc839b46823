"""Sessions of one project over three months, told through the public face.

Things are decided, superseded, resolved and archived. After each step the context for a task holds the memories
that count and none that no longer hold.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from smp_client import Memory, Session
from smp_client.passes.lifecycle import lifecycle

BEGIN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
LABEL = re.compile(r"^- \[([^,\]]+)", re.MULTILINE)


class Story:
    """A project whose clock the test sets."""

    def __init__(self, root: Path) -> None:
        self.now = BEGIN
        self.memory = Memory(root, clock=lambda: self.now)
        self.memory.create()

    def begin(self, day: int, name: str) -> Session:
        """Begin a session on a day of the story. What is due by then has been done, as the daemon would."""
        self.now = BEGIN + timedelta(days=day)
        lifecycle(self.memory)
        return self.memory.create_session(id=name, project="Shop", topic=name)

    def ids(self, task: str) -> list[str]:
        return LABEL.findall(self.memory.context(project="Shop", agent="claude", task=task))


@pytest.mark.usefixtures("short_grace")
def test_what_earlier_sessions_learned_the_next_one_knows(tmp_path: Path) -> None:
    # Day 0: the first decisions, a preference, and a plan.
    story = Story(tmp_path / "sessions")
    one = story.begin(0, "kickoff")
    one.record_decision("Store orders in SQLite", made_by="claude", rationale="One machine is enough", tags=["storage"])
    one.record_decision("Log in with passwords", made_by="claude", tags=["login"])
    one.record_preference("Short answers, please", topic="style", confidence="explicit")
    one.agent("claude").save_state({"next_steps": ["sketch the data model"]})

    # Day 2: a new session, empty, knows all of it; then it finds a problem.
    two = story.begin(2, "login")
    fresh = two.agent("claude").context(task="log in users")
    assert LABEL.findall(fresh)[:2] == ["kickoff/claude", "kickoff/DEC-002"]
    assert "kickoff/PREF-001" in LABEL.findall(fresh)
    assert "sketch the data model" in fresh
    two.record_finding("Passwords are stored without a salt", discovered_by="veritas", severity="critical")
    two.record_finding("The logout button is hard to see", discovered_by="veritas", severity="low")
    two.agent("claude").save_state({"next_steps": ["add a salt"]})
    found = story.ids("log in users")
    assert found.index("login/FIND-001") < found.index("login/FIND-002")

    # Day 5: OAuth supersedes passwords, which resolves the finding. Both are of earlier sessions.
    three = story.begin(5, "oauth")
    oauth = three.record_decision("Log in with OAuth 2.0", made_by="claude", tags=["login"])
    three.supersede("kickoff/DEC-002", by=oauth.id)
    three.relate(oauth.id, "login/FIND-001", "resolves")
    three.record_preference("Long answers with examples", topic="style", confidence="explicit")
    ended = {"kickoff/DEC-002", "kickoff/PREF-001"}  # the finding stays, with its solution
    found = story.ids("log in users")
    assert {"oauth/DEC-001", "oauth/PREF-001", "login/FIND-002"} <= {*found}
    assert not ended & {*found}

    # Day 41: kickoff and login are archived. A decision in an archive is superseded, and the archive stays as it is.
    four = story.begin(41, "postgres")
    archive = story.memory.root / "archived/kickoff/archive.tar.gz"
    before = archive.read_bytes()
    found = story.ids("store the orders")
    assert {"kickoff/DEC-001", "login/FIND-002"} <= {*found}
    assert not ended & {*found}
    moved = four.record_decision("Store orders in PostgreSQL", made_by="claude", tags=["storage"])
    four.supersede("kickoff/DEC-001", by=moved.id)
    assert archive.read_bytes() == before

    # Day 95: everything before is archived. The last session knows what holds, and nothing that does not.
    last = story.begin(95, "relaunch")
    assert len(story.memory.archived_sessions()) == 4
    text = last.agent("claude").context(task="plan the relaunch")
    found = LABEL.findall(text)
    assert {"oauth/PREF-001", "oauth/DEC-001", "postgres/DEC-001"} <= {*found}
    assert not (ended | {"kickoff/DEC-001"}) & {*found}
    assert "add a salt" in text, "the agent's last plan"
    assert "sketch the data model" not in text
