"""Document 000, the main one: its own data and calls."""

from __future__ import annotations

import json
import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from daemons import elsewhere, running, smp, status, wait_until
from examples import NOW
from schema_files import FOLDER

from smp_client import (
    CorruptionDetected,
    Invalid,
    InvalidQuery,
    LockTimeout,
    Memory,
    MemoryNotFound,
    QuotaExceeded,
    Session,
)
from smp_client.disk.session_files import agents_of
from smp_client.model.schemas import schemas
from smp_client.passes.lifecycle import lifecycle


def ids(found: list[object]) -> list[str]:
    return [str(getattr(one, "id", one)) for one in found]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("decay.priority", "priority"),
        ("relevance_desc", "relevance"),
        ("time_desc", "newest"),
        ("time_asc", "oldest"),
    ],
)
def test_4_1_12_sort_names(example: Session, theirs: str, ours: str) -> None:
    """Also 001 5.1.8."""
    found = example.by_topic("authentication", sort=theirs)
    assert ids([*found]) == ids([*example.by_topic("authentication", sort=ours)])
    assert len(found) > 3


def test_7_3_1_least_priority_and_sort_by_priority(example: Session) -> None:
    found = example.by_topic("authentication", min_priority=0.7, sort="decay.priority")
    priorities = [one.priority for one in found]
    assert priorities == sorted(priorities, reverse=True)
    assert min(priorities) >= 0.7


def test_6_4_4_the_modifications_of_a_transaction(example: Session) -> None:
    with example.transaction() as transaction:
        decision = transaction.record_decision("Tokens live ten minutes", made_by="architect")
        transaction.update("FIND-002", category="ambiguous_requirement")
        transaction.save_agent_state("veritas", {"current_context": {"current_phase": "PHASE_7"}})
        found = [(one.action, one.type, one.id) for one in transaction.get_modifications()]
        assert found == [
            ("add", "decision", decision.id),
            ("update", "finding", "FIND-002"),
            ("save", "agent_state", "veritas"),
        ]
        assert transaction.modifications()[0].fields["made_by"] == "architect"


def test_9_2_6_what_a_compaction_would_gain(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "sessions", clock=lambda: NOW)
    session = memory.create_session("user-123")
    for _ in range(20):
        session.add_turn("user", "What was said long ago. " * 20, timestamp="2025-11-01T10:00:00Z")
    gain = session.estimate_compaction()
    assert gain > 5000
    assert gain == session.compact(reduction_pct=100, dry_run=True).counts["bytes_freed"]
    assert len(session.turns()) == 20


def test_9_4_2_the_breakdown_by_component(example: Session) -> None:
    """The indexes stand beside the others, and do not count."""
    size = example.size()
    names = "conversation decisions findings preferences agent_states indexes artifacts"
    assert {*names.split()} <= size.components.keys()
    counted = sum(bytes for name, bytes in size.components.items() if name != "indexes")
    assert counted == size.total_bytes
    assert {"path", "size_bytes", "percentage"} == size.largest_files[0].keys()


def test_10_2_2_write_memory_by_its_type(example: Session) -> None:
    """Also 000 AppB.2b."""
    record = example.record("decision", {"decision": "Keep the logs", "made_by": "architect"})
    assert (record.id, record.type) == ("DEC-003", "decision")
    found = {"type": "finding", "finding": "No limit of attempts", "discovered_by": "veritas"}
    assert example.write_memory({**found, "severity": "critical"}) == "FIND-003"
    assert example.get("FIND-003").data["resolution"] == {"status": "open"}
    with example.transaction() as transaction:
        for text in ("No captcha", "No lock"):
            decay = {"priority": 1.0, "access_count": 0}
            transaction.write_memory({**found, "finding": text, "decay": decay})
        done = {"type": "decision", "decision": "Verified: 2 findings", "made_by": "veritas"}
        transaction.write_memory({**done, "decay": {"priority": 0.95, "access_count": 0}})
        transaction.save_agent_state("veritas", {"last_verification": NOW})
    assert example.get("DEC-004").data["decay"]["priority"] == 0.95
    assert len(example.records("finding")) == 5
    state = {"type": "agent_state", "agent_id": "architect", "working_memory": {"draft": 1}}
    assert example.write_memory(state) == "architect"
    with pytest.raises(Invalid, match="did you mean 'decision'"):
        example.write_memory({"type": "decison", "decision": "x"})


