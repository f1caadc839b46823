"""Gone the moment the command returns, for everybody; and erased at once, without a trace, for one
who may not wait.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from bytes_left import files_with
from daemons import running, smp

from smp_client import Invalid, Memory, MemoryNotFound, Session, SessionNotFound
from smp_client.index.sync import bring_up_to_date
from smp_client.passes import purge

pytestmark = pytest.mark.usefixtures("short_grace")
SECRET = "Quetzalcoatl opens the xylophone vault"
WORDS = (b"Quetzalcoatl", b"quetzalcoatl", b"xylophon")
# Everything that a client can be asked, in a process of its own.
ASKING = """
import json, sys
from smp_client import Memory, SMPError
memory = Memory(sys.argv[1])
session = memory.session("s1")
def ids(records): return [record.id for record in records]
found = {
    "search": ids(session.search("quetzalcoatl xylophone", limit=None)),
    "everywhere": ids(memory.search("quetzalcoatl", limit=None)),
    "by_topic": ids(session.by_topic("vault")), "by_agent": ids(session.by_agent("spy")),
    "by_time": ids(session.by_time("2000-01-01")),
    "by_type": [one for kind in ("turn", "decision", "finding", "preference", "learning", "artifact", "agent_state")
                for one in ids(session.by_type(kind))],
    "similar": ids(session.similar("quetzalcoatl opens the xylophone")), "related": ids(session.related("FIND-002", depth=3)),
    "query": ids(session.query({"filters": [{"field": "text", "operator": "contains", "value": "uetzal"}]})),
    "turns": ids(session.turns()), "records": ids(session.records("decision")), "timeline": [one.ref for one in session.timeline()],
    "topics": [one.name for one in session.topics()], "summary": repr(session.summary()), "context": session.agent("spy").context(),
}
for memory_id in json.loads(sys.argv[2]):
    try:
        found["got " + memory_id] = [session.get(memory_id).id]
    except SMPError:
        pass
