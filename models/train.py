"""How is a predictor learned from past requests?

Takes a table of requests (`overrun.models.sources`), learns four quantiles of the output length (`overrun.models.trees`), has them judged
on the newest requests (`overrun.models.scoring`), and writes an artifact folder (`overrun.models.artifact`) that states per route what
was proved. The shipped models are then taught by all rows, the judged ones included, by the same recipe.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import polars as pl
import xgboost
from numpy.typing import NDArray

from overrun.analysis.words.finding import printable, say_ratio
from overrun.collector.arrays import Float32Array, FloatArray
from overrun.collector.normalise.verbosity import table_id
from overrun.models import trees
from overrun.models.artifact import (
    CARD,  # fmt: skip
    CARD_PAGE,
    CONFORMAL,
    GOLDEN,
    HISTORY,
    MAX_BYTES,
    QUANTILES,
    VERBOSITY,
    canonical_json,
    golden_lines,
    model_file,
    write_artifact,
)
from overrun.models.card import card, html
from overrun.models.conformal import LEVELS, Calibration
from overrun.models.dataset import Dataset, prepare
from overrun.models.evaluate import Baselines, SkillProof, judge
from overrun.models.export import to_flat_json, to_onnx, to_ubj
from overrun.models.features import FEATURE_NAMES, rising, usable_names, without_prompt
from overrun.models.history import History, keys_of
from overrun.models.predict import Predictor
from overrun.models.replay import Replay, frozen, replay, span_s
from overrun.models.scoring import (
    Forecasts,
    RouteReport,
    Scorecard,
    bounded,
    previous_outputs,
    score_test,
)
from overrun.models.trees import Boosters, Recipe
from overrun.models.verbosity import learn as learn_verbosity
from overrun.models.verbosity import out_of_fold, scored

Progress = Callable[[str, float], None]

_GOLDEN_ROWS: Final = 50
# How much of the history is stored: the first of these that the artifact has room for, beside the hashes of its files.
_PARTS: Final = (1.0, 0.7, 0.5, 0.35, 0.25, 0.1)
_FINGERPRINTS: Final = 8_192
# The learning curve doubles from here.
_CURVE_START: Final = 250
_COLUMNS: Final = (*("route", "n test", "MAE", "route med", "previous", "tau", "P90 cov", "skill"),)
_TABLE: Final = "{:<20}{:>8}{:>8}{:>11}{:>10}{:>6}{:>9}  {}"


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How to train; the same table and settings give the same bytes.

    `test_share` of the rows, the newest, only judge (`overrun.models.dataset.Split`). `min_rows`: below it nothing is learned;
    at 500 rows a metadata and prompt-shape model ranked Alpaca answers at tau .37, at 2,000 at .45. `max_rows`: the
    newest rows that are used. `bucket_edges`: an answer is S up to the first, M up to the second, in tokens.
    `learn_all`: the shipped models learn from the test rows too once these have judged; without it they are the very
    ones that were judged.
    """

    seed: int = 0
    test_share: float = 0.3
    min_rows: int = 500
    max_rows: int = 200_000
    bucket_edges: tuple[float, float] = (64.0, 256.0)
    max_rounds: int = 100
    learning_rate: float = 0.1
    learn_all: bool = True

    def __post_init__(self) -> None:
        """Refuse settings that leave a slice empty.

        Raises:
            ValueError: a setting is outside its range.
        """
        if not 0.05 <= self.test_share <= 0.9:
            raise ValueError(f"test_share is {self.test_share}, expected 0.05 to 0.9")
        if not 100 <= self.min_rows <= self.max_rows:
            raise ValueError(
                f"min_rows is {self.min_rows}, expected 100 to max_rows ({self.max_rows})"
            )
        if not 1 <= self.bucket_edges[0] < self.bucket_edges[1]:
            raise ValueError(
                f"bucket_edges are {self.bucket_edges}, expected two ascending token counts"
            )


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """What the median model proves on the whole test slice after learning from the newest `rows` before it."""

    rows: int
    mae: float
    verdict: SkillProof


