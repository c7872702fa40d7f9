"""One run at 4 requests/s, and 400 requests at once; vLLM without --save-detailed."""

from pathlib import Path

import numpy as np

from tests.analysis.load_tests import worlds


def make(folder: Path) -> None:
    worlds.write(folder / "runs", "rate.json", worlds.vllm(worlds.served(4.0), details=False))
    once = worlds.served(400.0, 1.0)
    once.rate, once.start = None, np.zeros(len(once.start))
    worlds.write(folder / "runs", "once.json", worlds.vllm(once, details=False))
