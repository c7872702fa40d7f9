"""SGLang's pages: its token pool fills and a request is thrown out; from then on tokens come fourteen times as slowly, though the pool has room again."""

import random
from bisect import bisect_right
from pathlib import Path

START, EVERY_S = 1_790_000_000, 15
EDGES = (
    *(0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20),
    *(40, 60, 100, 200, 400),
)
LABELS = 'model_name="ds",engine_type="unified",tp_rank="0",pp_rank="0"'


class Page:
    def __init__(self) -> None:
        self.seen: dict[str, list[float]] = {
            name: []
            for name in (
                "time_to_first_token_seconds",
                "inter_token_latency_seconds",
                "e2e_request_latency_seconds",
                "queue_time_seconds",
            )
        }
        self.count = {
            "prompt_tokens_total": 0.0,
            "generation_tokens_total": 0.0,
            "num_requests_total": 0.0,
            "cached_tokens_total": 0.0,
            "num_retracted_requests_total": 0.0,
        }
        self.level: dict[str, float] = {}

    def text(self) -> str:
        lines = []
        for name, value in self.count.items():
            lines += [f"# TYPE sglang:{name} counter", f"sglang:{name}{{{LABELS}}} {value}"]
        for name, value in self.level.items():
            lines += [f"# TYPE sglang:{name} gauge", f"sglang:{name}{{{LABELS}}} {value}"]
        for name, values in self.seen.items():
            ordered = sorted(values)
            lines += [f"# TYPE sglang:{name} histogram"]
            lines += [
                f'sglang:{name}_bucket{{{LABELS},le="{edge}"}} {bisect_right(ordered, edge)}'
                for edge in EDGES
            ]
            lines += [
                f'sglang:{name}_bucket{{{LABELS},le="+Inf"}} {len(values)}',
                f"sglang:{name}_sum{{{LABELS}}} {sum(values)}",
                f"sglang:{name}_count{{{LABELS}}} {len(values)}",
            ]
        return "\n".join([*lines, ""])


def make(folder: Path) -> None:
    out = folder / "pages" / "sglang-0"
    out.mkdir(parents=True)
    draw, page = random.Random(75), Page()
    for step in range(160):
        later = step >= 90
        pace = 0.0093 if not later else 0.128
        done = draw.choice((2, 3, 3, 4)) if not later else draw.choice((0, 0, 1, 0))
        for _ in range(done):
            output = int(draw.lognormvariate(0, 0.25) * 1_500)
            ttft = draw.lognormvariate(0, 0.3) * (0.9 if not later else 1.6)
            page.seen["time_to_first_token_seconds"].append(ttft)
            page.seen["queue_time_seconds"].append(draw.uniform(0.0, 0.1))
            page.seen["inter_token_latency_seconds"] += [
                pace * draw.lognormvariate(0, 0.1) for _ in range(40)
            ]
            page.seen["e2e_request_latency_seconds"].append(ttft + output * pace)
            page.count["prompt_tokens_total"] += draw.randint(18_000, 30_000)
            page.count["cached_tokens_total"] += 14_000
            page.count["num_requests_total"] += 1
        running = 4
        page.count["generation_tokens_total"] += running / pace * EVERY_S * draw.uniform(0.95, 1.05)
        if step == 89:
            page.count["num_retracted_requests_total"] += 2
        usage = (
            0.62 + 0.004 * step
            if step < 89
            else (1.0 if step in (89, 90) else 0.58 + 0.03 * draw.random())
        )
        page.level = {
            "num_running_reqs": running,
            "num_queue_reqs": 3 if step in (88, 89, 90) else 0,
            "token_usage": min(usage + draw.uniform(-0.01, 0.01), 1.0),
            "gen_throughput": running / pace * draw.uniform(0.97, 1.03),
            "cache_hit_rate": 0.55,
            "max_total_num_tokens": 2_642_688,
        }
        (out / f"{START + step * EVERY_S}.prom").write_text(page.text())
