"""One ordered list of numbers per request, the same in training and serving."""

import math

import numpy as np
import pytest

from models.features import FEATURE_NAMES, FEATURES, feature_values, usable_names
from models.history import Window
from models.request import Request, parse_request

HOUR_S = 3_600.0


def values_by_name(request: Request, windows: dict[str, Window]) -> dict[str, float]:
    return dict(zip(FEATURE_NAMES, feature_values(request, windows), strict=True))


def test_nothing_known_gives_only_missing_values() -> None:
    assert all(math.isnan(value) for value in feature_values(Request(), {}))


def test_metadata_and_history_arrive_under_their_names() -> None:
    request = parse_request(
        {
            "time": 5 * 86_400 + 6 * HOUR_S,
            "input_tokens": 99,
            "max_tokens": 9,
            "temperature": 0.2,
            "stream": False,
            "turn": 3,
        }
    )
    windows = {
        "route": Window(500, range(11)),
        "model": Window(500, [7]),
        "same_size": Window(20, [3, 5]),
        "session": Window(20, [1, 9]),
        "prefix": Window(20, [8, 2, 4]),
    }
    values = values_by_name(request, windows)
    assert values == pytest.approx(
        {
            "log_input_tokens": math.log(100),
            "log_max_tokens": math.log(10),
            "temperature": 0.2,
            "stream": 0.0,
            "turn": 3.0,
            "hour_sin": 1.0,
            "hour_cos": 0.0,
            "weekday": 1.0,  # 1970-01-06 was a Tuesday
            "route_log_median": math.log(6),
            "route_log_p90": math.log(10),
            "model_log_median": math.log(8),
            "same_size_log_median": math.log(5),
            "session_log_last": math.log(10),
            "session_log_median": math.log(6),
            "prefix_log_last": math.log(5),
            "prefix_log_median": math.log(5),
        },
        abs=1e-12,
    )


@pytest.mark.parametrize(
    ("hours", "known"), [(1, set()), (49, {"hour_sin", "hour_cos"}), (24 * 15, {"hour_sin", "hour_cos", "weekday"})]
)
def test_times_of_day_need_enough_days(hours: int, known: set[str]) -> None:
    values = np.random.default_rng(0).random((50, len(FEATURES))).astype(np.float32)
    used = set(usable_names(hours * HOUR_S, values))
    assert used & {"hour_sin", "hour_cos", "weekday"} == known
    assert "turn" in used


def test_a_feature_that_never_varies_is_left_out_and_one_sometimes_missing_is_not() -> None:
    values = np.full((4, len(FEATURES)), np.nan, dtype=np.float32)
    values[:, FEATURE_NAMES.index("temperature")] = 1.0
    values[2, FEATURE_NAMES.index("log_max_tokens")] = 5.0
    values[:, FEATURE_NAMES.index("turn")] = [1, 1, 2, 1]
    assert usable_names(0.0, values) == ("log_max_tokens", "turn")


def test_no_feature_speaks_of_server_load_or_text() -> None:
    assert not [
        name for name in FEATURE_NAMES if any(word in name for word in ("queue", "kv", "load", "prompt", "text"))
    ]
