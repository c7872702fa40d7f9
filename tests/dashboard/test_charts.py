"""Chart specifications: sums on screen, sizes on the wire, hostile names, and shapes that are empty or tiny."""

import json
from datetime import UTC, datetime
from typing import Any

import duckdb
import numpy as np
import pytest

from overrun.analysis.front import report as reports
from overrun.analysis.front.stage_waterfall import Stages, stages_of
from overrun.analysis.numbers.over_time.heatmap import Heatmap, heatmap
from overrun.analysis.numbers.over_time.series import series
from overrun.analysis.numbers.window import Window
from overrun.analysis.whatif.prediction import Curve
from overrun.analysis.words.slo import Slo
from overrun.dashboard import charts, charts_whatif, plot, ui
from overrun.dashboard.charts_engine import bridged
from overrun.dashboard.heatmap_box import Box
from overrun.dashboard.theme import DARK, LIGHT, Theme
from tests.analysis.builders import T0, at, insert, requests, store, vllm_spans

LOOKS = pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
HOSTILE = '<a href="https://evil.example">x</a><img src=x onerror=alert(1)>\x1b[31m\u202e'


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    made = store()
    insert(made, vllm_spans())
    return made


@pytest.fixture(scope="module")
def found(con: duckdb.DuckDBPyConnection) -> Stages:
    return stages_of(
        reports.build(con, Window(), Slo(ttft_ms=1000.0, e2e_ms=5000.0), with_findings=False)
    )


def texts(spec: Any) -> str:
    return json.dumps(spec, ensure_ascii=False)


def test_the_limit_is_called_the_common_one_where_requests_came_with_their_own() -> None:
    words = ui.limit_words(0), ui.limit_words(1), ui.limit_words(2_000)
    assert words == (
        "limit",
        "the common limit (1 request is judged by their own limits)",
        "the common limit (2,000 requests are judged by their own limits)",
    )
    curve = Curve(
        metric="ttft",
        n=100,
        exceeded=[1.0, 0.5, 0.01],
        before_ms=[10.0, 20.0, 30.0],
        after_ms=[5.0, 6.0, 7.0],
    )
    drawn = [
        charts_whatif.exceedance(curve, 25.0, 95.0, LIGHT, own_limits=own)["layout"]["annotations"][
            0
        ]["text"]
        for own in (0, 3)
    ]
    assert drawn == ["limit 25 ms", "common limit 25 ms"]


def test_the_waterfall_ends_where_slow_stands(found: Stages) -> None:
    bars = charts.waterfall(found, LIGHT)["data"][0]
    assert bars["y"][0] == found.typical_ms
    assert bars["y"][-1] == found.slow_ms
    level = bars["y"][0]
    for base, height in zip(bars["base"][1:-1], bars["y"][1:-1], strict=True):
        level = base + height if base == pytest.approx(level) else base
    assert level == pytest.approx(found.slow_ms, abs=1e-6)
    assert bars["text"][1].startswith("+")


def test_a_stage_that_gave_time_back_goes_down_and_is_hatched(found: Stages) -> None:
    import msgspec

    flipped = msgspec.structs.replace(
        found,
        parts=[msgspec.structs.replace(p, added_ms=-p.added_ms) for p in found.parts],
        typical_ms=found.slow_ms,
        slow_ms=found.typical_ms,
    )
    bars = charts.waterfall(flipped, LIGHT)["data"][0]
    assert bars["marker"]["pattern"]["shape"][1] == "/"
    assert bars["text"][1].startswith("−")
    assert bars["base"][1] == pytest.approx(bars["y"][-1], abs=20.0)


def test_bullets_mark_what_is_over_with_a_glyph_and_skip_idle_groups(found: Stages) -> None:
    spec = charts.bullets(found, LIGHT)
    names, notes = (
        [note["text"] for note in spec["layout"]["annotations"][side::2]] for side in (0, 1)
    )
    assert names == ["model", "queue", "prefill", "other"]
    assert [note["xshift"] > 0 for note in spec["layout"]["annotations"][::2]] == [
        False,
        True,
        True,
        False,
    ]  # stages stand below their group
    assert "▲" in notes[0]
    assert LIGHT.over in notes[0]
    assert not any(LIGHT.over in note for note in notes[1:])
    budgets = [one for one in spec["layout"]["shapes"] if one["x0"] == one["x1"]]
    assert len(budgets) == 1
    assert {trace["type"] for trace in spec["data"]} == {"scatter"}  # no bars on a log axis


def test_bullets_of_nothing_are_an_empty_chart(found: Stages) -> None:
    import msgspec

    spec = charts.bullets(msgspec.structs.replace(found, stages=[]), LIGHT)
    assert spec["layout"]["annotations"] == []


@LOOKS
def test_the_heat_map_carries_every_count_and_the_lines(
    con: duckdb.DuckDBPyConnection, look: Theme
) -> None:
    slo, window = Slo(ttft_ms=1000.0), Window()
    cells, course = heatmap(con, window, slo, "ttft"), series(con, window, slo, "ttft")
    spec = charts.heat(cells, look, course)
    assert spec["data"][0]["customdata"] == cells.counts
    assert max(max(row) for row in spec["data"][0]["z"]) == 1.0
    assert [trace["name"] for trace in spec["data"][1:]] == [
        f"P50 per {course.step_s} s",
        f"P95 per {course.step_s} s",
        "limit 1 s",
    ]
    assert spec["data"][2]["y"].count(None) == sum(point.p95 is None for point in course.points)
    assert (
        spec["layout"].get("annotations") is None
    )  # words on the chart covered the ends of the lines
    limit = spec["data"][3]["y"][0]
    assert cells.edges_ms[int(limit)] <= 1000.0 <= cells.edges_ms[int(limit) + 1]


