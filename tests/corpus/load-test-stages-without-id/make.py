"""Three stages, the requests of all of them in one list, and the summary of each stage and of all."""

import json
from pathlib import Path

from tests.analysis.load_tests import worlds


def make(folder: Path) -> None:
    rows = []
    for number, rate in enumerate((2.0, 6.0, 16.0)):
        world = worlds.served(rate, 60.0)
        worlds.write(
            folder / "reports",
            f"stage_{number}_lifecycle_metrics.json",
            worlds.inference_perf_stage(world),
        )
        world.start = world.start + 1_000.0 * number
        rows += json.loads(worlds.inference_perf(world))
    worlds.write(
        folder / "reports", "per_request_lifecycle_metrics.json", json.dumps(rows).encode()
    )