@dataclass(frozen=True, slots=True)
class TrainReport:
    """The outcome of a training run: `rows` by use, `start` and `end` the first and last arrival, `test` the scores."""

    folder: Path
    version: str
    size_bytes: int
    rows: dict[str, int]
    start: datetime
    end: datetime
    truncated_ratio: float | None
    features: tuple[str, ...]
    test: Scorecard
    curve: tuple[CurvePoint, ...]

    def lines(self) -> list[str]:
        """Return the report as text: whether each route shows skill and why, then a row per route, errors in output tokens."""
        counts = ", ".join(f"{count:,} {use}" for use, count in self.rows.items())
        lines = [
            *(
                f"{_route_name(report.route)}: skill {report.verdict.skill}: {report.verdict.reason}"
                for report in self.test.routes
            ),
            "",
            _TABLE.format(*_COLUMNS),
            *(_table_row(_route_name(report.route), report) for report in self.test.routes),
            _table_row("all", self.test.overall),
            "",
            f"predictor {self.version} in {self.folder} ({self.size_bytes / 1024:,.0f} kB)",
            f"requests: {counts}; {self.start:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M} UTC",
            f"features: {', '.join(self.features)}",
        ]
        lines.append(self._rows_wanted())
        if self.test.unlisted_routes:
            lines.append(
                f"{self.test.unlisted_routes:,} smaller routes: skill {self.test.others[0].skill}: {self.test.others[0].reason}"
            )
        if self.truncated_ratio:
            lines.append(
                f"{say_ratio(self.truncated_ratio)} of the answers were cut by a token limit: they count as longer than recorded, and predictions are cut at max_tokens"
            )
        return lines

    def _rows_wanted(self) -> str:
        rows = rows_for_skill(self.curve)
        if rows is None:
            return f"learning curve: no skill over all traffic with up to {self.curve[-1].rows:,} training requests"
        return f"learning curve: skill over all traffic from {rows:,} training requests on"


def rows_for_skill(curve: Sequence[CurvePoint]) -> int | None:
    """Return the fewest training requests from which on the learning curve shows skill; None if it never does."""
    rows: int | None = None
    for point in reversed(curve):
        if point.verdict.skill == "none":
            break
        rows = point.rows
    return rows


def train_to_folder(
    frame: pl.DataFrame,
    out_dir: str | Path,
    *,
    settings: TrainSettings | None = None,
    progress: Progress | None = None,
    prompt_table: bytes | None = None,
) -> TrainReport:
    """Train on `frame`, write the artifact folder `out_dir`, and return what was measured.

    `frame` has the columns of `overrun.models.sources.COLUMNS`, one row a request; time, input_tokens and output_tokens are
    mandatory. `progress` gets the name of the step and the finished share, 0..1. `prompt_table` is the table by which the
    collector scored the prompts of `frame`, if it did: then the scores are taken as they are and the artifact carries it.

    Raises:
        SourceError: a mandatory column is absent.
        TooFewRowsError: fewer than `settings.min_rows` usable rows.
        ArtifactError: the folder cannot be written, or what was written does not answer like what was trained.
    """
    settings = settings or TrainSettings()
    tell: Progress = progress or _silent
    tell("reading", 0.0)
    data = prepare(
        frame,
        min_rows=settings.min_rows,
        max_rows=settings.max_rows,
        test_share=settings.test_share,
        seed=settings.seed,
    )
    data, table = _score_prompts(data, data.split.train, prompt_table)
    walked = replay(
        data.records,
        data.split.train,
        lambda share: tell("replaying history", 0.05 + 0.3 * share),
        _salt(data),
    )
    learned = _learn(data, walked, settings, tell)
    tell("scoring", 0.7)
    judged = _judge(data, walked, learned, settings)
    curve = _curve(data, learned, settings, tell)
    tell("training", 0.9)
    final = learned.judged
    if settings.learn_all:
        if table is not None:
            data, table = _score_prompts(data, data.split.rows, prompt_table)
            walked = replay(data.records, data.split.train, None, _salt(data))
        learned = replace(learned, inputs=_columns(learned.names, walked.features))
        final = trees.fit(
            learned.inputs,
            learned.targets,
            learned.recipe,
            eta=settings.learning_rate,
            seed=settings.seed,
        )
    tell("writing", 0.95)
    manifest = _manifest(learned, data, judged.card, settings)
    files = _model_files(final, learned) | _other_files(manifest, judged, curve, table)
    files |= _history_file(
        walked.history, len(json.dumps(manifest, indent=1)) + sum(map(len, files.values()))
    )
    artifact = write_artifact(Path(out_dir), manifest, files, check=Predictor.load)
    tell("done", 1.0)
    return TrainReport(
        folder=artifact.folder,
        version=artifact.version,
        size_bytes=sum(path.stat().st_size for path in artifact.folder.iterdir()),
        rows=_row_counts(data),
        start=data.start,
        end=data.end,
        truncated_ratio=data.truncated_ratio,
        features=learned.names,
        test=judged.card,
        curve=curve,
    )


