"""How many tokens will this request generate?

Loads an artifact and answers with quantiles, a size bucket and the measured skill behind them. Needs onnxruntime, numpy
and the standard library alone, so that a router can carry it. Where the model has no measured skill the answer is the
route's recent past, and reports it.
"""

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypedDict

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as onnx_errors

from overrun.collector.normalise.prompt_shape import SHAPE, shape, words_of
from overrun.collector.normalise.verbosity import TABLE_SIZE, hashed, read_table, score
from overrun.models.artifact import (
    CONFORMAL,
    GOLDEN,
    HISTORY,
    MANIFEST,
    QUANTILES,
    VERBOSITY,
    Artifact,
    load_artifact,
    model_file,
)
from overrun.models.conformal import Calibration
from overrun.models.drift import Drift
from overrun.models.errors import ArtifactError, RequestError
from overrun.models.features import FEATURE_NAMES, feature_values
from overrun.models.history import History, Window, past_quantiles
from overrun.models.onnx_graph import check_trees
from overrun.models.request import MAX_NAME, MISSING, Request, parse_output_tokens, parse_request

# Float32 sums over some hundred trees differ by about 1e-5 between libraries; a wrong conversion is off by whole units.
GOLDEN_TOLERANCE: Final = 1e-4
_NAMES: Final = tuple(QUANTILES)
_LEVELS: Final = tuple(QUANTILES.values())
# Predictions whose outcome is awaited; older ones are forgotten.
_MAX_PENDING: Final = 20_000
_ONNX_FAILURES: Final = (
    onnx_errors.Fail,
    onnx_errors.InvalidArgument,
    onnx_errors.InvalidGraph,
    onnx_errors.InvalidProtobuf,
    onnx_errors.NotImplemented,
    onnx_errors.RuntimeException,
)

Skill = Literal["none", "low", "good"]


class Prediction(TypedDict):
    """One answer. Quantiles are in output tokens and ascend.

    `bucket` S, M or L by `p50` and the manifest's edges. `skill` as measured on unseen later traffic of this route.
    `source`: the `model`, the recent outputs of the `route`, or those of all traffic (`global`). `version` names the
    artifact.
    """

    p10: float
    p50: float
    p90: float
    p99: float
    bucket: Literal["S", "M", "L"]
    skill: Skill
    source: Literal["model", "route", "global"]
    version: str


