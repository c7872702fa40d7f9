"""A server with a known capacity under load tests, and what each generator writes about them, after its documented shape. The truth is in arrays.

The server has `seats` that each take one request at a time, first come first served; a request's first token comes after its wait and a prefill, and
its tokens a gap apart. Nothing here knows Overrun.
"""

from __future__ import annotations

import csv
import heapq
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

T0_S = 1_790_000_000.0


@dataclass
class World:
    """One run: seconds, arrays of shape (n,); failed requests answer nothing."""

    rate: float | None
    start: np.ndarray
    ttft: np.ndarray
    e2e: np.ndarray
    tokens: np.ndarray
    failed: np.ndarray
    in_flight: int | None = None

    def ms(self, metric: str, percentile: float) -> float:
        """The truth of successful requests."""
        ok = ~self.failed
        values = {
            "ttft": self.ttft,
            "e2e": self.e2e,
            "tpot": (self.e2e - self.ttft) / np.maximum(self.tokens - 1, 1),
        }[metric]
        return float(np.percentile(values[ok], percentile) * 1e3)

    def good(self, **limits_ms: float) -> float:
        """The share of requests within all limits."""
        met = ~self.failed
        for metric, limit in limits_ms.items():
            met &= {"ttft": self.ttft, "e2e": self.e2e}[metric] * 1e3 <= limit
        return float(met.mean())


def served(
    rate: float, seconds: float = 120.0, seats: int = 8, seed: int = 1, failing: float = 0.0
) -> World:
    """An open loop: Poisson arrivals at `rate`. Saturation is at seats / mean service time (0.05 s + 20 tokens of 40 ms on average)."""
    rng = np.random.default_rng(seed)
    n = max(int(rate * seconds), 60)
    start = np.cumsum(rng.exponential(1.0 / rate, n))
    tokens = rng.integers(10, 31, n)
    gap = 0.04 * rng.uniform(0.9, 1.1, n)
    free = [0.0] * seats
    ttft, e2e = np.zeros(n), np.zeros(n)
    for i in range(n):
        begin = max(start[i], heapq.heappop(free))
        first = begin + 0.05
        end = first + gap[i] * (tokens[i] - 1)
        heapq.heappush(free, end)
        ttft[i], e2e[i] = first - start[i], end - start[i]
    return World(rate, start, ttft, e2e, tokens, rng.random(n) < failing)


def looped(in_flight: int, n: int = 400, seats: int = 8, seed: int = 1) -> World:
    """A closed loop of `in_flight` clients, each sending its next request when its last one is answered."""
    rng = np.random.default_rng(seed)
    ready = [(0.001 * at, at) for at in range(in_flight)]
    free = [0.0] * seats
    rows = []
    tokens = rng.integers(10, 31, n)
    for i in range(n):
        sent, client = heapq.heappop(ready)
        begin = max(sent, heapq.heappop(free))
        end = begin + 0.05 + 0.04 * (tokens[i] - 1)
        heapq.heappush(free, end)
        heapq.heappush(ready, (end, client))
        rows.append((sent, begin + 0.05 - sent, end - sent))
    start, ttft, e2e = (np.array(column) for column in zip(*rows, strict=True))
    return World(None, start, ttft, e2e, tokens, np.zeros(n, bool), in_flight)


def capacity(seats: int = 8) -> float:
    """Requests/s that the seats can answer."""
    return seats / (0.05 + 0.04 * 19.0)


# What each generator writes. `wanted` are the metrics that can be read back.