def test_appb_1b_read_the_state_of_an_agent_by_its_path(example: Session) -> None:
    record = example.get("agent-states/veritas")
    assert (record.type, record.id) == ("agent_state", "veritas")
    named = example.memory.get(f"{example.id}/agent-states/veritas")
    assert named.data["working_memory"] == record.data["working_memory"]


def test_appb_1b_a_state_and_an_artifact_of_one_name_are_two_memories(example: Session) -> None:
    example.save_artifact("veritas", "# What veritas found", created_by="veritas")
    with pytest.raises(InvalidQuery, match="agent-states/veritas or artifacts/veritas"):
        example.get("veritas")
    assert example.get("artifacts/veritas").type == "artifact"
    root = ("--root", example.memory.root)
    assert "veritas  artifact" in smp("show", example.id, "artifacts/veritas", *root).stdout
    assert "veritas  state" in smp("show", example.id, "agent-states/veritas", *root).stdout
    assert "artifacts/veritas" in smp("show", example.id, "veritas", *root).stderr
    with pytest.raises(InvalidQuery, match="agent-states/veritas or artifacts/veritas"):
        example.delete("veritas", reason="it is not needed")
    example.save_agent_state("veritas", {"working_memory": {"concerns_identified": []}})
    example.delete("artifacts/veritas", reason="it is not needed")
    assert example.get("veritas").type == "agent_state"
    assert len(example.history("agent-states/veritas")) == 1
    example.restore("artifacts/veritas")
    example.delete("agent-states/veritas", reason="it is not needed")
    assert example.get("veritas").type == "artifact"
    with pytest.raises(MemoryNotFound, match="was deleted"):
        example.get("agent-states/veritas")
    assert example.restore("agent-states/veritas").type == "agent_state"


# Misspelt names, and texts that cannot be kept.


def test_2_2_3_a_misspelt_field_is_refused_with_the_nearest(example: Session) -> None:
    wrong = {"rational": "rationale", "tag": "tags", "confidance": "confidence"}
    for name, meant in wrong.items():
        with pytest.raises(Invalid, match=f"no field '{name}' .did you mean '{meant}'"):
            example.record("decision", {"decision": "x", "made_by": "a", name: "y"})
    with pytest.raises(Invalid, match="did you mean 'severity'"):
        example.record_finding("x", discovered_by="a", sevrity="high")
    for name in ("rationle", "rationl", "Rationale"):
        with pytest.raises(Invalid, match="did you mean 'rationale'"):
            example.update("DEC-001", **{name: "y"})
    own = example.record_finding(
        "x", discovered_by="a", location_hint="line 4", rotation="daily", ticket="T-1"
    )
    assert own.data["location_hint"] == "line 4"
    assert example.update(own.id, ticket="T-2").data["ticket"] == "T-2"


def test_3_3_a_misspelt_relation_is_refused(example: Session) -> None:
    for word in ("supersede", "superseeds", "Resolved"):
        with pytest.raises(Invalid, match="did you mean"):
            example.relate("DEC-002", "DEC-001", word)
    with pytest.raises(Invalid, match="from the other memory"):
        example.relate("DEC-001", "DEC-002", "superseded_by")
    assert example.get("DEC-001").holds
    example.relate("FIND-002", "DEC-002", "led_to")


