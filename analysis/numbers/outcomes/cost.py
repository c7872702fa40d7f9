"""What do the requests cost, and how much goes through? Tokens of the model calls at the prices of the settings file, per 1,000 requests.

`[prices]` holds one table per model with the price of a million tokens: `input`, `output`, and `cached_input` where cached input is cheaper.
A name stands for its dated versions too (`gpt-4o` for `gpt-4o-2024-08-06`), `"*"` for every other model; `currency` is a text that is printed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.window import RequestFrame, answers, filter_of
from overrun.analysis.words.errors import AnalysisError, nearest
from overrun.analysis.words.finding import Predicted, printable, say_rate, say_ratio

MILLION: Final = 1e6
# Calls that must be priced before their sum stands for all: what is missing then is less than what prices leave open (batch discounts, taxes). Own default.
LEAST_PRICED: Final = 0.95
_KEYS: Final = ("input", "cached_input", "output")


class PriceError(AnalysisError):
    """A price that cannot be read."""


class ModelCost(msgspec.Struct, kw_only=True):
    """The calls of one model in the window, their tokens, and what they cost (null where the model has no price)."""

    model: str | None
    calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost: float | None
    reasons: dict[str, str] = {}


class Cost(msgspec.Struct, kw_only=True):
    """What the window's requests cost in `currency`, and how much went through per second. Failed calls cost the tokens that they report."""

    currency: str | None
    total: float | None
    per_1000_requests: float | None
    requests_per_s: float | None
    input_tokens_per_s: float | None
    output_tokens_per_s: float | None
    models: list[ModelCost]
    reasons: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Price:
    """Of a million tokens."""

    input: float
    cached_input: float
    output: float

    def of(self, input_tokens: float, cached_tokens: float, output_tokens: float) -> float:
        """What these tokens cost; `cached_tokens` are part of the input."""
        return (
            (input_tokens - cached_tokens) * self.input
            + cached_tokens * self.cached_input
            + output_tokens * self.output
        ) / MILLION


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices by model name."""

    by_model: Mapping[str, Price]
    currency: str = "USD"

    def of(self, model: str | None) -> Price | None:
        """The price of a model: its own, that of the longest name that it is a version of, that of all others, or None."""
        names = [
            name
            for name in self.by_model
            if model is not None
            and (model == name or model.startswith((f"{name}-", f"{name}@", f"{name}:")))
        ]
        return self.by_model.get(max(names, key=len) if names else "*")


def read_prices(table: Mapping[str, Any]) -> Prices | None:
    """Read `[prices]`; None for an empty table.

    Raises:
        PriceError: an unknown key, a price that is no number from 0, or a model without input or output price.
    """
    found = dict(table)
    currency = found.pop("currency", "USD")
    if not isinstance(currency, str) or not 0 < len(currency) <= 8:
        raise PriceError(f'[prices] currency = {currency!r} must be a text such as "USD"')
    by_model = {}
    for model, prices in found.items():
        if not isinstance(prices, dict):
            raise PriceError(
                f'[prices] {model} = {prices!r} must be a table: [prices."{model}"] with input, cached_input and output per million tokens'
            )
        for key, value in prices.items():
            if key not in _KEYS:
                raise PriceError(f'unknown key [prices."{model}"] {key}: {nearest(key, _KEYS)}')
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not 0.0 <= value < math.inf
            ):
                raise PriceError(
                    f'[prices."{model}"] {key} = {value!r} must be a number from 0: the price of a million tokens'
                )
        missing = [key for key in ("input", "output") if key not in prices]
        if missing:
            raise PriceError(
                f'[prices."{model}"] lacks {missing[0]}: the price of a million tokens'
            )
        read = {key: float(value) for key, value in prices.items()}
        by_model[model] = Price(
            read["input"], read.get("cached_input", read["input"]), read["output"]
        )
    return Prices(by_model, currency) if by_model else None


def cost(con: duckdb.DuckDBPyConnection, frame: RequestFrame, prices: Prices | None) -> Cost:
    """Return what the frame's requests cost; without prices the throughput alone."""
    out = _throughput(frame)
    nulls = ("currency", "total", "per_1000_requests")
    if prices is None:
        out.reasons |= dict.fromkeys(
            nulls, 'no prices: set [prices."MODEL"] input and output per million tokens'
        )
        return out
    out.currency = prices.currency
    priced, calls = 0, 0
    for row in answers(con, "tokens", filter_of(frame.window)):
        price = prices.of(row["model"])
        amount = (
            None
            if price is None
            else price.of(row["input_tokens"], row["cached_tokens"], row["output_tokens"])
        )
        calls += row["calls"]
        priced += 0 if price is None else row["counted"]
        lacking = {"model": "the calls carry no model name"} if row["model"] is None else {}
        lacking |= {"cost": "the model has no price"} if amount is None else {}
        known = {
            name: row[name]
            for name in ("model", "calls", "input_tokens", "cached_tokens", "output_tokens")
        }
        out.models.append(ModelCost(cost=amount, reasons=lacking, **known))
    n = frame.rows.height
    weights = frame.rows["sample_weight"]
    if n and weights.n_unique() > 1:
        out.reasons |= dict.fromkeys(
            ("total", "per_1000_requests"), "the sampled requests have different weights"
        )
        return out
    if not calls or not n or priced < LEAST_PRICED * calls:
        unknown = [
            printable(model.model or "no name") for model in out.models if model.cost is None
        ]
        why = (
            f"no price for {', '.join(unknown[:3])}"
            if unknown
            else f"{say_ratio(1.0 - priced / calls)} of {calls:,} model calls carry no token counts"
            if calls
            else "no model call in the window"
        )
        out.reasons |= dict.fromkeys(("total", "per_1000_requests"), why)
        return out
    weight = float(weights.to_numpy()[0])
    out.total = weight * math.fsum(model.cost or 0.0 for model in out.models)
    out.per_1000_requests = 1000.0 * out.total / (weight * (n + frame.incomplete))
    return out


