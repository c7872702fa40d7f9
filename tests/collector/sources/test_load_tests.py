"""Result files of load generators, made after their documented shape: the same six requests in each, told in each one's own units and words."""

import csv
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import zstandard

from overrun.analysis.front.asked import Asked, Source
from overrun.analysis.front.check import CheckResult
from overrun.analysis.front.file_commands import check
from overrun.analysis.front.file_import import import_files
from overrun.analysis.front.question_table import REPORT
from overrun.collector.config import load
from overrun.collector.errors import ImportFailed
from overrun.collector.sources.importer import load_test_of, read_bodies
from overrun.collector.sources.load_tests import LoadTest, Request, read_table, with_requests
from overrun.collector.store.database import open_store

T0_NS = 1_790_000_000_000_000_000


def read(content: bytes) -> LoadTest:
    """The requests of a file that was written at T0_NS."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result"
        path.write_bytes(content)
        os.utime(path, ns=(T0_NS, T0_NS))
        found = load_test_of(path)
    assert found is not None
    return with_requests(found)


# start, TTFT and E2E in ms, output tokens; the last one failed after 50 ms.
ROWS = [
    (0, 100, 1_000, 10),
    (500, 200, 1_000, 5),
    (1_000, 300, 2_500, 11),
    (1_500, 100, 600, 6),
    (2_000, 50, 50, 1),
    (2_500, None, 50, 0),
]


def vllm(**changed: Any) -> dict[str, Any]:
    """`vllm bench serve --save-result --save-detailed`: seconds; start_times are of a monotonic clock; the gaps sum up to what follows the first token."""
    return {
        "date": "20260921-120000",
        "endpoint_type": "openai-chat",
        "backend": "openai-chat",
        "model_id": "m",
        "tokenizer_id": "m",
        "num_prompts": 6,
        "request_rate": 2.0,
        "burstiness": 1.0,
        "max_concurrency": None,
        "duration": 3.5,
        "completed": 5,
        "failed": 1,
        "request_throughput": 1.7,
        "input_lens": [32] * 6,
        "output_lens": [tokens for *_, tokens in ROWS],
        "ttfts": [(ttft or 0) / 1e3 for _, ttft, _, _ in ROWS],
        "itls": [
            [(e2e - ttft) / (tokens - 1) / 1e3] * (tokens - 1) if ttft and tokens > 1 else []
            for _, ttft, e2e, tokens in ROWS
        ],
        "start_times": [5000.0 + start / 1e3 for start, *_ in ROWS],
        "generated_texts": ["x"] * 6,
        "errors": [""] * 5 + ["Traceback (most recent call last)"],
    } | changed


def sglang(**changed: Any) -> dict[str, Any]:
    """`python -m sglang.bench_serving --output-file F --output-details`: a line a run, no moments, Infinity for an unlimited rate."""
    kept = {
        name: value
        for name, value in vllm().items()
        if name in ("duration", "completed", "input_lens", "output_lens", "ttfts", "itls", "errors")
    }
    return (
        {
            "backend": "sglang",
            "request_rate": float("inf"),
            "max_concurrency": None,
            "total_output_tokens_retokenized": 33,
        }
        | kept
        | changed
    )


def aiperf(start: int, ttft: int | None, e2e: int, tokens: int) -> dict[str, Any]:
    """A line of AIPerf's profile_export.jsonl: ns since 1970, each metric with its unit."""
    at = T0_NS + start * 1_000_000
    about = {
        "session_num": 0,
        "x_request_id": "r",
        "turn_index": 0,
        "request_start_ns": at,
        "request_end_ns": at + e2e * 1_000_000,
        "benchmark_phase": "profiling",
        "was_cancelled": False,
    }
    if ttft is None:
        return {
            "metadata": about,
            "metrics": {"error_isl": {"value": 32, "unit": "tokens"}},
            "error": {"code": 503, "type": "HTTPError", "message": "busy"},
        }
    return {
        "metadata": about,
        "error": None,
        "metrics": {
            "input_sequence_length": {"value": 32, "unit": "tokens"},
            "time_to_first_token": {"value": ttft * 1e6, "unit": "ns"},
            "request_latency": {"value": e2e / 1e3, "unit": "s"},
            "output_sequence_length": {"value": tokens, "unit": "tokens"},
        },
    }


