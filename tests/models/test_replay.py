"""A request never sees another that had not finished when it arrived."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from models.features import FEATURE_NAMES
from models.replay import ASSUMED_FIRST_TOKEN_S, ASSUMED_TOKEN_S, Record, frozen_features, replay, span_s
from models.request import Request

SESSION_LAST = FEATURE_NAMES.index("session_log_last")
SESSION_MEDIAN = FEATURE_NAMES.index("session_log_median")

RECORDS = st.lists(
    st.tuples(st.integers(0, 50), st.sampled_from("ab"), st.integers(0, 99), st.none() | st.integers(0, 20)),
    max_size=40,
)


def make(rows: list[tuple[int, str, int, int | None]]) -> list[Record]:
    return [
        Record(Request(time_s=float(time), session=session), output, None if e2e is None else float(e2e))
        for time, session, output, e2e in sorted(rows, key=lambda row: row[0])
    ]


@settings(deadline=None)
@given(RECORDS)
def test_history_is_what_had_finished_before_the_arrival(rows: list[tuple[int, str, int, int | None]]) -> None:
    records = make(rows)
    features = replay(records, len(records)).features
    for index, record in enumerate(records):
        earlier = [
            (other.finished_s, number, other.output_tokens)
            for number, other in enumerate(records[:index])
            if other.finished_s <= record.request.time_s and other.request.session == record.request.session
        ]
        finished = [output for _, _, output in sorted(earlier)][-20:]
        last, median = (np.log1p(finished[-1]), np.log1p(np.median(finished))) if finished else (np.nan, np.nan)
        np.testing.assert_allclose(features[index, [SESSION_LAST, SESSION_MEDIAN]], [last, median], rtol=1e-6)


def test_a_trace_without_durations_is_read_as_from_a_slow_server() -> None:
    record = Record(Request(time_s=100.0), 40)
    assert record.finished_s == 100.0 + ASSUMED_FIRST_TOKEN_S + 40 * ASSUMED_TOKEN_S


def test_frozen_history_is_that_of_the_split_and_never_grows() -> None:
    records = [Record(Request(time_s=float(second), route="chat"), second, 0.5) for second in range(60)]
    walked = replay(records, 30)
    frozen = frozen_features(records[30:], walked.stored_at_split)
    column = FEATURE_NAMES.index("route_log_median")
    # At the arrival of request 30 the requests 0..29 had finished: their median output is 14.5.
    np.testing.assert_allclose(frozen[:, column], np.log1p(14.5), rtol=1e-6)
    assert walked.features[59, column] > frozen[29, column]


def test_an_empty_trace_has_no_features_and_no_span() -> None:
    assert replay([], 0).features.shape == (0, len(FEATURE_NAMES))
    assert frozen_features([], []).shape == (0, len(FEATURE_NAMES))
    assert span_s([]) == 0.0


def test_progress_is_a_share_that_grows() -> None:
    seen: list[float] = []
    replay([Record(Request(time_s=float(second)), 1) for second in range(5_000)], 4_000, seen.append)
    assert seen == sorted(seen)
    assert 0.0 <= seen[0] <= seen[-1] < 1.0
