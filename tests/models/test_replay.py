"""A request never sees another that had not finished when it arrived."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from overrun.models.features import FEATURE_NAMES
from overrun.models.history import Window
from overrun.models.replay import (
    ASSUMED_FIRST_TOKEN_S,
    ASSUMED_TOKEN_S,
    Record,
    frozen,
    replay,
    span_s,
)
from overrun.models.request import Request

SESSION_LAST = FEATURE_NAMES.index("session_log_last")
SESSION_MEDIAN = FEATURE_NAMES.index("session_log_median")

RECORDS = st.lists(
    st.tuples(
        st.integers(0, 50),
        st.sampled_from("ab"),
        st.integers(0, 99),
        st.none() | st.integers(0, 20),
    ),
    max_size=40,
)


def make(rows: list[tuple[int, str, int, int | None]]) -> list[Record]:
    return [
        Record(
            Request(time_s=float(time), session=session),
            output,
            None if e2e is None else float(e2e),
        )
        for time, session, output, e2e in sorted(rows, key=lambda row: row[0])
    ]


@settings(deadline=None)
@given(RECORDS)
def test_history_is_what_had_finished_before_the_arrival(
    rows: list[tuple[int, str, int, int | None]],
) -> None:
    records = make(rows)
    features = replay(records, len(records)).features
    for index, record in enumerate(records):
        earlier = [
            (other.finished_s, number, other.output_tokens)
            for number, other in enumerate(records[:index])
            if other.finished_s <= record.request.time_s
            and other.request.session == record.request.session
        ]
        finished = [output for _, _, output in sorted(earlier)][-20:]
        last, median = (
            (np.log1p(finished[-1]), np.log1p(np.median(finished)))
            if finished
            else (np.nan, np.nan)
        )
        np.testing.assert_allclose(
            features[index, [SESSION_LAST, SESSION_MEDIAN]], [last, median], rtol=1e-6
        )


def test_a_trace_without_durations_is_read_as_from_a_slow_server() -> None:
    record = Record(Request(time_s=100.0), 40)
    assert record.finished_s == 100.0 + ASSUMED_FIRST_TOKEN_S + 40 * ASSUMED_TOKEN_S


def test_frozen_history_is_that_of_the_split_and_never_grows() -> None:
    records = [
        Record(Request(time_s=float(second), route="chat"), second, 0.5) for second in range(60)
    ]
    walked = replay(records, 30)
    features, past = frozen(records[30:], walked.stored_at_split)
    # At the arrival of request 30 the requests 0..29 had finished: their median output is 14.5, the 3rd and the 28th are 2 and 27.
    np.testing.assert_allclose(past, [[2.0, 14.5, 27.0, Window(500, range(30)).bound(0.99)]] * 30)
    np.testing.assert_allclose(
        features[:, FEATURE_NAMES.index("route_log_median")], 2.75
    )  # log(15.5) = 2.74
    np.testing.assert_allclose(walked.past[59, 1], 29.0)


def test_the_order_of_finish_is_told() -> None:
    records = [
        Record(Request(time_s=float(second)), second, e2e)
        for second, e2e in enumerate((5.0, 0.5, 0.5, 0.5))
    ]
    walked = replay(records, 4)
    assert walked.order.tolist() == [1, 2, 3, 0]
    assert walked.known.tolist() == [0, 0, 1, 2]


def test_what_happens_later_changes_no_earlier_feature() -> None:
    """The same trace with another future: every row up to the change has the same features and the same past."""
    dice = np.random.default_rng(5)

    def trace(later: int) -> list[Record]:
        outputs = [*range(100), *(later * number for number in range(100))]
        return [
            Record(
                Request(time_s=float(second), route="ab"[second % 2], model="m", session=f"s{second % 7}", prefix_hash=f"p{second % 5}",
                        tenant=f"t{second % 3}", input_tokens=float(second % 11)),
                output, float(dice.integers(0, 30)) if second < 100 else 3.0)
            for second, output in enumerate(outputs)
        ]  # fmt: skip

    first = trace(1)
    dice = np.random.default_rng(5)
    second = trace(1_000)
    one, other = replay(first, 150), replay(second, 150)
    np.testing.assert_array_equal(one.features[:101], other.features[:101])
    np.testing.assert_array_equal(one.past[:101], other.past[:101])
    assert not np.array_equal(one.features[120:], other.features[120:], equal_nan=True)


def test_an_empty_trace_has_no_features_and_no_span() -> None:
    assert replay([], 0).features.shape == (0, len(FEATURE_NAMES))
    assert frozen([], {"salt": "", "windows": []})[0].shape == (0, len(FEATURE_NAMES))
    assert span_s([]) == 0.0


def test_progress_is_a_share_that_grows() -> None:
    seen: list[float] = []
    replay(
        [Record(Request(time_s=float(second)), 1) for second in range(5_000)], 4_000, seen.append
    )
    assert seen == sorted(seen)
    assert 0.0 <= seen[0] <= seen[-1] < 1.0