def test_3_2_a_nul_is_refused(example: Session) -> None:
    with pytest.raises(Invalid, match="'content' holds a NUL"):
        example.add_turn("user", "a\0b")
    with pytest.raises(Invalid, match="NUL"):
        example.save_agent_state("veritas", {"working_memory": ["a\0b"]})
    with pytest.raises(Invalid, match="NUL"):
        example.save_artifact("report", "a\0b")


# Workflows.

WORKFLOW = {
    "workflow": {
        "metadata": {"id": "deep-verify-v6", "name": "Deep Verify V6"},
        "memory_requirements": {
            "read_access": [
                "conversation.last_20_turns",
                "decisions.by_topic:verification",
                "findings.by_severity:critical",
                "preferences.workflow_depth",
            ],
            "write_access": ["findings", "agent_states.veritas"],
            "memory_hints": ["Compare with earlier findings"],
        },
        "phases": [
            {
                "name": "Phase 0: Self-Check",
                "memory_usage": [
                    {
                        "type": "read",
                        "query": "the second factor in earlier reviews",
                        "purpose": "To be as strict as before",
                    }
                ],
            }
        ],
    }
}


def test_11_2_5_a_whole_workflow_is_read_as_it_is(example: Session) -> None:
    agent = example.agent("veritas").with_requirements(WORKFLOW)
    assert [one.id for one in agent.relevant_findings(unresolved_only=False)] == ["FIND-001"]
    assert agent.may_write("agent_states.veritas")
    assert not agent.may_write("agent_states.architect")
    assert not agent.may_write("decisions")
    assert "Compare with earlier findings" in agent.context()


def test_11_2_4_the_memory_usage_of_a_phase(example: Session) -> None:
    agent = example.agent("veritas").with_requirements(WORKFLOW)
    ((use, found),) = agent.memory_usage("Phase 0: Self-Check")
    assert use.purpose == "To be as strict as before"
    assert "FIND-001" in {one.id for one in found}
    with pytest.raises(InvalidQuery, match="did you mean 'Phase 0: Self-Check'"):
        agent.memory_usage("phase 0 selfcheck")


# The conversation, and what is kept of a session.


def test_2_2_2c_what_a_turn_has_stored(example: Session) -> None:
    words = {"FIND-001": "no second factor", "FIND-002": "no end of a session"}
    turn = example.add_turn("veritas", "Two things are wrong.", stored=words)
    assert turn.data["memory_refs"] == ["FIND-001", "FIND-002"]
    page = (example.memory.root / "active" / example.id / "conversation.md").read_text()
    stored = "**Memory Stored:**\n- Finding: no second factor [FIND-001]\n"
    assert f"**Memory-Refs:** [FIND-001, FIND-002]\n\nTwo things are wrong.\n\n{stored}" in page
    bare = example.add_turn("bmad-master", "It is decided.", stored=["DEC-001"])
    assert bare.text == "It is decided.\n\n**Memory Stored:**\n- Decision [DEC-001]"
    with pytest.raises(MemoryNotFound):
        example.add_turn("veritas", "Nothing.", stored=["FIND-099"])


def test_3_1_2_context_switches(example: Session) -> None:
    example.switch_context("payment", speaker="user-123", phase="design")
    context = example.metadata()["context"]
    assert isinstance(context, dict)
    assert (context["primary_topic"], context["project_phase"]) == ("payment", "design")
    (switch,) = example.context_switches()
    assert switch.data["from_topic"] == "authentication"
    assert switch.data["to_topic"] == "payment"
    found = example.query({"filters": [{"field": "to_topic", "operator": "exists"}]})
    assert ids([*found]) == [switch.id]


def test_4_2_2_find_related(example: Session) -> None:
    """The decision that resolved it, the preference behind that, and findings beside it."""
    found = example.related("FIND-001", include_decayed=False, min_priority=0.5)
    assert {"DEC-002", "PREF-001", "FIND-002"} <= {*ids([*found])}
    path = next(one.path for one in found if one.id == "PREF-001")
    assert path == ("DEC-002 resolves FIND-001", "PREF-001 influenced DEC-002")


