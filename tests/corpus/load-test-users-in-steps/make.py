"""Locust's history of 2 to 32 users on eight seats, and its statistics with rows of first tokens."""

from pathlib import Path

from tests.analysis.load_tests import worlds


def make(folder: Path) -> None:
    levels = [worlds.looped(users, n=3_000) for users in (2, 4, 8, 16, 32)]
    worlds.write(folder / "steps", "a_stats_history.csv", worlds.locust_history(levels))
    worlds.write(folder / "once", "b_stats.csv", worlds.locust_stats(worlds.served(6.0), ttft=True))
