"""One ordered list of numbers per request, the same in training and serving."""

import math

import numpy as np
import pytest

from overrun.models.features import (
    FEATURE_NAMES,
    FEATURES,
    feature_values,
    rising,
    usable_names,
    without_prompt,
)
from overrun.models.history import Window
from overrun.models.request import Request, parse_request

HOUR_S = 3_600.0


def values_by_name(
    request: Request, windows: dict[str, Window], arrivals: dict[str, float] | None = None
) -> dict[str, float]:
    return dict(zip(FEATURE_NAMES, feature_values(request, windows, arrivals or {}), strict=True))


def test_nothing_known_gives_only_missing_values() -> None:
    assert all(math.isnan(value) for value in feature_values(Request(), {}, {}))


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
    prefix = Window(20, [8, 2])
    prefix.add(4, input_tokens=30)
    windows = {
        "global": Window(2_000, [1]),
        "route": Window(500, range(11)),
        "model": Window(500, [7]),
        "route_model": Window(100, [6]),
        "tenant": Window(50, [2, 12]),
        "same_size": Window(20, [3, 5]),
        "session": Window(20, [1, 9]),
        "prefix": prefix,
    }
    values = values_by_name(request, windows, {"prefix": request.time_s - 9})
    expected = {
        "log_input_tokens": math.log(100),
        "log_max_tokens": math.log(10),
        "temperature": 0.2,
        "stream": 0.0,
        "turn": 3.0,
        "hour_sin": 1.0,
        "hour_cos": 0.0,
        "weekday": 1.0,  # 1970-01-06 was a Tuesday
        "route_log_median": 1.75,  # log 6 = 1.79, in steps of a quarter
        "route_log_p90": 2.25,  # log 10 = 2.30
        "model_log_median": math.log(8),
        "route_model_log_median": math.log(7),
        "tenant_log_median": math.log(8),
        "tenant_log_p90": math.log(12),
        "same_size_log_median": math.log(5),
        "session_log_last": math.log(10),
        "session_log_before": math.log(2),
        "session_log_median": math.log(6),
        "session_log_spread": math.log(9.2) - math.log(2.8),  # 8.2 and 1.8 tokens
        "prefix_log_last": math.log(5),
        "prefix_log_before": math.log(3),
        "prefix_log_median": math.log(5),
        "prefix_log_spread": math.log(8.2) - math.log(3.4),  # 7.2 and 2.4 tokens
        "prefix_log_since": math.log(10),
        "prefix_new_tokens": 99 - 30 - 4,
    }
    assert {name: values[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    # The session's last request did not say when it came and how long its prompt was.
    assert math.isnan(values["session_log_since"])
    assert math.isnan(values["session_new_tokens"])


@pytest.mark.parametrize(
    ("hours", "known"),
    [(1, set()), (49, {"hour_sin", "hour_cos"}), (24 * 15, {"hour_sin", "hour_cos", "weekday"})],
)
def test_times_of_day_need_enough_days(hours: int, known: set[str]) -> None:
    values = np.random.default_rng(0).random((50, len(FEATURES))).astype(np.float32)
    used = set(usable_names(hours * HOUR_S, values, {}))
    assert used & {"hour_sin", "hour_cos", "weekday"} == known
    assert "turn" in used


def test_a_feature_that_never_varies_is_left_out_and_one_sometimes_missing_is_not() -> None:
    values = np.full((4, len(FEATURES)), np.nan, dtype=np.float32)
    values[:, FEATURE_NAMES.index("temperature")] = 1.0
    values[2, FEATURE_NAMES.index("log_max_tokens")] = 5.0
    values[:, FEATURE_NAMES.index("turn")] = [1, 1, 2, 1]
    assert usable_names(0.0, values, {}) == ("log_max_tokens", "turn")


def test_the_past_of_the_only_route_is_left_out() -> None:
    values = np.random.default_rng(0).random((50, len(FEATURES))).astype(np.float32)
    assert "route_log_median" not in usable_names(0.0, values, {"route": 1, "tenant": 2})
    assert {"tenant_log_median", "route_log_median"} <= set(
        usable_names(0.0, values, {"route": 2, "tenant": 2})
    )


def test_prompts_of_one_size_speak_where_most_sizes_come_again() -> None:
    values = np.random.default_rng(0).random((50, len(FEATURES))).astype(np.float32)
    values[:26, FEATURE_NAMES.index("same_size_log_median")] = np.nan
    values[:26, FEATURE_NAMES.index("prefix_log_last")] = np.nan
    used = usable_names(0.0, values, {})
    assert "same_size_log_median" not in used
    assert "prefix_log_last" in used
    values[25, FEATURE_NAMES.index("same_size_log_median")] = 4.0
    assert "same_size_log_median" in usable_names(0.0, values, {})


def test_a_caller_whose_first_request_still_runs_is_known_by_its_arrival() -> None:
    values = values_by_name(Request(time_s=100.0, session="s"), {}, {"session": 93.0})
    assert values["session_log_since"] == pytest.approx(math.log(8))
    assert math.isnan(values["session_log_last"])
    assert math.isnan(values["session_new_tokens"])
    assert math.isnan(values["prefix_log_since"])


def test_the_answer_to_a_score_is_that_of_the_nearest_past_that_has_scores() -> None:
    def window(outputs: list[int], verbosity: float = math.nan) -> Window:
        made = Window(100)
        for output in outputs:
            made.add(output, verbosity=verbosity)
        return made

    request = Request(verbosity=0.5)
    everywhere = {
        "route_model": window([9, 9]),
        "model": window([30, 30], 0.5),
        "global": window([70], 0.2),
    }
    assert values_by_name(request, everywhere, {})["scored_log_tokens"] == pytest.approx(
        math.log(31)
    )
    assert values_by_name(request, {"global": everywhere["global"]}, {})[
        "scored_log_tokens"
    ] == pytest.approx(math.log(71) + 0.3)
    assert values_by_name(request, {"route_model": window([9])}, {})[
        "scored_log_tokens"
    ] == pytest.approx(0.5)
    assert math.isnan(values_by_name(Request(), everywhere, {})["scored_log_tokens"])


def test_no_feature_speaks_of_server_load_or_text() -> None:
    assert not [
        name
        for name in FEATURE_NAMES
        if any(word in name for word in ("queue", "kv", "load", "prompt", "text"))
    ]


def test_the_score_stays_where_what_tells_prompts_apart_goes() -> None:
    names = without_prompt(FEATURE_NAMES)
    assert {"verbosity", "scored_log_tokens", "model_log_median", "prefix_log_last"} <= set(names)
    assert not [
        name
        for name in names
        if name.startswith(("shape_", "cue_"))
        or name in ("log_input_tokens", "same_size_log_median")
    ]
    assert [name for name, up in zip(FEATURE_NAMES, rising(FEATURE_NAMES), strict=True) if up] == [
        "verbosity",
        "scored_log_tokens",
    ]
