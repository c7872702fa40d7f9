"""What would another call have met in the same minute? Draws recorded calls to stand in for one that was never made."""

from __future__ import annotations

from typing import Final

import numpy as np

from overrun.analysis.whatif.facts import Facts
from overrun.analysis.words.arrays import BoolArray, IntArray

# Calls to draw from: enough for their P95 to be among them.
POOL: Final = 20
_MINUTE_US: Final = 60_000_000


class Neighbours:
    """Pools of calls by minute and model. `among` are the calls to draw from; `same_model=False` ignores the model."""

    def __init__(self, facts: Facts, among: BoolArray, *, same_model: bool = True) -> None:
        self._minute = facts.calls["start_us"].to_numpy() // _MINUTE_US
        names = (
            facts.calls["model"].fill_null("").to_list()
            if same_model
            else [""] * facts.calls.height
        )
        self._model = np.array(names, dtype=object)
        self._among = among
        self._pools: dict[tuple[str, int], IntArray] = {}

    def pool(self, model: str, minute: int) -> IntArray:
        """Rows of the calls of that model in that minute, or the nearest in time where it has fewer than `POOL`."""
        if (model, minute) not in self._pools:
            rows = np.flatnonzero(self._among & (self._model == model))
            inside = rows[self._minute[rows] == minute]
            if len(inside) < POOL:
                inside = rows[np.argsort(np.abs(self._minute[rows] - minute), kind="stable")[:POOL]]
            self._pools[model, minute] = inside
        return self._pools[model, minute]

    def draw(self, rows: IntArray, rng: np.random.Generator) -> IntArray:
        """Return for each of `rows` the row of a call of its model and minute, itself where there is none."""
        out = rows.copy()
        keys: dict[tuple[str, int], list[int]] = {}
        for at, row in enumerate(rows):
            keys.setdefault((self._model[row], int(self._minute[row])), []).append(at)
        for key, places in keys.items():
            pool = self.pool(*key)
            if len(pool):
                out[places] = rng.choice(pool, len(places))
        return out
