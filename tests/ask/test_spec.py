"""The query specification finds what a plain reading of the records finds, or says what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smp_client import InvalidQuery, Memory, Session

HAND_WRITTEN = """\
  - {id: HAND-1, finding: no number at all, ratio: .nan, limit: .inf, depth: [-.inf, 3]}
  - {id: HAND-2, timestamp: soon, finding: 'null and nothing', tags: [2026], note: , empty: []}
"""


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Records of every kind, with fields of their own."""
    root = tmp_path_factory.mktemp("spec") / "sessions"
    memory = Memory(root, clock=lambda: datetime(2026, 1, 13, tzinfo=UTC), count_access=False)
    session = memory.create_session(id="s1", user="u", project="p", topic="t")
    session.add_turn("user", "Let's review OAuth.", timestamp="2026-01-11T14:30:00Z")
    session.add_turn(
        "veritas", "100% *bad*?", memory_refs=["DEC-001"], timestamp="2026-01-11T14:30:05.250Z"
    )
    session.record_decision(
        "Use OAuth 2.0 with JWT", made_by="architect", tags=["Security.Tokens", "architecture"],
        reversible=False, timestamp="2026-01-11T16:40:00+02:00",
        alternatives_considered=[{"option": "cookies"}, {"option": "Opaque tokens", "cost": 3}],
    )  # fmt: skip
    session.record_decision(
        "Über alles prüfen", made_by="bmad-master", tags=["security"], reversible=True, weight=1,
        timestamp="1969-12-31T12:00:00Z",
    )  # fmt: skip
    session.record_finding(
        "No MFA requirement", discovered_by="veritas", severity="critical",
        tags=["mfa", "security.authentication"], resolution={"status": "open"},
        location={"artifact": "/docs/r.md", "line_numbers": [45, 60]},
        timestamp="2026-01-12T00:00:00Z",
    )  # fmt: skip
    session.record_finding(
        "Timeout", discovered_by="veritas", severity="low", tags=["securityx", "prüfung"],
        weight=2.5, resolution={"status": "resolved"}, location="somewhere",
    )  # fmt: skip
    session.record_preference("MFA for admins", topic="mfa", weight="10")
    session.record_learning(
        "Explicit", learned_by="veritas", weight=True,
        mixed=[1, "1", True, None, 2.5, {"a": 1}, ["x"]],
    )  # fmt: skip
    with (root / "active/s1/findings.yaml").open("a") as file:
        file.write(HAND_WRITTEN)
    yield session
    memory.close()


def ids(asked: Session, *filters: tuple[Any, ...], **parts: Any) -> set[str]:
    names = ("field", "operator", "value")
    spec = {"filters": [dict(zip(names, one, strict=False)) for one in filters], **parts}
    return {record.id for record in asked.query(spec)}


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        # columns
        (("type", "in", ["turn", "preference"]), {"turn-1", "turn-2", "PREF-001"}),
        (("type", "equals", "conversation_turn"), {"turn-1", "turn-2"}),
        (("agent", "exists", False), {"PREF-001", "HAND-1", "HAND-2"}),
        (("text", "contains", "ÜBER"), {"DEC-002"}),
        # tags have levels
        (("tags", "equals", "security"), {"DEC-001", "DEC-002", "FIND-001"}),
        (("tags", "in", ["mfa", "PRÜFUNG"]), {"FIND-001", "FIND-002"}),
        # fields of the record: texts with texts, numbers with numbers, and lists looked through
        (("weight", "equals", 1), {"DEC-002", "LEARN-001"}),
        (("weight", "greaterThan", 1), {"FIND-002"}),
        (("weight", "in", [2.5, "10", 2**70, 1e300]), {"FIND-002", "PREF-001"}),
        (("mixed", "contains", "1"), {"LEARN-001"}),
        (("mixed.a", "equals", 1), {"LEARN-001"}),
        (("alternatives_considered.option", "contains", "opaque"), {"DEC-001"}),
        (("location.line_numbers", "greaterOrEqual", 60), {"FIND-001"}),
        (("note", "exists"), set()),
        # times
        (("timestamp", "in", ["1969-12-31T12:00:00Z", "2026-01-12"]), {"DEC-002", "FIND-001"}),
        (("timestamp", "lessThan", date(2026, 1, 11)), {"DEC-002"}),
        # a date is its whole day
        (("timestamp", "equals", "2026-01-11"), {"turn-1", "turn-2", "DEC-001"}),
        (("timestamp", "lessOrEqual", "2026-01-11"), {"turn-1", "turn-2", "DEC-001", "DEC-002"}),
        (("type", "equals", "Decision"), {"DEC-001", "DEC-002"}),
    ],
    ids=lambda part: "-".join(map(str, part)) if isinstance(part, tuple) else "",
)
def test_each_operator(asked: Session, condition: tuple[Any, ...], found: set[str]) -> None:
    assert ids(asked, condition) == found
    field, operator, *value = condition
    if operator in ("equals", "in"):
        assert ids(asked, (field, "not", *value)) == ids(asked) - found


