"""What can be asked over HTTP, with which parameters, and what comes back? One table: routes and /openapi.json follow from it."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from overrun.analysis.evidence.engine_overview import EngineView
from overrun.analysis.evidence.engine_timeline import EngineCourse
from overrun.analysis.front import export
from overrun.analysis.front.api_whatif import FixInfo
from overrun.analysis.front.budget_answer import BudgetView
from overrun.analysis.front.http_answers import ApiError
from overrun.analysis.front.predictor_watch import State
from overrun.analysis.front.questions import PARAMETERS
from overrun.analysis.front.report import Report
from overrun.analysis.front.stage_waterfall import Stages
from overrun.analysis.numbers.comparison.cohorts import Cohorts
from overrun.analysis.numbers.comparison.compare import Comparison
from overrun.analysis.numbers.outcomes.burn_rate import Burn
from overrun.analysis.numbers.outcomes.goodput_breakdown import GoodputBy
from overrun.analysis.numbers.over_time.heatmap import Heatmap
from overrun.analysis.numbers.over_time.history import History
from overrun.analysis.numbers.over_time.series import Series
from overrun.analysis.numbers.quality.checks import Quality
from overrun.analysis.numbers.quality.doctor import Checkup
from overrun.analysis.numbers.requests.request_list import Holdings, RequestList
from overrun.analysis.numbers.requests.request_trace import Trace
from overrun.analysis.whatif import catalogue
from overrun.analysis.whatif.prediction import Prediction

PREFIX: Final = "/api/v1"


class Endpoint(NamedTuple):
    """One question. `path` may hold names in braces, `parameters` stand in the query, `answer` is the type of the JSON that comes back."""

    path: str
    question: str
    parameters: tuple[str, ...]
    answer: Any


_METRIC = (*PARAMETERS, "metric")
_ENDPOINTS: Final = (
    Endpoint("report", "What is wrong, why, and what would each fix buy?", PARAMETERS, Report),
    Endpoint(
        "doctor",
        "What does each service send, and what is missing?",
        ("since", "from", "to", "service"),
        Checkup,
    ),
    Endpoint("series", "How did a metric run over time?", _METRIC, Series),
    Endpoint("heatmap", "How is a metric distributed over time?", _METRIC, Heatmap),
    Endpoint("engine", "How did the engines' indicators run over time?", _METRIC, EngineCourse),
    Endpoint("stages", "Which stage takes the time of a request?", _METRIC, Stages),
    Endpoint(
        "requests",
        "Which requests are the slowest?",
        (*PARAMETERS, "sort", "limit", "metric", "min_ms", "max_ms"),
        RequestList,
    ),
    Endpoint(
        "cohorts",
        "What do slow requests have in common?",
        (*PARAMETERS, "metric", "min_ms", "max_ms", "box_from", "box_to"),
        Cohorts,
    ),
    Endpoint(
        "compare",
        "What changed between two windows?",
        (*PARAMETERS, "before", "after"),
        Comparison,
    ),
    Endpoint("burn", "How fast is the error budget spent?", PARAMETERS, Burn),
    Endpoint("quality", "Can the numbers be trusted?", PARAMETERS, Quality),
    Endpoint("budget", "What may each stage take?", PARAMETERS, BudgetView),
    Endpoint("indicators", "Which indicators lead a breach?", PARAMETERS, EngineView),
    Endpoint("goodput", "How many requests keep every limit, by group?", PARAMETERS, GoodputBy),
    Endpoint("history", "How was a metric on the days before?", _METRIC, History),
    Endpoint("holdings", "What does the store hold?", PARAMETERS, Holdings),
    Endpoint("whatif", "Which fixes can be asked for?", (), list[FixInfo]),
    Endpoint(
        "whatif/{fix}",
        "What would one fix buy?",
        tuple(
            dict.fromkeys(
                (
                    *_METRIC,
                    *(p.name for f in catalogue.fixes() for p in catalogue.parameters(f)),
                )
            )
        ),
        Prediction,
    ),
    Endpoint("traces/{trace_id}", "Where did one request spend its time?", (), Trace),
    Endpoint("predictor", "How is the output-length predictor doing?", (), State | None),
)
ENDPOINTS: Final = {endpoint.path: endpoint for endpoint in _ENDPOINTS}
EXPORT_PARAMETERS: Final = ("since", "from", "to", "format")


@cache
def openapi() -> bytes:
    """The table as an OpenAPI 3.1 document, in JSON."""
    answers = [endpoint.answer for endpoint in _ENDPOINTS]
    schemas, parts = msgspec.json.schema_components(
        [*answers, ApiError], ref_template="#/components/schemas/{name}"
    )
    error = {"application/json": {"schema": schemas[-1]}}
    paths: dict[str, Any] = {}
    for endpoint, schema in zip(_ENDPOINTS, schemas, strict=False):
        paths[f"{PREFIX}/{endpoint.path}"] = _get(
            endpoint.path, endpoint.question, endpoint.parameters, _json(schema), error
        )
    rows = {kind: {"schema": {"type": "string"}} for kind in export.FORMATS.values()}
    paths[f"{PREFIX}/export/{{kind}}"] = _get(
        "export/{kind}", "The rows of a view as a file", EXPORT_PARAMETERS, rows, error
    )
    text = {"text/plain": {"schema": {"type": "string"}}}
    paths["/metrics"] = _get("metrics", "The server's own metrics, for Prometheus", (), text, error)
    status = _json({"type": "object", "properties": {"status": {"type": "string"}}})
    for path, question in (("healthz", "Is the process alive?"), ("readyz", "Is it ready?")):
        paths[f"/{path}"] = _open(_get(path, question, (), status, error), status)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Overrun", "version": "1", "license": {"name": "Apache-2.0"}},
            "paths": paths,
            "components": {
                "schemas": parts,
                "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _get(
    path: str, question: str, parameters: tuple[str, ...], content: Any, error: Any
) -> dict[str, Any]:
    """One GET operation. Statuses: what is asked wrongly is 400, a missing token 401, an unknown trace 404, and 503 says to come again."""
    inside = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    statuses = {"400": "bad input", "401": "no token or the wrong one", "503": "come again"}
    if "trace_id" in inside:
        statuses["404"] = "no such trace"
    return {
        "get": {
            "operationId": path.replace("/", "_").replace("{", "").replace("}", ""),
            "summary": question,
            "security": [{}, {"bearer": []}],
            "parameters": [
                *(_parameter(name, "path") for name in inside),
                *(_parameter(name, "query") for name in parameters),
            ],
            "responses": {
                "200": {"description": "the answer", "content": content},
                **{
                    status: {"description": meaning, "content": error}
                    for status, meaning in sorted(statuses.items())
                },
            },
        }
    }


def _parameter(name: str, place: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}


def _open(operation: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    """A health check: without a token, and its 503 has the same body as its 200."""
    answers = operation["get"]["responses"]
    operation["get"]["security"] = [{}]
    operation["get"]["responses"] = {
        "200": answers["200"],
        "503": {"description": "not now", "content": status},
    }
    return operation
