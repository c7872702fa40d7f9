"""How many tokens will this request generate?

Loads an artifact and answers with quantiles, a size bucket and the measured skill behind them. Needs onnxruntime, numpy
and the standard library alone, so that a router can carry it. Where the model has no measured skill the answer is the
route's recent past, and says so.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypedDict

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as onnx_errors

from models.artifact import GOLDEN, HISTORY, MANIFEST, QUANTILES, Artifact, load_artifact, model_file
from models.errors import ArtifactError, RequestError
from models.features import FEATURE_NAMES, feature_values
from models.history import History, Window
from models.request import Request, parse_output_tokens, parse_request

# Float32 sums over some hundred trees differ by about 1e-5 between libraries; a wrong conversion is off by whole units
# (the multi-quantile conversion of onnxmltools: 6.2).
GOLDEN_TOLERANCE: Final = 1e-4
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
    """One answer. Quantiles are in output tokens and ascend; null where the artifact has no model for them.

    `bucket` S, M or L by `p50` and the manifest's edges. `skill` as measured on unseen later traffic of this route.
    `source`: the `model`, the recent outputs of the `route`, or those of all traffic (`global`). `version` names the
    artifact.
    """

    p10: float | None
    p50: float
    p90: float | None
    p99: float | None
    bucket: Literal["S", "M", "L"]
    skill: Skill
    source: Literal["model", "route", "global"]
    version: str


class Predictor:
    """A loaded artifact. Answers are a function of the artifact and of what was observed; use one per thread."""

    def __init__(self, artifact: Artifact) -> None:
        """Open the models of `artifact` and hold them against its golden vectors.

        Raises:
            ArtifactError: a model does not open or answers differently than the training library did.
        """
        manifest = artifact.manifest
        self.version = artifact.version
        self._columns = _columns(artifact)
        self._models = {name: _Model(artifact, name) for name in QUANTILES if name in manifest["quantiles"]}
        self._routes = {entry["route"]: entry for entry in manifest["routes"]}
        self._edges: tuple[float, ...] = tuple(manifest["bucket_edges"])
        self._history = History.from_payload(artifact.json_file(HISTORY))
        self._observed = False
        if self._history.window("global", ()) is None:
            raise ArtifactError(f"{artifact.folder / HISTORY} holds no outputs at all: train the artifact again")

    @classmethod
    def load(cls, folder: str | Path) -> "Predictor":
        """Return the predictor stored in `folder`.

        Raises:
            ArtifactError: see `models.artifact.load_artifact` and `Predictor`.
        """
        return cls(load_artifact(Path(folder)))

    def predict(self, row: Mapping[str, Any]) -> Prediction:
        """Return the answer for one request; `row` as in `models.request.parse_request`.

        Raises:
            RequestError: a field has the wrong type or an impossible value.
        """
        return self.predict_batch([row])[0]

    def predict_batch(self, rows: Sequence[Mapping[str, Any]]) -> list[Prediction]:
        """Return one answer per row, in order.

        Raises:
            RequestError: a field of some row has the wrong type or an impossible value; no row is answered then.
        """
        requests = [parse_request(row) for row in rows]
        windows = [self._history.windows_of(request) for request in requests]
        skills = [self._skill(request) for request in requests]
        chosen = [index for index, skill in enumerate(skills) if skill != "none"]
        modelled = dict(zip(chosen, self._modelled(requests, windows, chosen), strict=True))
        answers = []
        for index, request in enumerate(requests):
            tokens = modelled.get(index)
            source: Literal["model", "route", "global"] = "model"
            if tokens is None:
                source = "route" if "route" in windows[index] else "global"
                tokens = {name: windows[index][source].quantile(QUANTILES[name]) for name in self._models}
            answers.append(self._answer(request, tokens, skills[index], source))
        return answers

    def observe(self, row: Mapping[str, Any], output_tokens: int) -> None:
        """Report that the request in `row` has finished with `output_tokens`: it becomes history for later requests.

        Raises:
            RequestError: a field has the wrong type or an impossible value.
        """
        self._history.observe(parse_request(row), parse_output_tokens(output_tokens))
        self._observed = True

    def _skill(self, request: Request) -> Skill:
        """Return the skill measured for this route: with live history once one request was observed, else without."""
        entry = self._routes.get(request.route)
        if entry is None:
            return "none"
        skill: Skill = entry["skill" if self._observed else "skill_without_history"]
        return skill

    def _modelled(
        self, requests: Sequence[Request], windows: Sequence[Mapping[str, Window]], chosen: Sequence[int]
    ) -> list[dict[str, float]]:
        """Return the models' quantiles in tokens, calibrated per route, for the `chosen` requests."""
        if not chosen:
            return []
        values = [feature_values(requests[index], windows[index]) for index in chosen]
        inputs = np.array(values, dtype=np.float32)[:, self._columns]
        answers: list[dict[str, float]] = [{} for _ in chosen]
        for name, model in self._models.items():
            log_tokens = model.run(inputs)
            for answer, index, value in zip(answers, chosen, log_tokens, strict=True):
                offset = self._routes[requests[index].route]["log_offsets"].get(name, 0.0)
                answer[name] = float(np.expm1(value + offset))
        return answers

    def _answer(
        self, request: Request, tokens: Mapping[str, float], skill: Skill, source: Literal["model", "route", "global"]
    ) -> Prediction:
        """Return the quantiles in ascending order, at least one token and at most what the request may generate."""
        most = math.inf if math.isnan(request.max_tokens) else request.max_tokens
        ascending = sorted(min(max(round(value, 1), 1.0), most) for value in tokens.values())
        by_name = dict(zip(tokens, ascending, strict=True))
        bucket: Literal["S", "M", "L"] = "L"
        if by_name["p50"] <= self._edges[0]:
            bucket = "S"
        elif by_name["p50"] <= self._edges[1]:
            bucket = "M"
        return {
            "p10": by_name.get("p10"),
            "p50": by_name["p50"],
            "p90": by_name.get("p90"),
            "p99": by_name.get("p99"),
            "bucket": bucket,
            "skill": skill,
            "source": source,
            "version": self.version,
        }


