"""What compaction decides: which memories go, in which order, what is preserved, and the reason for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smp_client.disk.usage import Size
from smp_client.model.policies import CompactionPolicy
from smp_client.passes.compaction import CompactionPlan, Item, Snapshot, plan, preserved, trigger
from smp_client.passes.summarise import Extractive
from smp_client.text.markdown import parse

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
POLICY = CompactionPolicy()
ALL = 1 << 40  # a target that nothing reaches
FILES = {
    "conversation_turn": "conversation.md", "decision": "decisions.yaml", "finding": "findings.yaml",
    "preference": "preferences.yaml", "learning": "learnings.yaml", "relationship": "relationships.yaml",
    "artifact": "artifacts/a.md",
}  # fmt: skip


def item(memory_id: str, type: str, age_days: float = 30, priority: float = 0.5, size: int = 1000, **more: Any) -> Item:
    at = NOW - timedelta(days=age_days)
    fields: dict[str, Any] = {"at": at, "used": at, **more}
    return Item(memory_id, type, FILES.get(type, "x.yaml"), 0, size, f"hash-{memory_id}", priority, **fields)


def turn(number: int, age_days: float = 30, priority: float = 0.5, size: int = 2000, **more: Any) -> Item:
    said = more.pop("text", "word " * (size // 5))
    return item(f"turn-{number}", "conversation_turn", age_days, priority, size, actor=more.pop("actor", "user"), text=said, **more)


def placed(items: Sequence[Item]) -> list[Item]:
    """Those of each file one behind the other."""
    ends: dict[str, int] = {}
    found = []
    for one in items:
        start = ends.get(one.file, 0)
        ends[one.file] = start + one.bytes
        found.append(one._replace(start=start, end=start + one.bytes))
    return found


def made(*items: Item, target: int = ALL, policy: CompactionPolicy = POLICY, **snapshot: Any) -> CompactionPlan:
    return plan(Snapshot("s1", placed(items), **snapshot), policy, NOW, target)


def gone(decided: CompactionPlan) -> dict[str, str]:
    return {one.item.id: one.operation for one in decided.taken}


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (item("DEC-001", "decision", 90, 0.1), "a decision that is not closed"),
        (item("FIND-001", "finding", 90, 0.1), "a finding that is not resolved"),
        (item("PREF-001", "preference", 90, 0.1, explicit=True), "an explicit preference"),
        (turn(1, 0.9, 0.1), "said within the last 24 hours"),
        (turn(1, 10, 0.71), "its priority is above 0.7"),
        (item("FIND-001", "finding", 90, 0.9, closed=True), "its priority is above 0.7"),
        (turn(1, 30, 0.1, pinned=True), "it is pinned"),
        (item("DEC-001", "decision", 90, 0.1, closed=True, pinned=True), "it is pinned"),
        (turn(1, 30, 0.1, used=NOW - timedelta(hours=47)), "made, changed or read within the last 48 hours"),
        (item("LEARN-001", "learning", 1.5, 0.1), "made, changed or read within the last 48 hours"),
        (turn(1, 30, 0.1, is_summary=True), "it stands for turns that were taken out"),
        (turn(1, 30, 0.1, is_open=True), "the last in its file, which somebody may still be writing"),
        (turn(1, 30, 0.1, is_double=True), "its id stands there more than once"),
        (turn(1, 30, 0.1, at=None), "it has no time, so that nobody can tell how old it is"),
        (turn(1, -400, 0.1), "said within the last 24 hours"),  # a clock that went back
        (item("report", "artifact", 90, 0.1), "an artifact"),
        (item("veritas", "agent_state", 90, 0.1), "the current state of an agent"),
    ],
)  # fmt: skip
def test_what_must_be_preserved_stays_and_says_why(one: Item, reason: str) -> None:
    """Whatever the target is, each of these stays, and is asked why."""
    decided = made(one)
    assert gone(decided) == {}
    assert decided.kept == {one.id: reason}
    assert preserved(one, POLICY, NOW) == reason
    assert decided.actions() == []


@pytest.mark.parametrize(
    ("one", "operation", "reason"),
    [
        (item("PREF-001", "preference", 90, 0.2), "remove_decayed", "its priority of 0.20 is below 0.3"),
        (item("LEARN-001", "learning", 90, 0.12), "remove_decayed", "its priority of 0.12 is below 0.3"),
        (item("DEC-001", "decision", 90, 0.2, closed=True), "remove_decayed", "its priority of 0.20 is below 0.3"),
        (item("FIND-001", "finding", 90, 0.2, closed=True), "remove_decayed", "its priority of 0.20 is below 0.3"),
        (item("FIND-001", "finding", 9, 0.5, closed=True), "archive_findings", "it is resolved"),
        (turn(1, 30, 0.1), "remove_decayed",
         "a priority of 0.10, below 0.3; in their place turn-1 says in short what was said"),
        (turn(1, 8, 0.6), "summarize_conversation",
         "said more than 7 days ago, on 2026-02-21; in their place turn-1 says in short what was said"),
    ],
)  # fmt: skip
def test_what_may_go_goes_and_says_why(one: Item, operation: str, reason: str) -> None:
    decided = made(one)
    assert gone(decided) == {one.id: operation}
    assert [(action.type, action.about, action.reason) for action in decided.actions()] == [(operation, (one.id,), reason)]
    assert decided.kept == {}


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (item("PREF-001", "preference", 90, 0.3), "its priority is not below 0.3"),
        (item("DEC-001", "decision", 90, 0.5, closed=True), "its priority is not below 0.3"),
        (turn(1, 6.9, 0.6), "neither decayed nor older than 7 days"),
        (turn(1, 8, 0.6, size=200), "a summary of it would not be smaller"),
    ],
)  # fmt: skip
def test_what_is_neither_decayed_nor_old_stays(one: Item, reason: str) -> None:
    assert made(one).kept == {one.id: reason}


def test_the_operations_come_in_their_order_and_stop_at_the_target() -> None:
    """With a growing target first what has decayed goes, then old conversation, resolved findings, earlier states."""
    everything = [
        item("PREF-001", "preference", 90, 0.2, size=3000), turn(1, 9, 0.6, size=5000),
        item("FIND-001", "finding", 9, 0.5, size=2000, closed=True),
    ]  # fmt: skip
    state = Item("STATE-001", "agent_state", "agent-states/history/a.yaml", 0, 1500, "h", 0.0, NOW, NOW, actor="a")
    order = ["remove_decayed", "summarize_conversation", "archive_findings", "compress_agent_state"]
    further: dict[str, Any] = {"history": [state]}
    for count, target in enumerate((1, 3001, 8000, 10000), 1):
        decided = made(*everything, target=target, **further)
        assert [action.type for action in decided.actions()] == order[:count]
    assert not made(*everything, target=3000, **further).missing_bytes
    assert made(*everything, target=ALL, **further).bytes_freed == sum(action.bytes_freed for action in decided.actions())


def test_within_an_operation_the_least_goes_first_and_then_the_oldest() -> None:
    """Among what has decayed the lowest priority goes first, and of two with the same the older one."""
    items = [item("A-1", "learning", 40, 0.25), item("A-2", "learning", 30, 0.1), item("A-3", "learning", 50, 0.1),
             item("A-4", "learning", 90, 0.2)]  # fmt: skip
    assert [list(gone(made(*items, target=1000 * count))) for count in (1, 2, 3, 4)] == [
        ["A-3"], ["A-2", "A-3"], ["A-2", "A-3", "A-4"], ["A-1", "A-2", "A-3", "A-4"],
    ]  # fmt: skip
    assert made(*items, target=1000).kept["A-4"] == "the target was reached without it"


def test_conversation_goes_from_its_oldest_end_and_no_further_than_needed() -> None:
    """Of forty old turns as many of the oldest go as reach the target with their summary: one fewer would not."""
    turns = [turn(number, 50 - number, 0.6) for number in range(1, 41)]
    decided = made(*turns, target=20_000)
    ids = list(gone(decided))
    assert ids == [f"turn-{number}" for number in range(1, len(ids) + 1)]
    assert decided.bytes_freed >= 20_000
    fewer = made(*turns[: len(ids) - 1])
    assert fewer.bytes_freed < 20_000
    assert decided.kept[f"turn-{len(ids) + 1}"] == "the target was reached without it"


def test_each_unbroken_run_gets_one_summary() -> None:
    """A turn that stays, or foreign text between two, ends a run; each leaves one turn with the number and time of its first."""
    turns = placed([turn(1), turn(2), turn(3, pinned=True), turn(4), turn(5), turn(6)])
    turns[5] = turns[5]._replace(start=turns[5].start + 7, end=turns[5].end + 7)  # somebody's own words stand before it
    decided = plan(Snapshot("s1", turns), POLICY, NOW, ALL)
    assert [[one.id for one in run.turns] for run in decided.runs] == [["turn-1", "turn-2"], ["turn-4", "turn-5"], ["turn-6"]]
    (first,) = parse(decided.runs[1].summary).records
    assert first.value["id"] == "turn-4"
    assert first.value["timestamp"] == "2026-01-30T12:00:00Z"
    assert (first.value["speaker"], first.value["type"]) == ("smp", "summary")
    assert first.value["summarizes"] == {"first": "turn-4", "last": "turn-5", "turns": 2}


def test_decayed_and_old_neighbours_share_a_summary() -> None:
    """A run of both kinds has one summary and two actions, whose bytes add up to what the run frees."""
    decided = made(turn(1, 60, 0.1), turn(2, 60, 0.1), turn(3, 9, 0.6))
    assert len(decided.runs) == 1
    actions = decided.actions()
    assert [(action.type, action.about) for action in actions] == [
        ("remove_decayed", ("turn-1", "turn-2")), ("summarize_conversation", ("turn-3",))
    ]  # fmt: skip
    assert sum(action.bytes_freed for action in actions) == decided.runs[0].freed == decided.bytes_freed


def test_short_decayed_turns_go_without_a_summary() -> None:
    """Where even a summary would be larger, what has decayed just goes, and what is only old stays."""
    decided = made(turn(1, 60, 0.1, size=120), turn(2, 9, 0.6, size=120))
    assert gone(decided) == {"turn-1": "remove_decayed"}
    assert decided.runs[0].summary == b""
    assert decided.bytes_freed == 120
    assert decided.kept == {"turn-2": "a summary of it would not be smaller"}


def test_a_relationship_goes_only_with_one_of_its_ends() -> None:
    """Also where a policy lets relationships decay, one whose ends both stay is never removed."""
    related = item("REL-001", "relationship", 90, 0.1, refs=("PREF-001", "DEC-001"))
    going, staying = item("PREF-001", "preference", 90, 0.1), item("PREF-001", "preference", 90, 0.5)
    decision = item("DEC-001", "decision", 90, 0.5)
    assert gone(made(going, decision, related)) == {"PREF-001": "remove_decayed", "REL-001": "remove_decayed"}
    decided = made(staying, decision, related)
    assert gone(decided) == {}
    assert decided.kept["REL-001"] == "what it relates stays"


def test_earlier_states_go_oldest_first_one_action_for_each_agent() -> None:
    """However new they are: the memory is the current state, which is not among them."""
    history = [
        Item(f"STATE-{number:03d}", "agent_state", f"agent-states/history/{agent}.yaml", 0, 100, "h", 0.0, at, at, actor=agent)
        for agent, number, hours in (("a", 1, 9), ("b", 1, 8), ("a", 2, 7), ("b", 2, 1))
        for at in [NOW - timedelta(hours=hours)]
    ]  # fmt: skip
    actions = made(history=history, target=300).actions()
    assert [(action.about, action.bytes_freed, action.reason) for action in actions] == [
        (("STATE-001", "STATE-002"), 200, "an earlier state of a; the current one stays"),
        (("STATE-001",), 100, "an earlier state of b; the current one stays"),
    ]


def test_a_plan_that_falls_short_says_what_is_in_the_way() -> None:
    decisions = item("DEC-001", "decision", size=700), item("DEC-002", "decision", size=300)
    decided = made(*decisions, turn(1, 0.1, 1.0, size=50), target=500)
    assert decided.missing_bytes == 500
    assert decided.why_short() == [
        "s1: 500 bytes were to be freed, 0 can be: 3 memories with 1,050 bytes stay (2 with 1,000 bytes: a decision that is not"
        " closed; 1 with 50 bytes: said within the last 24 hours)"
    ]
    assert made(item("A", "learning", priority=0.1), target=1000).why_short() == []


def test_what_falls_short_says_also_what_is_no_memory() -> None:
    """The size that is not of memories has a name too, and what was done is told as done."""
    said = made(item("A", "learning", 90, 0.1, size=300), item("DEC-001", "decision", size=700), target=1547)
    (done,) = said.why_short(3000, is_done=True)
    assert done == (
        "s1: 1,547 bytes were to be freed, 300 were freed: 1 memory with 700 bytes stays (1 with 700 bytes: a decision that is not"
        " closed); the other 2,000 bytes are metadata and the heads of the files"
    )
    assert made(target=1547).why_short(1932) == [
        "s1: 1,547 bytes were to be freed, 0 can be: it holds no memory; its 1,932 bytes are metadata and the heads of the files"
    ]
    assert made(target=1547).why_short() == ["s1: 1,547 bytes were to be freed, 0 can be: it holds no memory"]


@given(
    st.lists(
        st.builds(
            lambda type, age, priority, size, **flags: item("", type, age, priority, size, **flags),
            st.sampled_from(sorted(FILES)), st.floats(-2, 90), st.floats(0, 1), st.integers(60, 4000),
            pinned=st.booleans(), closed=st.booleans(), explicit=st.booleans(), is_summary=st.booleans(),
        ),
        max_size=25,
    ),
    st.integers(1, 60_000),
)  # fmt: skip
def test_whatever_there_is_the_rules_hold(items: list[Item], target: int) -> None:
    """Every memory goes or is kept for a reason, never both; nothing goes that must stay; what goes is no more than is needed."""
    prefixes = ["turn" if one.type == "conversation_turn" else "M" for one in items]
    named = [one._replace(id=f"{prefix}-{number}") for number, (prefix, one) in enumerate(zip(prefixes, items, strict=True), 1)]
    decided = plan(Snapshot("s1", placed(named)), POLICY, NOW, target)
    assert gone(decided).keys() | decided.kept.keys() == {one.id for one in named}
    assert not gone(decided).keys() & decided.kept.keys()
    assert all(preserved(one.item, POLICY, NOW) is None for one in decided.taken)
    assert all(not one.item.is_summary and not one.item.pinned for one in decided.taken)
    assert sum(action.bytes_freed for action in decided.actions()) == decided.bytes_freed >= 0
    assert all(action.reason for action in decided.actions())
    most = plan(Snapshot("s1", placed(named)), POLICY, NOW, ALL)
    assert decided.bytes_freed >= min(target, most.bytes_freed)
    again = plan(Snapshot("s1", placed(named)), POLICY, NOW, target)
    assert again.runs == decided.runs
    assert again.taken == decided.taken


# The summary.


def test_a_summary_holds_what_was_decided_found_and_referred_to() -> None:
    """Range, times and speakers, then sentences in their order, each with its turn; nothing that nobody said."""
    turns = [
        turn(12, 30, text="Good morning. How are you?", actor="user"),
        turn(13, 29, text="We decided to use OAuth 2.0. The weather is nice.", actor="architect"),
        turn(14, 28, text="I found a bug in the login. It is bad.", actor="veritas"),
        turn(15, 27, text="See DEC-001 for why.\nThat is all.", actor="architect", refs=("DEC-001",)),
        turn(16, 26, text="Users prefer dark colours!", actor="user"),
    ]  # fmt: skip
    assert Extractive().summary(turns, 10_000).splitlines() == [
        "Summary of 5 turns, turn-12 to turn-16, 2026-01-30 12:00 to 2026-02-03 12:00 UTC."
        " Said by architect (2), user (2), veritas (1).",
        "",
        "- turn-13 (architect): We decided to use OAuth 2.0.",
        "- turn-14 (veritas): I found a bug in the login.",
        "- turn-15 (architect): See DEC-001 for why.",
        "- turn-16 (user): Users prefer dark colours!",
        "… and 1 more turn",
    ]


def test_a_summary_stays_short() -> None:
    """At most 40 lines and about 15 % of the bytes; where there is little room, what tells most, evenly over all of the turns.

    While the first turns were chosen, nothing was left of the later ones."""
    turns = [turn(number, 30, text=f"We must do thing {number}. We decided on DEC-{number:03d}.") for number in range(1, 401)]
    heading, _, *lines, more = Extractive().summary(turns, 1_000_000).splitlines()
    assert heading.startswith("Summary of 400 turns, turn-1 to turn-400, ")
    assert lines == [f"- turn-{number} (user): We decided on DEC-{number:03d}." for number in range(6, 401, 10)]
    assert more == "… and 360 more turns"
    short = Extractive().summary(turns, 2_000)
    assert len(short.encode()) <= 300
    assert short.splitlines()[2:] == [
        "- turn-67 (user): We decided on DEC-067.", "- turn-201 (user): We decided on DEC-201.",
        "- turn-334 (user): We decided on DEC-334.", "… and 397 more turns",
    ]  # fmt: skip


def test_turns_that_decide_nothing_are_found_by_what_they_were_about() -> None:
    """One sentence each, of the first that with the most names, numbers and long words; small talk only if there is nothing else.

    While only telling sentences stood in a summary, it was often a head line that no search could find."""
    turns = [
        turn(1, text="Hello again. The office in Vienna has 12 racks."), turn(2, text="Sure, thing. Okay then."),
        turn(3, text="Kubernetes came up at lunch. It rained."), turn(4, text=""), turn(5, text="The database is slow."),
    ]  # fmt: skip
    assert Extractive().summary(turns, 10_000).splitlines()[2:] == [
        "- turn-1 (user): The office in Vienna has 12 racks.", "- turn-3 (user): Kubernetes came up at lunch.",
        "- turn-5 (user): The database is slow.", "… and 2 more turns",
    ]  # fmt: skip
    assert Extractive().summary(turns[1:2], 10_000).splitlines()[2:] == ["- turn-2 (user): Sure, thing."]
    assert Extractive().summary(turns[3:4], 10_000).count("\n") == 0


def test_where_no_whole_sentence_fits_one_is_cut() -> None:
    turns = [turn(number, text=f"The office in Vienna has {number} racks, which hold all that we have.") for number in range(1, 7)]
    summary = Extractive().summary(turns, 1_250)
    assert len(summary.encode()) <= 187
    assert summary.splitlines()[2:] == ["- turn-4 (user): The office in Vienna has 4 racks, whi…", "… and 5 more turns"]


def test_no_sentence_stands_twice_in_a_summary() -> None:
    """Neither of one turn nor of two, whatever their case."""
    turns = [turn(1, text="We agreed. We agreed. It fails."), turn(2, text="WE AGREED."), turn(3, text="Lunch in Graz."),
             turn(4, text="Lunch in Graz.")]  # fmt: skip
    assert Extractive().summary(turns, 10_000).splitlines()[2:] == [
        "- turn-1 (user): We agreed.", "- turn-1 (user): It fails.", "- turn-3 (user): Lunch in Graz.", "… and 2 more turns"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "said",
    [
        "Let's go with it", "Fine, we'll use the bus", "We'll take two", "Going with the first", "It is agreed", "I found it",
        "It breaks at night", "That is not handled", "A key is missing", "It fails", "It has a bug", "It is a problem", "We cannot",
        "It can't be", "She would rather walk", "He likes tea", "He wants tea", "We have it before 12 October", "It is by Friday",
        "Wait until then", "The deadline is near", "Done by 2026-10-12", "Ready by May 3",
    ],
)  # fmt: skip
def test_which_words_tell_something(said: str) -> None:
    """Such a sentence is chosen before one that is full of names and numbers, also where it comes last."""
    one = turn(1, text=f"Alpha met Beta and Gamma in Vienna 12. Then came night. Later it was day. {said}. They came by car.")
    assert Extractive().summary([one], 10_000).splitlines()[2:] == [f"- turn-1 (user): {said}."]


# When a session is compacted by itself.


def size(total: int, quota: int = 1000) -> Size:
    return Size(total, quota, 100 * total / quota, "", {}, [], None)


@pytest.mark.parametrize(
    ("total", "growth", "expected"),
    [
        (799, 0, None), (800, 0, 10.0), (949, 0, 10.0), (950, 0, 20.0), (2000, 0, 20.0),
        (500, 499, None), (500, 500, 10.0), (500, -5, None), (799, 300, 10.0),
    ],
)  # fmt: skip
def test_when_a_session_should_become_smaller(total: int, growth: float, expected: float | None) -> None:
    """At 95 % by 20, at 80 % by 10, and by 10 if it will be full within a day at the growth of the last one."""
    found = trigger(size(total), growth, POLICY)
    assert (found and found[0]) == expected


def test_the_trigger_says_why() -> None:
    assert trigger(size(960), 0, POLICY) == (20.0, "it holds 96.0 % of its quota, which is 95 % or more")
    assert trigger(size(600), 800, POLICY) == (10.0, "at the growth of the last day it would be full in 0.5 days")


def test_a_session_may_say_for_itself_when() -> None:
    """`compaction_config` in the metadata sets the threshold, and can switch it off."""
    later = POLICY.for_session({"compaction_config": {"threshold": 0.9}})
    assert trigger(size(850), 0, later) is None
    assert trigger(size(900), 0, later)
    never = POLICY.for_session({"compaction_config": {"auto_compact": False}})
    assert trigger(size(2000), 0, never) is None
    assert trigger(size(500), 5000, replace(POLICY, predict_days=0)) is None
