"""Which questions can be asked? One table: HTTP routes, /openapi.json, the client, the commands' flags and the pages' data all follow from it.

An entry names the function that answers. The function's signature says what it takes: by name the entry's parameters, and what stands behind every question
(`con`, `window`, `slo`, `budgets`, `prices`, `now`); its return type is the answer's. Functions are named and not imported, so that a command that asks
a server loads neither DuckDB nor a compiler for the table's sake. To add a question, add an entry here and the function.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from overrun.analysis.words.errors import AnalysisError, nearest

if TYPE_CHECKING:
    from overrun.analysis.evidence.engine_overview import EngineView
    from overrun.analysis.evidence.engine_timeline import EngineCourse
    from overrun.analysis.front.budget_answer import BudgetView
    from overrun.analysis.front.fact_list import FactList
    from overrun.analysis.front.fix_list import FixInfo
    from overrun.analysis.front.held_hours import HeldHours
    from overrun.analysis.front.plan import Plan
    from overrun.analysis.front.predictor_watch import State
    from overrun.analysis.front.proof_list import ProofList
    from overrun.analysis.front.report import Report
    from overrun.analysis.front.stage_waterfall import Stages
    from overrun.analysis.incident.deployments import Deployments
    from overrun.analysis.numbers.comparison.cohorts import Cohorts
    from overrun.analysis.numbers.comparison.compare import Comparison
    from overrun.analysis.numbers.outcomes.burn_rate import Burn
    from overrun.analysis.numbers.outcomes.goodput_breakdown import GoodputBy
    from overrun.analysis.numbers.over_time.heatmap import Heatmap
    from overrun.analysis.numbers.over_time.history import History
    from overrun.analysis.numbers.over_time.series import Series
    from overrun.analysis.numbers.over_time.stage_course import StageCourse
    from overrun.analysis.numbers.quality.checks import Quality
    from overrun.analysis.numbers.quality.doctor import Checkup
    from overrun.analysis.numbers.requests.request_list import Holdings, RequestList
    from overrun.analysis.numbers.requests.request_trace import Trace
    from overrun.analysis.whatif.prediction import Prediction

PREFIX: Final = "/api/v1"
Value: TypeAlias = str | int | float | None
Texts: TypeAlias = Mapping[str, str | None]
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a question, a flag on the command line. A value is text, or a number from `least` to `most`, or one of `choices`.

    `pattern` is a regular expression of the values that can be read, for /openapi.json; `reader` names the function that reads them, which refuses all others.
    """

    name: str
    help: str
    kind: type[str] | type[int] | type[float] = str
    default: Value = None
    choices: tuple[str, ...] = ()
    least: float = 0.0
    most: float = 1e12
    required: bool = False
    pattern: str = ""
    reader: str = ""

    def read(self, text: str | None) -> Value:
        """Return the value of a text, the default where it is None or empty.

        Raises:
            AnalysisError: it is missing, no number, out of range or none of the choices.
        """
        if not text:
            if self.required:
                raise AnalysisError(f"{self.name} is missing: {self.help}")
            return self.default
        if self.choices and text not in self.choices:
            raise AnalysisError(
                f"{self.name} {text[:64]!r} is unknown: {nearest(text, self.choices)}"
            )
        if self.reader:
            _called(self.reader, {"now": datetime.now(UTC)}, text)
        return text if self.kind is str else self._number(text)

    def _number(self, text: str) -> int | float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not self.least <= value <= self.most or (self.kind is int and value != int(value)):
            wanted = "whole number" if self.kind is int else "number"
            raise AnalysisError(
                f"{self.name} {text[:32]!r} is not a {wanted} from {self.least:g} to {self.most:g}: "
                f"write for example {self.name}=500"
            )
        return int(value) if self.kind is int else value


