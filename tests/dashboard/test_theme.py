"""Numbers as people read them, ticks, and a palette that stays apart for everyone."""

import math
from datetime import UTC, datetime, timedelta
from itertools import combinations

import numpy as np
import pytest

from overrun.collector.normalise.stages import STAGES
from overrun.dashboard import theme
from overrun.dashboard.theme import DARK, LIGHT, Theme

# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB.
SIGHT = {
    "normal": np.eye(3),
    "protan": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deutan": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritan": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}


def linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255.0
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = np.array(
        [
            [0.4124564, 0.3575761, 0.1804375],
            [0.2126729, 0.7151522, 0.0721750],
            [0.0193339, 0.1191920, 0.9503041],
        ]
    ) @ np.clip(rgb, 0, 1)
    f = [
        np.cbrt(v) if v > (6 / 29) ** 3 else v / (3 * (6 / 29) ** 2) + 4 / 29
        for v in xyz / np.array([0.95047, 1.0, 1.08883])
    ]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one: str, other: str) -> float:
    light = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) + 0.05 for c in (one, other))
    return light[1] / light[0]


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
def test_stage_colours_and_the_status_red_stay_apart_for_every_sight(
    look: Theme, sight: str
) -> None:
    def apart(one: str, other: str) -> float:
        return math.dist(lab(SIGHT[sight] @ linear(one)), lab(SIGHT[sight] @ linear(other)))

    colours = sorted({look.stage(stage) for stage in STAGES})
    assert min(apart(a, b) for a, b in combinations(colours, 2)) >= 20.0
    assert min(apart(look.over, colour) for colour in colours) >= 15.0
    assert min(apart(look.engine, colour) for colour in (*colours, look.over)) >= 20.0


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
def test_text_is_readable(look: Theme) -> None:
    for ink in (look.ink, look.muted, look.engine):
        assert contrast(ink, look.background) >= 4.5
        assert contrast(ink, look.surface) >= 4.5
    assert contrast(look.over, look.background) >= 4.5
    assert (
        contrast(look.over, look.over_surface) >= 3.0
    )  # only a headline stands there: large and bold
    for stage in STAGES:
        assert contrast(look.on_stage(stage), look.stage(stage)) >= 4.5


def test_no_stage_has_the_colour_of_over_budget() -> None:
    for look in (LIGHT, DARK):
        assert look.over not in {look.stage(stage) for stage in STAGES}


def test_every_stage_has_its_place() -> None:
    assert set(STAGES) <= set(theme.STAGE_ORDER)
    assert theme.in_order(["decode", "gateway", "brand_new", "queue"]) == [
        "gateway",
        "queue",
        "decode",
        "brand_new",
    ]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (0.0, "0 ms"),
        (0.04, "0 ms"),
        (0.42, "0.4 ms"),
        (9.94, "9.9 ms"),
        (9.96, "10 ms"),
        (95.4, "95 ms"),
        (999.4, "999 ms"),
        (999.6, "1.00 s"),
        (2400.0, "2.40 s"),
        (9994.0, "9.99 s"),
        (9996.0, "10.0 s"),
        (52456.0, "52.5 s"),
        (99_960.0, "100 s"),
        (192_000.0, "192 s"),
        (3_600_000.0, "60.0 min"),
        (-33.0, "−33 ms"),
    ],
)
def test_times_carry_their_unit_and_at_most_three_figures(value: float | None, said: str) -> None:
    assert theme.say_ms(value) == said


def test_differences_and_ratios_and_ages() -> None:
    assert (theme.say_added(12.0), theme.say_added(-12.0), theme.say_added(0.0)) == (
        "+12 ms",
        "−12 ms",
        "0 ms",
    )
    assert (theme.say_ratio(0.2455), theme.say_ratio(None)) == ("24.6 %", "–")
    assert [theme.say_age(s) for s in (-3, 30, 240, 10_000, 300_000)] == [
        "0 s",
        "30 s",
        "4 min",
        "3 h",
        "3 days",
    ]
    assert [theme.say_tick(ms) for ms in (0, 0.5, 50, 1000, 2500, 30_000, 300_000)] == [
        "0",
        "0.5 ms",
        "50 ms",
        "1 s",
        "2.5 s",
        "30 s",
        "5 min",
    ]


def test_a_window_names_its_day_once_and_its_zone() -> None:
    start = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
    assert (
        theme.say_span(start, start + timedelta(hours=1)) == "2026-11-20 08:00:00 to 09:00:00 UTC"
    )
    assert theme.say_span(start, start + timedelta(days=1)).endswith("2026-11-21 08:00:00 UTC")
    assert theme.say_span(None, start) == "no window"


@pytest.mark.parametrize("largest", [1e-7, 0.3, 1.0, 4.9, 5.1, 99.0, 100.0, 101.0, 52_456.0, 1e9])
def test_ticks_are_round_and_few(largest: float) -> None:
    found = theme.ticks(largest)
    assert found[0] == 0.0
    assert 3 <= len(found) <= 6
    assert found[-1] <= largest * (1 + 1e-9)
    mantissa = found[1] / 10 ** math.floor(math.log10(found[1]) + 1e-9)
    assert min(abs(mantissa - step) for step in (1.0, 2.0, 5.0)) < 1e-6


def test_ticks_of_nothing() -> None:
    assert theme.ticks(0.0) == theme.ticks(-1.0) == theme.ticks(math.nan) == [0.0]


def test_the_style_sheet_loads_nothing_and_holds_both_modes() -> None:
    sheet = theme.css()
    for forbidden in ("url(", "@import", "VAR_"):
        assert forbidden not in sheet
    for look in (LIGHT, DARK):
        assert look.over in sheet
        assert look.ink in sheet