def genai_perf(mode: str = "request_rate") -> dict[str, Any]:
    """GenAI-Perf's profile_export.json: ns; a role chunk comes before the first content and a count of tokens after the last."""

    def chunk(**event: Any) -> dict[str, str]:
        return {"response": f"data: {json.dumps(event)}\n\n"}

    requests = []
    for start, ttft, e2e, tokens in ROWS:
        at = T0_NS + start * 1_000_000
        end = at + e2e * 1_000_000
        if ttft is None:
            requests.append({"timestamp": at, "response_timestamps": [], "response_outputs": []})
            continue
        words = [chunk(choices=[{"delta": {"content": "x"}}])] * (2 if e2e > ttft else 1)
        requests.append(
            {
                "timestamp": at,
                "request_inputs": {"payload": "{}"},
                "response_timestamps": [
                    at + 1_000_000,
                    *(at + ms * 1_000_000 for ms in (ttft, e2e)[: len(words)]),
                    end + 5,
                    end + 9,
                ],
                "response_outputs": [
                    chunk(choices=[{"delta": {"role": "assistant"}}]),
                    *words,
                    chunk(choices=[], usage={"completion_tokens": tokens}),
                    {"response": "data: [DONE]\n\n"},
                ],
            }
        )
    return {
        "service_kind": "openai",
        "endpoint": "v1/chat/completions",
        "experiments": [
            {
                "experiment": {"mode": mode, "value": 2},
                "requests": requests,
                "window_boundaries": [],
            }
        ],
    }


def guidellm(
    strategy: dict[str, Any] | None = None, late_s: float = 0.0, **requests: list[Any]
) -> dict[str, Any]:
    """GuideLLM's benchmarks.json: moments in seconds since 1970, the latency in seconds, TTFT in ms."""

    def told(start: int, ttft: int | None, e2e: int, tokens: int) -> dict[str, Any]:
        at = T0_NS / 1e9 + start / 1e3
        info = {
            "status": "completed" if ttft else "errored",
            "error": None if ttft else "timeout",
            "timings": {"targeted_start": at - late_s, "request_start": at},
        }
        return {
            "type_": "generative_request_stats",
            "request_id": "r",
            "info": info,
            "request_start_time": at,
            "request_end_time": at + e2e / 1e3,
            "request_latency": e2e / 1e3,
            "time_to_first_token_ms": ttft,
            "prompt_tokens": 32,
            "output_tokens": tokens or None,
            "cached_tokens": None,
        }

    listed = {
        "successful": [told(*row) for row in ROWS[:-1]],
        "errored": [told(*ROWS[-1])],
        "incomplete": [],
    } | requests
    return {
        "metadata": {"version": 1},
        "args": {},
        "benchmarks": [
            {
                "type_": "generative_benchmark",
                "config": {"strategy": strategy or {"type_": "constant", "rate": 2.0}},
                "metrics": {
                    "request_totals": {"successful": 5, "errored": 1, "incomplete": 0, "total": 6}
                },
                "requests": listed,
            }
        ],
    }


def lines(*rows: Any) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


def judged(files: list[Path], slo: str = "ttft:250 e2el:2000") -> CheckResult:
    source = Source(load(None, environment={}), files=files)
    asked = Asked.read(REPORT, {"slo": slo, "baseline": "none"}, source)
    return check(asked, min_goodput=0.5, min_rate=None)


