"""What does the simulator need to know of recorded calls? What a pool is made from; whoever replays calls brings it."""

from typing import Protocol

import polars as pl

from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray


class Recording(Protocol):
    """Model calls as columns, the engine indicators beside them, and the requests that made the calls; `whatif.facts` says which columns."""

    requests: pl.DataFrame
    calls: pl.DataFrame
    points: pl.DataFrame

    def ms(self, column: str) -> FloatArray:
        """A column of the requests in milliseconds, NaN where it is unknown."""

    @property
    def request_of(self) -> IntArray:
        """The row of each call's request, -1 for calls of others."""

    @property
    def on_path(self) -> BoolArray:
        """Whether each call stands on its request's critical path."""

    @property
    def way_there_ms(self) -> FloatArray:
        """How long each call was on its way to the engine, NaN if nothing is recorded."""