_DURATION: Final = r"(\d+(\.\d+)?(ms|min|s|m|h|d|w))+"
_DATE: Final = r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})?)?"
_TIME: Final = rf"(now|now-{_DURATION}|-?{_DURATION}|\d{{10}}|\d{{13}}|{_DATE})"
SINCE: Final = Parameter(
    "since",
    "The last span of time, such as 15m, 1h or 7d.",
    pattern=f"^{_DURATION}$",
    reader="words.times:parse_duration",
)
FROM: Final = Parameter(
    "from",
    "Start of the window: RFC 3339, '2026-11-20 10:00' (local), seconds or ms since 1970, or relative such as -2h.",
    pattern=f"^{_TIME}$",
    reader="words.times:parse_time",
)
TO: Final = Parameter(
    "to", "End of the window.", pattern=f"^{_TIME}$", reader="words.times:parse_time"
)
BASELINE: Final = Parameter(
    "baseline",
    "The period to compare with: auto, previous, none or FROM..TO.",
    default="auto",
    pattern=rf"^(auto|previous|none|{_TIME}\.\.{_TIME})$",
)
SERVICE: Final = Parameter("service", "Only this service.")
INSTANCE: Final = Parameter("instance", "Only this instance: a replica of a service, or an engine.")
SLO: Final = Parameter(
    "slo",
    "A preset (chat, code, voice, batch) or limits such as 'ttft:1000 e2el:5000' in ms.",
    reader="words.slo:parse_slo",
)
# What selects requests and judges them: the same for every question about a window.
WINDOW: Final = (
    SINCE,
    FROM,
    TO,
    BASELINE,
    SERVICE,
    INSTANCE,
    Parameter("model", "Only this model."),
    Parameter("route", "Only this route."),
    Parameter("tenant", "Only this tenant."),
    Parameter(
        "workload",
        "Only this workload; all for every one (default: all but batch and eval).",
    ),
    SLO,
)
METRIC: Final = Parameter(
    "metric", "ttft, itl, tpot or e2e.", default="e2e", choices=("ttft", "itl", "tpot", "e2e")
)
_ONSET: Final = Parameter(
    "onset",
    "When the breach began, as in the report's verdict (RFC 3339).",
    pattern=f"^{_TIME}$",
    reader="words.times:parse_time",
)
_JUDGED: Final = replace(
    METRIC, default=None, help="ttft, itl, tpot or e2e (default: the one that the report judges)."
)
_BOX: Final = (
    Parameter("min_ms", "Only requests of at least so many ms.", float),
    Parameter("max_ms", "Only requests below so many ms.", float),
)
# The stages of a request, by which requests can be ordered.
STAGE_NAMES: Final = (
    *("network", "gateway", "retrieval", "prompt", "guardrail", "queue", "kv_transfer"),
    *("prefill", "first_token", "decode", "generation", "tool", "post", "other"),
)
_SORTS: Final = ("e2e", "ttft", "start", "output_tokens", "errors", *STAGE_NAMES)
EXPORT_KINDS: Final = ("requests", "llm-calls", "spans", "metrics", "prompts")
EXPORT_FORMATS: Final = {
    "parquet": "application/vnd.apache.parquet",
    "jsonl": "application/x-ndjson",
    "csv": "text/csv",
}


