"""What did the model calls of a stretch of time look like, column by column? Typed arrays over the rows of `evidence_calls.sql`."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.evidence.fact import Sample
from overrun.analysis.evidence.overlap import Flow
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray

# Fewest calls behind a mean or a median of one side; the usual least group for means.
MIN_CALLS: Final = 30
# Models that together write this part of all tokens or less answer nobody: they check, route and classify beside those that do; own default.
LEAST_WRITTEN: Final = 0.1


class Calls:
    """Model calls in order of start. Times in seconds after one moment (`start_s`), durations in ms; null is NaN, or -1 in codes."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame
        self._columns: dict[str, FloatArray] = {}
        self._codes: dict[str, IntArray] = {}
        self._names: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return self.frame.height

    def of(self, name: str) -> FloatArray:
        """Return a numeric or boolean column as floats, shape (n,)."""
        if name not in self._columns:
            # Null is NaN in what polars hands over.
            self._columns[name] = self.frame[name].cast(pl.Float64).to_numpy()
        return self._columns[name]

    def codes(self, name: str) -> IntArray:
        """Return one code per distinct text, in their order; -1 for null."""
        if name not in self._codes:
            rank = pl.col(name).rank("dense").cast(pl.Int64).fill_null(0) - 1
            self._codes[name] = self.frame.select(rank).to_series().to_numpy()
        return self._codes[name]

    def names(self, name: str) -> list[str]:
        """Return the texts that the codes stand for."""
        if name not in self._names:
            texts = self.frame[name].unique().to_list()
            self._names[name] = sorted(text for text in texts if text is not None)
        return self._names[name]

    def where(self, mask: BoolArray) -> Calls:
        """Return the calls that a mask keeps; themselves, with all that is known of them, where it keeps all."""
        return self if mask.all() else Calls(self.frame.filter(pl.Series(mask)))

    def some(self, mask: BoolArray) -> Calls:
        """Return the calls that a mask keeps, with what all of these did beside them: `where` counts only those that it keeps."""
        out = self.where(mask)
        if out is not self:
            out.__dict__.update(
                running=self.running[mask], prefill_meanwhile=self.prefill_meanwhile[mask]
            )
        return out

    def of_requests(self, keys: pl.Series) -> Calls:
        """Return the calls of these requests (`trace_key`)."""
        return Calls(self.frame.filter(pl.col("trace_key").is_in(keys.implode())))

    def beside(self, some: Calls) -> Calls:
        """Return the calls that began while one of `some` ran, those among them."""
        at = self.of("start_s")
        begun = np.searchsorted(np.sort(some.of("start_s")), at, side="right")
        return self.where(begun > np.searchsorted(np.sort(some.end_s), at, side="left"))

    def of_kind(self, **wanted: str | None) -> Calls:
        """Return the calls with these values in these columns, or with none; a value of None asks for nothing."""
        kept = np.ones(len(self), dtype=np.bool_)
        for column, value in wanted.items():
            if value is not None:
                kept &= (self.frame[column] == value).fill_null(value=True).to_numpy()
        return self.where(kept)

    def to_models(self, names: Collection[str]) -> Calls:
        """Return the calls to these models and those with engine telemetry; all calls where no model is given, or nothing is left out."""
        mask = (
            self.has_engine
            | self.frame["model"].is_in(list(names)).fill_null(value=True).to_numpy()
        )
        return self.where(mask) if names and not mask.all() else self

    def mean(self, name: str) -> float | None:
        """Return the mean of the known values, None below `MIN_CALLS` of them."""
        values = self.of(name)
        known = values[~np.isnan(values)]
        return float(known.mean()) if len(known) >= MIN_CALLS else None

    def median(self, name: str) -> float | None:
        """Return the median of the known values, None below `MIN_CALLS` of them."""
        values = self.of(name)
        known = values[~np.isnan(values)]
        return float(np.median(known)) if len(known) >= MIN_CALLS else None

    @functools.cached_property
    def sample(self) -> Sample:
        """Their starts, for intervals of what is computed from them."""
        return Sample((self.of("start_s") * 1e6).astype(np.int64))

    @functools.cached_property
    def seconds(self) -> float:
        """For how long they came: from the first to the last, and the gap around these, which is the one that a moment at random lies in.

        The mean gap would do for calls that come one by one. Where they come in bursts, what follows the last burst is as long as what lies between two.
        """
        gaps = np.diff(np.sort(self.of("start_s")))
        between = float(gaps.sum())
        return between + float((gaps**2).sum()) / between if between > 0.0 else 1e-3

    @functools.cached_property
    def end_s(self) -> FloatArray:
        """When the call ended."""
        return self.of("start_s") + self.of("e2e_ms") / 1e3

    @functools.cached_property
    def has_engine(self) -> BoolArray:
        """Calls whose engine told its own queue, prefill and decode time."""
        return ~np.isnan(self.of("prefill_ms")) & ~np.isnan(self.of("decode_ms"))

    @functools.cached_property
    def scheduled_s(self) -> FloatArray:
        """When the engine took the call up: its first token minus prefill; without engine telemetry, when the caller sent it."""
        return np.where(
            self.has_engine, self.first_s - self.of("prefill_ms") / 1e3, self.of("start_s")
        )

    @functools.cached_property
    def first_s(self) -> FloatArray:
        """When the engine's first token came; the client's without engine telemetry."""
        engine = (
            self.of("start_s") + (np.nan_to_num(self.of("queue_ms")) + self.of("prefill_ms")) / 1e3
        )
        return np.where(self.has_engine, engine, self.of("start_s") + self.of("ttft_ms") / 1e3)

    @functools.cached_property
    def last_s(self) -> FloatArray:
        """When the last token came."""
        return np.where(self.has_engine, self.first_s + self.of("decode_ms") / 1e3, self.end_s)

    @functools.cached_property
    def cached_tokens(self) -> FloatArray:
        """Input tokens that a cache held, 0 where the caller was told of none. Who gave up was told nothing, and where only an engine tells (its
        caller's span was lost) nothing is known of it: the share of the other calls is taken."""
        cached, n_in = self.of("cached_tokens"), self.of("input_tokens")
        alone = (
            self.of("engine_alone") if "engine_alone" in self.frame.columns else np.zeros(len(self))
        )
        untold = ((self.of("error") == 1.0) | (alone == 1.0)) & np.isnan(cached)
        whole = float(np.nansum(n_in[~untold]))
        share = float(np.nansum(cached[~untold])) / whole if whole > 0.0 else 0.0
        return np.where(untold, share * np.nan_to_num(n_in), np.nan_to_num(cached))

    @functools.cached_property
    def new_tokens(self) -> FloatArray:
        """Input tokens that no cache held; all input tokens where the caller was not told of a cache."""
        return np.maximum(self.of("input_tokens") - self.cached_tokens, 0.0)

    @functools.cached_property
    def token_ms(self) -> FloatArray:
        """Time per output token after the first: decode over tokens in the engine, else the client's TPOT."""
        out = self.of("output_tokens")
        engine = np.where(out >= 2, self.of("decode_ms") / np.maximum(out - 1.0, 1.0), np.nan)
        return np.where(self.has_engine, engine, self.of("tpot_ms"))

    @functools.cached_property
    def engine(self) -> IntArray:
        """Which engine served the call, as a code; one for all without engine telemetry its name."""
        codes = self.codes("engine_instance")
        return codes if (codes >= 0).any() else np.zeros(len(self), dtype=np.int64)

    @functools.cached_property
    def running(self) -> FloatArray:
        """Mean number of calls in the same engine's batch while this one decoded, itself included; NaN where times are unknown."""
        return self._while_decoding(
            lambda chosen: Flow(
                self.scheduled_s[chosen],
                self.last_s[chosen],
                self.last_s[chosen] - self.scheduled_s[chosen],
            )
        )

    @functools.cached_property
    def writers(self) -> BoolArray:
        """Which calls go to models that write: not to those that together write hardly anything (`LEAST_WRITTEN`)."""
        written = (
            self.frame.group_by("model")
            .agg(pl.col("output_tokens").sum())
            .sort("output_tokens", "model")
        )
        below = pl.col("output_tokens").cum_sum() <= LEAST_WRITTEN * pl.col("output_tokens").sum()
        aside = written.filter(below & (pl.col("output_tokens").sum() > 0))["model"]
        return ~self.frame["model"].is_in(aside.implode(), nulls_equal=True).to_numpy()

    @functools.cached_property
    def in_flight(self) -> FloatArray:
        """How many of these calls had begun and not ended when this one began."""
        starts = self.of("start_s")
        begun = np.searchsorted(np.sort(starts), starts, side="left") - np.searchsorted(
            np.sort(self.end_s), starts, side="right"
        )
        count: FloatArray = np.maximum(begun, 0).astype(np.float64)
        return count

    @functools.cached_property
    def prefill_meanwhile(self) -> FloatArray:
        """New input tokens per second that the same engine prefilled for others while this call decoded."""
        return self._while_decoding(
            lambda chosen: Flow(
                self.scheduled_s[chosen], self.first_s[chosen], self.new_tokens[chosen]
            )
        )

    @functools.cached_property
    def asked_meanwhile(self) -> FloatArray:
        """New input tokens per second of the calls that began since this one's first token: what a caller knows of what is read beside it.

        Within the time that its tokens usually take: who is written slowly would meet more, for any reason.
        """
        begins, token_s = self.of("start_s"), self.token_ms / 1e3
        if not known(token_s).any():
            return np.full(len(self), np.nan)
        seconds = np.maximum(float(np.nanmedian(token_s)) * self.of("output_tokens"), 1e-3)
        return (
            Flow(begins, begins, np.nan_to_num(self.new_tokens)).between(
                self.first_s, self.first_s + seconds
            )
            / seconds
        )

    def asked_before(self, seconds: float) -> FloatArray:
        """Return the new input tokens of the other calls that began in so many seconds before this one, shape (n,)."""
        begins = self.of("start_s")
        return Flow(begins, begins, np.nan_to_num(self.new_tokens)).between(
            begins - seconds, begins
        )

    def _while_decoding(self, flow_of: object) -> FloatArray:
        out = np.full(len(self), np.nan)
        usable = ~np.isnan(self.scheduled_s) & ~np.isnan(self.last_s)
        for engine in np.unique(self.engine):
            chosen = np.flatnonzero(usable & (self.engine == engine))
            if len(chosen):
                flow: Flow = flow_of(chosen)  # type: ignore[operator]
                seconds = np.maximum(self.last_s[chosen] - self.first_s[chosen], 1e-3)
                out[chosen] = (
                    flow.between(self.first_s[chosen], self.first_s[chosen] + seconds) / seconds
                )
        return out


def known(*columns: FloatArray) -> BoolArray:
    """Return where all of these columns have a value."""
    mask: BoolArray = np.logical_and.reduce([~np.isnan(column) for column in columns])
    return mask


def come_together(calls: pl.DataFrame) -> float:
    """Return how many requests come at a time, as those of a conversation do: mean of the squares over the mean, 1 where no session is told.

    Conversations begin at random (compound Poisson), so counts of requests scatter by that many times what they would if each came by itself.
    """
    asked = calls.group_by(pl.coalesce("session", pl.col("trace_key").cast(pl.String))).agg(
        n=pl.col("trace_key").n_unique()
    )
    sizes = asked["n"].cast(pl.Float64).to_numpy()
    return float((sizes**2).sum() / sizes.sum()) if len(sizes) else 1.0