def vllm(world: World, details: bool = True) -> bytes:
    n = len(world.start)
    ok = ~world.failed
    out: dict[str, Any] = {
        "date": "20260921-120000",
        "backend": "openai-chat",
        "model_id": "m",
        "num_prompts": n,
        "request_rate": world.rate if world.rate is not None else "inf",
        "burstiness": 1.0,
        "max_concurrency": world.in_flight,
        "duration": float((world.start + world.e2e).max()),
        "completed": int(ok.sum()),
        "failed": int(world.failed.sum()),
        "total_input_tokens": 64 * int(ok.sum()),
        "total_output_tokens": int(world.tokens[ok].sum()),
        "request_throughput": float(ok.sum() / (world.start + world.e2e).max()),
    }
    for name, metric in (("ttft", "ttft"), ("tpot", "tpot"), ("e2el", "e2e")):
        out[f"median_{name}_ms"] = world.ms(metric, 50)
        out[f"p95_{name}_ms"] = world.ms(metric, 95)
        out[f"p99_{name}_ms"] = world.ms(metric, 99)
        out[f"mean_{name}_ms"] = world.ms(metric, 50)
    if details:
        gaps = (world.e2e - world.ttft) / np.maximum(world.tokens - 1, 1)
        out |= {
            "input_lens": [64] * n,
            "output_lens": [
                0 if f else int(t) for f, t in zip(world.failed, world.tokens, strict=True)
            ],
            "ttfts": [
                0.0 if f else float(t) for f, t in zip(world.failed, world.ttft, strict=True)
            ],
            "itls": [
                [] if f else [float(g)] * (int(t) - 1)
                for f, g, t in zip(world.failed, gaps, world.tokens, strict=True)
            ],
            "start_times": [5000.0 + float(s) for s in world.start],
            "errors": ["Traceback\nTimeoutError: " if f else "" for f in world.failed],
        }
    return json.dumps(out).encode()


def sglang(world: World, details: bool = True) -> bytes:
    held = json.loads(vllm(world, details))
    for name in ("start_times", "num_prompts", "failed", "model_id", "date"):
        held.pop(name, None)
    held |= {"backend": "sglang", "total_output_tokens_retokenized": 1}
    for figure in ("mean", "median", "p95", "p99"):
        held[f"{figure}_e2e_latency_ms"] = held.pop(f"{figure}_e2el_ms")
    return (json.dumps(held) + "\n").encode()


def _guide_requests(world: World) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    good, bad = [], []
    for at in range(len(world.start)):
        start, end = T0_S + world.start[at], T0_S + world.start[at] + world.e2e[at]
        row = {
            "request_start_time": start,
            "request_end_time": end,
            "request_latency": world.e2e[at],
            "prompt_tokens": 64,
            "output_tokens": int(world.tokens[at]),
            "time_to_first_token_ms": world.ttft[at] * 1e3,
        }
        if world.failed[at]:
            bad.append(
                {**row, "time_to_first_token_ms": None, "info": {"error": "HTTPStatusError"}}
            )
        else:
            good.append(row)
    return good, bad


def guidellm(world: World, requests: bool = True) -> bytes:
    good, bad = _guide_requests(world)
    strategy = (
        {"type_": "constant", "rate": world.rate}
        if world.rate is not None
        else {"type_": "concurrent", "streams": world.in_flight}
    )
    figures = {
        name: {
            "successful": {
                "mean": world.ms(metric, 50) * to,
                "percentiles": {f"p{p:02d}": world.ms(metric, p) * to for p in (50, 90, 95, 99)},
            }
        }
        for name, metric, to in (
            ("request_latency", "e2e", 1e-3),
            ("time_to_first_token_ms", "ttft", 1.0),
            ("inter_token_latency_ms", "tpot", 1.0),
        )
    }
    totals = {"successful": len(good), "errored": len(bad), "total": len(good) + len(bad)}
    rate = len(good) / float((world.start + world.e2e).max())
    return json.dumps(
        {
            "metadata": {"version": 1},
            "benchmarks": [
                {
                    "config": {"strategy": strategy},
                    "metrics": {
                        "request_totals": totals,
                        "requests_per_second": {"successful": {"mean": rate}},
                        **figures,
                    },
                    "requests": {
                        "successful": good if requests else good[:20],
                        "errored": bad if requests else [],
                        "incomplete": [],
                    },
                }
            ],
        }
    ).encode()


