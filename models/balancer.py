"""Which backend owes the least? A router's choice by predicted work, without knowing any router.

Work is counted in tokens of answer, a prompt token counting a part of one: what a backend still owes is what it was given and has
not finished. With skill none the prediction is the route's median, so the choice falls back to counting requests.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

from overrun.models.errors import RequestError
from overrun.models.predict import Predictor

# A prompt token is computed in a batch, an answer's token by a step of its own: about 1 : 100 on the engines of `overrun.models.routing`,
# where a prompt token takes 0.1 ms and a step 15 ms.
PROMPT_TOKEN: Final = 0.01
# Requests whose end is never told are written off, the oldest first.
_MAX_OPEN: Final = 50_000


class Balancer:
    """Chooses backends and keeps account; use one per thread."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._owed: dict[Hashable, float] = {}
        self._open: OrderedDict[str, tuple[Hashable, float, Mapping[str, Any]]] = OrderedDict()

    def owed(self, backend: Hashable) -> float:
        """Return the predicted work that `backend` has not finished, in answer tokens."""
        return self._owed.get(backend, 0.0)

    def choose(
        self, identity: str, row: Mapping[str, Any], backends: Sequence[Hashable]
    ) -> Hashable:
        """Return the backend that owes least (the first of equals) and put the request on its account until `finished`.

        `row` is what `Predictor.predict` takes; a row that it refuses counts as an average request.
        """
        if not backends:
            raise ValueError("no backend to choose from: pass at least one")
        try:
            work = self._predictor.predict({**row, "id": identity})["p50"] + PROMPT_TOKEN * float(
                row.get("input_tokens") or 0
            )
        except RequestError:
            row = {}
            work = self._predictor.predict(row)["p50"]
        self.finished(identity)
        chosen = min(backends, key=self.owed)
        self._owed[chosen] = self.owed(chosen) + work
        self._open[identity] = (chosen, work, row)
        if len(self._open) > _MAX_OPEN:
            self.finished(next(iter(self._open)))
        return chosen

    def finished(self, identity: str, output_tokens: int | None = None) -> None:
        """Take a request off its backend's account; with `output_tokens`, the predictor learns what it generated."""
        found = self._open.pop(identity, None)
        if found is None:
            return
        backend, work, row = found
        self._owed[backend] = max(self.owed(backend) - work, 0.0)
        if output_tokens is not None:
            self._predictor.observe({**row, "id": identity}, output_tokens)
