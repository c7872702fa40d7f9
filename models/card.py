"""What should somebody know before trusting this artifact? The model card, as JSON for programs and as one HTML file for people.

Pure: what training measured goes in, text comes out. No clock and no network: the same measurements give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from overrun.analysis.words.finding import say_ratio
from overrun.models.drift import COVERAGE, LEAST_REDUCTION

SCHEMA: Final = "overrun.predictor-card/1"
_NOTES: Final = (
    "Lengths are random: with sampling, answers to the same prompt by the same model differ by about 20 % at the median. No predictor can do better.",
    "The scores come from models that were not trained on the test requests. The shipped models have the same settings and are trained on all requests.",
    "A predictor of one traffic predicts another badly: train on your own traffic.",
    "P90 and P99 keep their coverage under drift only if finished requests are reported (observe).",
    "Sorting requests by predicted length lowers the latency of short requests and the median. It can raise the P99: replay your own trace first (overrun length routing).",
)
_BASELINES: Final = ("constant", "route_median", "bucket_median", "previous")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 560, 220, 60, 30


def card(
    manifest: Mapping[str, Any],
    overall: Mapping[str, Any],
    routes: Sequence[Mapping[str, Any]],
    curve: Sequence[Mapping[str, Any]],
    rows_for_skill: int | None,
) -> dict[str, Any]:
    """Return the card as JSON values: scores of all and of each route, the learning curve, and what to know."""
    return {
        "schema": SCHEMA,
        "training": manifest["training"],
        "features": manifest["features"],
        "quantiles": manifest["quantiles"],
        "libraries": manifest["libraries"],
        "overall": overall,
        "routes": routes,
        "learning_curve": curve,
        "rows_for_skill": rows_for_skill,
        "retrain_when": {
            "p90_coverage_outside": list(COVERAGE),
            "error_reduction_below": LEAST_REDUCTION,
        },
        "notes": list(_NOTES),
    }


def html(made: Mapping[str, Any]) -> str:
    """Return the card as a page that needs nothing else."""
    training, overall = made["training"], made["overall"]
    rows = training["rows"]
    body = [
        "<h1>Output-length predictor</h1>",
        f"<p>{rows['training'] + rows['calibration']:,} training and {rows['test']:,} newer test requests, {_text(training['start'])} to "
        f"{_text(training['end'])}; {len(made['features'])} features.</p>",
        "<h2>Error on the test requests, against simple guesses</h2>",
        _errors(overall),
        "<h2>Routes</h2>",
        _routes(made["routes"]),
        "<h2>How the error falls with training requests</h2>",
        _curve(made["learning_curve"], overall["route_median_mae"]),
        f"<p>{_enough(made['rows_for_skill'])}</p>",
        "<h2>Limits</h2><ul>",
        *(f"<li>{_text(note)}</li>" for note in made["notes"]),
        "</ul><h2>Features</h2><p>",
        ", ".join(map(_text, made["features"])),
        "</p>",
    ]
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;max-width:900px;margin:2rem auto;padding:0 1rem;color:#1c2430;background:#fff}"
        "table{border-collapse:collapse}td,th{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #d5dbe3}"
        "td:first-child,th:first-child{text-align:left}text{font-size:12px;fill:#1c2430}"
    )
    head = f'<meta charset="utf-8"><title>Output-length predictor</title><style>{style}</style>'
    return (
        f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>\n'
    )


def _text(value: object) -> str:
    return escape(str(value))


def _enough(rows: int | None) -> str:
    return (
        "No skill over all traffic with this many requests."
        if rows is None
        else f"Skill over all traffic from {rows:,} training requests on."
    )


def _errors(overall: Mapping[str, Any]) -> str:
    """A bar a predictor: mean absolute error in tokens."""
    bars = [
        ("predictor", overall["answered"]["mae"]),
        ("without observe", overall["without_history"]["mae"]),
    ]
    bars += [(name.replace("_", " "), overall[f"{name}_mae"]) for name in _BASELINES]
    most = max(value for _, value in bars) or 1.0
    drawn = []
    for number, (name, value) in enumerate(bars):
        y, width = 8 + 26 * number, 320 * value / most
        colour = "#2563a8" if number < 2 else "#9aa7b5"
        drawn.append(
            f'<text x="130" y="{y + 14}" text-anchor="end">{_text(name)}</text><rect x="140" y="{y}" width="{width:.1f}" height="18" fill="{colour}"/>'
            f'<text x="{146 + width:.1f}" y="{y + 14}">{value:.1f}</text>'
        )
    height = 26 * len(bars) + 12
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    return (
        f'<svg {size} role="img" aria-label="mean absolute error in tokens">{"".join(drawn)}</svg>'
    )


def _routes(routes: Sequence[Mapping[str, Any]]) -> str:
    head = (
        "route",
        "n test",
        "skill",
        "MAE",
        "route median",
        "median APE",
        "tau",
        "thirds",
        "P10",
        "P90",
        "P99",
        "why",
    )
    rows = []
    for route in routes:
        own = route["answered"]
        tau = "-" if own["kendall_tau"] is None else f"{own['kendall_tau']:.2f}"
        cells = (
            "(no route)" if route["route"] is None else route["route"], f"{own['rows']:,}", route["verdict"]["skill"], f"{own['mae']:.1f}",
            f"{route['route_median_mae']:.1f}", say_ratio(own['median_ape']), tau, say_ratio(round(own['tertile_accuracy'], 2)), say_ratio(own['p10_coverage']),
            say_ratio(own['p90_coverage']), say_ratio(own['p99_coverage']), route["verdict"]["reason"])  # fmt: skip
        rows.append("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in cells) + "</tr>")
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{''.join(rows)}</table>"


def _curve(points: Sequence[Mapping[str, Any]], median: float) -> str:
    """Error of the median model over training rows (logarithmic), with the route median as a line."""
    most = max([median, *(point["mae"] for point in points)]) * 1.05 or 1.0
    last = max(len(points) - 1, 1)

    def at(number: int, value: float) -> tuple[float, float]:
        return _LEFT + (_WIDTH - _LEFT - 20) * number / last, (_HEIGHT - _BOTTOM) * (
            1 - value / most
        ) + 4

    line = " ".join(
        "{:.1f},{:.1f}".format(*at(number, point["mae"])) for number, point in enumerate(points)
    )
    marks = "".join(
        '<circle cx="{0:.1f}" cy="{1:.1f}" r="3" fill="#2563a8"/><text x="{0:.1f}" y="{2}" text-anchor="middle">{3:,}</text>'.format(
            *at(number, point["mae"]), _HEIGHT - 8, point["rows"]
        )
        for number, point in enumerate(points)
    )
    level = at(0, median)[1]
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="learning curve">'
        f'<line x1="{_LEFT}" y1="{level:.1f}" x2="{_WIDTH - 20}" y2="{level:.1f}" stroke="#9aa7b5" stroke-dasharray="4"/>'
        f'<text x="{_LEFT - 6}" y="{level + 4:.1f}" text-anchor="end">{median:.0f}</text><polyline points="{line}" fill="none" stroke="#2563a8"/>{marks}</svg>'
        "<p>Mean absolute error in tokens on the test requests; dashed: the route median.</p>"
    )