FORMS: dict[str, Callable[[], bytes]] = {
    "vllm.json": lambda: lines(vllm()),
    "vllm-of-today.json": lambda: lines(
        vllm(latencies=[e2e / 1e3 for _, _, e2e, _ in ROWS], queue_times=[0.0] * 6)
    ),
    "sglang.jsonl": lambda: lines(sglang()),
    "profile_export.jsonl": lambda: lines(*(aiperf(*row) for row in ROWS)),
    "profile_export.json": lambda: lines(genai_perf()),
    "benchmarks.json": lambda: lines(guidellm()),
}


def at_start(
    request: Request, first_ns: int
) -> tuple[float, float | None, float, int | None, bool]:
    ttft = None if request.ttft_ns is None else request.ttft_ns / 1e6
    return (
        (request.start_ns - first_ns) / 1e6,
        ttft,
        request.e2e_ns / 1e6,
        request.output_tokens,
        request.error is not None,
    )


@pytest.mark.parametrize("name", FORMS)
def test_times_are_right_in_the_units_of_each_format(name: str) -> None:
    test = read(FORMS[name]())
    first = min(request.start_ns for request in test.requests)
    assert len(test.requests) == len(ROWS)
    for request, (start, ttft, e2e, tokens) in zip(test.requests, ROWS, strict=True):
        sent, first_ms, whole_ms, counted, failed = at_start(request, first)
        assert failed == (ttft is None)
        assert sent == pytest.approx(0.0 if name == "sglang.jsonl" else start, abs=1e-3)
        if ttft is None:
            continue
        assert (whole_ms, counted) == (pytest.approx(e2e, abs=1e-3), tokens)
        # One response with content tells no first token apart from the answer (GenAI-Perf).
        assert first_ms == (
            None if name == "profile_export.json" and e2e == ttft else pytest.approx(ttft, abs=1e-3)
        )


@pytest.mark.parametrize("name", FORMS)
def test_check_judges_each_format_the_same(name: str, tmp_path: Path) -> None:
    """Of five answers one is over both limits, and the failed request counts as bad: 4 of 6."""
    path = tmp_path / name
    path.write_bytes(FORMS[name]())
    found = judged([path], "e2el:2000")
    assert (found.requests, found.passed, found.goodput_ratio) == (6, True, pytest.approx(4 / 6))


RECORDED = Path(__file__).parents[1] / "data" / "load_tests"


@pytest.mark.parametrize(
    # Requests, failed ones, the generator's own median of TTFT and of E2E in ms, sum of output tokens, cached ones (None: it counts none), one of its notes.
    ("name", "n", "failed", "ttft_ms", "e2e_ms", "output", "cached", "note"),
    [
        ("vllm-rate.json", 60, 3, 102.740, None, 1007, None, None),
        ("vllm-limited.json", 60, 3, 119.329, None, 933, None, "up to 2.34 s before it was"),
        ("sglang-limited.jsonl", 60, 3, 115.046, None, 1140, None, "at most 4 in flight at once"),
        (
            "aiperf-concurrency.jsonl",
            60,
            1,
            131.703,
            303.880,
            999,
            590,
            "up to 0.0197 s before it was",
        ),
        (
            "guidellm-poisson.json",
            80,
            6,
            119.451,
            325.660,
            1220,
            148,
            "up to 0.0362 s before it was",
        ),
        ("guidellm-concurrent.json", 69, 5, 112.193, 288.118, 1048, 128, "3 requests were cut off"),
    ],
)
def test_recorded_files_say_what_their_generators_say(
    name: str,
    n: int,
    failed: int,
    ttft_ms: float,
    e2e_ms: float | None,
    output: int,
    cached: int | None,
    note: str | None,
) -> None:
    """Files of vLLM 0.33.0, SGLang 0.5.23, AIPerf 0.13.0 and GuideLLM 0.8.1 against a server that answers one request in twenty with 503."""
    data = (
        zstandard.ZstdDecompressor().stream_reader((RECORDED / f"{name}.zst").read_bytes()).read()
    )
    test = read(data)
    good = [request for request in test.requests if request.error is None]
    assert (len(test.requests), len(test.requests) - len(good)) == (n, failed)
    assert {request.status_code for request in test.requests if request.error is not None} == {503}
    assert sum(request.output_tokens or 0 for request in good) == output
    assert sum(request.cached_tokens or 0 for request in good) == (cached or 0)
    late = any(
        "intended send time" in told for told in test.notes
    )  # then each request waited a little before it was sent
    for own, ours in (
        (ttft_ms, [request.ttft_ns for request in good]),
        (e2e_ms, [request.e2e_ns for request in good]),
    ):
        assert own is None or -0.01 < statistics.median_low(
            [at for at in ours if at is not None]
        ) / 1e6 - own < (2_500.0 if late else 0.2)
    assert note is None or any(note in told for told in test.notes)


