"""Ray Serve's own page: two replicas of max_ongoing_requests 5, a deployment whose requests wait in the handle after the load doubles."""

import random
from bisect import bisect_right
from pathlib import Path

START, EVERY_S = 1_790_000_000, 15
EDGES = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 300, 400, 500, 1000, 2000, 5000, 10000, 60000, 120000),
    *(300000, 600000),
)
APP = 'application="llm",deployment="LLMDeployment"'


def histogram(name: str, labels: str, values: list[float]) -> list[str]:
    ordered = sorted(values)
    return [
        f"# HELP {name} .",
        f"# TYPE {name} histogram",
        *(
            f'{name}_bucket{{{labels},le="{edge}.0"}} {bisect_right(ordered, edge)}.0'
            for edge in EDGES
        ),
        f'{name}_bucket{{{labels},le="+Inf"}} {len(values)}.0',
        f"{name}_sum{{{labels}}} {sum(values)}",
        f"{name}_count{{{labels}}} {len(values)}.0",
    ]


def make(folder: Path) -> None:
    out = folder / "pages" / "ray-head"
    out.mkdir(parents=True)
    draw = random.Random(74)
    seats, took, whole, arrived, at = [0.0] * 10, [[], []], [], 0, 0.0
    log: list[tuple[float, float, float, int]] = []
    for step in range(160):
        now = step * EVERY_S
        while at < now:
            rate = 2.1 if at < 1_200 else 4.4
            at += draw.expovariate(rate)
            seat = min(range(10), key=lambda i: seats[i])
            begin = max(at, seats[seat])
            service = draw.lognormvariate(0, 0.3) * 2.6
            seats[seat] = begin + service
            log.append((at, begin, begin + service, seat // 5))
        done = [one for one in log if now - EVERY_S <= one[2] < now]
        for a, b, c, replica in done:
            took[replica].append((c - b) * 1e3)
            whole.append((c - a) * 1e3 + 4)
        arrived = sum(one[0] < now for one in log)
        queued = sum(one[0] < now <= one[1] for one in log)
        lines = [
            "# TYPE ray_serve_deployment_queued_queries gauge",
            f'ray_serve_deployment_queued_queries{{{APP},handle="h1",actor_id="p1"}} {queued}.0',
            "# TYPE ray_serve_handle_request_counter_total counter",
            f'ray_serve_handle_request_counter_total{{{APP},handle="h1",route="/v1/chat"}} {arrived}.0',
            "# TYPE ray_serve_num_http_requests_total counter",
            f'ray_serve_num_http_requests_total{{application="llm",method="POST",route="/v1/chat",status_code="200"}} {len(whole)}.0',
            *histogram(
                "ray_serve_http_request_latency_ms",
                'application="llm",method="POST",route="/v1/chat",status_code="200"',
                whole,
            ),
            "# TYPE ray_serve_replica_processing_queries gauge",
            "# TYPE ray_serve_num_ongoing_requests_at_replicas gauge",
            f'ray_serve_num_ongoing_requests_at_replicas{{{APP},handle="h1"}} {sum(one[1] < now <= one[2] for one in log)}.0',
        ]
        for replica in (0, 1):
            running = sum(one[1] < now <= one[2] and one[3] == replica for one in log)
            lines.append(
                f'ray_serve_replica_processing_queries{{{APP},replica="r{replica}"}} {running}.0'
            )
            lines.append(
                f'ray_serve_deployment_request_counter_total{{{APP},replica="r{replica}",route="/v1/chat"}} {len(took[replica])}.0'
            )
        for replica in (0, 1):
            lines += histogram(
                "ray_serve_deployment_processing_latency_ms",
                f'{APP},replica="r{replica}",route="/v1/chat"',
                took[replica],
            )
        (out / f"{START + now}.prom").write_text("\n".join([*lines, ""]))
