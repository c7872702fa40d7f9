"""one_model_for_all: simple and demanding routes share one model.

Detects
    Two or more routes on one model whose usual answers differ at least threefold in length, the shorter one with a tenth of
    the traffic or more. An opportunity: never the cause.

Why it hurts
    Short answers of easy routes pay the first token and the queue of a model that only the hard ones need.

Evidence
    Routes with their share, median output tokens and time; share of the variance of the time that lies between routes.

Fix
    Route easy classes to a small model. The gain depends on the speed of the small model: give it to the
    what-if of the per-route model.

False alarms
    Short answers can be hard questions: judge by quality, not by length.

Source
    Variance of E2E between classes: published signature; median -40 to -60 % with 70 % of traffic under 300 ms: one
    published case, not promised here.
"""

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, named, open_fix
from overrun.analysis.evidence.calls import MIN_CALLS
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.thresholds import LEAST_PART
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, printable, say_ratio

RULE: Final = "one_model_for_all"
MIN_DIFFERENCE: Final = 3.0


def diagnose(case: Case) -> Diagnosis | NotEnoughData | None:
    """Return the route that a small model could serve, None when routes do not differ or do not share a model."""
    rows = case.rows.drop_nulls(["route", "model", "output_tokens"])
    if rows.height < 2 * MIN_CALLS:
        return NotEnoughData(
            f"{rows.height} requests carry route, model and output tokens, two routes need {MIN_CALLS} each: send http.route and token usage"
        )
    routes = rows.group_by("model", "route").agg(
        n=pl.len(), tokens=pl.col("output_tokens").median(), ms=pl.col("e2e_ms").median()
    )
    routes = routes.filter(
        (pl.col("n") >= MIN_CALLS) & (pl.col("n") >= LEAST_PART * max(rows.height, 1))
    ).sort("tokens", "route")
    for (model,), group in routes.group_by("model", maintain_order=True):
        low, high = group.row(0, named=True), group.row(-1, named=True)
        if group.height >= 2 and high["tokens"] >= MIN_DIFFERENCE * max(low["tokens"], 1.0):
            return _diagnosis(case, rows.filter(pl.col("model") == model), str(model), low, high)
    return None


def _diagnosis(
    case: Case, rows: pl.DataFrame, model: str, low: dict[str, float], high: dict[str, float]
) -> Diagnosis:
    easy, hard = printable(str(low["route"])), printable(str(high["route"]))
    share = low["n"] / max(case.rows.height, 1)
    values = rows["e2e_ms"].to_numpy()
    means = rows.group_by("route").agg(n=pl.len(), mean=pl.col("e2e_ms").mean())
    between = float(
        np.average((means["mean"].to_numpy() - values.mean()) ** 2, weights=means["n"].to_numpy())
    ) / max(float(values.var()), 1e-9)
    fix = open_fix(
        "route_model",
        f"Serve {easy} by a smaller model",
        f"{easy} ({say_ratio(share)} of the requests) usually answers in {low['tokens']:,.0f} tokens, {hard} in {high['tokens']:,.0f}, both by "
        f"{printable(model)}: try a small model on {easy} and compare the quality.",
        f"a small model answers {easy} equally well",
        "the speed of the small model is not known: give it as a parameter",
    )
    return named(
        case,
        RULE,
        "generation",
        {},
        Action("app", fix.title, "Route back to the former model.", fix),
        headline=f"{easy} and {hard} share {printable(model)} although their answers differ {high['tokens'] / max(low['tokens'], 1.0):.0f}-fold in length",
        because="easy and hard routes share a model",
        evidence={
            "model": printable(model),
            "easy_route": easy,
            "hard_route": hard,
            "easy_share": share,
            "easy_tokens": low["tokens"],
            "hard_tokens": high["tokens"],
            "variance_between_routes": between,
        },
        opportunity=True,
    )
