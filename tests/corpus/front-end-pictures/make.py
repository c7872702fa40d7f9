"""From the second half on calls bring pictures, which take the front end 500 to 900 ms each."""

from pathlib import Path

from tests.corpus.front_end_world import calls


def make(folder: Path) -> None:
    calls(
        folder,
        lambda draw, later, _: draw.uniform(500, 900) if later else draw.uniform(5, 9),
        serial=True,
        prompt=lambda draw, _: int(draw.uniform(400, 900)),
        seed=41,
    )