class Predictor:
    """A loaded artifact. Answers are a function of the artifact and of what was asked and observed; use one per thread.

    Asking tells it that the request came: the next one of that session or prefix knows how long ago that was.
    """

    def __init__(self, artifact: Artifact) -> None:
        """Open the models of `artifact` and hold them against its golden vectors.

        Raises:
            ArtifactError: a model does not open or answers differently than the training library did.
        """
        self.version = artifact.version
        self._columns = _columns(artifact)
        golden = _Golden(artifact)
        self._models = [_Model(artifact, name, golden) for name in QUANTILES]
        self._routes: dict[str | None, tuple[Skill, Skill]] = {
            entry["route"]: (entry["skill"], entry["skill_without_history"])
            for entry in artifact.manifest["routes"]
        }
        others = artifact.manifest.get("others", {})
        self._others: tuple[Skill, Skill] = (
            others.get("skill", "none"),
            others.get("skill_without_history", "none"),
        )
        self._edges: tuple[float, ...] = tuple(artifact.manifest["bucket_edges"])
        self._history = History.from_payload(artifact.json_file(HISTORY))
        self._calibration = Calibration.from_payload(artifact.json_file(CONFORMAL))
        self._table = _table(artifact)
        self._wants_shape = any(name in SHAPE for name in artifact.manifest["features"])
        self._pending: OrderedDict[str, list[float]] = OrderedDict()
        self._observed = False
        self.drift = Drift()
        if self._history.window("global", ()) is None:
            raise ArtifactError(
                f"{artifact.folder / HISTORY} holds no outputs at all: train the artifact again"
            )

    @property
    def wants_prompts(self) -> bool:
        """Whether its models take numbers about prompts."""
        return self._wants_shape or self._table is not None

    @classmethod
    def load(cls, folder: str | Path) -> "Predictor":
        """Return the predictor stored in `folder`.

        Raises:
            ArtifactError: see `overrun.models.artifact.load_artifact` and `Predictor`.
        """
        return cls(load_artifact(Path(folder)))

    def predict(self, row: Mapping[str, Any]) -> Prediction:
        """Return the answer for one request; `row` as in `overrun.models.request.parse_request`.

        With an `id` in the row, `observe` of that id later measures this very prediction.

        Raises:
            RequestError: a field has the wrong type or an impossible value.
        """
        asked = self._ask(row)
        skill = self._skill(asked.request)
        logs = None if skill == "none" else self._raw([asked])[0]
        return self._answer(row, asked, skill, logs)

    def predict_batch(self, rows: Sequence[Mapping[str, Any]]) -> list[Prediction]:
        """Return one answer per row, in order.

        Raises:
            RequestError: a field of some row has the wrong type or an impossible value; no row is answered then.
        """
        requests = [self._parse(row) for row in rows]
        asked = [self._arrived(request) for request in requests]
        skills = [self._skill(request) for request in requests]
        chosen = [index for index, skill in enumerate(skills) if skill != "none"]
        logs = dict(zip(chosen, self._raw([asked[index] for index in chosen]), strict=True))
        return [
            self._answer(*one, logs.get(index))
            for index, one in enumerate(zip(rows, asked, skills, strict=True))
        ]

    def observe(self, row: Mapping[str, Any], output_tokens: int) -> None:
        """Report that the request in `row` has finished with `output_tokens`.

        It becomes history for later requests, and the error of its prediction moves their quantiles. The prediction is
        the one made under the row's `id`, else one made now.

        Raises:
            RequestError: a field has the wrong type or an impossible value.
        """
        generated = parse_output_tokens(output_tokens)
        asked = self._ask(row)
        request = asked.request
        identity = _identity(row)
        logs = None if identity is None else self._pending.pop(identity, None)
        if logs is None:
            logs = self._raw([asked])[0]
        past = asked.windows.get("route") or asked.windows.get("global")
        if past is not None:
            skill = self._skill(request)
            answer = self._answer({}, asked, skill, None if skill == "none" else logs)
            self.drift.add(
                generated,
                answer["p50"],
                answer["p90"],
                past.quantile(0.5),
                modelled=skill != "none",
            )
        own = math.log1p(generated)
        residuals = {name: own - log for name, log in zip(QUANTILES, logs, strict=True)}
        self._calibration.observe(request.route, residuals)
        self._history.observe(request, generated)
        self._observed = True

    def _ask(self, row: Mapping[str, Any]) -> "_Asked":
        return self._arrived(self._parse(row))

    def _arrived(self, request: Request) -> "_Asked":
        """Return what is known of the request now, and remember that it came."""
        asked = _Asked(
            request, self._history.windows_of(request), self._history.arrivals_of(request)
        )
        self._history.arrive(request)
        return asked

    def _parse(self, row: Mapping[str, Any]) -> Request:
        """Return the request of a row; a prompt becomes numbers here, if the models take any, and goes no further."""
        request = parse_request(row)
        prompt = row.get("prompt")
        if not isinstance(prompt, str) or not self.wants_prompts:
            return request
        words = words_of(prompt)
        counts = shape(prompt, words)
        verbosity = MISSING if self._table is None else score(self._table, hashed(words), counts)
        return request._replace(shape=counts, verbosity=verbosity)

    def _skill(self, request: Request) -> Skill:
        """Return the skill measured for this route, or for small ones: with live history once one request was observed, else without."""
        live, without_history = self._routes.get(request.route, self._others)
        return live if self._observed else without_history

    def _raw(self, asked: Sequence["_Asked"]) -> list[list[float]]:
        """Return the models' quantiles in log tokens, before calibration, one list a request."""
        if not asked:
            return []
        rows = [feature_values(*one) for one in asked]
        inputs = np.array(
            [[row[column] for column in self._columns] for row in rows], dtype=np.float32
        )
        return list(map(list, zip(*(model.run(inputs) for model in self._models), strict=True)))

    def _remember(self, identity: str | None, logs: list[float]) -> None:
        if identity is None:
            return
        if len(self._pending) >= _MAX_PENDING:
            self._pending.popitem(last=False)
        self._pending[identity] = logs

    def _answer(
        self, row: Mapping[str, Any], asked: "_Asked", skill: Skill, logs: list[float] | None
    ) -> Prediction:
        """Return the answer from the model's raw log quantiles, or from the route's past if there are none.

        Quantiles ascend, and are at least one token and at most what the request may generate.
        """
        request, windows, _ = asked
        source: Literal["model", "route", "global"] = "model"
        if logs is None:
            source = "route" if "route" in windows else "global"
            tokens = past_quantiles(windows, _LEVELS)
        else:
            offsets = self._calibration.offsets(request.route)
            tokens = [
                math.expm1(log + offsets.get(name, 0.0))
                for name, log in zip(_NAMES, logs, strict=True)
            ]
            self._remember(_identity(row), logs)
        most = math.inf if math.isnan(request.max_tokens) else request.max_tokens
        p10, p50, p90, p99 = sorted([min(max(round(value, 1), 1.0), most) for value in tokens])
        return {
            "p10": p10,
            "p50": p50,
            "p90": p90,
            "p99": p99,
            "bucket": "S" if p50 <= self._edges[0] else "M" if p50 <= self._edges[1] else "L",
            "skill": skill,
            "source": source,
            "version": self.version,
        }


class _Asked(NamedTuple):
    """A request with what was known when it arrived: the arguments of `feature_values`."""

    request: Request
    windows: Mapping[str, Window]
    arrivals: Mapping[str, float]