print(json.dumps(found))
"""
GOING = ["turn-2", "DEC-001", "FIND-001", "PREF-001", "LEARN-001", "report", "spy"]


def fill(session: Session) -> None:
    session.add_turn("user", "Plain words", memory_refs=["DEC-001"])
    session.add_turn("spy", SECRET, tags=["vault"])
    session.record_decision(SECRET, made_by="spy", tags=["vault"])
    session.record_finding(SECRET, discovered_by="spy", severity="high", tags=["vault"])
    session.record_finding(
        "Plain", discovered_by="user", severity="high", references=["DEC-001", "FIND-001"]
    )
    session.record_preference(SECRET, topic="vault", confidence="explicit")
    session.record_learning(SECRET, learned_by="spy", tags=["vault"])
    session.relate("FIND-002", "DEC-001", "resolves")
    session.save_artifact("report", SECRET, created_by="spy", tags=["vault"])
    session.save_agent_state("spy", {"focus": SECRET})
    session.save_agent_state("spy", {"focus": f"{SECRET}, still"})


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    made = Memory(tmp_path / "sessions")
    yield made
    made.close()


@pytest.fixture
def session(memory: Memory) -> Session:
    made = memory.create_session(id="s1")
    fill(made)
    return made


def ask(root: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", ASKING, str(root), json.dumps(GOING)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def holding(root: Path) -> list[str]:
    return files_with(root, *WORDS)


_WAYS = {
    "text": ["--text", "XYLOPHONE"],
    "topic": ["--topic", "vault"],
    "ids": [part for one in GOING for part in (one,)],
}


@pytest.mark.parametrize(("way", "is_led"), [
    ("text", False), ("topic", False), ("ids", True),
    *(pytest.param(*pair, marks=pytest.mark.slow) for pair in (("text", True), ("topic", True), ("ids", False))),
])  # fmt: skip
def test_gone_from_every_answer_the_moment_the_command_returns(
    session: Session, memory: Memory, tmp_path: Path, is_led: bool, way: str
) -> None:
    """For another process, whatever it asks, with a daemon and without."""
    with running(memory.root, log=tmp_path / "log") if is_led else nullcontext():
        bring_up_to_date(memory)
        before = ask(memory.root)
        answering = (
            "search",
            "everywhere",
            "by_topic",
            "by_agent",
            "by_time",
            "related",
            "query",
            "records",
            "timeline",
        )
        assert all("DEC-001" in before[name] for name in answering)
        done = smp(
            "delete",
            "s1",
            *_WAYS[way],
            "--reason",
            "r",
            "--by",
            "me",
            "--json",
            "--root",
            memory.root,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(done.stdout)["problems"] == []
        going = {one for action in json.loads(done.stdout)["actions"] for one in action["about"]}
        after = ask(memory.root)
        for name, found in after.items():
            if isinstance(found, list) and name != "topics":
                assert not going & set(found), name
        gone = (
            set(GOING) if way != "topic" else set(GOING) - {"spy"}
        )  # its states are about nothing
        assert gone <= going
        if "spy" in going:
            assert not any(word.decode() in json.dumps(after) for word in WORDS)
    assert memory.session("s1").add_turn("user", "Goes on").id == "turn-3"


def test_a_reference_to_what_is_deleted_stays_and_is_no_complaint(
    session: Session, memory: Memory
) -> None:
    """Nor after it was erased."""
    for do in (
        lambda: session.delete("DEC-001", reason="r"),
        lambda: memory.privacy.purge_now("s1", ["DEC-001"]),
    ):
        do()
        assert session.get("FIND-002").data["references"] == ["DEC-001", "FIND-001"]
        assert "DEC-001" not in {one.id for one in session.related("FIND-002", depth=3)}
        assert session.validate() == []
        assert smp("check", "--root", memory.root).returncode == 0


# Erasing.


def test_a_session_is_erased_whole(session: Session, memory: Memory) -> None:
    """Whether it is deleted, archived or neither; with all that was deleted of it before."""
    for name in ("as-it-is", "archived-x", "deleted-x"):
        other = memory.create_session(id=name)
        fill(other)
        other.delete("DEC-001", reason="r")
        if name == "archived-x":
            memory.archive_session(name)
        elif name == "deleted-x":
            memory.delete_session(name, reason="r")
        plan = memory.privacy.purge_now(name, dry_run=True)
        assert [(action.type, action.session) for action in plan.actions] == [
            ("purge_session", name)
        ]
        assert memory.privacy.purge_now(name).actions[0].type == "purge_session"
        assert [file for file in holding(memory.root) if name in file] == []
        with pytest.raises(SessionNotFound):
            memory.undelete_session(name)
        assert not [path for path in memory.root.rglob(f"*{name}*") if ".smp" not in path.parts]


@pytest.mark.parametrize("step", ["note", "destroy", "_remove"])
def test_erasing_a_session_goes_on_where_a_crash_cut_it_off(
    session: Session, memory: Memory, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Before, between and after what is removed: the bundle goes last, and says what is left to do."""
    with monkeypatch.context() as patch:
        owner = purge.tombstones if step == "note" else purge
        patch.setattr(owner, step, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            memory.privacy.purge_now("s1")
    assert holding(memory.root)
    assert [action.type for action in memory.privacy.purge_now("s1", dry_run=True).actions] == [
        "purge_session"
    ]
    outcome = memory.privacy.purge_now("s1")
    assert ([action.type for action in outcome.actions], outcome.problems) == (
        ["purge_session"],
        [],
    )
    assert holding(memory.root) == []


def test_what_is_named_wrongly_erases_nothing(session: Session, memory: Memory) -> None:
    session.delete("FIND-001", reason="r")
    before = holding(memory.root)
    for name, ids in (
        ("s1", ["FIND-001", "FIND-009"]),
        ("s1", ["DEC-001", "FIND-009"]),
        ("s9", None),
        ("s9", ["DEC-001"]),
    ):
        with pytest.raises((MemoryNotFound, SessionNotFound)):
            memory.privacy.purge_now(name, ids)
    for nonsense in ({"name": "global"}, {"name": None}, {"name": "s1", "batch": ""},
                     {"name": "s1", "ids": ["metadata"]}, {"name": "s1", "ids": ["DEC-001"], "batch": "b"}):  # fmt: skip
        with pytest.raises(Invalid):
            memory.privacy.purge_now(**nonsense)
    assert holding(memory.root) == before
    assert [one.id for one in memory.privacy.deleted("s1")] == ["FIND-001"]
