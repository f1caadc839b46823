"""The nearest known name to a mistyped one."""

from __future__ import annotations

import pytest

from smp_client.model.nearest import did_you_mean, nearest

TOPICS = ["security", "security.login", "billing", "storage"]
IDS = [*(f"DEC-{number:03}" for number in range(1, 30)), "FIND-001", "FIND-012", "turn-7"]


@pytest.mark.parametrize(
    ("typed", "known", "meant"),
    [
        ("secuirty", TOPICS, "security"),
        ("Security", TOPICS, "security"),
        ("bill", TOPICS, "billing"),
        ("security login", TOPICS, "security.login"),
        ("minPriority", ["limit", "min_priority"], "min_priority"),
        ("dec-1", IDS, "DEC-001"),
        ("DEC-O01", IDS, "DEC-001"),
        ("FND-012", IDS, "FIND-012"),
        ("Turn 7", IDS, "turn-7"),
        ("nonsense", TOPICS, None),
        ("COVID-19", IDS, None),
        ("DEC-031", IDS, None),
        ("DEC-0110", IDS, None),
        ("se", TOPICS, None),
        ("", TOPICS, None),
        ("?", TOPICS, None),
        ("security", [], None),
        ("security" * 20, TOPICS, None),
    ],
)
def test_the_nearest_name(typed: str, known: list[str], meant: str | None) -> None:
    assert nearest(typed, known) == meant


def test_a_message_asks_only_for_a_name_that_is_near() -> None:
    assert did_you_mean("secuirty", TOPICS) == " (did you mean 'security'?)"
    assert did_you_mean("nonsense", TOPICS) == ""
