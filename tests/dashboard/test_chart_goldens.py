"""Every chart's whole specification, held against a file: what is drawn changes only on purpose.

`python -m tests.dashboard.test_chart_goldens` writes the files anew; read the difference before keeping it.
"""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from overrun.analysis.evidence.engine_timeline import EngineCourse, engine_course
from overrun.analysis.front import report as reports
from overrun.analysis.front.stage_waterfall import Stages, stages_of
from overrun.analysis.numbers.comparison.compare import Comparison, compare, read_sides
from overrun.analysis.numbers.over_time.heatmap import Heatmap, heatmap
from overrun.analysis.numbers.over_time.series import Series, series
from overrun.analysis.numbers.window import Window
from overrun.analysis.whatif.prediction import Curve
from overrun.analysis.words.encoding import encode
from overrun.analysis.words.slo import Slo
from overrun.dashboard import (
    charts,
    charts_compare,
    charts_engine,
    charts_length,
    charts_whatif,
    plot,
)
from overrun.dashboard.heatmap_box import Box
from overrun.dashboard.theme import DARK, LIGHT, Theme
from tests.analysis.builders import T0, at, insert, requests, store, vllm_gauges, vllm_spans

FOLDER = Path(__file__).with_name("golden")
MOST_BYTES = 100_000
SLO = Slo(ttft_ms=1000.0, e2e_ms=5000.0)
A, B = (T0, at(40)), (at(50), at(100))
SIDES = tuple(f"{start.isoformat()}..{end.isoformat()}" for start, end in (A, B))
CURVE = Curve(
    metric="e2e",
    n=1000,
    exceeded=[1.0, 0.5, 0.1, 0.05, 0.01, 0.001],
    before_ms=[50.0, 900.0, 2500.0, 4000.0, 9000.0, 30_000.0],
    after_ms=[50.0, 700.0, 1500.0, 2000.0, 2000.0, 2000.0],
)
ROUTES = [
    {
        "route": f"<b>/route/{i}</b>",
        "scores": {
            "rows": 1000 * i,
            "p10_coverage": 0.1 + i / 100,
            "p90_coverage": 0.9,
            "p99_coverage": 0.99,
        },
    }
    for i in range(1, 11)
]


class Answers(msgspec.Struct, kw_only=True):
    """What the API said about the recorded overload when the files were written: charts are held against the files, not the analysis behind them."""

    stages: Stages
    heatmap: Heatmap
    series: Series
    engine: EngineCourse
    compare: Comparison


def asked_anew() -> Answers:
    """The answers of this build."""
    con, window = store(), Window(start=T0, end=at(150))
    insert(con, vllm_spans())
    vllm_gauges(con)
    return Answers(
        stages=stages_of(reports.build(con, Window(), SLO, with_findings=False)),
        heatmap=heatmap(con, Window(), SLO, "ttft"),
        series=series(con, Window(), SLO, "ttft"),
        engine=engine_course(con, window, SLO, "ttft"),
        compare=compare(con, read_sides(window, *SIDES, at(150)), SLO),
    )


def recorded() -> Answers:
    return msgspec.json.decode((FOLDER / "answers.json").read_bytes(), type=Answers)


def drawings(said: Answers) -> dict[str, Callable[[Theme], plot.Spec]]:
    """Every chart of every page, by name."""
    box = Box(at(10), at(20), 500.0, 2000.0)
    return {
        "bullets": lambda theme: charts.bullets(said.stages, theme),
        "waterfall": lambda theme: charts.waterfall(said.stages, theme),
        "heat": lambda theme: charts.heat(said.heatmap, theme, said.series, box),
        "engine": lambda theme: charts_engine.rows(said.engine, theme),
        "picker": lambda theme: charts_compare.picker(said.series, A, B, theme),
        "shift": lambda theme: charts_compare.shift(said.compare.metrics, theme),
        "stage-changes": lambda theme: charts_compare.stage_changes(said.compare.stages, theme),
        "exceedance": lambda theme: charts_whatif.exceedance(CURVE, 2500.0, 95.0, theme),
        "calibration": lambda theme: charts_length.calibration(ROUTES, theme),
    }


NAMES = (
    "bullets",
    "waterfall",
    "heat",
    "engine",
    "picker",
    "shift",
    "stage-changes",
    "exceedance",
    "calibration",
)


@pytest.fixture(scope="module")
def drawn() -> dict[str, Callable[[Theme], plot.Spec]]:
    return drawings(recorded())


def steady(spec: Any) -> Any:
    """The specification with numbers to six figures, so that another processor's last bit is no difference."""
    if isinstance(spec, dict):
        return {name: steady(part) for name, part in spec.items()}
    if isinstance(spec, list | tuple):
        return [steady(part) for part in spec]
    return float(f"{spec:.6g}") if isinstance(spec, float | np.floating) else spec


