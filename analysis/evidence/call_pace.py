"""How long does each call take over what its tokens usually take?"""

import numpy as np

from overrun.analysis.evidence.calls import Calls, known
from overrun.analysis.evidence.demand import token_costs
from overrun.analysis.words.arrays import FloatArray


def log_pace(calls: Calls) -> FloatArray:
    """Return the log of each call's time over what its tokens usually take."""
    cost_in, _ = token_costs(calls)
    token = calls.token_ms
    usual = float(np.median(token[known(token)])) if known(token).any() else 0.0
    expected = cost_in * np.nan_to_num(calls.new_tokens) + usual * np.maximum(
        np.nan_to_num(calls.of("output_tokens")) - 1.0, 0.0
    )
    floor = float(np.nanmedian(calls.of("e2e_ms"))) if usual == 0.0 else 1.0
    pace: FloatArray = np.log(np.maximum(calls.of("e2e_ms"), 0.1) / np.maximum(expected, floor))
    return pace