@dataclass(frozen=True, slots=True)
class Entry(Generic[Answer]):
    """One question. `path` follows /api/v1/ and may hold names of parameters in braces; `function` is `module:name` below overrun.analysis.

    `kept`: the answer over a window with both ends is the same until something is written. `fresh_s`: so long a page shows it without asking again.
    `timeout_s`: so long a client waits. `more` names a function that returns further parameters, which the answering function judges itself. `media` are
    the content types of an answer that is no JSON. `forms` names the functions that write the answer in other forms than JSON, `partial` the one that
    says whether a part of the answer is still being computed.
    """

    path: str
    question: str
    function: str
    parameters: tuple[Parameter, ...] = WINDOW
    kept: bool = True
    fresh_s: float = 10.0
    timeout_s: float = 60.0
    more: str = ""
    media: tuple[str, ...] = ()
    forms: Mapping[str, str] = field(default_factory=dict)
    partial: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return tuple(parameter.name for parameter in self.parameters)

    @property
    def windowed(self) -> bool:
        """Whether it asks about a window of requests."""
        return SINCE in self.parameters

    def in_path(self, parameter: Parameter) -> bool:
        """Whether a parameter is a part of the path."""
        return f"{{{parameter.name}}}" in self.path

    def further(self) -> tuple[Parameter, ...]:
        """The parameters that `more` returns; one may describe a parameter of the entry more closely."""
        return tuple(_named(self.more)()) if self.more else ()

    def texts(self, given: Mapping[str, object]) -> dict[str, str | None]:
        """Values as any caller writes them, as texts by name of the parameter: `from_` as in Python, `max-tokens` as a flag, 512 as a number.

        Raises:
            AnalysisError: an unknown name, or a value that is neither a text nor a number.
        """
        texts: dict[str, str | None] = {}
        for written, value in given.items():
            name = written.rstrip("_").replace("-", "_")
            if not isinstance(value, str | int | float | None):
                raise AnalysisError(f"{name} must be a text or a number, not {value!r:.64}")
            whole = isinstance(value, float) and value.is_integer()
            texts[name] = None if value is None else f"{value:.0f}" if whole else str(value)
        self.refuse_unknown(texts)
        return texts

    def refuse_unknown(self, names: Iterable[str], further: Iterable[str] = ()) -> None:
        """Refuse a name that is no parameter and none of `further` ones; without those, names that only `more` knows are left to the function.

        Raises:
            AnalysisError: it is named, with the nearest known one.
        """
        known = (*self.names, *further)
        unknown = [name for name in names if name not in known]
        if unknown and (further or not self.more):
            near = f": {nearest(unknown[0], known)}" if known else ""
            raise AnalysisError(f"unknown parameter {unknown[0][:64]!r}{near}")

    def read(self, texts: Texts) -> dict[str, Value]:
        """Return the values of the parameters by name.

        Raises:
            AnalysisError: an unknown name, or a value that a parameter cannot take.
        """
        self.refuse_unknown(texts)
        return {p.name: p.read(texts.get(p.name)) for p in self.parameters}

    def writer(self, form: str) -> Callable[..., str]:
        """The function that writes the answer in one of its forms."""
        return _named(self.forms[form])

    def written(self, form: str, answer: Answer, known: Mapping[str, object]) -> str:
        """Write an answer in one of its forms; the writer takes those of `known` that it has parameters for. A document is laid out for `width` columns."""
        made = _called(self.forms[form], {**dict.fromkeys(self.names), **known}, answer)
        if not isinstance(made, str):
            made = import_module("overrun.analysis.front.text_layout").render(made, known["width"])
        return str(made).rstrip("\n")

    def is_partial(self, answer: Answer) -> bool:
        """Whether the rest of an answer is still being computed."""
        return bool(self.partial and _named(self.partial)(answer))

    def taken(self) -> tuple[str, ...]:
        """The names of what the answering function takes."""
        return tuple(inspect.signature(_named(self.function)).parameters)

    def answer(self, known: Mapping[str, object]) -> Answer:
        """Call the function with those of `known` that it takes."""
        answer: Answer = _called(self.function, known)
        return answer

    def answer_type(self) -> Any:
        """The type of the answer: the function's return type."""
        function = _named(self.function)
        said = function.__annotations__["return"]
        if not isinstance(said, str):
            return said
        # This annotation alone is evaluated: others may stand for modules that only the type checker loads.
        return eval(said, vars(import_module(function.__module__)))  # noqa: S307


@cache
def _named(reference: str) -> Callable[..., Any]:
    module, _, name = reference.partition(":")
    function: Callable[..., Any] = getattr(import_module(f"overrun.analysis.{module}"), name)
    return function


def _called(reference: str, known: Mapping[str, object], *first: object) -> Any:
    """Call a function with those of `known` that it takes by name."""
    function = _named(reference)
    taken = inspect.signature(function).parameters
    return function(*first, **{name: value for name, value in known.items() if name in taken})


