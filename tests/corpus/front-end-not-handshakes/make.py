"""From the second half on each call opens a connection: 400 to 1,500 ms, whoever else is there and whatever it asks."""

from pathlib import Path

from tests.corpus.front_end_world import calls


def make(folder: Path) -> None:
    calls(
        folder,
        lambda draw, later, _: draw.uniform(400, 1_500) if later else draw.uniform(5, 20),
        serial=False,
        prompt=lambda draw, _: int(500 + 11_500 * draw.random() ** 2),
        seed=42,
    )
