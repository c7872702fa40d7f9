"""First tokens of half a second; from the second half on, 50 tokens of 30 ms each wait in a buffer. What a call takes stays what it was."""

import random
from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    draw, spans = random.Random(56), []
    for n in range(900):
        at, first, output = n * 1_300.0, draw.uniform(380, 620), int(draw.uniform(90, 300))
        whole = first + 30.0 * output
        held = 1_500.0 if n >= 450 else 0.0
        spans += [
            span(n, "POST /chat", at, whole + 40, "server root"),
            chat(n, at + 20, whole, parent="root", ttft_s=(first + held) / 1e3, output=output),
        ]
    write(folder / "traces.json", resource("chat", spans))