def text_of(spec: Any) -> str:
    """As it stands in the file: a line per part of the data and of the layout."""
    known = json.loads(json.dumps(steady(spec), ensure_ascii=False))
    lines = [
        f'"data {i}, {name}": {json.dumps(part, ensure_ascii=False)}'
        for i, trace in enumerate(known["data"])
        for name, part in trace.items()
    ]
    lines += [
        f'"{name}": {json.dumps(part, ensure_ascii=False)}'
        for name, part in known["layout"].items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


@pytest.mark.parametrize("name", NAMES)
def test_a_chart_is_drawn_as_it_was(
    drawn: dict[str, Callable[[Theme], plot.Spec]], name: str
) -> None:
    assert text_of(drawn[name](LIGHT)) == (FOLDER / f"{name}.json").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_light_and_dark_differ_in_colour_alone(
    drawn: dict[str, Callable[[Theme], plot.Spec]], name: str
) -> None:
    def uncoloured(theme: Theme) -> str:
        text = text_of(drawn[name](theme))
        colours = {
            getattr(theme, field)
            for field in theme.__dataclass_fields__
            if isinstance(getattr(theme, field), str)
        } - {theme.mode}
        colours |= {theme.stage(stage) for stage in theme_stages()} | {
            colour for _, colour in theme.heat
        }
        for colour in sorted(colours, key=len, reverse=True):
            text = text.replace(colour, "COLOUR")
        return text

    assert uncoloured(LIGHT) == uncoloured(DARK)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_a_chart_is_small_on_the_wire(
    drawn: dict[str, Callable[[Theme], plot.Spec]], name: str, theme: Theme
) -> None:
    assert len(plot.figure(drawn[name](theme)).to_json()) < MOST_BYTES


def test_charts_stay_small_however_long_the_window() -> None:
    con = store()
    insert(
        con,
        requests(
            20_000,
            every_s=30.0,
            retrieval_ms=np.linspace(50.0, 9000.0, 20_000),
            ttft_retrieval_ms=40.0,
            queue_ms=5.0,
        ),
    )
    week = Window(start=T0, end=T0 + timedelta(days=7))
    cells, course = heatmap(con, week, SLO, "e2e"), series(con, week, SLO, "e2e")
    for spec in (charts.heat(cells, LIGHT, course), charts_compare.picker(course, A, B, LIGHT)):
        assert len(plot.figure(spec).to_json()) < MOST_BYTES


def test_what_stages_changed_adds_up_to_the_difference_on_screen() -> None:
    found = recorded().compare
    bars = charts_compare.stage_changes(found.stages, LIGHT)["data"]
    shown = dict(zip(bars[0]["y"], bars[0]["x"], strict=True))
    left_out = [row.difference_ms for row in found.stages if row.stage not in shown]
    assert sum(shown.values()) + sum(left_out) == pytest.approx(
        sum(row.difference_ms for row in found.stages), abs=1e-6
    )
    assert all(abs(ms) < 0.05 for ms in left_out)  # what no eye can see


def test_a_quantile_that_moved_further_than_the_axis_stands_at_its_end_as_an_arrow() -> None:
    spec = charts_compare.shift(recorded().compare.metrics, LIGHT)
    end, symbols = (
        spec["layout"]["xaxis"]["range"][1],
        [symbol for part in spec["data"] for symbol in part["marker"]["symbol"]],
    )
    assert all(x is None or x < end for part in spec["data"] for x in part["x"])
    assert {"triangle-right", "circle"} <= set(symbols)
    for part in spec["data"]:
        assert [x == charts_compare.BEYOND for x in part["x"]] == [
            symbol.startswith("triangle") for symbol in part["marker"]["symbol"]
        ]


def test_no_chart_of_numbers_alone_uses_the_red_of_over_budget(
    drawn: dict[str, Callable[[Theme], plot.Spec]],
) -> None:
    for name in (
        "waterfall",
        "heat",
        "picker",
        "shift",
        "stage-changes",
        "exceedance",
        "calibration",
    ):
        for theme in (LIGHT, DARK):
            assert theme.over not in text_of(drawn[name](theme)), name


def test_every_curve_keeps_its_order(drawn: dict[str, Callable[[Theme], plot.Spec]]) -> None:
    measured, predicted = drawn["exceedance"](LIGHT)["data"]
    assert measured["line"]["dash"] == "solid"
    assert predicted["line"]["dash"] == "dash"
    for curve in (measured, predicted):
        assert curve["y"] == CURVE.exceeded
        assert curve["x"] == sorted(curve["x"])


def theme_stages() -> tuple[str, ...]:
    from overrun.collector.normalise.stages import STAGES

    return STAGES


def main() -> None:
    """Write every golden file."""
    FOLDER.mkdir(exist_ok=True)
    said = asked_anew()
    (FOLDER / "answers.json").write_bytes(encode(said) + b"\n")
    for name, draw in drawings(said).items():
        (FOLDER / f"{name}.json").write_text(text_of(draw(LIGHT)))


if __name__ == "__main__":
    main()
