"""The query specification: whatever is asked gives what a plain reading of the records gives, or a list of what is wrong."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from smp_client import Memory
from smp_client.ask.spec import Specification, has_field, understand, unknown_field
from smp_client.index.database import Index
from smp_client.index.sql import Sql
from smp_client.index.take_in import rebuild
from smp_client.model.errors import InvalidQuery
from smp_client.model.record import type_of

PRIORITY = "0.1 * length(m.id)"  # anything that differs: what it is made of is not this module's business
ALL, MEMORIES = Sql("1"), Sql("memories m")
ODD = ["it's", 'say "no"', "back\\slash", "a[0]", "$", "#-1", "tab\there", "über", "x) OR 1=1 --", "üñ.ⅷ", "{}", "?", "with space"]
HAND_WRITTEN = """\
  - id: HAND-1
    finding: no number at all
    ratio: .nan
    limit: .inf
    depth: [-.inf, 3]
  - id: HAND-2
    timestamp: soon
    finding: 'null and nothing'
    tags: [2026]
    note:
    empty: []
    nothing: {}
"""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    memory = Memory(tmp_path_factory.mktemp("spec") / "sessions")
    write(memory)
    found = Index.in_memory()
    rebuild(memory, found)
    yield found
    found.close()


def write(memory: Memory) -> None:
    """Records of every kind, with fields of their own."""
    session = memory.create_session(id="s1", user="u", project="p", topic="t")
    session.add_turn("user", "Let's review OAuth.", timestamp="2026-01-11T14:30:00Z")
    session.add_turn("veritas", "100% of [it] is *bad*?", memory_refs=["DEC-001"], timestamp="2026-01-11T14:30:05.250Z")
    session.record_decision(
        "Use OAuth 2.0 with JWT", made_by="architect", tags=["Security.Tokens", "architecture"], turn_ref=2, reversible=False,
        agreed_by=["bmad-master", "veritas"], confidence="high", timestamp="2026-01-11T16:40:00+02:00",
        alternatives_considered=[{"option": "cookies", "rejected_because": "API"}, {"option": "Opaque tokens", "cost": 3}],
    )  # fmt: skip
    session.record_decision("Über alles prüfen", made_by="bmad-master", tags=["security"], reversible=True, weight=1,
                            timestamp="1969-12-31T12:00:00Z")  # fmt: skip
    session.record_finding(
        "No MFA requirement", discovered_by="veritas", severity="critical", tags=["mfa", "security.authentication"],
        location={"artifact": "/docs/r.md", "line_numbers": [45, 60]}, resolution={"status": "open"},
        timestamp="2026-01-12T00:00:00Z",
    )  # fmt: skip
    session.record_finding("Timeout", discovered_by="veritas", severity="low", tags=["securityx", "prüfung"], weight=2.5,
                           resolution={"status": "resolved"}, location="somewhere")  # fmt: skip
    session.record_preference("MFA for admins", topic="mfa", applies_to={"projects": ["*"], "domains": ["Auth", "security"]},
                              weight="10")  # fmt: skip
    session.record_learning(
        "Explicit is better", learned_by="veritas", weight=True, mixed=[1, "1", True, None, 2.5, {"a": 1}, ["x"]]
    )
    session.record_learning("Odd names", learned_by="veritas", **{name.replace(".", " "): f"value of {name}" for name in ODD},
                            nested={name.replace(".", " "): [name, {"deep": name}] for name in ODD})  # fmt: skip
    session.relate("DEC-001", "FIND-001", "addresses")
    session.save_agent_state("veritas", {"current_context": {"active_artifacts": [{"path": "/a", "findings_count": 3}]}})
    session.save_artifact("report-1", "# Report")
    memory.everywhere.record_pattern("Ask for MFA early", learned_by="veritas")
    memory.everywhere.record_preference("Dark mode", topic="theme")
    with (memory.root / "active/s1/findings.yaml").open("a") as file:
        file.write(HAND_WRITTEN)


Row = dict[str, Any]


@functools.cache
def rows(index: Index) -> list[Row]:
    """Each memory as Python sees it."""
    names = ("key", "id", "type", "session", "at", "agent", "text", "data", "priority")
    found = index.connection.execute(f"SELECT key, id, type, scope, at, actor, text, data, {PRIORITY} FROM memories m")
    return [{**dict(zip(names, row, strict=True)), "type": type_of(row[2]), "fields": json.loads(row[7])} for row in found]


def ask(index: Index, spec: Specification, columns: str = "m.key") -> list[tuple[Any, ...]]:
    conditions, order = [*spec.conditions, ("1", ())], [*spec.order, ("m.key", ())]
    query = f"SELECT {columns} FROM memories m WHERE {' AND '.join(text for text, _ in conditions)}"
    query += f" ORDER BY {', '.join(text for text, _ in order)} LIMIT ? OFFSET ?"
    parameters = [value for _, values in (*conditions, *order) for value in values]
    limit = -1 if spec.limit is None else spec.limit
    return index.connection.execute(query, (*parameters, limit, spec.offset)).fetchall()


def ids(index: Index, *filters: tuple[Any, ...], **parts: Any) -> list[str]:
    names = ("field", "operator", "value")
    spec = {"filters": [dict(zip(names, entry, strict=False)) for entry in filters], **parts}
    return [row[0] for row in ask(index, understand(spec, PRIORITY), "m.id")]


def figures(index: Index, *aggregations: dict[str, Any], where: Sql = ALL) -> list[Any]:
    spec = understand({"aggregations": list(aggregations)}, PRIORITY)
    return [index.connection.execute(*entry.statement(where, MEMORIES)).fetchall() for entry in spec.aggregations]


def a_filter(field: Any, operator: Any, *value: Any) -> dict[str, Any]:
    return {"filters": [dict(zip(("field", "operator", "value"), (field, operator, *value), strict=False))]}


# The plain reading.


def kind(value: Any) -> str:
    return "bool" if isinstance(value, bool) else "number" if isinstance(value, (int, float)) else type(value).__name__


def same(one: Any, other: Any) -> bool:
    return kind(one) == kind(other) and one == other


def nodes(value: Any, parts: list[str]) -> list[Any]:
    """What is in the place, or in the places, with lists on the way looked through."""
    if not parts:
        return [value]
    if isinstance(value, list):
        return [node for item in value if isinstance(item, dict) for node in nodes(item, parts)]
    return nodes(value[parts[0]], parts[1:]) if isinstance(value, dict) and parts[0] in value else []


def place(row: Row, field: str) -> list[Any]:
    if field == "tags":
        tags = row["fields"].get("tags") or []
        return [[str(tag) for tag in tags]] if tags else []
    if field in ("priority", "decay.priority"):
        return [row["priority"]]
    if field in ("id", "type", "session", "text", "agent", "actor"):
        value = row["agent" if field == "actor" else field]
        return [value] if value else []
    return [node for node in nodes(row["fields"], field.split(".")) if node is not None]


def compare(operator: str, one: Any, other: Any) -> bool:
    if kind(one) != kind(other) or kind(one) not in ("number", "str"):
        return False
    return {"greaterThan": one > other, "lessThan": one < other, "greaterOrEqual": one >= other, "lessOrEqual": one <= other}[
        operator
    ]


def below(tag: str, value: str) -> bool:
    return tag.lower() == value.lower() or tag.lower().startswith(value.lower() + ".")


def holds(row: Row, field: str, operator: str, value: Any) -> bool:
    found = place(row, field)
    items = [item for node in found for item in (node if isinstance(node, list) else [node])]
    equal = below if field == "tags" else same
    if field == "type" and operator in ("equals", "not", "in"):
        value = type_of(value) if isinstance(value, str) else value
    if operator == "exists":
        return bool(found) == value
    if operator == "equals":
        return not found if value is None else any(equal(item, value) for item in items)
    if operator == "in":
        return any(holds(row, field, "equals", one) for one in value)
    if operator == "not":
        return not holds(row, field, "in" if isinstance(value, list) else "equals", value)
    if operator == "between":
        return any(compare("greaterOrEqual", item, value[0]) and compare("lessOrEqual", item, value[1]) for item in items)
    if operator == "prefix":
        return any(isinstance(item, str) and item.lower().startswith(value.lower()) for item in items)
    if operator == "contains":
        return any(contains(node, value, equal) for node in found)
    return any(compare(operator, item, value) for item in items)


def contains(node: Any, value: Any, equal: Any) -> bool:
    if isinstance(node, list):
        return any(equal(item, value) for item in node)
    if not isinstance(value, str):
        return False
    return value in node if isinstance(node, dict) else isinstance(node, str) and value.lower() in node.lower()


def check(index: Index, field: str, operator: str, value: Any) -> list[str]:
    """What SQL and what Python find, which must be the same."""
    expected = [row["id"] for row in rows(index) if holds(row, field, operator, value)]
    assert ids(index, (field, operator, value)) == expected, (field, operator, value)
    return expected


TEXTS = ["veritas", "VERITAS", "verit", "security", "SECURITY", "security.authentication", "secur", "turn", "decision", "DEC-001",
         "open", "o", "", "high", "10", "1", "true", "null", "*", "%", "[", "[it]", "?", "_", "über", "ÜBER", "prüfung", "mfa",
         "Auth", "projects", "option", "s1", "' OR 1=1 --", "2026"]  # fmt: skip
NUMBERS = [0, 1, 1.0, 2.5, 3, 45, 50, 60, -1, 10, 2**63, 1e300, 0.7]
TEXT_FIELDS = ["id", "type", "session", "text", "agent", "actor"]
JSON_FIELDS = [
    "confidence", "weight", "reversible", "mixed", "mixed.a", "location", "location.line_numbers", "location.artifact",
    "resolution.status",
    "applies_to", "applies_to.domains", "applies_to.projects", "alternatives_considered", "alternatives_considered.option",
    "alternatives_considered.cost", "agreed_by", "note", "empty", "nothing", "nowhere", "nowhere.at.all", "text.x", "made_by",
    "current_context.active_artifacts.path", "decay.access_count", "decay", "ratio", "limit", "depth", "nested.$", "turn_ref",
]  # fmt: skip


@pytest.mark.parametrize(
    "operator", ["equals", "not", "contains", "prefix", "greaterThan", "lessThan", "greaterOrEqual", "lessOrEqual"]
)
@pytest.mark.parametrize("field", [*TEXT_FIELDS, *JSON_FIELDS])
def test_a_text_is_compared_as_in_python(index: Index, field: str, operator: str) -> None:
    for value in TEXTS:
        check(index, field, operator, value)


@pytest.mark.parametrize("operator", ["equals", "not", "greaterThan", "lessThan", "greaterOrEqual", "lessOrEqual"])
@pytest.mark.parametrize("field", [*JSON_FIELDS, "priority", "decay.priority"])
def test_a_number_is_compared_as_in_python(index: Index, field: str, operator: str) -> None:
    """With numbers only: SQLite would find every text greater than every number."""
    for value in NUMBERS:
        check(index, field, operator, value)


@pytest.mark.parametrize("field", JSON_FIELDS)
def test_the_remaining_operators_on_json(index: Index, field: str) -> None:
    for value in (True, False, 1, 0, "true", 45):
        check(index, field, "contains", value)
        check(index, field, "equals", value)
        check(index, field, "not", value)
    for values in ([], [True], [1], ["1"], [True, 1, "1", None], [None], TEXTS, NUMBERS, [45, "open"]):
        check(index, field, "in", values)
        check(index, field, "not", values)
    for low, high in ((0, 50), (46, 59), (60, 45), ("a", "p"), (2, 3), (-(10**20), 10**20)):
        check(index, field, "between", [low, high])


@pytest.mark.parametrize("field", [*TEXT_FIELDS, *JSON_FIELDS, "tags", "priority"])
def test_null_and_absent_are_the_same(index: Index, field: str) -> None:
    """`exists: false` and `equals: null` find the same, `exists: true` and `not: null` the rest."""
    absent = check(index, field, "exists", False)
    assert check(index, field, "equals", None) == absent
    present = check(index, field, "exists", True)
    assert check(index, field, "not", None) == present
    assert ids(index, (field, "exists")) == present
    assert len(absent) + len(present) == len(rows(index))


@pytest.mark.parametrize("operator", ["equals", "not", "contains", "prefix"])
def test_tags_are_hierarchical(index: Index, operator: str) -> None:
    for value in TEXTS:
        check(index, "tags", operator, value)
    assert check(index, "tags", "equals", "security") == ["DEC-001", "DEC-002", "FIND-001"]
    assert check(index, "tags", "prefix", "Secur") == ["DEC-001", "DEC-002", "FIND-001", "FIND-002"]


def test_tags_and_columns_in_a_list(index: Index) -> None:
    check(index, "tags", "in", ["mfa", "PRÜFUNG", None])
    check(index, "tags", "not", ["mfa", "security"])
    for field in TEXT_FIELDS:
        check(index, field, "in", TEXTS)
        check(index, field, "in", [])
        check(index, field, "not", TEXTS)
        check(index, field, "between", ["a", "t"])
    check(index, "priority", "between", [0.5, 0.7])
    check(index, "priority", "in", [0.7, 1])


def test_a_list_can_be_long(index: Index) -> None:
    """SQLite has only so many parameters, and only so deep expressions."""
    many = [f"x{number}" for number in range(40_000)]
    assert ids(index, ("id", "in", [*many, "DEC-001"])) == ["DEC-001"]
    assert ids(index, ("confidence", "in", [*many, "high", 1, True])) == ["DEC-001"]
    assert ids(index, ("tags", "in", [*many[:5_000], "mfa"])) == ["FIND-001"]


def test_a_type_goes_by_its_short_name(index: Index) -> None:
    """The documents say both `turn` and `conversation_turn`."""
    for name in ("turn", "conversation", "conversation_turn"):
        assert ids(index, ("type", "equals", name)) == ids(index, ("type", "in", [name])) == ["turn-1", "turn-2"]


def test_the_examples_of_the_documents(index: Index) -> None:
    sort = [{"field": "decay.priority", "direction": "desc"}, {"field": "timestamp", "direction": "desc"}]
    assert ids(index, ("type", "equals", "decision"), ("tags", "contains", "security"), sort=sort) == ["DEC-001", "DEC-002"]
    assert ids(index, ("type", "equals", "finding"), ("resolution.status", "equals", "open")) == ["FIND-001"]
    assert ids(index, ("type", "equals", "turn"), sort=[{"field": "timestamp", "direction": "desc"}], limit=1) == ["turn-2"]
    assert ids(index, ("decay.priority", "lessThan", 0.65), sort=[{"field": "decay.priority"}])[:1] == ["turn-1"]
    spec = understand({"filters": [{"field": "type", "operator": "equals", "value": "turn"}], "includeRelated": True}, PRIORITY)
    assert (spec.include_related, spec.limit, spec.offset, spec.unproven_fields) == (True, None, 0, ())
    assert understand({}, PRIORITY) == Specification((), (), (), None, 0, False, ())


# Times.


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("equals", "2026-01-11", {"turn-1", "turn-2", "DEC-001"}),
        ("equals", date(2026, 1, 12), {"FIND-001"}),
        ("equals", "1969-12-31", {"DEC-002"}),
        ("equals", "2026-01-11T15:30:05.250+01:00", {"turn-2"}),
        ("equals", datetime(2026, 1, 11, 14, 30, tzinfo=UTC), {"turn-1"}),
        ("in", ["1969-12-31", "2026-01-11T14:30:00Z"], {"DEC-002", "turn-1"}),
        ("in", ["1969-12-31"] * 5_000, {"DEC-002"}),
        ("greaterThan", "2026-01-11T14:30:05", {"turn-2", "DEC-001", "FIND-001"}),
        ("greaterThan", "2026-01-11", {"turn-1", "turn-2", "DEC-001", "FIND-001"}),
        ("greaterOrEqual", "2026-01-12", {"FIND-001"}),
        ("lessThan", "2026-01-11", {"DEC-002"}),
        ("lessOrEqual", "2026-01-11", {"DEC-002", "turn-1", "turn-2", "DEC-001"}),
        ("between", ["2026-01-11", "2026-01-11"], {"turn-1", "turn-2", "DEC-001"}),
        ("between", ["2026-01-11T14:30:05Z", "2026-01-11T14:40:00Z"], {"turn-2", "DEC-001"}),
    ],
)  # fmt: skip
def test_times_are_moments_and_dates_are_days(index: Index, operator: str, value: Any, expected: set[str]) -> None:
    """Whatever zone they are written in; a date includes its last microsecond, except in greaterThan and lessThan."""
    early = ("timestamp", "lessThan", "2026-02-01")
    assert set(ids(index, ("timestamp", operator, value), early)) == expected
    if operator in ("equals", "in"):
        assert set(ids(index, ("timestamp", "not", value), early)) == set(ids(index, early)) - expected


def test_a_time_that_cannot_be_read_is_absent(index: Index) -> None:
    absent = [row["id"] for row in rows(index) if row["at"] is None]
    assert "HAND-2" in absent
    assert ids(index, ("timestamp", "exists", False)) == ids(index, ("timestamp", "equals", None)) == absent
    assert set(absent) <= set(ids(index, ("timestamp", "not", "2026-01-11")))


def test_a_time_in_json_is_compared_as_text(index: Index) -> None:
    moment = datetime(2026, 1, 11, 23, tzinfo=UTC)
    found = set(ids(index, ("decay.last_accessed", "lessThan", moment)))
    assert found == {
        "DEC-001",
        "DEC-002",
        *(row["id"] for row in rows(index) if row["type"] == "turn" and "decay" in row["data"]),
    }
    assert set(ids(index, ("decay.last_accessed", "prefix", "2026-01-12"))) == {"FIND-001"}
    assert set(ids(index, ("decay.last_accessed", "lessThan", date(2026, 1, 1)))) == {"DEC-002"}


# Names and values that are SQL, JSON paths or patterns.


@pytest.mark.parametrize("name", ODD)
def test_any_name_can_be_asked_for(index: Index, name: str) -> None:
    """Quotes, brackets, signs of JSON paths, SQL: a name is a name. Given as JSON paths, quotes, backslashes and tabs fail here."""
    key = name.replace(".", " ")
    assert check(index, key, "equals", f"value of {name}") == ["LEARN-002"]
    assert check(index, key, "contains", name.upper()) == ["LEARN-002"]
    assert check(index, f"nested.{key}", "equals", name) == ["LEARN-002"]
    assert check(index, f"nested.{key}.deep", "equals", name) == ["LEARN-002"]
    assert check(index, f"nested.{key}.deep", "exists", True) == ["LEARN-002"]
    assert check(index, "nested", "contains", key) == ["LEARN-002"]
    assert ids(index, sort=[{"field": key}], limit=1) == ["LEARN-002"]
    count = {"function": "count", "by": f"nested.{key}.deep"}
    assert figures(index, count) == [[(name, 1), (None, len(rows(index)) - 1)]]


INJECTIONS = [
    "'; DROP TABLE memories; --",
    '") OR 1=1 --',
    "$.a') OR ('1'='1",
    "m.key",
    "1 OR 1",
    "??",
    "?1",
    ":x",
    "{0}",
    "{x}",
    "%s",
    "*",
]


@pytest.mark.parametrize("text", INJECTIONS)
def test_nothing_becomes_sql(index: Index, text: str) -> None:
    """Neither a name nor a value, wherever it stands: the statement is the one for a harmless text of the same shape."""
    harmless = re.sub(r'[^."]', "a", text)
    for operator in ("equals", "contains", "prefix", "not", "greaterThan"):
        for field in ("id", "tags", "weight", text):
            if field != "tags" or operator != "greaterThan":
                spec = understand(a_filter(field, operator, text), PRIORITY)
                other = understand(a_filter(harmless if field == text else field, operator, "a"), PRIORITY)
                assert spec.conditions[0].text == other.conditions[0].text
                ask(index, spec)
    assert ids(index, (text, "exists", True)) == []
    assert len(ids(index, sort=[{"field": text, "direction": "desc"}])) == len(rows(index))
    assert figures(index, {"function": "max", "field": text, "by": text, "name": text}) == [[(None, None)]]


# Sorting and figures.


@pytest.mark.parametrize(
    "field", ["id", "timestamp", "weight", "location.line_numbers", "tags", "agent", "mixed", "alternatives_considered.option"]
)
def test_what_is_absent_comes_last_in_both_directions(index: Index, field: str) -> None:
    present = set(ids(index, (field, "exists", True)))
    for direction in ("asc", "desc"):
        found = ids(index, sort=[{"field": field, "direction": direction}])
        assert set(found[: len(present)]) == present


def test_sorting(index: Index) -> None:
    """By several fields; a list by the item that comes first, a number before a text."""
    times = [{"field": "timestamp", "direction": "DESC"}]
    early = ("timestamp", "lessThan", "2026-02-01")
    assert ids(index, early, sort=times) == ["FIND-001", "DEC-001", "turn-2", "turn-1", "DEC-002"]
    assert ids(index, early, sort=times, limit=2, offset=1) == ["DEC-001", "turn-2"]
    assert ids(index, early, sort=times, limit=10**30, offset=10**30) == []
    assert ids(index, early, sort=times, limit=0) == []
    assert ids(index, ("weight", "exists"), sort=[{"field": "weight"}]) == ["DEC-002", "LEARN-001", "FIND-002", "PREF-001"]
    decisions = ("type", "equals", "decision")
    assert ids(index, decisions, sort=[{"field": "tags"}, {"field": "id"}]) == ["DEC-001", "DEC-002"]
    assert ids(index, decisions, sort=[{"field": "reversible", "direction": "desc"}]) == ["DEC-002", "DEC-001"]


def test_figures(index: Index) -> None:
    everything = rows(index)
    times = [row["at"] for row in everything if row["at"] is not None]
    found = figures(
        index,
        {"function": "count"}, {"type": "count", "field": "weight"}, {"function": "min", "field": "timestamp"},
        {"type": "max", "field": "timestamp"}, {"function": "avg", "field": "weight"}, {"function": "average", "field": "priority"},
        {"function": "max", "field": "location.line_numbers"}, {"function": "average", "field": "alternatives_considered.cost"},
        {"function": "min", "field": "alternatives_considered.option"}, {"function": "average", "field": "nowhere"},
    )  # fmt: skip
    average = sum(row["priority"] for row in everything) / len(everything)
    assert [value for ((_, value),) in found] == [
        len(everything), 4, min(times), max(times), 1.75, pytest.approx(average), 60, 3, "Opaque tokens", None
    ]  # fmt: skip


def test_figures_by_a_field(index: Index) -> None:
    """By a list, a memory is counted for each of its items, once; those without the field are the group None."""
    types: dict[str, int] = {}
    for row in rows(index):
        types[row["type"]] = types.get(row["type"], 0) + 1
    by_type, by_tag, by_status, by_option, by_truth, by_day, by_mixed, latest = figures(
        index,
        *({"function": "count", "by": field} for field in ("type", "tags", "resolution.status", "alternatives_considered.option")),
        *({"function": "count", "by": field} for field in ("reversible", "timestamp", "mixed")),
        {"function": "max", "field": "priority", "by": "agent"},
    )
    assert dict(by_type) == types
    assert dict(by_tag)["security.authentication"] == dict(by_tag)["2026"] == 1
    without = len(rows(index)) - 2
    assert by_status == [("open", 1), ("resolved", 1), (None, without)]
    assert by_option == [("Opaque tokens", 1), ("cookies", 1), (None, without + 1)]
    assert by_truth == [("false", 1), ("true", 1), (None, without)]
    assert dict(by_day)["2026-01-11"] == 3
    assert dict(by_mixed)["true"] == 1
    assert dict(latest)["architect"] == pytest.approx(0.7)


def test_figures_of_what_matches(index: Index) -> None:
    where = understand({"filters": [{"field": "type", "operator": "equals", "value": "decision"}]}, PRIORITY).conditions[0]
    assert figures(index, {"function": "count"}, where=where) == [[(None, 2)]]
    assert figures(index, {"function": "count", "by": "weight"}, where=where) == [[(1, 1), (None, 1)]]


def test_whether_any_memory_has_a_field(index: Index) -> None:
    for field, expected in (("weight", 1), ("wieght", 0), ("nested.it's.deep", 1), ("empty", 1)):
        condition = has_field(field)
        query = f"SELECT EXISTS (SELECT 1 FROM memories m WHERE {condition.text})"
        assert index.connection.execute(query, condition.parameters).fetchone() == (expected,)


# Anything at all.

words = st.sampled_from(
    ["filters", "sort", "aggregations", "limit", "offset", "include_related", "includeRelated", "field", "operator", "value",
     "direction", "function", "type", "by", "name", "asc", "desc", "count", "min", "max", "average", "equals", "not", "contains",
     "in", "between", "greaterThan", "lessThan", "exists", "prefix", "id", "tags", "timestamp", "priority", "weight", "mixed.a",
     "2026-01-11"]
)  # fmt: skip
scalars = st.none() | st.booleans() | st.integers() | st.floats() | words | st.text(max_size=20)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words | st.text(max_size=5), inner, max_size=5)
)
fields = st.sampled_from([*TEXT_FIELDS, "tags", "timestamp", "priority", *JSON_FIELDS]) | st.text(max_size=8)
values = scalars | st.lists(scalars, max_size=4) | st.dates() | st.datetimes(timezones=st.just(UTC)) | anything
specs = st.fixed_dictionaries({}, optional={
    "filters": st.lists(st.fixed_dictionaries({"field": fields, "operator": words, "value": values}), max_size=3),
    "sort": st.lists(st.fixed_dictionaries({"field": fields}, optional={"direction": words}), max_size=3),
    "aggregations": st.lists(st.fixed_dictionaries({"function": words, "field": fields}, optional={"by": fields}), max_size=2),
    "limit": st.integers(0) | st.none(), "offset": st.integers(0),
})  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(spec=specs | st.dictionaries(words, anything, max_size=4) | anything)
@example(spec={"filters": [{"field": "a" + '".b' * 15, "operator": "equals", "value": "x"}] * 100})
@example(spec={"filters": [{"field": ".".join("abcdefghijklmnop"), "operator": "contains", "value": "x"}] * 100})
@example(spec={"sort": [{"field": ".".join("abcdefghijklmnop"), "direction": "asc"}] * 100})
@example(
    spec={"aggregations": [{"function": "average", "field": ".".join('"bcdefghijklmnop'), "by": ".".join('"bcdefghijklmnop')}]}
)
@example(spec=a_filter("weight", "contains", "\U0001f600" * 4_000))
@example(spec=a_filter("weight", "contains", "\U00010400" * 4_000))
@example(spec=a_filter("weight", "lessThan", float("inf")))
@example(spec=a_filter("weight", "in", [float("inf"), 1]))
@example(spec=a_filter("priority", "in", [float("-inf"), 10**30, 1]))
def test_anything_gives_rows_or_is_invalid(index: Index, spec: Any) -> None:
    """And never another exception, neither here nor in SQLite."""
    try:
        found = understand(spec, PRIORITY)
    except InvalidQuery:
        return
    ask(index, found)
    for entry in found.aggregations:
        index.connection.execute(*entry.statement(ALL, MEMORIES)).fetchall()
    for field in found.unproven_fields:
        unknown_field(field, [])


plain = st.booleans() | st.integers(-3, 70) | st.sampled_from([0.5, 2.5]) | st.sampled_from(TEXTS) | st.text(max_size=3)




names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=".\0"), min_size=1, max_size=6) | st.sampled_from(
    ["key", "Key", "y" * 300, "*", "[a]", "?", '"', "\\", "\n", "ü", "\u2028"]
)
leaves = st.booleans() | st.integers(-2, 2) | st.just(2.5) | names
things = st.recursive(leaves | st.none(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3))


def paths(value: Any, way: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every place in a record, with each value that stands there."""
    for item in value if isinstance(value, list) and way else [value]:
        if way:
            yield ".".join(way), item
        for name, inner in item.items() if isinstance(item, dict) else ():
            yield from paths(inner, (*way, name))