REPORT: Final[Entry[Report]] = Entry(
    "report",
    "What is wrong, why, and what would each fix gain?",
    "front.report:build",
    forms={
        "text": "front.report_brief:render",
        "details": "front.report_document:render",
        "brief": "front.report_brief:to_json",
        "top": "front.report_top:render",
        "html": "front.report_document:to_html",
        "markdown": "front.report_document:to_markdown",
    },
    partial="front.report:seeking",
)
FACTS: Final[Entry[FactList]] = Entry(
    "facts",
    "What changed of each factor of latency, and how much of the excess goes with it?",
    "front.fact_list:facts",
    forms={"text": "front.fact_text:document"},
)
PROOFS: Final[Entry[ProofList]] = Entry(
    "proofs",
    "Which chart and which facts show each finding?",
    "front.proof_list:proofs",
    (
        *WINDOW,
        Parameter(
            "findings",
            "RULE:STAGE of the report's findings, separated by ';'.",
            required=True,
            pattern="^[a-z_]+:[a-z_]*(;[a-z_]+:[a-z_]*)*$",
            reader="front.proof_list:read_findings",
        ),
    ),
)
DOCTOR: Final[Entry[Checkup]] = Entry(
    "doctor",
    "What does each service send, and what is missing?",
    "numbers.quality.doctor:examine",
    (SINCE, FROM, TO, SERVICE, INSTANCE),
    kept=False,
    fresh_s=60.0,
    forms={"text": "numbers.quality.doctor:render"},
)
SERIES: Final[Entry[Series]] = Entry(
    "series",
    "How did a metric change over time?",
    "numbers.over_time.series:series",
    (*WINDOW, METRIC),
)
ANATOMY: Final[Entry[StageCourse]] = Entry(
    "anatomy",
    "How did the stages of slow requests change over time?",
    "numbers.over_time.stage_course:stage_course",
    (*WINDOW, METRIC, _ONSET),
)
HEATMAP: Final[Entry[Heatmap]] = Entry(
    "heatmap",
    "How is a metric distributed over time?",
    "numbers.over_time.heatmap:heatmap",
    (*WINDOW, METRIC),
)
ENGINE: Final[Entry[EngineCourse]] = Entry(
    "engine",
    "How did the engines' indicators change over time?",
    "evidence.engine_timeline:engine_course",
    (*WINDOW, METRIC, _ONSET),
)
STAGES: Final[Entry[Stages]] = Entry(
    "stages",
    "Which stage takes the time of a request?",
    "front.stage_waterfall:stages",
    (*WINDOW, _JUDGED),
)
REQUESTS: Final[Entry[RequestList]] = Entry(
    "requests",
    "Which requests are the slowest?",
    "numbers.requests.request_list:list_requests",
    (
        *WINDOW,
        Parameter(
            "sort",
            "e2e, ttft, start, output_tokens, errors, or a stage such as queue: largest or newest first.",
            default="e2e",
            choices=_SORTS,
        ),
        Parameter("status", "ok or error: only requests that ended so.", choices=("ok", "error")),
        Parameter("limit", "The most rows.", int, default=200, least=1, most=1000),
        METRIC,
        *_BOX,
    ),
    forms={"text": "front.requests_text:document"},
)
COHORTS: Final[Entry[Cohorts]] = Entry(
    "cohorts",
    "What do slow requests have in common?",
    "numbers.comparison.cohorts:cohorts_in_box",
    (
        *WINDOW,
        METRIC,
        *_BOX,
        Parameter("box_from", "Only requests from this time on (RFC 3339).", pattern=f"^{_TIME}$"),
        Parameter("box_to", "Only requests before this time (RFC 3339).", pattern=f"^{_TIME}$"),
        Parameter(
            "where",
            "Conditions on both sides, separated by ';': engine_instance:vllm-2, -version:v1 (without it), output_tokens:100..200.",
        ),
        Parameter("by", "An attribute to group the selected requests by, such as engine_instance."),
    ),
)
_SIDE: Final = rf"^(version=.+|{_TIME}\.\.{_TIME})$"
COMPARE: Final[Entry[Comparison]] = Entry(
    "compare",
    "What changed between two windows?",
    "numbers.comparison.compare:compare_sides",
    (
        *WINDOW,
        Parameter(
            "before",
            "The first window: FROM..TO, or version=NAME.",
            required=True,
            pattern=_SIDE,
        ),
        Parameter(
            "after",
            "The second window: FROM..TO, or version=NAME.",
            required=True,
            pattern=_SIDE,
        ),
    ),
    kept=False,
    fresh_s=30.0,
    forms={"text": "front.compare_text:document"},
)
DEPLOYMENTS: Final[Entry[Deployments]] = Entry(
    "deployments",
    "What was deployed when, as pipelines and applications report it?",
    "incident.deployments:deployments",
    (SINCE, FROM, TO, SERVICE),
    forms={"text": "incident.deployments:render"},
)
BURN: Final[Entry[Burn]] = Entry(
    "burn", "How fast is the error budget spent?", "numbers.outcomes.burn_rate:burn", kept=False
)
QUALITY: Final[Entry[Quality]] = Entry(
    "quality", "Can the numbers be trusted?", "numbers.quality.checks:quality"
)
BUDGET: Final[Entry[BudgetView]] = Entry(
    "budget",
    "What is the budget of each stage?",
    "front.budget_answer:budget_view",
    forms={"text": "front.budget_text:document", "toml": "front.budget_text:to_toml"},
)
INDICATORS: Final[Entry[EngineView]] = Entry(
    "indicators",
    "Which indicators warn before a breach?",
    "evidence.engine_overview:engine_view",
    fresh_s=30.0,
)
GOODPUT: Final[Entry[GoodputBy]] = Entry(
    "goodput",
    "How many requests meet every limit, by group?",
    "numbers.outcomes.goodput_breakdown:goodput_by",
)
HISTORY: Final[Entry[History]] = Entry(
    "history",
    "How was a metric on earlier days?",
    "numbers.over_time.history:history",
    (*WINDOW, METRIC),
)
HOLDINGS: Final[Entry[Holdings]] = Entry(
    "holdings", "What does the store hold?", "numbers.requests.request_list:holdings"
)
FIXES: Final[Entry[list[FixInfo]]] = Entry(
    "whatif",
    "Which what-ifs exist?",
    "front.fix_list:listed",
    (),
    kept=False,
    fresh_s=600.0,
)
# The first answer about a window fits the engine's speed to it: 5 to 40 s of one core (measured on 2,500 requests, loaded machine), and others may wait.
# An answer over a fixed window does not change by itself, and computing it may take seconds.
WHATIF: Final[Entry[Prediction]] = Entry(
    "whatif/{fix}",
    "What would one fix gain?",
    "front.api_whatif:predict",
    (
        Parameter("fix", "The name of the fix, as /api/v1/whatif lists it."),
        *WINDOW,
        Parameter("metric", "Metric of the headline: ttft, e2e or tpot."),
    ),
    kept=False,
    fresh_s=300.0,
    timeout_s=240.0,
    more="front.api_whatif:parameters",
    forms={"text": "front.whatif_text:document"},
)
PLAN: Final[Entry[Plan]] = Entry(
    "plan",
    "Which fixes together meet the SLO at the lowest price?",
    "front.plan:plan",
    kept=False,
    fresh_s=300.0,
    timeout_s=240.0,
    forms={"text": "front.plan_text:document"},
)
TRACE: Final[Entry[Trace]] = Entry(
    "traces/{trace_id}",
    "Where did one request spend its time?",
    "numbers.requests.request_trace:load_trace",
    (
        Parameter(
            "trace_id",
            "32 hexadecimal digits.",
            required=True,
            pattern="^[0-9a-fA-F]{32}$",
            reader="words.trace_ids:digits",
        ),
    ),
    kept=False,
    forms={"text": "front.trace_text:render"},
)
PREDICTOR: Final[Entry[State | None]] = Entry(
    "predictor",
    "How is the output-length predictor doing?",
    "front.predictor_watch:state_of",
    (),
    kept=False,
)
_KIND: Final = Parameter(
    "kind", "requests, llm-calls, spans, metrics or prompts.", choices=EXPORT_KINDS
)
HOURS: Final[Entry[HeldHours]] = Entry(
    "hours/{kind}",
    "Which hours hold rows of a view, and did they change?",
    "front.held_hours:held_hours",
    (_KIND, SINCE, FROM, TO),
)
EXPORT: Final[Entry[int]] = Entry(
    "export/{kind}",
    "The rows of a view as a file",
    "front.export:write",
    (
        _KIND,
        SINCE,
        FROM,
        TO,
        Parameter(
            "format",
            "parquet, jsonl or csv.",
            default="parquet",
            choices=tuple(EXPORT_FORMATS),
        ),
    ),
    media=tuple(EXPORT_FORMATS.values()),
)
ENTRIES: Final[Mapping[str, Entry[Any]]] = {
    value.path: value for value in list(globals().values()) if isinstance(value, Entry)
}


def parameter(name: str) -> Parameter:
    """The parameter of a name, as the first question that has it describes it."""
    return next(p for entry in ENTRIES.values() for p in entry.parameters if p.name == name)
