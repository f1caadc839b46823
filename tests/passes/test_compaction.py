"""The plan of a compaction: which memories go, in which order, which stay, and why."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smp_client.disk.usage import Size
from smp_client.model.policies import CompactionPolicy
from smp_client.passes.compaction import CompactionPlan, Item, plan, preserved, trigger
from smp_client.passes.summarise import summary
from smp_client.text.markdown import Conversation

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
POLICY = CompactionPolicy()
ALL = 1 << 40  # a target that nothing reaches
FILES = {
    "conversation_turn": "conversation.md", "decision": "decisions.yaml",
    "finding": "findings.yaml", "preference": "preferences.yaml", "learning": "learnings.yaml",
    "relationship": "relationships.yaml", "artifact": "artifacts/a.md",
}  # fmt: skip
NEITHER = "neither decayed, nor old conversation, nor a resolved finding"


def item(
    memory_id: str, type: str, age_days: float = 30, priority: float = 0.5, size: int = 1000,
    **more: Any,
) -> Item:  # fmt: skip
    at = NOW - timedelta(days=age_days)
    fields: dict[str, Any] = {"file": FILES.get(type, "x.yaml"), "at": at, "used": at, **more}
    return Item(memory_id, type, start=0, bytes=size, hash="h", priority=priority, **fields)


def turn(number: int, age_days: float = 30, priority: float = 0.5, size: int = 2000, **more: Any) -> Item:
    data = json.dumps({"content": more.pop("text", "word " * (size // 5))})
    more = {"actor": "user", "data": data, **more}
    return item(f"turn-{number}", "conversation_turn", age_days, priority, size, **more)


def state(agent: str, number: int, hours: float, size: int = 100) -> Item:
    file = f"agent-states/history/{agent}.yaml"
    return item(f"STATE-{number:03d}", "agent_state", hours / 24, 0.0, size, file=file, actor=agent)


def made(*items: Item, target: int = ALL) -> CompactionPlan:
    placed = [one._replace(start=number) for number, one in enumerate(items)]
    return plan(placed, POLICY, NOW, target)


def gone(decided: CompactionPlan) -> dict[str, str]:
    return {one.item.id: one.operation for one in decided.taken}


def kept(decided: CompactionPlan) -> dict[str, str]:
    return {one.id: reason for one, reason in decided.kept}


@pytest.mark.parametrize(("one", "reason"), [
    (item("DEC-001", "decision", 90, 0.1), "a decision that is not closed"),
    (item("PREF-001", "preference", 90, 0.1, standing="preference.explicit"),
     "an explicit preference"),
    (turn(1, 0.9, 0.1), "said within the last 24 hours"),
    (turn(1, 10, 0.71), "its priority is above 0.7"),
    (turn(1, 30, 0.1, standing="pinned"), "it is pinned"),
    (turn(1, 30, 0.1, used=NOW - timedelta(hours=47)),
     "made, changed or read within the last 48 hours"),
    (turn(1, 30, 0.1, fixed="the last in its file"), "the last in its file"),
    (turn(1, 30, 0.1, at=None), "it has no time, so that nobody can tell how old it is"),
    (turn(1, -400, 0.1), "said within the last 24 hours"),  # a clock that went back
    (item("report", "artifact", 90, 0.1, standing="artifact"), "an artifact"),
    (item("veritas", "agent_state", 90, 0.1, standing="agent_state"),
     "the current state of an agent"),
    (item("PREF-001", "preference", 90, 0.3), NEITHER),
])  # fmt: skip
def test_a_memory_that_stays_says_why(one: Item, reason: str) -> None:
    """Whatever the target is."""
    decided = made(one)
    assert (gone(decided), kept(decided)) == ({}, {one.id: reason})


@pytest.mark.parametrize(("one", "operation", "reason"), [
    (item("PREF-001", "preference", 90, 0.2), "remove_decayed", "a priority below 0.3"),
    (item("FIND-001", "finding", 9, 0.5, closed=True), "archive_findings", "it is resolved"),
    (turn(1, 30, 0.1), "remove_decayed", "a priority below 0.3"),
    (turn(1, 8, 0.6), "summarize_conversation", "said more than 7 days ago"),
    (state("a", 1, 1), "compress_agent_state", "an earlier state of an agent; the current one stays"),
])  # fmt: skip
def test_a_memory_that_goes_says_why(one: Item, operation: str, reason: str) -> None:
    decided = made(one)
    assert (gone(decided), kept(decided)) == ({one.id: operation}, {})
    (action,) = decided.actions("s1")
    assert (action.session, action.about, action.reason) == ("s1", (one.id,), reason)


def test_the_operations_come_in_their_order_and_stop_at_the_target() -> None:
    everything = [
        item("PREF-001", "preference", 90, 0.2, size=3000), turn(1, 9, 0.6, size=5000),
        item("FIND-001", "finding", 9, 0.5, size=2000, closed=True), state("a", 1, 5, size=1500),
    ]  # fmt: skip
    order = ["remove_decayed", "summarize_conversation", "archive_findings", "compress_agent_state"]
    for count, target in enumerate((3000, 3001, 8000, 10000), 1):
        actions = made(*everything, target=target).actions("s1")
        assert [action.type for action in actions] == order[:count]


def test_within_an_operation_the_least_goes_first_and_then_the_oldest() -> None:
    items = [item("A-1", "learning", 40, 0.25), item("A-2", "learning", 30, 0.1),
             item("A-3", "learning", 50, 0.1), item("A-4", "learning", 90, 0.2)]  # fmt: skip
    assert [list(gone(made(*items, target=1000 * count))) for count in (1, 2, 3, 4)] == [
        ["A-3"], ["A-2", "A-3"], ["A-2", "A-3", "A-4"], ["A-1", "A-2", "A-3", "A-4"],
    ]  # fmt: skip
    assert kept(made(*items, target=1000))["A-4"] == "the target was reached without it"


def test_each_unbroken_run_of_turns_gets_one_summary() -> None:
    """A turn that stays ends a run; each leaves one turn with the number and time of its first."""
    decided = made(turn(1), turn(2, 9, 0.6), turn(3, standing="pinned"), turn(4), turn(5))
    runs = [[one.id for one in run.turns] for run in decided.runs]
    assert runs == [["turn-1", "turn-2"], ["turn-4", "turn-5"]]
    (first,) = Conversation().parse(decided.runs[1].summary).records
    assert (first.value["id"], first.value["timestamp"]) == ("turn-4", "2026-01-30T12:00:00Z")
    assert (first.value["speaker"], first.value["type"]) == ("smp", "summary")
    assert first.value["summarizes"] == {"first": "turn-4", "last": "turn-5", "turns": 2}


def test_conversation_goes_from_its_oldest_end() -> None:
    """Without a summary where it would be larger than the turns are."""
    decided = made(*(turn(number, 50 - number, 0.6) for number in range(1, 41)), target=20_000)
    ids = list(gone(decided))
    assert ids == [f"turn-{number}" for number in range(1, len(ids) + 1)]
    assert 20_000 <= decided.bytes_freed <= 25_000
    short = made(turn(1, 60, 0.1, size=120), turn(2, 9, 0.6, size=120))
    assert (short.runs[0].summary, short.bytes_freed) == (b"", 240)


def test_a_plan_that_falls_short_says_what_is_in_the_way() -> None:
    decisions = item("DEC-001", "decision", size=700), item("DEC-002", "decision", size=300)
    assert made(*decisions, turn(1, 0.1, 1.0, size=50), target=500).why_short(500) == (
        "500 bytes were to be freed, 0 can be; these stay (2 with 1,000 bytes: a decision that"
        " is not closed; 1 with 50 bytes: said within the last 24 hours)"
    )


@given(
    st.lists(
        st.builds(
            lambda type, age, priority, size, **flags: item("", type, age, priority, size, **flags),
            st.sampled_from(sorted(FILES)), st.floats(-2, 90), st.floats(0, 1),
            st.integers(60, 4000), closed=st.booleans(), fixed=st.sampled_from(["", "a summary"]),
            standing=st.sampled_from(["", "pinned", "artifact"]),
        ),
        max_size=25,
    ),
    st.integers(1, 60_000),
)  # fmt: skip
def test_whatever_there_is_the_rules_hold(items: list[Item], target: int) -> None:
    """Every memory goes or stays for a reason, and none goes that must stay."""
    prefixes = ["turn" if one.type == "conversation_turn" else "M" for one in items]
    numbered = enumerate(zip(prefixes, items, strict=True), 1)
    named = [one._replace(id=f"{prefix}-{number}") for number, (prefix, one) in numbered]
    decided = made(*named, target=target)
    assert gone(decided).keys() | kept(decided).keys() == {one.id for one in named}
    assert not gone(decided).keys() & kept(decided).keys()
    assert all(preserved(one.item, POLICY, NOW) is None for one in decided.taken)
    actions = decided.actions("s1")
    assert sum(action.bytes_freed for action in actions) == decided.bytes_freed >= 0
    assert all(action.reason for action in actions)
    assert decided.bytes_freed >= min(target, made(*named).bytes_freed)
    assert made(*named, target=target) == decided


def test_a_summary_holds_what_was_decided_found_and_referred_to() -> None:
    """Range, times and speakers, then sentences in their order, each with its turn."""
    turns = [
        turn(12, 30, text="Good morning. How are you?"),
        turn(13, 29, text="We decided to use OAuth 2.0. The weather is nice.", actor="architect"),
        turn(14, 28, text="It is late. I found a bug in the login.", actor="veritas"),
        turn(15, 27, text="That is all.\nSee DEC-001 for why.", actor="architect"),
        turn(16, 26, text="I FOUND A BUG IN THE LOGIN."),
    ]  # fmt: skip
    assert summary(turns, 10_000).splitlines() == [
        "Summary of turn-12 to turn-16, 2026-01-30 12:00 to 2026-02-03 12:00 UTC."
        " Said by user (2), architect (2), veritas (1).",
        "",
        "- turn-12 (user): Good morning.",
        "- turn-13 (architect): We decided to use OAuth 2.0.",
        "- turn-14 (veritas): I found a bug in the login.",
        "- turn-15 (architect): See DEC-001 for why.",
    ]


def test_a_summary_stays_short() -> None:
    """At most 40 lines and about 15 % of the bytes, spread evenly over all of the turns."""
    said = "We must do thing {0}. We decided on DEC-{0:03d}."
    turns = [turn(number, 30, text=said.format(number)) for number in range(1, 401)]
    heading, _, *lines = summary(turns, 1_000_000).splitlines()
    assert heading.startswith("Summary of turn-1 to turn-400, ")
    assert lines == [f"- turn-{number} (user): We decided on DEC-{number:03d}."
                     for number in range(6, 401, 10)]  # fmt: skip
    assert len(summary(turns, 2_000).encode()) <= 300


def test_when_a_session_should_become_smaller() -> None:
    """At 95 % by 20, at 80 % by 10; its metadata may set the threshold, and switch it off."""

    def due(total: int, policy: CompactionPolicy = POLICY) -> float | None:
        found = trigger(Size(total, 1000, total / 10, "", {}, [], None), policy)
        return found and found[0]

    assert [due(total) for total in (799, 800, 949, 950, 2000)] == [None, 10.0, 10.0, 20.0, 20.0]
    later = POLICY.for_session({"compaction_config": {"threshold": 0.9}})
    assert [due(total, later) for total in (850, 900)] == [None, 10.0]
    assert due(2000, POLICY.for_session({"compaction_config": {"auto_compact": False}})) is None