def _throughput(frame: RequestFrame) -> Cost:
    out = Cost(
        currency=None,
        total=None,
        per_1000_requests=None,
        requests_per_s=None,
        input_tokens_per_s=None,
        output_tokens_per_s=None,
        models=[],
    )
    rows, seconds = frame.rows, frame.seconds
    if seconds <= 0.0:
        out.reasons = dict.fromkeys(
            ("requests_per_s", "input_tokens_per_s", "output_tokens_per_s"),
            "the window has no length",
        )
        return out
    weights = rows["sample_weight"]
    out.requests_per_s = float(weights.to_numpy().sum()) / seconds
    for name in ("input_tokens", "output_tokens"):
        if rows[name].null_count() < rows.height:
            setattr(
                out,
                f"{name}_per_s",
                float(
                    np.sum(
                        rows[name].cast(pl.Float64).fill_null(0.0).to_numpy() * weights.to_numpy()
                    )
                )
                / seconds,
            )
        else:
            out.reasons[f"{name}_per_s"] = "no request carries token counts"
    return out


def saved_per_1000_requests(
    calls: pl.DataFrame, requests: int, prices: Prices, share: float, input_share: float = 0.0
) -> float | None:
    """Return what it saves per 1,000 requests to leave out these shares (0..1) of the output and of the input tokens, None where a model has no price or no
    call counts.

    `calls` are the model calls of the requests, with `model`, `input_tokens` and `output_tokens`. Input counts as not cached.
    """
    total = 0.0
    for model, read, written in (
        calls.group_by("model").agg(pl.col("input_tokens", "output_tokens").sum()).iter_rows()
    ):
        price = prices.of(model)
        if price is None:
            return None
        total += price.of(input_share * float(read), 0.0, share * float(written))
    return 1000.0 * total / requests if requests and total else None


# What a cost of a fix means in money: saved or added, and whether in output and in input tokens. The loser of a hedge is cancelled: its prompt was read.
_OF_COST: Final = {
    "tokens_saved_ratio": ("saved", 1.0, 0.0),
    "wasted_tokens_ratio_now": ("saved", 1.0, 0.0),
    "reasoning_tokens_cut_ratio": ("saved", 1.0, 0.0),
    "input_saved_ratio": ("saved", 0.0, 1.0),
    "attempts_saved_ratio": ("saved", 1.0, 1.0),
    "cached_answers_ratio": ("saved", 1.0, 1.0),
    "duplicate_ratio": ("added", 0.0, 1.0),
    "duplicated_ratio": ("added", 0.0, 1.0),
}


def priced(predicted: Predicted, calls: pl.DataFrame, requests: int, prices: Prices) -> Predicted:
    """Return a fix's prediction with `cost.saved_per_1000_requests` (or `added_`) and its currency where it saves tokens (or sends calls twice).

    As it was where the models have no prices. `calls` as in `saved_per_1000_requests`.
    """
    out = dict(predicted.cost)
    for name, (said, output, read) in _OF_COST.items():
        share = predicted.cost.get(name, 0.0)
        if share > 0.0:
            money = saved_per_1000_requests(calls, requests, prices, output * share, read * share)
            if money is not None:
                out[f"{said}_per_1000_requests"] = out.get(f"{said}_per_1000_requests", 0.0) + money
    return (
        predicted
        if out == predicted.cost
        else msgspec.structs.replace(predicted, cost=out, currency=prices.currency)
    )


def say_cost(spent: Cost | None) -> str:
    """What a thousand requests cost and how much goes through, as one sentence; empty without prices."""
    if spent is None or spent.currency is None:
        return ""
    rates = (
        (spent.requests_per_s, "requests"),
        (spent.input_tokens_per_s, "input tokens"),
        (spent.output_tokens_per_s, "output tokens"),
    )
    through = ", ".join(say_rate(rate, what) for rate, what in rates if rate is not None)
    if spent.per_1000_requests is None or spent.total is None:
        return f"COST unknown: {spent.reasons.get('per_1000_requests', '')}; {through}"
    calls = sum(model.calls for model in spent.models)
    return f"COST {spent.per_1000_requests:,.2f} {spent.currency} per 1,000 requests ({spent.total:,.2f} for {calls:,} model calls); {through}"