def test_the_heat_map_of_one_request() -> None:
    made = store()
    insert(made, requests(1, other_ms=100.0))
    spec = charts.heat(heatmap(made, Window(), Slo(e2e_ms=1.0), "e2e"), LIGHT)
    assert sum(map(sum, spec["data"][0]["customdata"])) == 1
    assert len(spec["data"]) == 1  # the limit lies off the axis


def test_the_heat_map_shows_the_rows_that_hold_something_with_the_limit_and_the_box() -> None:
    made = store()
    insert(made, requests(60, other_ms=np.linspace(180.0, 220.0, 60)))
    cells = heatmap(made, Window(), Slo(e2e_ms=1.0), "e2e")
    rows = [i for i, row in enumerate(cells.counts) if any(row)]
    low, high = charts.heat(cells, LIGHT)["layout"]["yaxis"]["range"]
    assert 0 <= low < rows[0] <= rows[-1] < high < len(cells.counts)  # the limit lies off the axis
    limited = charts.heat(heatmap(made, Window(), Slo(e2e_ms=5000.0), "e2e"), LIGHT)
    low, high = limited["layout"]["yaxis"]["range"]
    assert low < limited["data"][-1]["y"][0] < high
    boxed = charts.heat(cells, LIGHT, None, Box(T0, at(10), 60.0, 20_000.0))["layout"]
    assert (
        boxed["yaxis"]["range"][0]
        <= boxed["shapes"][0]["y0"]
        < boxed["shapes"][0]["y1"]
        <= boxed["yaxis"]["range"][1]
    )


def test_a_box_gives_back_the_requests_it_was_drawn_around() -> None:
    made = store()
    insert(made, requests(60, other_ms=np.linspace(60.0, 6000.0, 60)))
    cells = heatmap(made, Window(start=T0, end=at(60)), Slo(), "e2e")
    assert cells.start is not None
    box = charts.box_of(
        {"box": [{"x": ["2026-11-20 10:00:10", "2026-11-20 10:00:20.5000"], "y": [3.0, 0.0]}]},
        cells,
    )
    assert box is not None
    assert (box.start, box.end) == (at(10), at(20.5))
    assert box.min_ms == pytest.approx(50.0)
    assert box.max_ms == pytest.approx(cells.edges_ms[3])
    assert charts.box_of(None, cells) is charts.box_of({"box": []}, cells) is None
    assert charts.box_of(
        {"box": [{"x": ["2026-11-20", "2026-11-20 10:00"], "y": [0, 99]}]}, cells
    ) == Box(
        datetime(2026, 11, 20, tzinfo=UTC),
        T0,
        pytest.approx(50.0),
        pytest.approx(cells.edges_ms[-1]),
    )


def test_specs_are_small(con: duckdb.DuckDBPyConnection, found: Stages) -> None:
    cells, course = heatmap(con, Window(), Slo(), "ttft"), series(con, Window(), Slo(), "ttft")
    for spec in (
        charts.bullets(found, LIGHT),
        charts.waterfall(found, LIGHT),
        charts.heat(cells, LIGHT, course),
    ):
        assert len(plot.figure(spec).to_json()) < 100_000


def test_a_figure_is_the_specification_and_nothing_more(found: Stages) -> None:
    spec = charts.waterfall(found, LIGHT)
    assert json.loads(plot.figure(spec).to_json()) == json.loads(json.dumps(spec))
    assert plot.figure(spec).to_dict() is spec  # nothing is copied


def test_a_chosen_box_is_drawn_where_it_was_drawn(con: duckdb.DuckDBPyConnection) -> None:
    cells = heatmap(con, Window(), Slo(), "ttft")
    spec = charts.heat(cells, LIGHT, None, Box(at(10), at(20), 500.0, 2000.0))
    shape = spec["layout"]["shapes"][0]
    assert (shape["x0"], shape["x1"]) == (at(10).isoformat(), at(20).isoformat())
    assert cells.edges_ms[0] * (cells.edges_ms[1] / cells.edges_ms[0]) ** shape[
        "y0"
    ] == pytest.approx(500.0)


def test_values_and_places_are_inverse() -> None:
    cells = Heatmap(
        metric="e2e",
        start=T0,
        step_s=1,
        n=1,
        limit_ms=None,
        edges_ms=[50.0 * 10 ** (i / 12) for i in range(34)],
        labels_ms=[],
        counts=[[1]],
    )
    for ms in (50.0, 123.0, 20_000.0):
        box = charts.box_of(
            {
                "box": [
                    {
                        "x": ["2026-11-20 10:00", "2026-11-20 11:00"],
                        "y": [charts._place(ms, cells.edges_ms), 33.0],
                    }
                ]
            },
            cells,
        )
        assert box is not None
        assert box.min_ms == pytest.approx(ms)


def test_an_indicator_that_is_scraped_less_often_than_drawn_is_a_line_and_a_missed_scrape_a_gap() -> (
    None
):
    times = [str(i) for i in range(13)]
    seldom = [1.0, None, None, 2.0, None, None, 3.0, None, None, None, None, None, 4.0]
    assert bridged(times, seldom) == (["0", "3", "6", "12"], [1.0, 2.0, 3.0, 4.0])
    missed = [1.0, 2.0, 3.0, None, None, None, 4.0, 5.0]
    assert bridged(times[:8], missed) == (
        ["0", "1", "2", "5", "6", "7"],
        [1.0, 2.0, 3.0, None, 4.0, 5.0],
    )
    assert bridged(times[:2], [None, None]) == ([], [])