def guidellm_old(world: World) -> bytes:
    """GuideLLM 0.1: results and errors per mode and rate."""
    gaps = (world.e2e - world.ttft) / np.maximum(world.tokens - 1, 1)
    results = [
        {
            "request": {"prompt": "x"},
            "prompt_token_count": 64,
            "output_token_count": int(world.tokens[at]),
            "start_time": T0_S + world.start[at],
            "end_time": T0_S + world.start[at] + world.e2e[at],
            "first_token_time": float(world.ttft[at]),
            "decode_times": {"data": [float(gaps[at])] * 3},
        }
        for at in np.flatnonzero(~world.failed)
    ]
    errors = [{"request": {}, "message": "TimeoutError"} for _ in range(int(world.failed.sum()))]
    return json.dumps(
        {
            "benchmarks": [
                {
                    "mode": "asynchronous",
                    "rate": world.rate,
                    "results": results,
                    "errors": errors,
                    "concurrencies": [],
                }
            ]
        }
    ).encode()


def aiperf(world: World) -> bytes:
    lines = []
    for at in range(len(world.start)):
        start = round((T0_S + world.start[at]) * 1e9)
        failed = bool(world.failed[at])
        metrics = (
            {"error_isl": {"value": 64, "unit": "tokens"}}
            if failed
            else {
                "request_latency": {"value": world.e2e[at] * 1e3, "unit": "ms"},
                "time_to_first_token": {"value": world.ttft[at] * 1e3, "unit": "ms"},
                "output_sequence_length": {"value": int(world.tokens[at]), "unit": "tokens"},
                "input_sequence_length": {"value": 64, "unit": "tokens"},
                "inter_chunk_latency": {"value": [40.0, 42.0], "unit": "ms"},
            }
        )
        lines.append(
            {
                "metadata": {
                    "request_start_ns": start,
                    "request_end_ns": start + round(world.e2e[at] * 1e9),
                    "benchmark_phase": "profiling",
                    "was_cancelled": False,
                },
                "metrics": metrics,
                "error": {"code": 500, "type": "InternalServerError"} if failed else None,
            }
        )
    return "\n".join(map(json.dumps, lines)).encode()


def aiperf_json(world: World, records: bool = False) -> bytes:
    ok = ~world.failed
    figures: dict[str, Any] = {
        name: {
            "unit": "ms",
            "avg": world.ms(metric, 50),
            "max": world.ms(metric, 100),
            **{f"p{p}": world.ms(metric, p) for p in (50, 75, 90, 95, 99)},
        }
        for name, metric in (
            ("request_latency", "e2e"),
            ("time_to_first_token", "ttft"),
            ("inter_token_latency", "tpot"),
        )
    }
    figures["request_latency"]["avg"] = float(world.e2e[ok].mean() * 1e3)
    figures |= {
        "request_count": {"unit": "requests", "avg": int(ok.sum())},
        "error_request_count": {"unit": "requests", "avg": int(world.failed.sum())},
        "request_throughput": {
            "unit": "requests/sec",
            "avg": float(ok.sum() / (world.start + world.e2e).max()),
        },
        "input_sequence_length": {"unit": "tokens", "avg": 64},
        "output_sequence_length": {"unit": "tokens", "avg": float(world.tokens.mean())},
    }
    load = {"request_rate": world.rate, "concurrency": world.in_flight}
    config = {"endpoint": {"model_names": ["m"]}, "loadgen": load}
    held = {"records": figures} if records else figures
    return json.dumps({"input_config": config, **held, "was_cancelled": False}).encode()


def aiperf_csv(world: World) -> bytes:
    figures = json.loads(aiperf_json(world))
    lines = ["Metric,avg,min,max,p50,p75,p90,p95,p99"]
    for title, name in (
        ("Request Latency (ms)", "request_latency"),
        ("Time to First Token (ms)", "time_to_first_token"),
        ("Inter Token Latency (ms)", "inter_token_latency"),
    ):
        row = figures[name]
        cells = [row["avg"], 0.0, *(row[key] for key in ("max", "p50", "p75", "p90", "p95", "p99"))]
        lines.append(",".join([title, *(f'"{cell:,.2f}"' for cell in cells)]))
    lines += [
        "",
        "Metric,Value",
        f"Request Count,{figures['request_count']['avg']:.2f}",
        f"Error Request Count,{figures['error_request_count']['avg']:.2f}",
        f"Request Throughput (requests/sec),{figures['request_throughput']['avg']:.4f}",
    ]
    return "\r\n".join(lines).encode()