def test_a_day_ends_with_its_last_moment(session: Session) -> None:
    for time in ("2026-01-11T23:59:59.999Z", "2026-01-12T00:00:00Z"):
        session.record_learning("around midnight", learned_by="ann", timestamp=time)
    assert ids(session, ("timestamp", "greaterThan", "2026-01-11")) == {"LEARN-002"}
    assert ids(session, ("timestamp", "lessOrEqual", date(2026, 1, 11))) == {"LEARN-001"}
    assert ids(session, ("timestamp", "not", "2026-01-11")) == {"LEARN-002"}


def test_numbers_of_a_field(session: Session) -> None:
    """Of all, and of each group; the mean of nothing is None, and times are texts."""
    session.add_turn("user", "nothing was measured", timestamp="2026-01-11T14:30:00Z")
    for hours, by in ((2, "ann"), (4, "ann"), (9, "bob")):
        session.record_learning(f"took {hours}", learned_by=by, hours=hours)
    entries = [{"function": name, "field": "hours"} for name in ("avg", "min", "max", "sum")]
    entries.append({"function": "avg", "field": "hours", "by": "agent"})
    entries.append({"function": "max", "field": "hours", "by": "agent", "name": "most"})
    entries.append({"function": "min", "field": "timestamp"})
    entries.append({"function": "avg", "field": "learned_by"})
    found = session.query({"aggregations": entries, "limit": 1}).aggregations
    assert (found["avg_hours"], found["min_hours"], found["max_hours"]) == (5, 2, 9)
    assert found["sum_hours"] == 15
    assert found["avg_hours_by_agent"]["ann"] == 3
    assert found["most"] == {"ann": 4, "bob": 9, "user": None}
    assert found["min_timestamp"] == "2026-01-11T14:30:00Z"
    assert found["avg_learned_by"] is None


def a_filter(field: Any, operator: Any, *value: Any) -> dict[str, Any]:
    names = ("field", "operator", "value")
    return {"filters": [dict(zip(names, (field, operator, *value), strict=False))]}


@pytest.mark.parametrize(
    ("spec", "note"),
    [
        (a_filter("sevrity", "equals", "high"), "'sevrity' (did you mean 'severity'?)"),
        (a_filter("resolution.stauts", "not", "x"), "(did you mean 'resolution.status'?)"),
        ({"sort": [{"field": "wieght"}]}, "(did you mean 'weight'?)"),
        ({"aggregations": [{"function": "count", "by": "qqqqq"}]}, "the field 'qqqqq'."),
        (a_filter("severity", "equals", "none of it"), None),
    ],
)
def test_a_field_that_no_memory_has_is_named(asked: Session, spec: Any, note: str | None) -> None:
    said = asked.query(spec).note
    assert said is None if note is None else note in str(said)


def test_sorting(asked: Session) -> None:
    """By several fields; numbers before texts, and memories without the field last."""
    early = [{"field": "timestamp", "operator": "lessThan", "value": "2026-01-13"}]
    newest = {"filters": early, "sort": [{"field": "timestamp", "direction": "DESC"}]}
    found = ["FIND-001", "DEC-001", "turn-2", "turn-1", "DEC-002"]
    assert [one.id for one in asked.query(newest)] == found
    assert [one.id for one in asked.query({**newest, "limit": 2, "offset": 1})] == found[1:3]
    assert asked.query({**newest, "limit": 0}) == []
    for direction, weights in (("asc", [True, 1, 2.5, "10"]), ("desc", ["10", 2.5, True, 1])):
        weighed = asked.query({"sort": [{"field": "weight", "direction": direction}]})
        assert [one.data.get("weight") for one in weighed[:5]] == [*weights, None]
    by_type = {"sort": [{"field": "type"}, {"field": "decay.priority", "direction": "desc"}]}
    decisions = [one for one in asked.query(by_type) if one.type == "decision"]
    assert [one.id for one in decisions] == ["DEC-001", "DEC-002"]


def test_counts(asked: Session) -> None:
    """By a list, a memory counts for each of its items; those without the field are None."""
    fields = ("type", "tags", "reversible", "timestamp")
    entries = [{"function": "count"}, *({"function": "count", "by": by} for by in fields)]
    found = asked.query({"aggregations": entries, "limit": 1}).aggregations
    everything = len(ids(asked))
    assert found["count"] == everything
    assert found["count_by_type"] == {"decision": 2, "finding": 4, "learning": 1, "preference": 1, "turn": 2}  # fmt: skip
    assert found["count_by_tags"]["security.authentication"] == found["count_by_tags"]["2026"] == 1
    assert found["count_by_reversible"] == {None: everything - 2, False: 1, True: 1}
    assert found["count_by_timestamp"]["2026-01-11"] == 3
    filters = [{"field": "type", "operator": "equals", "value": "decision"}]
    some = {"filters": filters, "aggregations": [{"function": "count", "by": "weight", "name": "w"}]}
    assert asked.query(some).aggregations == {"w": {1: 1, None: 1}}