@dataclass(frozen=True, slots=True)
class _Learned:
    """What was learned from the training slice: inputs are (rows, names) of all rows, targets log(1 + tokens).

    `early` has learned from [0, fit) of the split, `judged` from [0, train).
    """

    names: tuple[str, ...]
    inputs: Float32Array
    targets: FloatArray
    recipe: Recipe
    early: Boosters
    judged: Boosters


@dataclass(frozen=True, slots=True)
class _Judged:
    """The scores, and the calibration as of the last request that finished."""

    card: Scorecard
    calibration: Calibration


def _score_prompts(data: Dataset, rows: int, given: bytes | None) -> tuple[Dataset, bytes | None]:
    """Return `data` with the verbosity score in its requests, and the table it is by, None without prompts.

    Out of fold for the first `rows`, which teach the table, by that table for the rest; or as the collector stored it, if by the table `given`.
    """
    if given is not None and data.scored_by == {table_id(given)}:
        return _with_scores(data, data.scores), given
    groups = [(record.request.route, record.request.model) for record in data.records[:rows]]
    targets = np.log1p(data.completed[:rows])
    table = learn_verbosity(data.prompts[:rows], targets, groups)
    if table is None:
        return data, None
    scores = np.concatenate(
        (out_of_fold(data.prompts[:rows], targets, groups), scored(table, data.prompts[rows:]))
    )
    return _with_scores(data, scores), table.astype("<f2").tobytes()


def _with_scores(data: Dataset, scores: FloatArray) -> Dataset:
    pairs = zip(data.records, scores.tolist(), strict=True)
    return replace(
        data,
        records=[
            replace(record, request=record.request._replace(verbosity=own)) for record, own in pairs
        ],
    )


def _salt(data: Dataset) -> bytes:
    """Return what hides tenants in this artifact: of the data, so that the same data gives the same bytes."""
    return data.digest


def _columns(names: tuple[str, ...], features: Float32Array) -> Float32Array:
    return np.ascontiguousarray(features[:, [FEATURE_NAMES.index(name) for name in names]])


def _learn(data: Dataset, walked: Replay, settings: TrainSettings, tell: Progress) -> _Learned:
    train = data.split.train
    keys: dict[str, set[Any]] = {}
    for record in data.records[:train]:
        for level, key in keys_of(record.request).items():
            keys.setdefault(level, set()).add(key)
    counts = {level: len(own) for level, own in keys.items()}
    # With nothing that varies the trees are a constant, which is then the right answer; XGBoost wants one column for
    # it.
    names = (
        usable_names(span_s(data.records[:train]), walked.features[:train], counts)
        or FEATURE_NAMES[:1]
    )
    choices = [names, without_prompt(names)] if "verbosity" in names else [names]
    targets = np.log1p(data.completed)
    choice, recipe, early = trees.search(
        [(_columns(own, walked.features), rising(own)) for own in choices],
        targets,
        _clusters(data),
        data.split,
        max_rounds=settings.max_rounds,
        eta=settings.learning_rate,
        seed=settings.seed,
        tell=lambda share: tell("searching", 0.35 + 0.25 * share),
    )
    tell("training", 0.6)
    names = choices[choice]
    inputs = _columns(names, walked.features)
    judged = trees.fit(
        inputs[:train], targets[:train], recipe, eta=settings.learning_rate, seed=settings.seed
    )
    return _Learned(names, inputs, targets, recipe, early, judged)


def _clusters(data: Dataset) -> NDArray[np.int64]:
    """Return a number for each request, the same for those of one prompt, shape (rows,)."""
    first: dict[Any, int] = {}
    return np.array(
        [
            row if prompt is None else first.setdefault(prompt, row)
            for row, prompt in enumerate(data.prompts)
        ],
        dtype=np.int64,
    )