def inference_perf(world: World, new: bool = True) -> bytes:
    """All requests of a run; `new` with response_metrics, else as before 2026."""
    rows = []
    gaps = (world.e2e - world.ttft) / np.maximum(world.tokens - 1, 1)
    for at in range(len(world.start)):
        start = 900.0 + float(world.start[at])
        times = [
            start + float(world.ttft[at]) + k * float(gaps[at])
            for k in range(int(world.tokens[at]))
        ]
        answer = {"output_tokens": int(world.tokens[at]), "output_token_times": times}
        info = (
            {
                "request_metrics": {"text": {"input_tokens": 64}},
                "response_metrics": answer,
                "input_tokens": 64,
            }
            if new
            else {"input_tokens": 64, **answer}
        )
        failed = bool(world.failed[at])
        rows.append(
            {
                "start_time": start,
                "end_time": start + float(world.e2e[at]),
                "request": "secret words",
                "response": "secret words",
                "info": {"input_tokens": 64} if failed else info,
                "error": {"error_type": "TimeoutError", "error_msg": "secret"} if failed else None,
            }
        )
    return json.dumps(rows, indent=2).encode()


def inference_perf_stage(world: World, total: bool = False) -> bytes:
    ok = ~world.failed
    names = {"mean": 50, "median": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}
    latency = {
        name: {figure: world.ms(metric, p) / 1e3 for figure, p in names.items()}
        for name, metric in (
            ("request_latency", "e2e"),
            ("time_to_first_token", "ttft"),
            ("time_per_output_token", "tpot"),
        )
    }
    load: dict[str, Any] = {"count": len(world.start), "schedule_delay": {"mean": 0.0}}
    if not total:
        load |= {"send_duration": float(world.start.max()), "requested_rate": world.rate}
    return json.dumps(
        {
            "load_summary": load,
            "successes": {
                "count": int(ok.sum()),
                "latency": latency,
                "throughput": {
                    "requests_per_sec": float(ok.sum() / (world.start + world.e2e).max())
                },
                "output_len": {"mean": float(world.tokens.mean())},
            },
            "failures": {"count": int(world.failed.sum())},
        }
    ).encode()


def k6(world: World, scenario: str = "default", ttft: bool = False) -> bytes:
    lines: list[dict[str, Any]] = [
        {
            "type": "Metric",
            "metric": "http_req_duration",
            "data": {"type": "trend", "contains": "time"},
        }
    ]
    for at in range(len(world.start)):
        ended = datetime.fromtimestamp(T0_S + world.start[at] + world.e2e[at], UTC)
        when = ended.isoformat().replace("+00:00", "123+00:00")
        failed = bool(world.failed[at])
        tags = {
            "scenario": scenario,
            "status": "503" if failed else "200",
            "expected_response": "false" if failed else "true",
            "name": "http://gw/v1/chat/completions?key=secret",
        }
        values = {"http_reqs": 1.0, "http_req_duration": world.e2e[at] * 1e3}
        if ttft and not failed:
            values["llm_ttft_ms"] = world.ttft[at] * 1e3
        for metric, value in values.items():
            data = {"time": when, "value": float(value), "tags": tags}
            lines.append({"type": "Point", "metric": metric, "data": data})
    return "\n".join(map(json.dumps, lines)).encode()


