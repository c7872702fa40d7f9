"""Two scenarios of k6 with a Trend of the script's own, and one run without it."""

from pathlib import Path

from tests.analysis.load_tests import worlds


def make(folder: Path) -> None:
    parts = [worlds.k6(worlds.served(rate), f"rate_{rate:g}", ttft=True) for rate in (2.0, 16.0)]
    worlds.write(folder, "k6.json", b"\n".join(parts))
    worlds.write(folder, "plain.json", worlds.k6(worlds.served(4.0)))