def test_5_1_5b_the_summary_of_an_archived_session(example: Session) -> None:
    memory = example.memory
    memory.archive_session(example.id)
    home = memory.root / "archived" / example.id
    summary = yaml.safe_load((home / "summary.yaml").read_text())["archive"]
    people = ["user-123", "bmad-master", "veritas", "architect"]
    assert summary["participants"] == people
    assert summary["topics"][:2] == ["security", "authentication"]
    assert [(one["id"], one["severity"]) for one in summary["open_findings"]] == [
        ("FIND-002", "important")
    ]


def days_later(session: Session, days: float) -> Session:
    return session.with_options(clock=lambda: NOW + timedelta(days=days))


def test_2_2_4e_open_findings_keep_priority(example: Session) -> None:
    after = days_later(example, 365)
    assert after.get("FIND-002", count_access=False).priority == 0.6
    assert after.get("FIND-001", count_access=False).priority == 0.3


# Files for other programs, and by people.


def parsed(session: Session, file: str) -> object:
    return yaml.safe_load((session.memory.root / "active" / session.id / file).read_text())


def test_10_1_2_json_schemas_for_other_programs(example: Session) -> None:
    held = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    assert held == schemas(), "run .ci/generate"
    names = {"agent-state": "agent-states/veritas.yaml", "metadata": "metadata.yaml"}
    names |= {name: f"{name}.yaml" for name in ("decisions", "findings", "preferences")}
    names |= {"relationships": "relationships.yaml", "learnings": "learnings.yaml"}
    for name, file in names.items():
        schema = json.loads(held[f"{name}.schema.json"])
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(parsed(example, file), schema)
    schema = json.loads(held["turn.schema.json"])
    jsonschema.validate(example.turns()[0].data, schema)
    decision = {"id": "DEC-001", "made_by": "architect", "decision": "JWT", "confidence": "sure"}
    with pytest.raises(jsonschema.ValidationError):
        schema = json.loads(held["decisions.schema.json"])
        jsonschema.validate({"decisions": [decision]}, schema)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"storage": {"quota_bytes": "20MB"}}, "storage.quota_bytes must be a whole number above"),
        ({"compaction_config": {"threshold": 95}}, "compaction_config.threshold must be a number"),
        ({"decay_config": {"half_life_hours": "soon"}}, "decay_config.half_life_hours must be a"),
        ({"decay_config": {"enabledd": False}}, "(did you mean decay_config.enabled?)"),
        ({"decay_config": {"per_type": {}}}, "there is no decay_config.per_type; decay_config has"),
        ({"status": "sleeping"}, "status must be one of active, idle, decaying"),
        ({"compaction_confg": {}}, "(did you mean compaction_config?)"),
    ],
)
def test_2_2_1_senseless_metadata_are_named(
    example: Session, changes: dict[str, object], says: str
) -> None:
    assert example.validate() == []
    example.update_metadata(**changes)
    (complaint,) = example.validate()
    assert complaint.file == "metadata.yaml"
    assert says in complaint.problem
    assert "It is ignored" in complaint.advice


def test_2_2_2b_the_head_names_later_speakers(example: Session, tmp_path: Path) -> None:
    page = example.memory.root / "active" / example.id / "conversation.md"
    at_first = "**Participants:** user-123, bmad-master, veritas, architect\n"
    assert at_first in page.read_text()
    with running(example.memory.root, log=tmp_path / "log"):
        example.add_turn("analyst", "I look at the figures.")
        later = f"{at_first[:-1]}, analyst\n"
        wait_until(lambda: later in page.read_text(), "the head names the analyst")
        assert example.add_turn("user", "Thank you.").id == "turn-3"
    assert [turn.data["speaker"] for turn in example.turns()] == ["user", "analyst", "user"]


