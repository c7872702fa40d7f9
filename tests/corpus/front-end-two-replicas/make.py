"""Prompts of 500 to 12,000 tokens at any time; a token takes 0.01 ms to tokenise in the first half and 0.25 ms in the second."""

from pathlib import Path

from tests.corpus.front_end_world import calls


def make(folder: Path) -> None:
    calls(
        folder,
        lambda draw, later, read: draw.uniform(3, 6) + (0.25 if later else 0.01) * read,
        serial=True,
        prompt=lambda draw, _: int(500 + 11_500 * draw.random() ** 2),
        engines=2,
    )
