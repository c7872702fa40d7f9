"""Can a router rely on predicted output lengths? The artifact's own test: calibration first, then skill per route; and the artifact to take away."""

from __future__ import annotations

import io
import os
import shlex
import zipfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from overrun.analysis.front import question_table as questions
from overrun.analysis.front.predictor_watch import State
from overrun.analysis.front.report import Report
from overrun.dashboard import charts_length, data, downloads, nav, state, ui
from overrun.dashboard.launch import ARTIFACT_VARIABLE
from overrun.dashboard.theme import say_ratio, say_span, theme_of
from overrun.models.artifact import Artifact
from overrun.models.errors import ArtifactError

# A predicted share of 90 % that holds for 85 % to 95 % is kept; own default, the interval of a few hundred requests.
_KEPT = 0.05


def draw() -> None:
    """The page."""
    report = data.report(data.asked(state.filters()))
    ui.put(_box(report))
    if not _folder():
        for command in (
            ["overrun", "length", "train", "--url", data.url(), "--out", "artifact"],
            ["overrun", "dashboard", "--url", data.url(), "--artifact", "artifact"],
        ):
            ui.put(ui.copied(shlex.join(command)))
        nav.links(("verdict", "Back to the verdict"), ("traces", "Longest requests"))
        return
    try:
        artifact = data.artifact(_folder())
    except ArtifactError:
        return
    scored = scored_routes(artifact)
    nav.links(("verdict", "Back to the verdict"), ("traces", "Longest requests"))
    if scored:
        theme = theme_of(state.mode())
        ui.chart(charts_length.calibration(scored, theme), "calibration", alt=words(scored))
        ui.put(
            "<small>Share of test requests that generated at most the predicted quantile; on the diagonal the prediction is calibrated. The "
            "test requests are newer than the training requests.</small>"
            + table(artifact.manifest["routes"])
        )
    ui.put(live(data.ask(questions.PREDICTOR, ())) + facts(artifact, _lengths(report)))
    downloads.as_file(
        "The predictor",
        f"predictor-{artifact.version}.zip",
        "application/zip",
        lambda: zipped(artifact),
    )


def first(asked: data.Asked, report: Report, query: Mapping[str, str]) -> str:
    """The page's first box, before the rest is there."""
    return _box(report)


def _box(report: Report) -> str:
    if not _folder():
        return ui.box(
            "No predictor is loaded",
            [
                "A predictor learns output lengths from past requests and gives a router P10, P50, P90 and P99 before a request runs.",
                *map(ui.stated, _lengths(report)),
            ],
        )
    try:
        artifact = data.artifact(_folder())
    except ArtifactError as error:
        return ui.box("The predictor cannot be loaded", [ui.sentence(str(error))], role="alert")
    return ui.box(*headline(artifact, scored_routes(artifact)))


def _folder() -> str:
    return os.environ.get(ARTIFACT_VARIABLE, "")


def _lengths(report: Report) -> list[str]:
    """What the checklist says of output lengths."""
    return [step.detail for step in report.checklist if step.step == "output length"]


def scored_routes(artifact: Artifact) -> list[Mapping[str, Any]]:
    """The routes whose predictions were tested."""
    return [route for route in artifact.manifest["routes"] if route.get("scores")]


