"""Which past requests teach, which stop, which calibrate and which only judge?

Turns a table of requests into arrays in order of arrival, split by time: a model is never judged on requests older than
those it learned from.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from overrun.collector.arrays import FloatArray
from overrun.collector.normalise.prompt_features import Measured, read_line
from overrun.collector.normalise.prompt_shape import shape, words_of
from overrun.collector.normalise.verbosity import hashed
from overrun.models.censored import completed
from overrun.models.errors import SourceError, TooFewRowsError
from overrun.models.replay import Record
from overrun.models.request import MISSING, Request
from overrun.models.sources import COLUMNS
from overrun.models.verbosity import Prompt

_MANDATORY: Final = ("time", "input_tokens", "output_tokens")
_TRUNCATED: Final = ("length", "max_tokens")
_NUMBERS: Final = ("input_tokens", "max_tokens", "temperature", "stream", "turn")
_TEXTS: Final = ("route", "model", "session", "tenant", "prefix_hash")


@dataclass(frozen=True, slots=True)
class Split:
    """Row numbers where each slice ends.

    [0, fit) teaches the models whose residuals on [fit, train) calibrate, and whose trees are counted there. [0, train)
    teaches the models that [train, rows) judges. What is shipped has then learned from all rows, by the same recipe.
    """

    fit: int
    train: int
    rows: int

    @classmethod
    def of(cls, rows: int, test_share: float) -> "Split":
        """Return the split with the newest `test_share` of the rows as test; the rest goes 80 : 20."""
        train = int((1.0 - test_share) * rows)
        return cls(fit=int(0.8 * train), train=train, rows=rows)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Requests in order of arrival: `records`, and the same as arrays of shape (rows,) in tokens, NaN if not recorded.

    `outputs` is what was generated, `completed` what would have been without a token limit (`overrun.models.censored`).
    `limits` is max_tokens; for an answer that was cut, the length at which it was. `dropped` rows lacked a time or
    output tokens, or were older than the newest `max_rows`. `truncated_ratio` is the share of cut answers among those
    that give a finish reason; None when none does. `prompts` are the bins and shape of each prompt, None without one. `scores` are the
    verbosity scores that the collector stored (NaN if none), `scored_by` the tables they are by; None among them for a prompt without a score.
    `digest` is a hash of all of it.
    """

    records: list[Record]
    routes: NDArray[np.object_]
    inputs: FloatArray
    outputs: FloatArray
    completed: FloatArray
    limits: FloatArray
    split: Split
    dropped: int
    truncated_ratio: float | None
    prompts: list[Prompt | None]
    scores: FloatArray
    scored_by: frozenset[str | None]
    digest: bytes

    @property
    def start(self) -> datetime:
        """Arrival of the first request."""
        return datetime.fromtimestamp(self.records[0].request.time_s, UTC)

    @property
    def end(self) -> datetime:
        """Arrival of the last request."""
        return datetime.fromtimestamp(self.records[-1].request.time_s, UTC)


def prepare(
    frame: pl.DataFrame, *, min_rows: int, max_rows: int, test_share: float, seed: int = 0
) -> Dataset:
    """Return the usable requests of `frame`, the newest `max_rows` of them.

    `frame` has the columns of `overrun.models.sources.COLUMNS`, one row a request.

    Raises:
        SourceError: time, input_tokens or output_tokens is not among the columns.
        TooFewRowsError: fewer than `min_rows` rows have a time and output tokens.
    """
    if absent := [name for name in _MANDATORY if name not in frame.columns]:
        raise SourceError(
            f"the table lacks {', '.join(absent)}; it has {', '.join(frame.columns)}: rename the columns"
        )
    missing = [
        pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in COLUMNS.items()
        if name not in frame.columns
    ]
    usable = frame.with_columns(missing).filter(
        pl.col("time").is_not_null() & pl.col("output_tokens").is_not_null()
    )
    if usable.height < min_rows:
        raise TooFewRowsError(
            f"{usable.height:,} of {frame.height:,} requests have a time and output tokens, {min_rows:,} are needed: "
            "record more traffic, or take a longer window"
        )
    usable = usable.sort("time", maintain_order=True).tail(max_rows)
    measured = [read_line(line) for line in usable.get_column("prompt_numbers").to_list()]
    prompts = _prompts(usable.get_column("prompt").to_list(), measured)
    records = _records(usable, prompts)
    reasons = usable.get_column("finish_reason").str.to_lowercase()
    truncated = reasons.is_in(_TRUNCATED).fill_null(value=False).to_numpy()
    routes = [record.request.route for record in records]
    outputs = np.array([float(record.output_tokens) for record in records])
    limits = np.array([record.request.max_tokens for record in records])
    return Dataset(
        records=records,
        routes=np.array(routes, dtype=object),
        inputs=np.array([record.request.input_tokens for record in records]),
        outputs=outputs,
        completed=completed(outputs, truncated, routes, seed),
        limits=np.where(truncated, outputs, limits),
        split=Split.of(usable.height, test_share),
        dropped=frame.height - usable.height,
        truncated_ratio=float(truncated.sum()) / reasons.count() if reasons.count() else None,
        prompts=prompts,
        scores=np.array(
            [MISSING if own is None or own.verbosity is None else own.verbosity for own in measured]
        ),
        scored_by=frozenset(own.table for own in measured if own is not None),
        digest=hashlib.blake2b(repr(records).encode(), digest_size=16).digest(),
    )


def _prompts(
    texts: Sequence[str | None], measured: Sequence[Measured | None]
) -> list[Prompt | None]:
    """Return the hashed words and shape of each prompt, None without one; each different prompt is looked at once.

    Where no text is at hand but what the collector measured, there are no words.
    """
    if not any(texts):
        return [None if own is None else ((), own.shape) for own in measured]
    known: dict[str, Prompt] = {}
    for text in dict.fromkeys(texts):
        if text is not None:
            words = words_of(text)
            known[text] = (hashed(words), shape(text, words))
    return [None if text is None else known[text] for text in texts]


def _records(frame: pl.DataFrame, prompts: list[Prompt | None]) -> list[Record]:
    """Return one record per row; an empty name counts as absent, as it does when serving."""
    times = frame.get_column("time").cast(pl.Datetime("us")).to_physical().to_numpy() / 1e6
    columns: dict[str, list[Any]] = {
        name: frame.get_column(name).cast(pl.Float64).fill_null(MISSING).to_list()
        for name in _NUMBERS
    }
    columns |= {
        name: [value or None for value in frame.get_column(name).to_list()] for name in _TEXTS
    }
    shapes = [() if prompt is None else prompt[1] for prompt in prompts]
    outputs = frame.get_column("output_tokens").to_list()
    durations = frame.get_column("e2e_ms").to_list()
    return [
        Record(
            Request(
                time_s=float(times[row]),
                shape=shapes[row],
                **{name: values[row] for name, values in columns.items()},
            ),
            int(outputs[row]),
            None if durations[row] is None else durations[row] / 1000.0,
        )
        for row in range(frame.height)
    ]
