"""Five rates against eight seats that answer 9.9 requests/s, as GuideLLM reports them in one file."""

import json
from pathlib import Path

from tests.analysis.load_tests import worlds


def make(folder: Path) -> None:
    made = [
        json.loads(worlds.guidellm(worlds.served(rate))) for rate in (2.0, 4.0, 6.0, 12.0, 16.0)
    ]
    whole = {"metadata": {"version": 1}, "benchmarks": [one["benchmarks"][0] for one in made]}
    worlds.write(folder / "sweep", "benchmarks.json", json.dumps(whole).encode())
