"""Debounce: bursts become batches, and nothing waits for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from smp_daemon.ingest.debounce import CAP, EVERYTHING, Debounce


def test_an_empty_debounce_has_nothing_to_wait_for() -> None:
    """Without an item there is no due time and no batch."""
    debounce = Debounce(quiet_s=1, longest_wait_s=5)
    assert debounce.due_in(100) is None
    assert debounce.take(100) == debounce.take_all() == []
    assert len(debounce) == 0


def test_a_batch_is_due_when_one_of_its_items_has_been_quiet() -> None:
    """An item that is added again begins its quiet time anew, and only its own; what is not quiet comes along."""
    debounce = Debounce(quiet_s=1, longest_wait_s=5)
    debounce.add("a", 10.0)
    assert debounce.due_in(10.25) == 0.75
    debounce.add("b", 10.5)
    debounce.add("a", 10.75)
    assert debounce.due_in(11.0) == 0.5
    assert debounce.take(11.25) == []
    assert len(debounce) == 2
    assert debounce.due_in(11.5) == 0
    assert debounce.take(11.5) == ["a", "b"]
    assert debounce.due_in(11.5) is None


def test_a_batch_is_due_after_the_longest_wait_however_busy_it_is() -> None:
    """A stream without a pause still gives a batch, and the next one has a longest wait of its own."""
    debounce = Debounce(quiet_s=1, longest_wait_s=5)
    for tenth in range(50):
        assert debounce.take(tenth / 10) == []
        debounce.add("busy", tenth / 10)
    assert debounce.take(5.0) == ["busy"]
    debounce.add("next", 5.0)
    assert debounce.due_in(5.0) == 1


def test_too_many_items_become_everything() -> None:
    """One more than the cap is a scan, and so is all that follows until it is taken."""
    debounce = Debounce(quiet_s=1, longest_wait_s=5)
    for number in range(CAP):
        debounce.add(number, 0)
    assert len(debounce) == CAP
    debounce.add("one more", 0)
    debounce.add("and another", 0)
    assert len(debounce) == 1
    assert debounce.take(1) == [EVERYTHING]
    debounce.add("later", 2)
    assert debounce.take_all() == ["later"]


def test_everything_swallows_the_rest() -> None:
    """EVERYTHING can be added like an item; it replaces what was there and what comes."""
    debounce = Debounce(quiet_s=1, longest_wait_s=5)
    for item in ("a", EVERYTHING, "b"):
        debounce.add(item, 0)
    assert debounce.take_all() == [EVERYTHING]


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(0, 3)), max_size=60), st.integers(1, 8))
def test_every_item_comes_out_once_and_in_time(steps: list[tuple[str, float]], cap: int) -> None:
    """Whatever is added comes out exactly once per batch, or as EVERYTHING, no later than the longest wait."""
    debounce, now, first_seen = Debounce(quiet_s=1, longest_wait_s=4, cap=cap), 0.0, dict[str, float]()
    for item, pause in steps:
        debounce.add(item, now)
        first_seen.setdefault(item, now)
        now += pause
        taken = debounce.take(now)
        assert taken in ([], [EVERYTHING], list(first_seen))
        if taken:
            first_seen.clear()
        assert all(now < since + 4 for since in first_seen.values())
    assert bool(debounce.take(now + 1)) == bool(first_seen)