@settings(max_examples=150, deadline=None)
@given(record=st.dictionaries(names, things, max_size=3), other=leaves)
def test_any_record_is_found_by_what_is_in_it(record: dict[str, Any], other: Any) -> None:
    """Whatever its names and texts are, in lists and below them."""
    with closing(Index.in_memory()) as empty:
        empty.connection.execute(
            "INSERT INTO memories (key, id, data) VALUES (1, 'X', ?)", (json.dumps(record, ensure_ascii=False),)
        )
        row = {"id": "X", "fields": record}
        for field, value in [*paths(record)][:10]:
            if field.count(".") < 16 and field not in (*TEXT_FIELDS, "tags", "timestamp", "priority", "decay.priority"):
                asked = [("exists", True), ("equals", other), ("not", other)]
                if isinstance(value, (bool, int, float, str)):
                    asked += [("equals", value), ("not", value), ("contains", value)]
                for operator, one in asked:
                    assert (ids(empty, (field, operator, one)) == ["X"]) == holds(row, field, operator, one), (field, operator, one)


def test_severities_have_one_order_and_synonyms(memory: Memory) -> None:
    """`important` is `high`, `minor` is `low`; each stays as it was written."""
    session = memory.create_session(id="severities")
    for word in ("minor", "info", "important", "critical", "low", "medium", "high"):
        session.record_finding(f"A {word} one", discovered_by="a", severity=word)

    def found(*filters: dict[str, Any], direction: str = "desc") -> list[str]:
        order = [{"field": "severity", "direction": direction}, {"field": "id"}]
        return [str(record.data["severity"]) for record in session.query({"filters": filters, "sort": order})]

    worst_first = ["critical", "important", "high", "medium", "minor", "low", "info"]
    assert found() == worst_first
    assert found(direction="asc") == ["info", "minor", "low", "medium", "important", "high", "critical"]
    assert [str(record.data["severity"]) for record in session.agent("a").relevant_findings()] == [
        "critical", "high", "important", "medium", "low", "minor", "info",
    ]  # fmt: skip
    assert found({"field": "severity", "operator": "equals", "value": "high"}) == ["important", "high"]
    assert found({"field": "severity", "operator": "in", "value": ["minor", "info"]}) == ["minor", "low", "info"]
    assert found({"field": "severity", "operator": "not", "value": "important"}) == ["critical", "medium", "minor", "low", "info"]
    assert found({"field": "severity", "operator": "greaterOrEqual", "value": "high"}) == ["critical", "important", "high"]
    assert found({"field": "severity", "operator": "between", "value": ["minor", "important"]}) == worst_first[1:6]
    with pytest.raises(InvalidQuery, match="critical, high"):
        found({"field": "severity", "operator": "lessThan", "value": "terrible"})
    reader = session.agent("a").with_requirements({"read_access": ["findings.by_severity:important"]})
    assert {str(record.data["severity"]) for record in reader.query("one")} == {"important", "high"}