def engine_record(
    arrived_s: float, late_s: float, queue_s: float, prefill_s: float, decode_s: float
) -> dict[str, Any]:
    """A line of vLLM's RequestStateStats: it arrived on the wall clock and was queued `late_s` later than the quickest on a clock 5,000 s behind."""
    queued = arrived_s - 5_000.0 + late_s
    return {
        "request_id": "r",
        "input_toks": 32,
        "output_toks": 11,
        "arrival_time": arrived_s,
        "queued_ts": queued,
        "scheduled_ts": queued + queue_s,
        "first_token_ts": queued + queue_s + prefill_s,
        "last_token_ts": queued + queue_s + prefill_s + decode_s,
    }


def test_what_the_engine_kept_of_each_request_becomes_its_own_spans(tmp_path: Path) -> None:
    """Times count from the arrival: of the second request 0.1 s before it was queued belong to its wait. A request that did not end is told of."""
    t0 = T0_NS / 1e9
    unfinished = engine_record(t0 + 2.0, 0.0, 0.5, 0.5, 1.0) | {"last_token_ts": None}
    path = tmp_path / "run.requests.jsonl"
    path.write_bytes(
        lines(
            engine_record(t0, 0.0, 0.25, 0.5, 1.0),
            engine_record(t0 + 1.0, 0.1, 0.4, 0.25, 2.0),
            unfinished,
        )
    )
    test = read(path.read_bytes())
    assert test.notes == ["1 request was left out because they have no measured time"]
    settings = load(flags={"collector.db": str(tmp_path / "run.db")})
    import_files([path], settings, url=None, progress=lambda done, of: None)
    store = open_store(tmp_path / "run.db", create=False)
    try:
        with store.reading() as con:
            rows = con.execute(
                "select e2e_ms, ttft_ms, ttft_source, queue_ms, prefill_ms, decode_ms, output_tokens from v_llm_calls order by start"
            ).fetchall()
            requests = con.execute("select count(*) from v_requests").fetchone()
    finally:
        store.close()
    wanted = [
        (1750.0, 750.0, "engine", 250.0, 500.0, 1000.0, 11),
        (2750.0, 750.0, "engine", 500.0, 250.0, 2000.0, 11),
    ]
    assert requests == (2,)
    for row, due in zip(rows, wanted, strict=True):
        assert row[2] == due[2]
        assert [value for value in row if value != "engine"] == pytest.approx(
            [value for value in due if value != "engine"], abs=1e-3
        )


def test_failures_keep_their_name_and_status_and_nothing_of_what_was_said() -> None:
    told = {
        "Service Unavailable: {the answer}": ("503", 503),
        "Traceback (most recent call last)\n  x\nasyncio.TimeoutError": ("TimeoutError", None),
        "HTTPStatusError(\"Client error '429 Too Many Requests' for url\")": (
            "HTTPStatusError",
            429,
        ),
        "500": ("500", 500),
        "it broke": ("failed", None),
        "timeout": ("timeout", None),
        "": (None, None),
    }
    test = read(lines(vllm(errors=list(told)[:6])))
    assert [(request.error, request.status_code) for request in test.requests] == list(
        told.values()
    )[:6]