def _judge(data: Dataset, walked: Replay, learned: _Learned, settings: TrainSettings) -> _Judged:
    split = data.split
    live_raw = learned.judged.log_tokens(learned.inputs[split.train :])
    raw = np.vstack([learned.early.log_tokens(learned.inputs[split.fit : split.train]), live_raw])
    frozen_features, frozen_past = frozen(data.records[split.train :], walked.stored_at_split)
    frozen_raw = learned.judged.log_tokens(_columns(learned.names, frozen_features))
    live_offsets, frozen_offsets, calibration = _rolling(raw, data, walked)
    known = np.quantile(data.outputs[: split.train], list(QUANTILES.values()))
    forecasts = Forecasts(
        model=np.expm1(live_raw + live_offsets),
        past=np.where(np.isnan(walked.past[split.train :]), known, walked.past[split.train :]),
        frozen_model=np.expm1(frozen_raw + frozen_offsets),
        frozen_past=np.where(np.isnan(frozen_past), known, frozen_past),
    )
    card = score_test(
        data, previous_outputs(walked.features[split.train :]), forecasts, settings.seed
    )
    return _Judged(card, calibration)


def _rolling(
    raw: FloatArray, data: Dataset, walked: Replay
) -> tuple[FloatArray, FloatArray, Calibration]:
    """Return the log offsets of each test row, live and frozen at the split, and the calibration after the last finish.

    `raw` are the quantiles of the rows [fit, rows) by models that had not learned from them. A residual counts once
    its request has finished, as in a router that reports it.
    """
    split = data.split
    residuals = np.log1p(data.outputs[split.fit :])[:, None] - raw
    calibrated = [number for number, name in enumerate(QUANTILES) if name in LEVELS]
    names = [list(QUANTILES)[number] for number in calibrated]
    calibration = Calibration(names)
    live = np.zeros((split.rows - split.train, len(QUANTILES)))
    fixed = np.zeros_like(live)
    seen = 0

    def catch_up(known: int) -> None:
        nonlocal seen
        for index in walked.order[seen:known]:
            if index >= split.fit:
                own = residuals[index - split.fit]
                calibration.observe(
                    data.routes[index],
                    {
                        name: float(own[number])
                        for name, number in zip(names, calibrated, strict=True)
                    },
                )
        seen = known

    at_split: dict[str | None, dict[str, float]] = {}
    for row in range(split.train, split.rows):
        catch_up(int(walked.known[row]))
        if row == split.train:
            at_split = {
                route: calibration.offsets(route) for route in set(data.routes[split.train :])
            }
        live[row - split.train, calibrated] = list(calibration.offsets(data.routes[row]).values())
        fixed[row - split.train, calibrated] = list(at_split[data.routes[row]].values())
    catch_up(len(walked.order))
    return live, fixed, calibration


def _curve(
    data: Dataset, learned: _Learned, settings: TrainSettings, tell: Progress
) -> tuple[CurvePoint, ...]:
    """Return how the median's error on the test slice falls with the number of training rows."""
    train = data.split.train
    sizes = [size for size in (_CURVE_START * 2**step for step in range(20)) if size < train]
    generated, limits = data.outputs[train:], data.limits[train:]
    route_median = _route_medians(data)
    points = []
    for number, size in enumerate([*sizes, train]):
        tell("learning curve", 0.75 + 0.15 * number / (len(sizes) + 1))
        rows = slice(train - size, train)
        booster = trees.fit_median(
            learned.inputs[rows],
            learned.targets[rows],
            learned.recipe,
            eta=settings.learning_rate,
            seed=settings.seed,
        )
        median = bounded(
            np.expm1(booster.inplace_predict(learned.inputs[train:]).astype(np.float64))[:, None],
            limits,
        )[:, 0]
        points.append(
            CurvePoint(
                size,
                float(np.abs(median - generated).mean()),
                judge(generated, median, route_median, settings.seed),
            )
        )
    return tuple(points)


def _route_medians(data: Dataset) -> FloatArray:
    train = data.split.train
    baselines = Baselines(data.routes[:train].tolist(), data.inputs[:train], data.outputs[:train])
    return np.fmin(baselines.route_median(data.routes[train:].tolist()), data.limits[train:])


