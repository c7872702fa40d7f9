"""What does a span cost to decode, normalise and assemble, without network and store? And does a trace of many calls take the square of them?

`python -m tests.benchmarks.steps` prints microseconds of CPU a span, the best of `--repeats`; two builds are compared by turns, each from its own checkout.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

from overrun.analysis.assembly.assemble import assemble
from overrun.collector.decode.otlp_spans import decode_spans
from overrun.collector.normalise.spans import Rules, normalize
from tests.analysis.assembly.assembling import spans_of
from tests.benchmarks import payload
from tests.collector.oracle_build import SERVER, Made, body, chat

END_NS = 1_790_000_000_000_000_000


def main() -> None:
    """Print a line per step and per size of a trace whose calls have as many tools beside them."""
    options = argparse.ArgumentParser()
    options.add_argument("--spans", type=int, default=8_192)
    options.add_argument("--repeats", type=int, default=20)
    chosen = options.parse_args()
    bodies = [one.data for one in payload.make(chosen.spans, end_ns=END_NS).bodies]
    raw, spans = decode_spans(bodies), spans_of(*bodies)
    steps: dict[str, Callable[[], object]] = {
        "decode": lambda: decode_spans(bodies),
        "normalize": lambda: normalize(raw, Rules()),
        "assemble": lambda: assemble(spans),
    }
    for name, step in steps.items():
        print(f"{name}: {best(step, chosen.repeats) / spans.num_rows * 1e6:.2f} us a span")
    for size in (1_000, 2_000, 4_000):
        wide = spans_of(body(*trace(size)))
        print(f"assemble a trace of {size:,}: {best(partial(assemble, wide), 2) * 1e3:.0f} ms")


def trace(size: int) -> list[Made]:
    """A request of `size` spans: half of them calls that ask for tools, half tools."""
    asks = {"gen_ai.response.finish_reasons": ["tool_calls"]}
    calls = [chat(at + 2, at, at + 2, ttft=1, attributes=asks) for at in range(size // 2)]
    tools = [
        Made(
            size + at,
            "execute_tool x",
            at,
            at + 0.05,
            1,
            attributes={"gen_ai.operation.name": "execute_tool"},
        )
        for at in range(size // 2)
    ]
    return [Made(1, "POST /chat", 0, 100_000, kind=SERVER), *calls, *tools]


def best(step: Callable[[], object], repeats: int) -> float:
    """The least CPU of a step, in seconds, after one run that is not counted."""
    step()
    taken = []
    for _ in range(repeats):
        began = time.thread_time()
        step()
        taken.append(time.thread_time() - began)
    return min(taken)


if __name__ == "__main__":
    main()