class _Golden:
    """The golden vectors of an artifact: inputs of shape (vectors, features), expected log tokens by quantile."""

    def __init__(self, artifact: Artifact) -> None:
        lines = artifact.json_lines(GOLDEN)
        try:
            self.inputs = np.array([line["inputs"] for line in lines], dtype=np.float32)
            self.expected = {
                name: np.array([line["expected"][name] for line in lines], dtype=np.float32)
                for name in QUANTILES
            }
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(
                f"{artifact.folder / GOLDEN} holds no golden vectors ({error!r}): train the artifact again"
            ) from error
        if self.inputs.ndim != 2 or not len(self.inputs):
            raise ArtifactError(
                f"{artifact.folder / GOLDEN} holds no golden vectors: train the artifact again"
            )


class _Model:
    """One quantile's ONNX session, proved against the golden vectors when it opens."""

    def __init__(self, artifact: Artifact, quantile: str, golden: _Golden) -> None:
        self._file = artifact.folder / model_file(quantile, "onnx")
        data = artifact.files[model_file(quantile, "onnx")]
        check_trees(data, str(self._file))
        options = onnxruntime.SessionOptions()
        # One row of trees is microseconds of work: a second thread costs more than it brings.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(
                data,
                options,
                providers=["CPUExecutionProvider"],
            )
            self._input = self._session.get_inputs()[0].name
            self._outputs = [output.name for output in self._session.get_outputs()]
            self._check(golden, quantile)
        except _ONNX_FAILURES as error:
            raise ArtifactError(
                f"{self._file} does not open as a model ({type(error).__name__}): train the artifact again"
            ) from error

    def run(self, inputs: NDArray[np.float32]) -> list[float]:
        """Return log(1 + tokens) for inputs of shape (rows, features)."""
        outputs: list[float] = (
            self._session.run(self._outputs, {self._input: inputs})[0].ravel().tolist()
        )
        return outputs

    def _check(self, golden: _Golden, quantile: str) -> None:
        difference = float(
            np.max(np.abs(np.array(self.run(golden.inputs)) - golden.expected[quantile]))
        )
        # Written so that NaN fails too.
        if not difference <= GOLDEN_TOLERANCE:
            raise ArtifactError(
                f"{self._file} answers the golden vectors {difference:.2g} log tokens away from the training library, "
                f"expected at most {GOLDEN_TOLERANCE:g}: train again with the locked versions"
            )


def _identity(row: Mapping[str, Any]) -> str | None:
    """Return the key under which a prediction awaits its outcome; a hash of ids that are longer than names may be."""
    identity = None if row.get("id") is None else str(row["id"])
    if identity is None or len(identity) <= MAX_NAME:
        return identity
    return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()


def predict_lines(artifact: str | Path | Predictor, lines: Iterable[str | bytes]) -> Iterator[str]:
    """Return an iterator of one JSON line for each request line; blank lines are skipped.

    A line that cannot be answered yields `{"error": ..., "line": n}` (n from 1) and the stream goes on. Pass a binary
    stream where the input may not be UTF-8.

    Raises:
        ArtifactError: the artifact does not load; raised by the call itself, before any line is read.
    """
    predictor = artifact if isinstance(artifact, Predictor) else Predictor.load(artifact)
    numbered = enumerate(lines, start=1)
    return (
        json.dumps(_answer_line(predictor, line, number))
        for number, line in numbered
        if line.strip()
    )


def _answer_line(
    predictor: Predictor, line: str | bytes, number: int
) -> Prediction | dict[str, Any]:
    """Return the answer or the error of one line; messages never repeat the line, which may hold a prompt."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {
            "error": f"not JSON ({type(error).__name__}); expected one object a line",
            "line": number,
        }
    if not isinstance(row, dict):
        return {
            "error": f"a JSON {type(row).__name__}; expected one object a line",
            "line": number,
        }
    try:
        return predictor.predict(row)
    except RequestError as error:
        return {"error": str(error), "line": number}


def _table(artifact: Artifact) -> NDArray[np.float32] | None:
    """Return the weights of the verbosity score, None if the artifact has none."""
    data = artifact.files.get(VERBOSITY)
    if data is None:
        return None
    table = read_table(data)
    if table is None:
        raise ArtifactError(
            f"{artifact.folder / VERBOSITY} is {len(data):,} bytes, expected {2 * TABLE_SIZE:,}: train the artifact again"
        )
    return table


def _columns(artifact: Artifact) -> list[int]:
    """Return the position in `FEATURE_NAMES` of each feature that the models were trained on."""
    unknown = [name for name in artifact.manifest["features"] if name not in FEATURE_NAMES]
    if unknown:
        raise ArtifactError(
            f"{artifact.folder / MANIFEST} wants the features {unknown}, unknown to this build: train it again, or upgrade overrun"
        )
    return [FEATURE_NAMES.index(name) for name in artifact.manifest["features"]]