def test_a_table_of_requests_is_judged_with_dates_or_seconds(tmp_path: Path) -> None:
    header = ("time", "ttft_ms", "e2e_ms", "output_tokens", "error", "route")
    rows = [
        (
            f"2026-09-21T12:00:0{start / 1e3:.3f}Z",
            ttft,
            e2e,
            tokens,
            "" if ttft else "timeout",
            "/chat",
        )
        for start, ttft, e2e, tokens in ROWS
    ]
    with (tmp_path / "load.csv").open("w", newline="") as out:
        csv.writer(out).writerows([header, *rows])
    t0 = T0_NS / 1e9
    seconds = [
        {
            "start": t0 + start / 1e3,
            "end": t0 + (start + e2e) / 1e3,
            "ttft_ms": ttft,
            "error": ttft is None,
        }
        for start, ttft, e2e, _ in ROWS
    ]
    pyarrow.parquet.write_table(pa.Table.from_pylist(seconds), tmp_path / "load.parquet")
    for name in ("load.csv", "load.parquet"):
        test = read_table(tmp_path / name)
        assert [round(request.e2e_ns / 1e6) for request in test.requests] == [
            e2e for _, _, e2e, _ in ROWS
        ]
        assert [request.error is not None for request in test.requests] == [False] * 5 + [True]
        found = judged([tmp_path / name])
        assert (found.requests, found.goodput_ratio) == (6, pytest.approx(4 / 6))
    assert {request.route for request in read_table(tmp_path / "load.csv").requests} == {"/chat"}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (
            vllm(max_concurrency=8, request_rate="inf"),
            "at most 8 in flight at once (--max-concurrency)",
        ),
        (sglang(max_concurrency=4), "at most 4 in flight at once"),
        (genai_perf("concurrency"), "at most 2 in flight at once (--concurrency)"),
        (
            guidellm({"type_": "concurrent", "streams": 3}),
            "at most 3 in flight at once (strategy concurrent)",
        ),
        (guidellm({"type_": "synchronous"}), "at most 1 in flight at once"),
        (sglang(), "has no send times"),
        (guidellm(incomplete=[{}, {}]), "2 requests were cut off"),
    ],
)
def test_what_must_be_known_of_the_load_is_told(
    document: dict[str, Any], told: str, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_bytes(lines(document))
    assert any(told in doubt for doubt in judged([tmp_path / "a.json"]).doubts)
    assert not any(
        "closed loop" in note for note in read(lines(vllm())).notes + read(lines(guidellm())).notes
    )


@pytest.mark.parametrize(
    "document",
    [
        vllm(
            max_concurrency=2,
            queue_times=[0.0, 0.0, 1.5, 0.0, 0.0, 0.0],
            latencies=[e2e / 1e3 for _, _, e2e, _ in ROWS],
        ),
        guidellm(late_s=1.5),
    ],
)
def test_requests_sent_late_are_judged_from_when_they_were_due(document: dict[str, Any]) -> None:
    """Held back by 1.5 s, the third request took 1.5 s longer for whoever waited for it."""
    late, plain = read(lines(document)), read(lines(vllm()))
    assert late.requests[2].e2e_ns - plain.requests[2].e2e_ns == pytest.approx(
        1_500_000_000, abs=1_000
    )
    assert (late.requests[2].ttft_ns or 0) - (plain.requests[2].ttft_ns or 0) == pytest.approx(
        1_500_000_000, abs=1_000
    )
    assert [note for note in late.notes if "up to 1.5 s" in note and "intended send time" in note]


def test_a_closed_loop_shows_in_the_moments_where_no_flag_tells_of_it(tmp_path: Path) -> None:
    """One worker that sends its next request as soon as the last one has ended."""
    starts = [sum(700 + 10 * (at % 7) for at in range(n)) for n in range(120)]
    rows = [aiperf(start, 100, 700 + 10 * (n % 7), 10) for n, start in enumerate(starts)]
    (tmp_path / "profile_export.jsonl").write_bytes(lines(*rows))
    assert any(
        doubt.startswith("closed_loop_load")
        for doubt in judged([tmp_path / "profile_export.jsonl"]).doubts
    )


def test_several_runs_of_a_file_are_routes() -> None:
    sweep = guidellm() | {
        "benchmarks": guidellm()["benchmarks"]
        + guidellm({"type_": "concurrent", "streams": 8})["benchmarks"]
    }
    assert {request.route for request in read(lines(sweep)).requests} == {
        "constant 2.0",
        "concurrent 8",
    }
    assert {request.route for request in read(lines(sglang(), sglang())).requests} == {
        "run 1",
        "run 2",
    }


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"request_throughput": 1.0, "duration": 3}', "--save-detailed"),
        (
            b'{"request_throughput": {"unit": "requests/sec"}, "request_latency": {"unit": "ms", "avg": 3.0}}',
            r"give profile_export\.jsonl",
        ),
        (b'{"metrics": 1, "a": 2}', r"document with a, metrics.*overrun store map"),
        (lines(vllm(itls=[])), ""),
        (lines(vllm(errors=["", ""])), "errors has 2 entries and ttfts 6"),
        (lines(guidellm(successful=[])), "holds 1 of the 6 requests"),
        (lines(vllm(ttfts=[], itls=[])), "input_lens has 6 entries and ttfts 0"),
        (lines(genai_perf() | {"experiments": []}), "no request in it"),
        (lines(vllm(latencies=[2e6] * 6)), "not in the unit of the format"),
        (
            lines(
                aiperf(0, 1, 2, 3)
                | {"metrics": {"request_latency": {"value": 1, "unit": "fortnight"}}}
            ),
            "fortnight",
        ),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_file_that_cannot_be_judged_is_refused_by_name_with_what_is_wanted(
    content: bytes, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(content)
    if not why:  # without gaps the answers are as short as their first tokens
        assert read(content).requests[0].e2e_ns == 100_000_000
        return
    with pytest.raises(ImportFailed, match=rf"result\.json.*{why}"):
        list(read_bodies(path))


def test_tables_without_the_columns_are_refused_and_folders_take_only_what_they_know(
    tmp_path: Path,
) -> None:
    (tmp_path / "azure.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,4808,10\n"
    )
    with pytest.raises(
        ImportFailed, match=r"azure\.csv.*no durations.*overrun length train --trace"
    ):
        list(read_bodies(tmp_path / "azure.csv"))
    (tmp_path / "inputs.json").write_text('{"data": []}')
    with pytest.raises(ImportFailed, match=r"none of .* can be imported"):
        judged([tmp_path])
    (tmp_path / "profile_export.jsonl").write_bytes(FORMS["profile_export.jsonl"]())
    assert judged([tmp_path]).requests == 6


def test_warm_up_is_left_out_and_a_cancelled_request_is_a_failed_one() -> None:
    warm, cut = aiperf(0, 100, 200, 3), aiperf(100, 100, 200, 3)
    warm["metadata"]["benchmark_phase"], cut["metadata"]["was_cancelled"] = "warmup", True
    found: LoadTest = read(lines(warm, cut, aiperf(200, 100, 200, 3)))
    assert [request.error for request in found.requests] == ["cancelled", None]


def test_nothing_of_what_was_asked_or_answered_is_kept() -> None:
    secret = vllm(generated_texts=["the secret"] * 6, errors=["Bad request: the secret"] * 6)
    assert "secret" not in repr(read(lines(secret)))


def test_a_generators_table_that_is_broken_is_refused_in_words() -> None:
    head = (
        "response-time,DNS+dialup,DNS,Request-write,Response-delay,Response-read,status-code,offset"
    )
    with pytest.raises(ImportFailed, match="no table"):
        read(f"{head}\n0.1,0\r,0,0,0,0,200,1\n".encode())