def test_severities_have_one_order_and_synonyms(memory: Memory) -> None:
    """`important` is `high`, `minor` is `low`; each stays as it was written."""
    session = memory.create_session(id="severities")
    for word in ("minor", "info", "important", "critical", "low", "medium", "high"):
        session.record_finding(f"A {word} one", discovered_by="a", severity=word)

    def found(operator: str = "exists", value: Any = True, direction: str = "desc") -> list[str]:
        order = [{"field": "severity", "direction": direction}, {"field": "id"}]
        only = [{"field": "severity", "operator": operator, "value": value}]
        return [one.data["severity"] for one in session.query({"filters": only, "sort": order})]

    worst_first = ["critical", "important", "high", "medium", "minor", "low", "info"]
    assert found() == worst_first
    assert found("equals", "high") == ["important", "high"]
    assert found("not", "important") == ["critical", "medium", "minor", "low", "info"]
    assert found("greaterOrEqual", "high") == worst_first[:3]


# Wrong specifications.


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ([], "A query is a mapping with filters"),
        ({"filter": []}, "has no key 'filter' (did you mean 'filters'?); keys are filters"),
        ({"include_related": "yes"}, "include_related must be true or false"),
        ({"filters": {"field": 1}}, "filters must be a list"),
        ({"filters": [{}] * 101}, "at most 100"),
        (a_filter("id", "equals"), "filters[0].value must be a text, not None"),
        (a_filter("id", "in", "x"), "must be a list"),
        (a_filter("id", "equal", "x"), "filters[0].operator must be one of equals, not, in"),
        (a_filter("id", "exists", "yes"), "filters[0].value must be true or false"),
        (a_filter("a", "equals", {}), "must be a text, a number or a truth"),
        (a_filter("timestamp", "equals", "soon"), "is not an ISO time"),
        ({"sort": [{"field": "id", "direction": "up"}]}, "sort[0].direction must be asc or desc"),
        ({"aggregations": [{"function": "sum"}]}, "aggregations[0].field must be a text"),
        ({"aggregations": [{"function": "cuont"}]}, "count, avg, min, max, sum (did you mean 'count'?)"),
        (a_filter("type", "equals", "decison"), "did you mean 'decision'?"),
    ],
)
def test_a_specification_that_makes_no_sense(asked: Session, spec: Any, says: str) -> None:
    with pytest.raises(InvalidQuery) as refused:
        asked.query(spec)
    assert says in str(refused.value)


def test_options_narrow_a_specification_down(asked: Session, tmp_path: Path) -> None:
    assert {one.type for one in asked.query({}, types=["decision"])} == {"decision"}
    assert len(asked.query({"limit": 5}, offset=2, tags=["security"])) == 1
    strong = {one.id for one in asked.query({}, min_priority=0.5)}
    assert strong == {one.id for one in asked.search(min_priority=0.5, limit=None)} < ids(asked)
    with pytest.raises(InvalidQuery, match="has no score"):
        asked.query({}, min_relevance=0.5)


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
    | st.sampled_from(["open", "2026-01-11", "security", "high", "10", "%", "'"])
)  # fmt: skip
operators = ["equals", "not", "in", "contains", "exists", "lessThan"]
fields = st.text(max_size=5) | st.sampled_from(
    ["id", "type", "session", "tags", "timestamp", "priority", "weight", "mixed", "location",
     "severity", "location.line_numbers", "limit", "depth", "ratio", "decay"]
)  # fmt: skip
values = scalars | st.lists(scalars, max_size=3) | st.dates() | st.datetimes()
specs = st.fixed_dictionaries({}, optional={
    "filters": st.lists(st.fixed_dictionaries(
        {"field": fields, "operator": st.sampled_from(operators), "value": values}), max_size=3),
    "sort": st.lists(st.fixed_dictionaries({"field": fields}), max_size=3),
    "aggregations": st.lists(st.fixed_dictionaries(
        {"function": st.just("count")}, optional={"by": fields}), max_size=2),
    "limit": st.integers(0) | st.none(), "offset": st.integers(0),
})  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(spec=specs | st.dictionaries(st.text(max_size=4), scalars, max_size=4) | scalars)
def test_anything_is_answered_or_invalid(asked: Session, spec: Any) -> None:
    try:
        asked.query(spec)
    except InvalidQuery:
        return
