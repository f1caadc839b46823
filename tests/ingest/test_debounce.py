"""Debounce: bursts become batches, and nothing waits for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from smp_daemon.ingest.debounce import CAP, EVERYTHING, Debounce


def test_a_batch_is_due_when_one_of_its_paths_has_been_quiet() -> None:
    """A path that is added again begins its quiet time anew; one that is not quiet comes along."""
    debounce = Debounce(quiet_s=1, longest_wait_s=5)
    assert (debounce.due_in(100), debounce.take_all(), len(debounce)) == (None, [], 0)
    assert debounce.add("a", 10.0)
    assert debounce.due_in(10.25) == 0.75
    assert not debounce.add("b", 10.5)
    debounce.add("a", 10.75)
    assert debounce.due_in(11.0) == 0.5
    assert (debounce.due_in(11.5), len(debounce)) == (0, 2)
    assert debounce.take_all() == ["a", "b"]
    assert debounce.due_in(11.5) is None


def test_a_batch_is_due_after_the_longest_wait_however_busy_it_is() -> None:
    debounce = Debounce(quiet_s=1, longest_wait_s=5)
    for tenth in range(50):
        assert debounce.due_in(tenth / 10) != 0
        debounce.add("busy", tenth / 10)
    assert debounce.due_in(5.0) == 0
    assert debounce.take_all() == ["busy"]
    debounce.add("next", 5.0)
    assert debounce.due_in(5.0) == 1


def test_too_many_paths_become_everything_which_swallows_the_rest() -> None:
    debounce = Debounce(quiet_s=1, longest_wait_s=5)
    for number in range(CAP):
        debounce.add(f"{number}", 0)
    assert len(debounce) == CAP
    for path in ("one more", "and another"):
        debounce.add(path, 0)
    assert debounce.take_all() == [EVERYTHING]
    for path in ("a", EVERYTHING, "b"):
        debounce.add(path, 2)
    assert debounce.take_all() == [EVERYTHING]


_STEPS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(0, 3)), max_size=60)


@given(_STEPS)
def test_every_path_comes_out_once_and_in_time(steps: list[tuple[str, float]]) -> None:
    """It comes out once per batch, no later than the longest wait."""
    debounce, now = Debounce(quiet_s=1, longest_wait_s=4), 0.0
    first_seen: dict[str, float] = {}
    for path, pause in steps:
        debounce.add(path, now)
        first_seen.setdefault(path, now)
        now += pause
        if debounce.due_in(now) == 0:
            assert debounce.take_all() == list(first_seen)
            first_seen.clear()
        assert all(now < since + 4 for since in first_seen.values())
    assert bool(debounce.take_all()) == bool(first_seen)
