"""A secret given as a name, an id or a time: refused, and in no file, audit log or message."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daemons import smp
from test_redaction import TOKEN, places_of

from smp_client import Memory, Session, SMPError
from smp_client.disk import audit
from smp_client.model.times import now

Call = Callable[[Memory, Session], Any]

REFUSED: dict[str, Call] = {
    "the state of an agent": lambda _, session: session.save_agent_state(TOKEN, {"a": 1}),
    "an artifact": lambda _, session: session.save_artifact(TOKEN, "text"),
    "a session to read": lambda memory, _: memory.session(TOKEN),
    "a session to make": lambda memory, _: memory.create_session(id=TOKEN),
    "a session to delete from": lambda memory, _: memory.privacy.delete(TOKEN, "A", reason="r"),
    "a session to purge": lambda memory, _: memory.privacy.purge_now(TOKEN),
    "an id to get": lambda _, session: session.get(TOKEN),
    "an id to delete": lambda _, session: session.delete(TOKEN, reason="r"),
    "a batch": lambda memory, _: memory.privacy.restore_batch(TOKEN),
    "a time": lambda _, session: session.delete(since=TOKEN, reason="r"),
    "a field of a question": lambda _, session: session.query({TOKEN: 1}),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_what_is_refused_leaves_nothing_and_is_not_quoted(
    memory: Memory, session: Session, call: Call
) -> None:
    session.record_decision("any", made_by="a")
    with pytest.raises(SMPError) as refused:
        call(memory, session)
    assert TOKEN not in str(refused.value)
    assert TOKEN not in repr(refused.value)
    assert [path for path in memory.root.rglob("*") if TOKEN in path.name] == []
    assert places_of(memory.root, TOKEN) == []


def test_who_did_it_is_in_the_audit_log_without_a_secret(memory: Memory, session: Session) -> None:
    """In every action, of memories and of sessions, and in any other fact."""
    session.record_decision("any", made_by="a")
    session.delete("DEC-001", reason="r", deleted_by=TOKEN)
    session.restore("DEC-001", by=f"me with {TOKEN}")
    memory.delete_session("s1", reason="r", deleted_by=TOKEN)
    memory.privacy.purge_now("s1", by=TOKEN)
    audit.note(memory.tree, "export", at=now(), by="a", to=f"/tmp/{TOKEN}", ids=["DEC-001", TOKEN],
               kinds={TOKEN: 1})  # fmt: skip
    lines = [json.loads(line) for line in (memory.root / audit.FILE).read_text().splitlines()]
    (restored,) = [line["by"] for line in lines if line["action"] == "restore"]
    assert restored == "me with [redacted: github token]"
    assert lines[-1]["ids"] == ["DEC-001", "[redacted: github token]"]
    assert places_of(memory.root, TOKEN) == []


GIVEN: dict[str, tuple[str, ...]] = {
    "a turn": ("add", "s1", "decision", "x", "--by", "a", "--turn", TOKEN),
    "a session": ("add", TOKEN, "decision", "x"),
    "a command": (TOKEN,),
    "an id": ("delete", "s1", TOKEN, "--reason", "r"),
    "a reason": ("delete", "s1", "DEC-001", "--reason", f"it has {TOKEN}", "--by", TOKEN),
}


@pytest.mark.parametrize("arguments", GIVEN.values(), ids=GIVEN)
def test_the_command_does_not_repeat_a_secret(
    memory: Memory, session: Session, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """In no error, and in no table of what it did: a reason is shown as it is kept."""
    session.record_decision("any", made_by="a")
    done = smp(*arguments, "--root", memory.root, cwd=tmp_path)
    assert TOKEN not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if "--reason" in arguments and TOKEN not in arguments[:4]:
        assert "[redacted: github token]" in done.stdout
    else:
        assert "[redacted" in done.stderr or "looks like a secret" in done.stderr
        assert done.returncode in (1, 2)
    assert places_of(memory.root, TOKEN) == []