def test_7_2_11_working_memory_goes_and_learnings_stay(example: Session) -> None:
    """In the context: the state as a whole is still there to be read."""
    now = example.agent("veritas").context()
    assert "No second factor" in now
    assert "Reviews forget the end" in now
    later = days_later(example, 20).agent("veritas")
    assert "working_memory" in later.state()
    assert "No end of a session" not in later.context()
    assert "Reviews forget the end" in later.context()


# What is deleted, restored, purged and anonymised.


def test_1_2_3b_modifications_are_tracked(example: Session) -> None:
    """Also 002 1.2."""
    before = example.get("DEC-002", count_access=False).text
    example.update("DEC-002", decision="OAuth 2.1 with JWT", by="architect")
    (revision,) = example.history("DEC-002")
    assert (revision.by, revision.before["decision"]) == ("architect", before)
    example.resolve_finding("FIND-002", resolved_by="user", action_taken="30 minutes")
    assert [one.change for one in example.history("FIND-002")] == ["resolved"]


def lines_of(log: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_5_2_6_undelete_with_a_reason(example: Session) -> None:
    memory = example.memory
    memory.delete_session(example.id, reason="Privacy", deleted_by="user-123")
    memory.undelete_session(example.id, reason="It was the wrong one")
    last = lines_of(memory.root / "audit.log")[-1]
    assert last["reason"] == "It was the wrong one"
    assert memory.session(example.id).state == "active"


def test_8_2_5_restore_with_a_reason(example: Session) -> None:
    example.delete("FIND-002", reason="Privacy")
    example.restore("FIND-002", reason="Still open")
    last = lines_of(example.memory.root / "audit.log")[-1]
    assert (last["action"], last["reason"]) == ("restore", "Still open")
    assert example.get("FIND-002").holds


def test_8_2_6_purge_what_was_deleted_before_a_time(example: Session) -> None:
    privacy = example.memory.privacy
    example.delete("FIND-002", reason="Privacy")
    later = days_later(example, 3)
    later.delete("DEC-001", reason="Privacy")
    later.memory.privacy.purge(older_than=NOW + timedelta(days=1))
    assert ids([*privacy.deleted(example.id)]) == ["DEC-001"]


def test_8_3_2_a_reason_for_each_memory(example: Session) -> None:
    personal = {"FIND-001": "It names a person"}
    why = "Privacy: work that is nobody's business"
    example.memory.privacy.delete(
        example.id, ["FIND-001", "DEC-001"], reason=why, reasons=personal, deleted_by="user-123"
    )
    file = example.memory.root / "deleted" / example.id / "deletion-record.yaml"
    record = yaml.safe_load(file.read_text())["deletion"]
    reasons = {one["id"]: one["reason_specific"] for one in record["deleted_items"]}
    assert reasons["FIND-001"] == "It names a person"
    assert (reasons["DEC-001"], record["deleted_by"]) == (why, "user-123")


def test_8_1_5_anonymise_one_session_or_all(example: Session) -> None:
    memory = example.memory
    other = memory.create_session("John Miller")
    other.add_turn("John Miller", "Hello.")
    example.add_turn("John Miller", "Hello again.")
    memory.privacy.anonymize_everywhere(names=["John Miller"])
    texts = [
        (memory.root / "active" / one / "conversation.md").read_text()
        for one in (other.id, example.id)
    ]
    assert not any("John" in text for text in texts)
    speakers = {session.turns()[-1].data["speaker"] for session in (other, example)}
    assert len(speakers) == 1


LOG = """# Conversation History
**Session:** session-2026-01-10-xyz
**Started:** 2026-01-10 09:00:00 UTC
**Participants:** user-123, veritas

---

## Turn 1 - 2026-01-10 09:00:00
**Speaker:** user
**Type:** message

Please begin.
Decision: Use OAuth 2.0

---

## Turn 2 - 2026-01-10 09:00:30
**Speaker:** veritas
**Type:** message
**Memory-Refs:** [FIND-001]

Finding (critical): Nothing asks for a second factor
Preference: thorough rather than fast

---
"""


def test_appc_3b_a_conversation_log_becomes_turns(example: Session, tmp_path: Path) -> None:
    log = tmp_path / "old.md"
    log.write_text(LOG)
    memory = example.memory
    memory.exchange.import_(log)
    (imported,) = [one for one in memory.sessions() if one.id != example.id]
    assert [turn.data["speaker"] for turn in imported.turns()] == ["user", "veritas"]
    assert "Please begin." in imported.turns()[0].text


def test_appc_3c_a_log_gives_decisions_findings_preferences(
    example: Session, tmp_path: Path
) -> None:
    log = tmp_path / "old.md"
    log.write_text(LOG)
    memory = example.memory
    memory.exchange.import_(log)
    (imported,) = [one for one in memory.sessions() if one.id != example.id]
    assert [one.text for one in imported.records("decision")] == ["Use OAuth 2.0"]
    (finding,) = imported.records("finding")
    assert (finding.data["severity"], finding.text) == (
        "critical",
        "Nothing asks for a second factor",
    )
    assert [one.text for one in imported.records("preference")] == ["thorough rather than fast"]


# Locks.


def test_6_1_2_writes_wait_five_seconds(example: Session) -> None:
    """Also 002 3.1.2, 003 3."""
    assert example.scope.options.lock_timeout_s == 5.0


HOLD = """
import sys
from smp_client import Memory
session = Memory(sys.argv[1]).session(sys.argv[2])
with session.scope.locked(["decisions.yaml"], "holding it"):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_6_2_2_the_holder_of_a_lock_is_named(example: Session) -> None:
    """Also 001 4.2.2."""
    hurried = example.with_options(lock_timeout_s=0.05)
    root = example.memory.root
    with elsewhere(HOLD, root, example.id), pytest.raises(LockTimeout) as timeout:
        hurried.record_decision("x", made_by="a")
    assert re.search(r"pid \d+", str(timeout.value))


def test_6_3_3_blocked_writes_are_logged(example: Session, tmp_path: Path) -> None:
    """Also 004 15.2.4, 004 15.1.4."""
    root = example.memory.root
    with running(root, log=tmp_path / "log") as daemon:
        with elsewhere(HOLD, root, example.id), pytest.raises(LockTimeout):
            example.with_options(lock_timeout_s=0.05).record_decision("x", made_by="a")

        def warned() -> list[object]:
            lines = [line for line in daemon.lines() if line["level"] == "warning"]
            return [line for line in lines if "lock" in str(line)]

        wait_until(warned, "the log names the timeout")


def test_4_1_20_aggregations(example: Session) -> None:
    asked = [{"function": "count", "by": "type"}, {"function": "avg", "field": "decay.priority"}]
    asked += [{"function": name, "field": "turn_ref"} for name in ("min", "max", "sum")]
    found = example.query({"aggregations": asked, "limit": 0}).aggregations
    assert found["count_by_type"]["finding"] == 2
    assert [found[f"{name}_turn_ref"] for name in ("min", "max", "sum")] == [2, 8, 20]
    assert 0.8 < found["avg_decay.priority"] <= 1


def test_5_2_9_repair_a_session(example: Session) -> None:
    """Also 000 10.4.3, 001 12.2.2."""
    home = example.memory.root / "active" / example.id
    example.search("login")  # by which the index knows it
    page = (home / "findings.yaml").read_text()
    (home / "findings.yaml").write_text(page.replace("severity: important", "severity: [", 1))
    with pytest.raises(CorruptionDetected):
        example.get("FIND-002")
    outcome = example.repair()
    assert outcome.actions
    assert example.get("FIND-002").data["severity"] == "important"
    assert example.get("FIND-001").data["severity"] == "critical"
    assert [*(example.memory.root / "quarantine" / example.id).iterdir()]


# The files for people, and the books of a session.


def index_files(session: Session) -> set[str]:
    home = session.memory.root / "active" / session.id / "indexes"
    return {path.name for path in home.glob("*.yaml")}


INDEXES = {"topics.yaml", "timeline.yaml", "agents.yaml"}


def test_2_1_5_indexes_whoever_indexed_first(example: Session, tmp_path: Path) -> None:
    """Also 000 2.2.1b, 000 2.2.1e, 001 4.1.3, 002 2.1."""
    example.search("login")
    with running(example.memory.root, log=tmp_path / "log"):
        wait_until(lambda: index_files(example) == INDEXES, "the indexes are there")

        def is_counted() -> bool:
            metadata: Any = example.metadata()
            agents = {one["agent_id"]: one["message_count"] for one in agents_of(metadata)}
            storage = metadata["storage"]
            is_full = storage["utilization_pct"] > 0
            return is_full and storage["total_bytes"] > 1000 and agents.get("analyst") == 1

        example.add_turn("analyst", "I look at the figures.")
        wait_until(is_counted, "the metadata count what is there")


def test_10_2_5_the_indexes_of_one_session_are_built_again(example: Session) -> None:
    """Also 000 5.1.1b, 001 10.1.6, 004 4.1.10."""
    memory = example.memory
    memory.rebuild_index(example.id)
    assert index_files(example) == INDEXES
    new = memory.create_session("user-123")
    memory.rebuild_index(new.id)
    assert index_files(new) == INDEXES


def test_5_3_2_all_indexes_are_rebuilt(example: Session) -> None:
    memory = example.memory
    memory.rebuild_index(example.id)
    shutil.rmtree(memory.root / "active" / example.id / "indexes")
    smp("reindex", "--root", memory.root)
    assert index_files(example) == INDEXES


def test_2_3_1a_topics_count_what_is_said(example: Session) -> None:
    """Also 000 2.3.1b, 000 2.3.1c."""
    for _ in range(3):
        example.add_turn("user", "What of authentication?", timestamp="2026-01-11T16:45:00Z")
    example.memory.rebuild_index(example.id)
    index = parsed(example, "indexes/topics.yaml")
    assert isinstance(index, dict)
    topic = index["topic_index"]["topics"]["authentication"]
    assert topic["mentions"] >= 6
    assert 0 < topic["weight"] <= 1
    assert topic["first_mentioned"] == "2026-01-11T14:30:30Z"
    assert topic["last_mentioned"] == "2026-01-11T16:45:00Z"
    memories = topic["related_memories"]
    assert memories["decisions"] == ["DEC-002"]
    assert memories["findings"] == ["FIND-001", "FIND-002"]
    assert memories["preferences"] == ["PREF-001"]
    assert memories["turns"] == [2, 3, 4]
    assert {"mfa", "session"} <= {*topic["subtopics"]}


# Reading counts.


def test_7_1_3_reading_raises_priority_and_count_at_once(example: Session) -> None:
    """Also 001 5.3.3, 003 5.1."""
    later = days_later(example, 10)
    before = later.get("DEC-001", count_access=False)
    for _ in range(5):
        later.get("DEC-001")
    after = later.get("DEC-001", count_access=False)
    assert after.priority > before.priority
    assert (before.access_count, after.access_count) == (0, 5)
    assert after.last_accessed == NOW + timedelta(days=10)


def test_2_2_1g_a_reading_is_an_access_of_its_session(example: Session) -> None:
    """Also 000 5.1.5e."""
    for day in (20, 40, 60):
        days_later(example, day).agent("veritas").context()
    later = days_later(example, 61).memory
    assert [one for one in lifecycle(later).actions if "archive" in one.type] == []
    unused = days_later(example, 95).memory
    assert [one.type for one in lifecycle(unused, dry_run=True).actions]


def test_5_1_3b_an_idle_session_takes_a_write_and_is_active(example: Session) -> None:
    example.deactivate()
    assert example.state == "idle"
    example.record_decision("Go on", made_by="architect")
    assert example.state == "active"


# Full sessions.

LONG_AGO = "2025-06-01T10:00:00Z"
QUOTA = 100_000


def filled(memory: Memory, share: float) -> Session:
    session = memory.create_session("user-123", quota_bytes=QUOTA)
    while session.size().total_bytes < share * QUOTA:
        session.add_turn("user", "It was said long ago. " * 50, timestamp=LONG_AGO)
    return session


def test_10_4_2_a_full_session_is_compacted_by_the_write(tmp_path: Path) -> None:
    """Also 000 5.3.5, 001 4.1.1, 001 12.2.4, 003 7.1, 004 5.1.2, 004 5.3.2."""
    session = filled(Memory(tmp_path / "sessions"), 0.985)
    turns = len(session.turns())
    session.record_decision("It still fits. " * 200, made_by="architect")
    assert session.size().total_bytes <= QUOTA
    assert len(session.turns()) < turns
    assert session.evicted()
    with pytest.raises(QuotaExceeded) as refused:
        session.record_decision("x" * 2 * QUOTA, made_by="architect")
    assert f"{QUOTA:,}" in str(refused.value)


def test_9_1_2_a_warning_at_80_percent(tmp_path: Path) -> None:
    """Also 002 5.1.2."""
    session = filled(Memory(tmp_path / "sessions"), 0.82)
    (note,) = session.record_decision("One more", made_by="architect").notes
    assert "% full" in note
    assert session.size().level == "warning"


def test_12_2_2_a_hint_from_5_mb_on(tmp_path: Path) -> None:
    session = Memory(tmp_path / "sessions").create_session("user-123", quota_bytes=50_000_000)
    for number in range(6):
        session.save_artifact(f"report-{number}", "x" * 1_000_000)
    notes = status(session.memory.root)["notes"]
    assert any(f"smp compact {session.id}" in note for note in notes)


def test_12_2_3_more_than_500_turns_are_summarised(tmp_path: Path) -> None:
    session = Memory(tmp_path / "sessions").create_session("user-123")
    with session.transaction(520) as together:
        for number in range(520):
            together.add_turn("user", f"This is number {number}", timestamp=LONG_AGO)
    with running(session.memory.root, log=tmp_path / "log"):
        wait_until(lambda: len(session.turns()) <= 500, "the oldest turns are summarised")
    assert session.turns()[0].data["type"] == "summary"


def test_1_2_6_every_write_is_logged_without_its_content(example: Session, tmp_path: Path) -> None:
    """By the library, and by an editor. Deletions stand in the audit log as well."""
    page = example.memory.root / "active" / example.id / "findings.yaml"
    with running(example.memory.root, log=tmp_path / "log") as daemon:

        def logged(memory_id: str) -> list[object]:
            lines = daemon.said("memories written")
            return [line for line in lines if memory_id in line["memories"]]

        before = len(daemon.said("memories written"))
        made = example.record_decision("Ask for a captcha", made_by="architect")
        wait_until(lambda: logged(made.id), "the log names the new decision")
        text = page.read_text()
        page.write_text(text.replace("Nobody says when", "Nowhere it says when"))
        wait_until(
            lambda: [
                one for one in daemon.said("memories written")[before:] if "FIND-002" in str(one)
            ],
            "the log names the finding that an editor changed",
        )
        example.delete(made.id, reason="Privacy")
    said = (tmp_path / "log").read_text()
    assert "captcha" not in said
    assert "Nowhere" not in said
    assert lines_of(example.memory.root / "audit.log")[-1]["ids"] == [made.id]