def _model_files(final: Boosters, learned: _Learned) -> dict[str, bytes]:
    """Return the model files and the golden vectors: 49 rows spread over the data, and one with nothing known."""
    rows = np.linspace(0, len(learned.inputs) - 1, _GOLDEN_ROWS - 1).astype(np.int64)
    golden = np.vstack(
        [learned.inputs[rows], np.full((1, len(learned.names)), np.nan, dtype=np.float32)]
    )
    files = {GOLDEN: golden_lines(golden.tolist(), final.log_tokens(golden).tolist())}
    for name, booster in final.by_quantile.items():
        files[model_file(name, "onnx")] = to_onnx(booster, learned.inputs)
        files[model_file(name, "json")] = to_flat_json(booster, learned.names, golden)
        files[model_file(name, "ubj")] = to_ubj(booster)
    return files


def _history_file(history: History, taken: int) -> dict[str, bytes]:
    """Return the history, thinned until it fits beside the `taken` bytes: thousands of routes, models and tenants would fill the artifact."""
    for part in _PARTS:
        data = canonical_json(history.to_payload(part))
        if taken + len(data) + _FINGERPRINTS <= MAX_BYTES:
            break
    return {HISTORY: data}


def _other_files(
    manifest: dict[str, Any], judged: _Judged, curve: tuple[CurvePoint, ...], table: bytes | None
) -> dict[str, bytes]:
    """Return everything but the models and the history: calibration, the verbosity table if there is one, and the card."""
    made = card(
        manifest,
        asdict(judged.card.overall),
        [asdict(report) for report in judged.card.routes],
        [asdict(point) for point in curve],
        rows_for_skill(curve),
    )
    files = {
        CONFORMAL: canonical_json(judged.calibration.to_payload()),
        CARD: canonical_json(made),
        CARD_PAGE: html(made).encode(),
    }
    return files if table is None else files | {VERBOSITY: table}


def _manifest(
    learned: _Learned, data: Dataset, test: Scorecard, settings: TrainSettings
) -> dict[str, Any]:
    """Return what the artifact says of itself; no clock, no host name: the same data gives the same bytes."""
    routes = [
        {
            "route": report.route,
            "skill": report.verdict.skill,
            "skill_without_history": report.verdict_without_history.skill,
            "reason": report.verdict.reason,
            "reduction": report.verdict.reduction,
            "reduction_interval": report.verdict.interval,
            "scores": asdict(report.answered),
        }
        for report in test.routes
    ]
    return {
        "target": "log1p(output_tokens)",
        "features": list(learned.names),
        "quantiles": {
            name: {"level": QUANTILES[name], "rounds": count}
            for name, count in learned.recipe.rounds.items()
        },
        "depth": learned.recipe.growth.depth,
        "together": learned.recipe.growth.together,
        "routes": routes,
        "others": {
            "skill": test.others[0].skill,
            "skill_without_history": test.others[1].skill,
            "reason": test.others[0].reason,
        },
        "bucket_edges": list(settings.bucket_edges),
        "settings": asdict(settings),
        "training": {
            "start": data.start.isoformat(),
            "end": data.end.isoformat(),
            "rows": _row_counts(data),
            "truncated_ratio": data.truncated_ratio,
        },
        "libraries": {"xgboost": xgboost.__version__, "onnx": onnx.__version__},
    }


def _row_counts(data: Dataset) -> dict[str, int]:
    split = data.split
    return {
        "training": split.fit,
        "calibration": split.train - split.fit,
        "test": split.rows - split.train,
        "left out": data.dropped,
    }


def _silent(step: str, share: float) -> None:
    """Report progress to nobody."""


def _route_name(route: str | None) -> str:
    return "(no route)" if route is None else printable(route)


def _table_row(name: str, report: RouteReport) -> str:
    answered = report.answered
    return _TABLE.format(
        name[:19],
        f"{answered.rows:,}",
        f"{answered.mae:.1f}",
        f"{report.route_median_mae:.1f}",
        f"{report.previous_mae:.1f}",
        "-" if answered.kendall_tau is None else f"{answered.kendall_tau:.2f}",
        say_ratio(answered.p90_coverage),
        report.verdict.skill,
    )
