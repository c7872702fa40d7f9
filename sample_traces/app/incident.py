"""When does the injected fault strike, and what does a seeded request draw: the demo's one switch and its dice."""

import math
import random
import time
from dataclasses import dataclass

KINDS = ("none", "slow-retrieval", "runaway-outputs", "lost-prefix-cache")


@dataclass
class Incident:
    """A fault of one kind that begins `after_s` seconds after `start()`; the kind `none` never begins."""

    kind: str = "none"
    after_s: float = 0.0
    started_s: float | None = None

    def start(self) -> None:
        """Start the clock: called once, when the load begins."""
        self.started_s = time.monotonic()

    def active(self, kind: str) -> bool:
        """True when the fault `kind` is on at this moment."""
        return (
            self.kind == kind
            and self.started_s is not None
            and time.monotonic() - self.started_s >= self.after_s
        )


def dice(seed: int, stage: str, key: str) -> random.Random:
    """A generator for one stage of one request: the draw depends on the text, not on which coroutine ran first."""
    return random.Random(f"{seed}/{stage}/{key}")


def lognormal(generator: random.Random, median: float, sigma: float) -> float:
    """One lognormal draw; latencies and lengths of real services have this shape: many small ones and a long tail."""
    return generator.lognormvariate(math.log(median), sigma)
