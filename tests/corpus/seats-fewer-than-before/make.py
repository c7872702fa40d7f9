"""Thirty-two seats, of which about five are taken; four after ten minutes, for a little more than four calls at a time."""

from pathlib import Path

from tests.corpus.seats_world import calls


def make(folder: Path) -> None:
    calls(folder, seats=lambda at: 32 if at < 600_000 else 4, every_ms=lambda _: 780.0)