def headline(artifact: Artifact, scored: list[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """Whether to use it, as safe HTML: calibration first."""
    routes = artifact.manifest["routes"]
    good = [route for route in routes if route["skill"] == "good"]
    below = f"{len(good)} of {len(routes)} routes are predicted much better than by their median; the others are marked with little or no skill."
    if not scored:
        return "This predictor carries no scores", [
            "Its version stored no scores: train it again to see its calibration.",
            below,
        ]
    rows = sum(route["scores"]["rows"] for route in scored)
    p90 = sum(route["scores"]["p90_coverage"] * route["scores"]["rows"] for route in scored) / rows
    kept = abs(p90 - 0.9) <= _KEPT
    first = f"P90 holds for {say_ratio(p90)} of {rows:,} test requests: {'calibrated' if kept else 'not calibrated, use with care'}"
    return f"{'✓' if kept else '!'} {first}", [below]


def table(routes: list[Mapping[str, Any]]) -> str:
    """One row per route."""
    rows = []
    for route in routes:
        scores = route.get("scores")
        gain = say_ratio(route.get("reduction")) if route.get("reduction") is not None else "–"
        interval = route.get("reduction_interval")
        between = (
            f"<small>{say_ratio(interval[0])} to {say_ratio(interval[1])}</small>"
            if interval
            else ""
        )
        cells = (
            [
                f"{scores['rows']:,}",
                say_ratio(scores["p10_coverage"]),
                say_ratio(scores["p90_coverage"]),
                say_ratio(scores["p99_coverage"]),
                f"{scores['mae']:,.0f}",
                say_ratio(scores["tertile_accuracy"]),
            ]
            if scores
            else ["–"] * 6
        )
        rows.append(
            [
                f"{ui.text(route['route'])}<small>{ui.text(route.get('reason', ''), 120)}</small>",
                ui.text(route["skill"]),
                *cells,
                gain + between,
            ]
        )
    return ui.table(
        [
            "Route",
            "skill",
            "n",
            "≤ P10",
            "≤ P90",
            "≤ P99",
            "MAE, tokens",
            "right third",
            "gain over the median",
        ],
        rows,
        caption="Right third: share of requests that were predicted into the right third of the lengths. Gain: 1 − MAE / MAE of the route's median, with "
        "its 95 % interval.",
    )


def live(state_: State | None) -> str:
    """How it does on the calls that the server sees, as safe HTML."""
    title = "<h2>On live calls</h2>"
    if state_ is None:
        return (
            title
            + "<p>The server has no predictor: start it with <code>overrun serve --artifact FOLDER</code>.</p>"
        )
    if state_["reason"]:
        return title + f"<p>Not watched: {ui.sentence(state_['reason'])}</p>"
    coverage, gain = state_["p90_coverage"], state_["error_reduction"]
    told = (
        "Train again: " + state_["retrain"]
        if state_["retrain"]
        else "no reason to train again"
        if coverage is not None
        else "too few calls so far"
    )
    return title + ui.facts(
        [
            ("Artifact", f"<code>{ui.text(state_['artifact'])}</code>"),
            ("Calls", f"{state_['rows']:,}"),
            ("≤ P90", "–" if coverage is None else say_ratio(coverage)),
            ("Gain over the recent median", "–" if gain is None else say_ratio(gain)),
            ("Verdict", ui.sentence(told)),
        ]
    )


def facts(artifact: Artifact, lengths: list[str]) -> str:
    """What the artifact is."""
    manifest = artifact.manifest
    training = manifest.get("training", {})
    rows = training.get("rows", {})
    counted = (
        ", ".join(f"{ui.text(name)} {count:,}" for name, count in rows.items())
        if isinstance(rows, Mapping)
        else ui.text(rows)
    )
    edges = " and ".join(f"{edge:,.0f}" for edge in manifest["bucket_edges"])
    return "<h2>The artifact</h2>" + ui.facts(
        [
            ("Version", f"<code>{ui.text(artifact.version)}</code>"),
            ("Folder", ui.text(Path(artifact.folder).name, 200)),
            ("Requests", counted),
            ("Trained on", ui.text(_span(training.get("start"), training.get("end")))),
            ("Buckets S, M, L", f"split at {edges} tokens"),
            ("Quantiles", ui.text(", ".join(manifest["quantiles"]))),
            ("Output lengths now", "; ".join(map(ui.sentence, lengths))),
        ]
    )


def _span(start: object, end: object) -> str:
    """Two times as they stand in a manifest, as the other times of the pages."""
    try:
        return say_span(datetime.fromisoformat(str(start)), datetime.fromisoformat(str(end)))
    except ValueError:
        return f"{start or '–'} to {end or '–'}"


def words(scored: list[Mapping[str, Any]]) -> str:
    """The chart's description for those who do not see it."""
    return ui.text(
        "Calibration: "
        + "; ".join(
            f"{route['route']} P90 holds for {say_ratio(route['scores']['p90_coverage'])}"
            for route in scored[:8]
        ),
        400,
    )


def zipped(artifact: Artifact) -> bytes:
    """The artifact as one file: what the folder holds."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(Path(artifact.folder).iterdir()):
            if path.name == "manifest.json" or path.name in artifact.files:
                archive.write(path, path.name)
    return out.getvalue()
