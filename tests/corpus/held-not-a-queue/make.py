"""First tokens of half a second; in the second half each call waits for 1.2 to 2.6 s and ends as much later."""

import random
from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    draw, spans = random.Random(58), []
    for n in range(900):
        at, first, output = n * 1_300.0, draw.uniform(380, 620), int(draw.uniform(90, 300))
        whole = first + 30.0 * output
        held = draw.uniform(1_200, 2_600) if n >= 450 else 0.0
        whole += held
        spans += [
            span(n, "POST /chat", at, whole + 40, "server root"),
            chat(n, at + 20, whole, parent="root", ttft_s=(first + held) / 1e3, output=output),
        ]
    write(folder / "traces.json", resource("chat", spans))