def k6_csv(world: World) -> bytes:
    """Times in whole seconds, as by default."""
    lines = [
        "metric_name,timestamp,metric_value,check,error,error_code,expected_response,scenario,status,url"
    ]
    for at in range(len(world.start)):
        ended = int(T0_S + world.start[at] + world.e2e[at])
        failed = bool(world.failed[at])
        tail = ",,,1503,false,default,503" if failed else ",,,,true,default,200"
        lines.append(f"http_reqs,{ended},1.000000{tail},http://gw/")
        lines.append(f"http_req_duration,{ended},{world.e2e[at] * 1e3:.6f}{tail},http://gw/")
    return "\n".join(lines).encode()


def k6_summary(world: World, exported: bool = False) -> bytes:
    n, failed = len(world.start), int(world.failed.sum())
    trend = {
        "avg": world.ms("e2e", 50),
        "med": world.ms("e2e", 50),
        "max": world.ms("e2e", 100),
        "p(90)": world.ms("e2e", 90),
        "p(95)": world.ms("e2e", 95),
        "p(99)": world.ms("e2e", 99),
    }
    values = {
        "http_req_duration": trend,
        "http_reqs": {"count": n, "rate": n / float((world.start + world.e2e).max())},
        "http_req_failed": {"value" if exported else "rate": failed / n, "passes": failed},
    }
    if exported:
        return json.dumps({"metrics": values, "root_group": {}}).encode()
    held = {name: {"type": "trend", "values": found} for name, found in values.items()}
    return json.dumps(
        {"metrics": held, "root_group": {}, "state": {"testRunDurationMs": 60_000}}
    ).encode()


_LOCUST = ("50%", "66%", "75%", "80%", "90%", "95%", "98%", "99%", "99.9%", "99.99%", "100%")


def locust_stats(world: World, ttft: bool = False) -> bytes:
    head = [
        "Type",
        "Name",
        "Request Count",
        "Failure Count",
        "Median Response Time",
        "Average Response Time",
    ]
    head += [
        "Min Response Time",
        "Max Response Time",
        "Average Content Size",
        "Requests/s",
        "Failures/s",
        *_LOCUST,
    ]
    n, failed = len(world.start), int(world.failed.sum())
    lasted = float((world.start + world.e2e).max())

    def row(kind: str, name: str, metric: str) -> list[Any]:
        at = [round(world.ms(metric, float(p[:-1]))) for p in _LOCUST]
        return [
            kind,
            name,
            n,
            failed,
            at[0],
            world.ms(metric, 50),
            1,
            at[-1],
            10,
            n / lasted,
            failed / lasted,
            *at,
        ]

    rows = [row("POST", "/v1/chat/completions", "e2e")]
    if ttft:
        rows.append(row("TTFT", "first token", "ttft"))
    return _csv([head, *rows, row("", "Aggregated", "e2e")])


def locust_history(worlds: list[World], seconds: float = 60.0) -> bytes:
    """Levels of users one after the other, a row a second with the last 10 s."""
    head = ["Timestamp", "User Count", "Type", "Name", "Requests/s", "Failures/s", *_LOCUST]
    head += ["Total Request Count", "Total Failure Count"]
    rows: list[list[Any]] = []
    total, at_s = 0, int(T0_S)
    for world in worlds:
        ended = world.start + world.e2e
        for second in range(1, int(seconds)):
            inside = (ended <= second) & (ended > second - 10)
            total += int(((ended <= second) & (ended > second - 1)).sum())
            cells: list[Any] = (
                [
                    round(float(np.percentile(world.e2e[inside], float(p[:-1])) * 1e3))
                    for p in _LOCUST
                ]
                if inside.any()
                else ["N/A"] * len(_LOCUST)
            )
            rows.append(
                [
                    at_s + second,
                    world.in_flight,
                    "",
                    "Aggregated",
                    inside.sum() / 10,
                    0.0,
                    *cells,
                    total,
                    0,
                ]
            )
        at_s += int(seconds)
    return _csv([head, *rows])


def _csv(rows: list[list[Any]]) -> bytes:
    import io

    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue().encode()


Writer = Callable[[World], bytes]


def write(folder: Path, name: str, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(data)
    return path
