"""A query specification that makes no sense, or asks for a field that nobody has, is answered with all that is wrong."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from smp_client.ask.spec import understand, unknown_field
from smp_client.model.errors import InvalidQuery

PRIORITY = "m.priority"


def problem(spec: Any) -> str:
    with pytest.raises(InvalidQuery) as raised:
        understand(spec, PRIORITY)
    return str(raised.value)


def a_filter(field: Any, operator: Any, *value: Any) -> dict[str, Any]:
    return {"filters": [dict(zip(("field", "operator", "value"), (field, operator, *value), strict=False))]}


def test_every_problem_is_named_with_its_place() -> None:
    """All at once, the nearest right words first."""
    text = problem({
        "filters": [{"field": "type", "operator": "equal", "value": "x"}, {"field": "id", "operator": "between", "value": [1]},
                    {"operator": "equals"}, "type"],
        "sort": "timestamp", "limit": -1, "offset": 1.5, "include_related": "yes", "order": [],
    })  # fmt: skip
    assert text.startswith("the key 'order' is not known")
    for part in (
        "filters[0].operator 'equal' is not known (did you mean 'equals'",
        "it is one of equals, not, contains, in,",
        "filters[1].value must be a list of two",
        "filters[2].field is missing",
        "filters[3] must be a mapping, not 'type'",
        "sort must be a list of mappings, not 'timestamp'",
        "limit must be a whole number from 0, not -1",
        "offset must be",
        "include_related must be true or false, not 'yes'",
    ):
        assert part in text
    assert text.endswith(InvalidQuery.advice)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ([], "A query is a mapping with filters"),
        (None, "A query is a mapping"),
        ({"filter": []}, "did you mean 'filters'"),
        ({1: 2}, "the key 1 is not known"),
        ({"include_related": True, "includeRelated": True}, "include_related is given twice"),
        ({"limit": True}, "limit must be a whole number"),
        ({"filters": {}}, "filters must be a list"),
        ({"filters": [{}] * 101}, "filters may have 100 entries, not 101"),
        ({"filters": [{}] * 99}, "and 178 more"),
        (
            {"filters": [{"feild": "id", "operator": "equals", "value": 1}]},
            "the key 'feild' of filters[0] is not known (did you mean 'field'",
        ),
        (a_filter("id", "equals"), "filters[0].value is missing"),
        (a_filter("id", "equals", 5), "filters[0].value must be a text, not 5"),
        (a_filter("id", "equals", ["x"]), "operator 'in' takes a list"),
        (a_filter("id", "in", "x"), "operator 'equals' takes a single value"),
        (a_filter("id", "contains", None), "filters[0].value must not be null"),
        (a_filter("id", 5, "x"), "filters[0].operator 5 is not known"),
        (a_filter("id", ["equals"], "x"), "operator ['equals'] is not known"),
        (a_filter("id", "exists", "yes"), "filters[0].value must be true or false"),
        (a_filter(5, "equals", "x"), "filters[0].field must be a text, not 5"),
        (a_filter("", "equals", "x"), "filters[0].field is empty"),
        (a_filter("a..b", "equals", "x"), "filters[0].field has an empty name between its dots"),
        (a_filter("a\0b", "equals", "x"), "filters[0].field holds the character U+0000"),
        (a_filter("a\ud800", "equals", "x"), "filters[0].field holds a lone surrogate"),
        (a_filter("a", "equals", "\ud800"), "filters[0].value holds a lone surrogate"),
        (a_filter("a", "contains", "x" * 4_001), "may have 4,000 characters, not 4,001"),
        (a_filter("a", "equals", {}), "filters[0].value must be a text, a number, true, false, null or a time"),
        (a_filter("a", "equals", 10**400), "filters[0].value is too large a number"),
        (a_filter("a", "equals", float("nan")), "filters[0].value must be a number, not nan"),
        (a_filter("a", "equals", datetime(2026, 1, 1)), "without a zone"),
        (a_filter("a", "greaterThan", True), "must be a number, a text or a time"),
        (a_filter("a", "between", [1, "2"]), "must be two numbers or two texts"),
        (a_filter("a", "between", [1, None]), "must not be null"),
        (a_filter("a", "prefix", 5), "must be a text, not 5"),
        (a_filter("tags", "greaterThan", "a"), "use equals, not, contains"),
        (a_filter("priority", "contains", 1), "use equals, not, in, greaterThan"),
        (a_filter("priority", "equals", "high"), "must be a number, not 'high'"),
        (a_filter("priority", "equals", True), "must be a number, not True"),
        (a_filter("timestamp", "prefix", "2026-01-11"), "use equals, not, in, greaterThan"),
        (a_filter("timestamp", "equals", "soon"), 'must be a time such as "2026-01-11T14:30:00Z"'),
        (a_filter("timestamp", "equals", 5), "must be a time such as"),
        (a_filter("timestamp", "equals", "0001-01-01T00:00:00+23:00"), "must be a time such as"),
        ({"sort": [{"field": "id", "direction": "up"}]}, "sort[0].direction 'up' is not known; it is one of asc, desc"),
        ({"sort": [{"direction": "asc"}]}, "sort[0].field is missing"),
        ({"aggregations": [{"function": "sum", "field": "a"}]}, "aggregations[0].function 'sum' is not known"),
        ({"aggregations": [{"field": "a"}]}, "aggregations[0].function is missing; it is one of count, min, max, average"),
        ({"aggregations": [{"type": "min"}]}, "aggregations[0].field is missing: what to take the min of"),
        ({"aggregations": [{"type": "min", "function": "min", "field": "a"}]}, "both a function and a type"),
        ({"aggregations": [{"type": "average", "field": "tags"}]}, "there is no average"),
        ({"aggregations": [{"type": "average", "field": "timestamp"}]}, "there is no average"),
        ({"aggregations": [{"type": "average", "field": "id"}]}, "there is no average"),
        ({"aggregations": [{"type": "count", "by": "priority"}]}, "aggregations[0].by changes all the time"),
        ({"aggregations": [{"type": "count", "name": 5}]}, "aggregations[0].name must be a text"),
        ({"aggregations": [{"type": "count"}, {"type": "count"}]}, "two called 'count'"),
    ],
)
def test_a_question_that_makes_no_sense(spec: Any, expected: str) -> None:
    assert expected in problem(spec)


def test_a_value_that_cannot_be_shown_is_still_a_problem() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert "too large to show" in problem(a_filter("id", "contains", deep))
    assert "too large to show" in problem({"limit": -(10**10_000)})


@pytest.mark.parametrize("operator", ["greaterThan", "greater_than", "GREATERTHAN"])
def test_operators_in_any_case(operator: str) -> None:
    assert understand(a_filter("weight", operator, 1), PRIORITY) == understand(a_filter("weight", "greaterThan", 1), PRIORITY)
    for one in ("notEquals", "not_equals", "not"):
        assert (
            understand(a_filter("weight", one, 1), PRIORITY).conditions
            == understand(a_filter("weight", "not", 1), PRIORITY).conditions
        )


def test_names_and_times_of_figures() -> None:
    entries = [{"function": "count"}, {"function": "count", "by": "type"}, {"type": "avg", "field": "priority"},
               {"function": "MAX", "field": "timestamp", "name": "latest"}, {"type": "count", "field": "timestamp"}]  # fmt: skip
    found = understand({"aggregations": entries}, PRIORITY).aggregations
    assert [entry.name for entry in found] == ["count", "count_by_type", "average_priority", "latest", "count_timestamp"]
    assert [entry.is_time for entry in found] == [False, False, False, True, False]


def test_fields_that_are_not_documented_are_unproven() -> None:
    """Wherever they stand, but for `exists`, which asks just that."""
    spec = {
        "filters": [{"field": "weight", "operator": "exists"}, {"field": "severty", "operator": "equals", "value": "low"},
                    {"field": "resolution.status", "operator": "equals", "value": "open"}],
        "sort": [{"field": "wieght"}, {"field": "severty"}, {"field": "text"}],
        "aggregations": [{"function": "count", "by": "mood"}, {"function": "max", "field": "height"}],
    }  # fmt: skip
    assert understand(spec, PRIORITY).unproven_fields == ("severty", "wieght", "mood", "height")
    error = unknown_field("severty", ["severity", "weight"])
    assert "has a field 'severty' (did you mean 'severity'" in str(error)
    assert "did you mean 'weight'" in str(unknown_field("wieght", ["weight"]))
