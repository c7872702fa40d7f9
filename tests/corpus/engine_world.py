"""Pages of an engine that speaks vLLM's names, one every 15 s: what it counts between two of them is the case's."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path

EDGES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
START = 1_790_000_000  # 2026-09-21
EVERY_S = 15


class Page:
    """What a server has counted so far."""

    def __init__(self, prefix: str = "vllm:", model: str = "m") -> None:
        self.prefix, self.labels = prefix, f'model_name="{model}",engine="0"'
        self.counts: dict[str, float] = {}
        self.levels: dict[str, float] = {}
        self.seen: dict[str, list[float]] = {}

    def count(self, name: str, more: float) -> None:
        self.counts[name] = self.counts.get(name, 0.0) + more

    def level(self, name: str, now: float) -> None:
        self.levels[name] = now

    def observe(self, name: str, values: Sequence[float]) -> None:
        self.seen.setdefault(name, []).extend(values)

    def requests(
        self,
        n: int,
        *,
        read: int,
        output: int,
        ttft_s: tuple[float, float],
        queue_s: tuple[float, float],
        prefill_s: tuple[float, float],
        decode_s: tuple[float, float],
    ) -> None:
        """So many requests ended; their times are spread evenly over these ranges."""

        def spread(of: tuple[float, float]) -> list[float]:
            return [of[0] + (of[1] - of[0]) * (i + 0.5) / n for i in range(n)]

        self.count("prompt_tokens_total", n * read)
        self.count("generation_tokens_total", n * output)
        self.count("request_success_total", n)
        self.observe("time_to_first_token_seconds", spread(ttft_s))
        self.observe("request_queue_time_seconds", spread(queue_s))
        self.observe("request_prefill_time_seconds", spread(prefill_s))
        self.observe("request_decode_time_seconds", spread(decode_s))
        self.observe(
            "e2e_request_latency_seconds",
            [a + b for a, b in zip(spread(ttft_s), spread(decode_s), strict=True)],
        )
        self.observe("inter_token_latency_seconds", [s / output for s in spread(decode_s)])

    def text(self) -> str:
        lines = []
        for name, value in self.counts.items():
            full = f"{self.prefix}{name}"
            labels = self.labels + (',finished_reason="stop"' if "success" in name else "")
            lines += [f"# TYPE {full} counter", f"{full}{{{labels}}} {value}"]
        for name, value in self.levels.items():
            full = f"{self.prefix}{name}"
            lines += [f"# TYPE {full} gauge", f"{full}{{{self.labels}}} {value}"]
        for name, values in self.seen.items():
            full = f"{self.prefix}{name}"
            lines.append(f"# TYPE {full} histogram")
            ordered = sorted(values)
            lines += [
                f'{full}_bucket{{{self.labels},le="{edge}"}} {bisect_right(ordered, edge)}'
                for edge in EDGES
            ]
            lines += [
                f'{full}_bucket{{{self.labels},le="+Inf"}} {len(values)}',
                f"{full}_sum{{{self.labels}}} {sum(values)}",
                f"{full}_count{{{self.labels}}} {len(values)}",
            ]
        return "\n".join([*lines, ""])


def pages(
    folder: Path, at: Callable[[int, Page], None], *, steps: int = 120, prefix: str = "vllm:"
) -> None:
    """A folder of an engine with a page every 15 s, named by its time."""
    folder.mkdir(parents=True, exist_ok=True)
    page = Page(prefix)
    for step in range(steps):
        at(step, page)
        (folder / f"{START + step * EVERY_S}.prom").write_text(page.text())
