"""Times as texts: the quick way to the form that SMP writes gives what parsing and rendering
would."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from smp_client.model.times import parse_time, render_time, same_time

MOMENTS = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29))
# As it is, and with a fraction of whole milliseconds or of none.
ROUNDED = st.builds(
    lambda moment, step: moment.replace(microsecond=moment.microsecond // step * step),
    MOMENTS,
    st.sampled_from([1, 1000, 1_000_000]),
)
FORMS = st.sampled_from(["seconds", "milliseconds", "microseconds", "auto"])
ZONES = st.sampled_from(["", "Z", "+00:00", "+05:45", "-12:00"])


@given(
    st.builds(
        lambda moment, form, zone: moment.isoformat(timespec=form) + zone, ROUNDED, FORMS, ZONES
    )
)
@example("2026-01-11T14:00:00.000Z")
@example("2026-01-11T14:00:00.120000Z")
@example("2026-01-11T14:00:00.000120Z")
@example("2026-01-11 14:00:00Z")
@example("20260111T140000Z")
def test_a_time_is_the_same_in_the_form_that_is_written(text: str) -> None:
    """Without the look at the noughts of a fraction, `…:00.000Z` stays as it is, and `…:00.120000Z`
    too."""
    assert same_time(text) == render_time(parse_time(text)) == same_time(same_time(text))


@pytest.mark.parametrize(
    "text", ["2026-02-30T14:00:00Z", "2026-01-11T14:60:00Z", "2026-13-11T14:00:00Z", "today", ""]
)
def test_what_is_no_time_is_refused_also_where_it_looks_like_one(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        same_time(text)
