"""Which kind of call are the late ones? Response format, schema, adapter, tools, model of one engine: what late calls share and the others of that time have not.

Senders tell a call's parameters as attributes of their own or in one attribute of JSON; keys are put together by what they speak of, whoever named them.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import Calls, known
from overrun.analysis.evidence.late_calls import had_more_to_do, late_calls, wait_ms
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.numbers.statistics.proportion import wilson
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.finding import MIN_BREACHING

# What a key speaks of, by its words: semconv (gen_ai.output.type, gen_ai.openai.request.response_format), OpenLLMetry (structured_output_schema), Vercel's
# ai.schema, and the names of OpenAI's, vLLM's and SGLang's parameters.
DEPLOYMENT: Final = "deployment"
FAMILIES: Final = {
    "response format": r"output[._]type|response[._]?format|structured[._]?output|json[._]?schema|(?:^|\.)ai\.schema|guided|grammar|ebnf",
    "adapter": r"lora|adapter",
    "tool choice": r"tool[._]?choice",
    "tools": r"(?:^|[._])tools?(?:[._]definitions)?$|functions$",
    "reasoning effort": r"reasoning[._]?effort|thinking[._]?(?:budget|type)",
    "served tier": r"response[._]service[._]?tier",
    "backend": r"system[._]?fingerprint",
    DEPLOYMENT: r"(?:^|[._])deployment(?:[._](?:id|name))?$|is[._-]?spillover|^server\.address$",
    "service tier": r"service[._]?tier",
    "prompt": r"prompt[._](?:name|template[._]?(?:name|version)|version)",
    "modality": r"modalit|image|audio|vision",
    "logprobs": r"logprobs",
}
# Attributes that hold all parameters as JSON (OpenInference, MLflow, Langfuse).
_ALL: Final = r"invocation[._]parameters|model[._]?parameters|request[._]parameters"
_NOT_ASKED: Final = r"response\.|usage|token|count|latency"
# What an answer says of who served it, which callers cannot choose: another tier than was asked for, another backend of the same model.
SERVED: Final = ("served tier", "backend", DEPLOYMENT)
PATTERN: Final = "(?i)" + "|".join([*FAMILIES.values(), _ALL])
# A text that was not stored stands as its length and hash (see collector.normalise.privacy): equal texts have equal ones.
_UNSTORED: Final = re.compile(r"^\[text: (?P<length>\d+) characters, (?P<hash>[0-9a-f]+)\]$")
PARAMETERS: Final = "call parameters"
NONE: Final = "none"
GIVEN: Final = "given"
# Values longer than this are content (a schema): that there is one counts.
_LONGEST: Final = 40
# Part of the late calls that must be of the kind, and the rate of late calls in it over that of the others, both at the unfavourable ends of their intervals.
MOSTLY: Final = 0.5
CLEARLY: Final = 2.0


class Kind(NamedTuple):
    """Late calls by kind: `late` of the `n` calls whose `family` is `value` are late, `other_late` of `other` others of the same time.

    `covers` is the 95 % interval of the part of late calls that are of the kind; `late_ms` and `usual_ms` are what its late calls and the others wait at the
    median. `before_late` of `before` calls of the kind in the baseline waited as long; `traces` are the requests of its late calls.
    """

    family: str
    value: str
    late: int
    n: int
    other_late: int
    other: int
    covers: tuple[float, float]
    late_ms: float
    usual_ms: float
    before_late: int
    before: int
    traces: pl.Series

    @property
    def label(self) -> str:
        """The kind in words: `response format json`."""
        return f"{self.family} {self.value}"


def call_kind(case: Observed) -> Kind | None:
    """Return the kind of call that the late ones are, None where they share none, or had simply more to read or to write."""
    if case.lookups.traits is None or not len(case.slow_calls):
        return None
    wait = wait_ms(case.calls)
    late = late_calls(case.calls, wait, case.slow["trace_key"])
    if int(late.sum()) < MIN_BREACHING:
        return None
    kinds = traits(case.lookups.traits(case.period, case.origin, case.rows.height, PATTERN))
    told = _of_calls(case.calls, kinds)
    told |= _models_of_one_engine(case.calls)
    told |= _places_of_one_model(case.calls, told)
    start = case.calls.of("start_s")
    beside = (start >= start[late].min()) & (start <= start[late].max()) & known(wait)
    found = []
    for family, values in told.items():
        for value in values.drop_nulls().unique().sort().to_list():
            has = (values == value).fill_null(value=False).to_numpy()
            one = _kind(
                case, wait, late, beside & values.is_not_null().to_numpy(), has, family, value
            )
            if one is not None:
                found.append(one)
    return max(found, key=_parts, default=None)


def traits(rows: pl.DataFrame) -> pl.DataFrame:
    """Return one row per call and family of what it asked for: trace_key, start_s, family, value; of rows of `evidence_call_traits.sql`.

    Attributes of JSON are opened, or stand as their hash where texts are not stored; long values and structures stand as `given`."""
    out: list[tuple[int, float, str, str]] = []
    for trace, start_s, key, value in rows.select(
        "trace_key", "start_s", "key", "value"
    ).iter_rows():
        for name, said in _opened(key, value):
            family = family_of(name)
            if family is not None and said is not None:
                out.append((trace, start_s, family, said))
    return pl.DataFrame(
        out,
        schema={
            "trace_key": pl.UInt64(),
            "start_s": pl.Float64(),
            "family": pl.String(),
            "value": pl.String(),
        },
        orient="row",
    ).unique(["trace_key", "start_s", "family"], keep="first", maintain_order=True)


def family_of(key: str) -> str | None:
    """Return what a key speaks of, None for none of `FAMILIES`."""
    if key == PARAMETERS:
        return key
    family = next(
        (name for name, words in FAMILIES.items() if re.search(words, key, re.IGNORECASE)), None
    )
    asked = family in SERVED or re.search("response[._]?format", key, re.IGNORECASE)
    return family if asked or not re.search(_NOT_ASKED, key, re.IGNORECASE) else None


def _opened(key: str, value: str) -> list[tuple[str, str | None]]:
    unstored = _UNSTORED.match(value)
    if not re.search(_ALL, key, re.IGNORECASE):
        return [(key, GIVEN if unstored else _short(value))]
    if unstored:
        return [(PARAMETERS, f"of hash {unstored['hash'][:8]}")]
    try:
        told = json.loads(value)
    except ValueError:
        return []
    return [(name, _short(said)) for name, said in told.items()] if isinstance(told, dict) else []


def _short(value: Any) -> str | None:
    """A value as a word: of a structure its type, else that there is one; None for nothing."""
    if isinstance(value, str) and value.startswith(("{", "[")):
        try:
            value = json.loads(value)
        except ValueError:
            return GIVEN
    if value is None or value == [] or value == {} or value == "":
        return None
    if isinstance(value, dict):
        return str(value["type"])[:_LONGEST] if isinstance(value.get("type"), str) else GIVEN
    if isinstance(value, list) or len(str(value)) > _LONGEST:
        return GIVEN
    return str(value)


def _of_calls(calls: Calls, kinds: pl.DataFrame) -> dict[str, pl.Series]:
    """Per family the value of each call; a call that does not tell it asked for none, if any call of the same caller tells it."""
    keys = calls.frame.select(
        "trace_key", us=(pl.col("start_s") * 1e6).round().cast(pl.Int64), service="service"
    )
    kinds = kinds.with_columns(us=(pl.col("start_s") * 1e6).round().cast(pl.Int64))
    out = {}
    for family in kinds["family"].unique().sort().to_list():
        mine = kinds.filter(pl.col("family") == family).select("trace_key", "us", "value")
        joined = keys.join(
            mine.unique(["trace_key", "us"]),
            on=["trace_key", "us"],
            how="left",
            maintain_order="left",
        )
        tells = pl.col("value").is_not_null().any().over("service")
        values = joined.select(pl.when(tells).then(pl.col("value").fill_null(NONE)))["value"]
        if values.n_unique() > 1:
            out[family] = values
    return out


def _models_of_one_engine(calls: Calls) -> dict[str, pl.Series]:
    """The model of each call to an engine that serves several under their own names (adapters): elsewhere another model is another machine."""
    served = (
        calls.frame.filter(pl.col("engine_instance").is_not_null())
        .group_by("engine_instance")
        .agg(n=pl.col("model").n_unique())
    )
    several = served.filter(pl.col("n") > 1)["engine_instance"]
    if several.is_empty():
        return {}
    shared = pl.col("engine_instance").is_in(several.implode())
    return {
        "model": calls.frame.select(pl.when(shared).then(pl.col("model")).alias("model"))["model"]
    }


def _places_of_one_model(calls: Calls, told: dict[str, pl.Series]) -> dict[str, pl.Series]:
    """The deployment of each call to a model that several of them serve; engines with telemetry of their own are compared as replicas."""
    if DEPLOYMENT not in told:
        return {}
    frame = calls.frame.select("model", place=told[DEPLOYMENT], engine=pl.Series(calls.has_engine))
    several = pl.col("place").n_unique().over("model") > 1
    return {
        DEPLOYMENT: frame.select(
            place=pl.when(several & ~pl.col("engine") & (pl.col("place") != NONE)).then(
                pl.col("place")
            )
        )["place"]
    }


def _kind(
    case: Observed,
    wait: FloatArray,
    late: BoolArray,
    beside: BoolArray,
    has: BoolArray,
    family: str,
    value: str,
) -> Kind | None:
    counts = [int((beside & side).sum()) for side in (late & has, has, late & ~has, ~has)]
    if min(counts[0], counts[3]) < MIN_BREACHING:
        return None
    covers = wilson(counts[0], int((late & beside).sum()))
    if (
        covers[0] < MOSTLY
        or wilson(counts[0], counts[1])[0] < CLEARLY * wilson(counts[2], counts[3])[1]
    ):
        return None
    late_ms, usual_ms = (
        float(np.median(wait[beside & late & has])),
        float(np.median(wait[beside & ~has])),
    )
    hits = case.calls.frame["trace_key"].filter(pl.Series(beside & late & has))
    if late_ms - usual_ms < MOSTLY * case.tail.excess_total_ms:
        return None  # it does not wait for its first token, or not for long
    if not case.calls.has_engine[late].all() and had_more_to_do(case.calls, hits, beside):
        return None
    before = _before(case, family, value, np.sqrt(late_ms * usual_ms))
    return Kind(
        family=family,
        value=value,
        late=counts[0],
        n=counts[1],
        other_late=counts[2],
        other=counts[3],
        covers=covers,
        late_ms=late_ms,
        usual_ms=usual_ms,
        before_late=before[0],
        before=before[1],
        traces=hits,
    )


def _before(case: Observed, family: str, value: str, over_ms: float) -> tuple[int, int]:
    """How many calls of the kind waited as long in the baseline, and how many there were."""
    if case.baseline is None or case.calls_before is None or case.lookups.traits is None:
        return 0, 0
    if family == "model":
        has = (case.calls_before.frame["model"] == value).fill_null(value=False).to_numpy()
    else:
        rows = case.lookups.traits(case.baseline, case.origin, case.rows.height, PATTERN)
        values = _of_calls(case.calls_before, traits(rows)).get(family)
        if values is None:
            return 0, 0
        has = (values == value).fill_null(value=False).to_numpy()
    wait = wait_ms(case.calls_before)
    return int((wait[has] > over_ms).sum()), int(has.sum())


def _parts(one: Kind) -> tuple[float, bool, str]:
    rate = one.late / one.n - one.other_late / one.other
    return (
        round(rate + one.late / max(one.late + one.other_late, 1), 3),
        one.value != NONE,
        one.family,
    )