class _Model:
    """One quantile's ONNX session, proved against the golden vectors when it opens."""

    def __init__(self, artifact: Artifact, quantile: str) -> None:
        self._file = artifact.folder / model_file(quantile, "onnx")
        options = onnxruntime.SessionOptions()
        # One row of trees is microseconds of work: a second thread costs more than it brings.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(
                artifact.files[model_file(quantile, "onnx")], options, providers=["CPUExecutionProvider"]
            )
            self._input = self._session.get_inputs()[0].name
            self._outputs = [output.name for output in self._session.get_outputs()]
            self._check(artifact.json_file(GOLDEN), quantile)
        except _ONNX_FAILURES as error:
            raise ArtifactError(
                f"{self._file} does not open as a model ({type(error).__name__}): train the artifact again"
            ) from error

    def run(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return log(1 + tokens) for inputs of shape (rows, features), as shape (rows,)."""
        outputs: NDArray[np.float32] = self._session.run(self._outputs, {self._input: inputs})[0]
        return outputs.reshape(-1)

    def _check(self, golden: Mapping[str, Any], quantile: str) -> None:
        inputs = np.array(golden["inputs"], dtype=np.float32)
        expected = np.array(golden["expected"][quantile], dtype=np.float32)
        difference = float(np.max(np.abs(self.run(inputs) - expected)))
        # Written so that NaN fails too.
        if not difference <= GOLDEN_TOLERANCE:
            raise ArtifactError(
                f"{self._file} answers the golden vectors {difference:.2g} log tokens away from the training library, "
                f"wanted at most {GOLDEN_TOLERANCE:g}: train again with the locked versions"
            )


def predict_lines(artifact: str | Path | Predictor, lines: Iterable[str | bytes]) -> Iterator[str]:
    """Return an iterator of one JSON line for each request line; blank lines are skipped.

    A line that cannot be answered yields `{"error": ..., "line": n}` (n from 1) and the stream goes on. Pass a binary
    stream where the input may not be UTF-8.

    Raises:
        ArtifactError: the artifact does not load; raised by the call itself, before any line is read.
    """
    predictor = artifact if isinstance(artifact, Predictor) else Predictor.load(artifact)
    numbered = enumerate(lines, start=1)
    return (json.dumps(_answer_line(predictor, line, number)) for number, line in numbered if line.strip())


def _answer_line(predictor: Predictor, line: str | bytes, number: int) -> Prediction | dict[str, Any]:
    """Return the answer or the error of one line; messages never repeat the line, which may hold a prompt."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {"error": f"not JSON ({type(error).__name__}); wanted one object a line", "line": number}
    if not isinstance(row, dict):
        return {"error": f"a JSON {type(row).__name__}; wanted one object a line", "line": number}
    try:
        return predictor.predict(row)
    except RequestError as error:
        return {"error": str(error), "line": number}


def _columns(artifact: Artifact) -> list[int]:
    """Return the position in `FEATURE_NAMES` of each feature that the models were trained on."""
    unknown = [name for name in artifact.manifest["features"] if name not in FEATURE_NAMES]
    if unknown:
        raise ArtifactError(
            f"{artifact.folder / MANIFEST} wants the features {unknown}, unknown to this build: upgrade overrun"
        )
    return [FEATURE_NAMES.index(name) for name in artifact.manifest["features"]]
