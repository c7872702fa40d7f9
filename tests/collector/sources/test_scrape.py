"""Metrics pages of engines: what a page says, who is read how often, and pages behind which several processes stand."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import resource
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Enum,
    Gauge,
    Histogram,
    Info,
    generate_latest,
)
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics
from typer.testing import CliRunner

from overrun import cli
from overrun.collector.config import Settings, load
from overrun.collector.errors import BadPayload, ConfigError
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import METRICS
from overrun.collector.normalise.points import decode_points
from overrun.collector.normalise.spans import Rules
from overrun.collector.sources import prometheus, scrape
from overrun.collector.sources.importer import read_bodies
from tests.collector.conftest import T0_NS, rows
from tests.waiting import until_true

PAGE = """# HELP vllm:num_requests_waiting Number of requests waiting.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{model_name="m"} 7.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{model_name="m"} %(tokens)s
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="0.1",model_name="m"} 2.0
vllm:time_to_first_token_seconds_bucket{le="1.0",model_name="m"} 5.0
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 6.0
vllm:time_to_first_token_seconds_count{model_name="m"} 6.0
vllm:time_to_first_token_seconds_sum{model_name="m"} 4.5
# TYPE odd gauge
odd NaN
# TYPE python_gc summary
python_gc{quantile="0.5"} 0.1
python_gc_sum 3.0
python_gc_count 4.0
"""


# Where redirects lead, by their status.
PLACES: dict[Any, str] = {301: "http://192.0.2.1/metrics", 302: "/admin", 307: "/metrics/"}


class Page:
    """A small server of metrics pages: answers what `pages` holds in turn; an int is an HTTP status."""

    def __init__(self) -> None:
        self.pages: list[str | bytes | int] = [PAGE % {"tokens": 100}]
        self.headers: dict[str, str] = {}  # of every answer
        self.asked: set[str | None] = set()  # which compressions
        self.hosts: list[str] = []
        self.paths: list[str] = []
        self.token: str | None = None  # asked for
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page.hosts.append(self.headers["host"])
                page.paths.append(self.path)
                page.asked.add(self.headers["accept-encoding"])
                answer = page.pages.pop(0) if len(page.pages) > 1 else page.pages[0]
                if (
                    page.token is not None
                    and self.headers["authorization"] != f"Bearer {page.token}"
                ):
                    answer = 401
                self.send_response(answer if isinstance(answer, int) else 200)
                self.send_header("content-type", "text/plain; version=0.0.4; charset=utf-8")
                for name, value in page.headers.items():
                    self.send_header(name, value)
                if answer in PLACES:
                    self.send_header("location", PLACES[answer])
                self.end_headers()
                if not isinstance(answer, int):
                    with contextlib.suppress(ConnectionError):  # who reads has had enough
                        self.wfile.write(answer.encode() if isinstance(answer, str) else answer)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/metrics"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def page() -> Iterator[Page]:
    made = Page()
    yield made
    made.server.shutdown()
    made.server.server_close()


def scraped(pipeline: Pipeline, targets: list[scrape.Target], wanted: str) -> None:
    """Read until the query finds something; more may have been read by then."""

    async def run() -> None:
        scraper = scrape.Scraper(targets, pipeline.writer)
        await until_true(lambda: rows(pipeline, wanted))
        await scraper.close()

    asyncio.run(run())


def test_a_page_becomes_the_otlp_metrics_that_a_collector_would_send() -> None:
    families = prometheus.parse(PAGE % {"tokens": 100})
    body = prometheus.request(families, service="vllm", instance="gpu-0", time_ns=2_000)
    request = ExportMetricsServiceRequest.FromString(body)
    by_name = {m.name: m for m in request.resource_metrics[0].scope_metrics[0].metrics}
    assert set(by_name) == {
        "vllm:num_requests_waiting",
        "vllm:generation_tokens_total",
        "vllm:time_to_first_token_seconds",
        "python_gc",
    }
    total = by_name["vllm:generation_tokens_total"].sum
    assert (
        total.is_monotonic,
        total.data_points[0].as_double,
        total.data_points[0].start_time_unix_nano,
    ) == (True, 100.0, 0)
    seconds = by_name["vllm:time_to_first_token_seconds"].histogram.data_points[0]
    assert (
        list(seconds.explicit_bounds),
        list(seconds.bucket_counts),
        seconds.count,
        seconds.sum,
    ) == ([0.1, 1.0], [2, 3, 1], 6, 4.5)
    summary = by_name["python_gc"].summary.data_points[0]
    assert (summary.count, summary.sum, summary.quantile_values[0].value) == (4, 3.0, 0.1)
    assert prometheus.service_of(families) == "vllm"


def test_a_page_of_litellms_proxy_says_what_it_served() -> None:
    # A page of litellm[proxy] 1.106.2: four calls of gpt-4o, one answer out of its cache, a refusal, and one of `bad` that was sent again.
    text = (
        zstandard.ZstdDecompressor()
        .decompress((Path(__file__).parents[1] / "data" / "litellm-proxy.prom.zst").read_bytes())
        .decode()
    )
    body = prometheus.request(
        prometheus.parse(text), service="litellm", instance="gateway", time_ns=T0_NS
    )
    told: dict[str, float] = {}
    for row in decode_points(body, Rules()).rows:
        if row["indicator"]:
            told[row["indicator"]] = told.get(row["indicator"], 0.0) + (
                row["count"] if row["count"] is not None else row["value"]
            )
    counts = {
        name: value
        for name, value in told.items()
        if name not in ("remaining_requests", "remaining_tokens")
    }
    assert counts == {
        "gateway_requests": 7,
        "gateway_failures": 1,
        "gateway_e2e": 6,
        "gateway_queue": 6,
        "gateway_calls": 6,
        "gateway_call_failures": 2,
        "gateway_call_e2e": 5,
        "gateway_call_ttft": 1,
        "gateway_overhead": 5,
        "gateway_running": 1,
        "normalized_tpot": 6,
        "deployment_state": 1,
        "gateway_input_tokens": 1200,
        "gateway_output_tokens": 62,
        "gateway_cached_tokens": 160,
        "gateway_reasoning_tokens": 12,
        "response_cache_hits": 1,
        "response_cache_misses": 1,
    }
    assert 0 < told["remaining_requests"] < 600


def test_openmetrics_is_read_as_well_and_created_times_are_no_values() -> None:
    text = '# TYPE tgi_request counter\ntgi_request_total{a="b"} 5 1790000000.5\ntgi_request_created{a="b"} 1.0 1790000000.5\n# EOF\n'
    for content_type in ("application/openmetrics-text; version=1.0.0; charset=utf-8", ""):
        body = prometheus.request(
            prometheus.parse(text, content_type), service="tgi", instance="i", time_ns=2
        )
        (metric,) = (
            ExportMetricsServiceRequest.FromString(body)
            .resource_metrics[0]
            .scope_metrics[0]
            .metrics
        )
        point = metric.sum.data_points[0]
        assert (metric.name, point.as_double, point.time_unix_nano) == (
            "tgi_request_total",
            5.0,
            1_790_000_000_500_000_000,
        )


def _engine_registry() -> CollectorRegistry:
    """What vLLM registers, in kinds: a histogram with exemplars and one named like a counter, counters, gauges, an info and a state."""
    registry, labels = CollectorRegistry(), ("model_name", "engine")
    for name in ("vllm:iteration_tokens_total", "vllm:time_to_first_token_seconds"):
        histogram = Histogram(name, "", labels, registry=registry, buckets=(0.1, 1.0))
        for engine in ("0", "1"):
            histogram.labels("m", engine).observe(0.5, {"trace_id": "1f"})
    Counter("vllm:num_preemptions", "", labels, registry=registry).labels("m", "0").inc(
        3, {"trace_id": "1f"}
    )
    Gauge("vllm:num_requests_running", "", labels, registry=registry).labels(
        'org/"m" # {x="y"} 1', "0"
    ).set(4)
    Gauge("vllm:kv_cache_usage_perc", "", labels, registry=registry).labels("m", "0").set(math.nan)
    Info("python", "", registry=registry).info({"version": "3"})
    Enum("vllm:engine_sleep_state", "", registry=registry, states=["awake", "asleep"]).state(
        "asleep"
    )
    return registry


def test_a_page_of_prometheus_client_says_the_same_in_either_format() -> None:
    """Its OpenMetrics has `vllm:` in the types and `vllm_` in the samples."""
    told = []
    for text in (generate_latest(_engine_registry()), open_metrics(_engine_registry())):
        body = prometheus.request(
            prometheus.parse(text.decode()), service="vllm", instance="i", time_ns=T0_NS
        )
        points = decode_points(body, Rules()).rows
        told.append(
            {
                (p["indicator"], p["kind"], p["model"], p["value"], p["count"], str(p["counts"]))
                for p in points
                if p["indicator"]
            }
        )
    assert (
        told[0]
        == told[1]
        == {
            ("batch_tokens", 3, "m", None, 1.0, "[0.0, 1.0, 0.0]"),
            ("ttft", 3, "m", None, 1.0, "[0.0, 1.0, 0.0]"),
            ("preemptions", 2, "m", 3.0, None, "None"),
            ("running", 1, 'org/"m" # {x="y"} 1', 4.0, None, "None"),
        }
    )


@pytest.mark.parametrize(
    "text",
    [
        '# TYPE a counter\na{b="c"} 5 1.5 # {x="y"} 1\n# EOF\n',
        '# TYPE a counter\n# UNIT a s\na_total{b="c"} 5 1.5\na_created{b="c"} 1\n# EOF',
        '# TYPE a counter\r\na_total{b="c"} 5 1.5\r\n# EOF\r\n',
    ],
)
def test_openmetrics_need_not_be_strict(text: str) -> None:
    [family] = [f for f in prometheus.parse(text) if f.samples]
    assert (family.type, [(s.labels, s.value, s.timestamp) for s in family.samples]) == (
        "counter",
        [({"b": "c"}, 5.0, 1.5)],
    )


_LABELS = "a='b'|a='c'|le='+Inf'|m=' x,y} # {'|__a='b'|é='b'|a='\\'|a='''| a = 'b' ||a='|a"
_STARTS = ("", " ", "# TYPE x histogram\n", "# HELP x y\n", "# TYPE x counter\n")
_LINE = st.tuples(
    st.sampled_from(
        [f"{before}{name}" for before in _STARTS for name in ("x", "x_bucket", "é", "x ")]
    ),
    st.lists(st.sampled_from(_LABELS.replace("'", '"').split("|")), max_size=3).map(
        lambda labels: "{" + ",".join(labels) + "}" if labels else ""
    ),
    st.sampled_from((" 1", "\t1e3  5 ", "2", " 1 # {} 2", " 1 # 2", "", " x", " 1\r", "{} 1")),
).map("".join)


@given(text=st.lists(_LINE, max_size=6).map("\n".join))
def test_labels_are_read_as_prometheus_client_reads_them(text: str) -> None:
    try:
        right = list(prometheus.plain_text(text))
    except (ValueError, KeyError, IndexError, TypeError):
        with pytest.raises(BadPayload):
            prometheus.parse(text)
    else:
        assert prometheus.parse(text) == right


@pytest.mark.parametrize("text", ["<html>no</html>", 'a{b="c} 1\n', "name\n", "a 1 2 3 4 x\n"])
def test_what_is_no_metrics_page_is_said(text: str) -> None:
    with pytest.raises(BadPayload, match="not Prometheus text"):
        prometheus.parse(text)


def test_a_counter_is_counted_from_the_start_that_its_page_says_or_from_nobody_knows_when() -> None:
    for said, start_ns in (
        ("", 0),
        ("process_start_time_seconds 1.5\n", 1_500_000_000),
        ("process_start_time_seconds 9e8\n", 10_000_000_000),
    ):
        body = prometheus.request(
            prometheus.parse(said + PAGE % {"tokens": 1}),
            service="s",
            instance="i",
            time_ns=10_000_000_000,
        )
        starts = {
            p.start_time_unix_nano
            for m in ExportMetricsServiceRequest.FromString(body)
            .resource_metrics[0]
            .scope_metrics[0]
            .metrics
            for p in (*m.sum.data_points, *m.histogram.data_points)
        }
        assert starts == {start_ns}


def test_a_reader_that_begins_anew_finds_no_restart_of_the_engine(pipeline: Pipeline) -> None:
    for second, tokens in ((10, 1_000), (20, 1_100), (30, 1_200)):
        body = prometheus.request(
            prometheus.parse(PAGE % {"tokens": tokens}),
            service="vllm",
            instance="i",
            time_ns=T0_NS + second * 10**9,
        )
        pipeline.writer.submit(METRICS, body).result(30)
    assert rows(
        pipeline, "select value from v_metric_points where indicator = 'output_tokens'"
    ) == [(10.0,), (10.0,)]


def test_a_target_is_read_into_indicators_with_its_instance_and_up(
    pipeline: Pipeline, page: Page
) -> None:
    targets = [scrape.Target(page.url, "gpu-0", 0.1)]
    scraped(pipeline, targets, "select 1 from v_metric_points where indicator = 'up'")
    found = set(
        rows(
            pipeline,
            "select distinct indicator, instance, model, value from v_metric_points where indicator in ('queue_depth', 'up')",
        )
    )
    assert found == {("queue_depth", "gpu-0", "m", 7.0), ("up", "gpu-0", None, 1.0)}
    assert rows(
        pipeline, "select distinct bounds, counts from v_metric_histograms where indicator = 'ttft'"
    ) == [([0.1, 1.0], [2.0, 3.0, 1.0])]


def test_a_page_that_asks_for_a_token_gets_the_targets(
    pipeline: Pipeline, page: Page, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    page.token = "new"
    scraped(
        pipeline,
        [scrape.Target(page.url, None, 0.1, file)],
        "select 1 from points where indicator = 'up' and value = 0",
    )
    assert "401: name a token_file" in caplog.text
    file.write_text("new\n")
    scraped(
        pipeline,
        [scrape.Target(page.url, None, 0.1, file)],
        "select 1 from points where indicator = 'up' and value = 1",
    )


def test_a_target_that_does_not_answer_is_down_and_waited_for_longer_each_time(
    pipeline: Pipeline, page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    page.pages = [503, 503, "not a page at all {", PAGE % {"tokens": 1}]
    scraped(
        pipeline,
        [scrape.Target(page.url, None, 0.1)],
        "select 1 from points where indicator = 'up' and value = 1",
    )
    ups = rows(
        pipeline, "select value, time_ns from points where indicator = 'up' order by time_ns"
    )
    assert [value for value, _ in ups[:4]] == [0.0, 0.0, 0.0, 1.0]
    gaps = [(b - a) / 1e9 for (_, a), (_, b) in itertools.pairwise(ups[:4])]
    assert all(gap >= wanted for gap, wanted in zip(gaps, (0.15, 0.35, 0.75), strict=True)), gaps
    assert all(said in caplog.text for said in ("answered 503", "not Prometheus text"))
    states = rows(
        pipeline,
        "select attributes['state'], attributes['reason'] from points where indicator = 'up' order by time_ns",
    )
    assert states[:4] == [("down", "answered 503")] * 2 + [
        ("unreadable", "no metrics page"),
        ("up", None),
    ]
    assert rows(
        pipeline,
        "select instance, state, reason, attempts, answered, interval, epoch_ns(since) from v_targets",
    ) == [
        (
            f"127.0.0.1:{page.port}",
            "up",
            None,
            len(ups),
            len(ups) - 3,
            0.1,
            ups[3][1] // 1000 * 1000,
        )
    ]
    assert rows(pipeline, "select distinct instance from points") == [(f"127.0.0.1:{page.port}",)]


def test_a_redirect_is_followed_to_the_same_page_with_a_slash_only(
    pipeline: Pipeline, page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    page.pages = [301, 302, 307, 307, 307, PAGE % {"tokens": 1}]
    scraped(
        pipeline,
        [scrape.Target(page.url, None, 0.1)],
        "select 1 from points where indicator = 'up' and value = 1",
    )
    assert page.paths[:6] == ["/metrics"] * 3 + ["/metrics/"] + ["/metrics", "/metrics/"]
    assert "redirects to 'http://192.0.2.1/metrics': scrape that address" in caplog.text
    assert f"redirects to 'http://127.0.0.1:{page.port}/admin'" in caplog.text
    assert "redirects more than once" in caplog.text


def test_a_redirect_to_nowhere_is_a_target_that_is_down(
    pipeline: Pipeline, page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    page.pages = [303, 304, PAGE % {"tokens": 1}]
    scraped(
        pipeline,
        [scrape.Target(page.url, None, 0.1)],
        "select 1 from points where indicator = 'up' and value = 1",
    )
    assert "it answered 303" in caplog.text
    assert "it answered 304" in caplog.text
    assert not any(record.exc_info for record in caplog.records)
    assert rows(pipeline, "select count(*) from points where indicator = 'up' and value = 0") == [
        (2,)
    ]


@pytest.mark.parametrize(
    ("content", "headers", "reason"),
    [
        (
            zstandard.compress(b"a 1\n" * (16 << 20)),
            {"content-encoding": "zstd"},
            "compressed without request",
        ),
        (b"# " + b"x" * scrape.MAX_PAGE, {}, "too large"),
        (b"a 1\n" * 400_000, {}, "too large"),
        (b"a{" + b'b="",' * 1_100_000 + b"} 1\n", {}, "too large"),
        (b"# TYPE a gauge\n" + b"a 1\n" * 110_000, {}, "too large"),
    ],
    ids=["compressed", "bytes", "lines", "labels", "samples"],
)
def test_a_page_larger_than_any_engines_is_named_so_and_takes_little(
    pipeline: Pipeline, page: Page, content: bytes, headers: dict[str, str], reason: str
) -> None:
    page.pages, page.headers = [content], headers
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    scraped(
        pipeline,
        [scrape.Target(page.url, None, 0.1)],
        f"select 1 from points where attributes['reason'] = '{reason}'",
    )
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10
    assert page.asked == {"identity"}


@pytest.mark.parametrize(
    "sample",
    [
        "vllm:num_requests_running 1 -5",
        "vllm:num_requests_running 1 99999999999999999999",
        '# TYPE h histogram\nh_bucket{le="+Inf"} 1e300',
    ],
)
def test_a_page_with_impossible_numbers_is_no_page_and_the_next_one_is_read(
    pipeline: Pipeline, page: Page, sample: str
) -> None:
    page.pages = [sample + "\n", PAGE % {"tokens": 1}]
    scraped(
        pipeline,
        [scrape.Target(page.url, None, 0.1)],
        "select 1 from points where indicator = 'up' and value = 1",
    )
    assert rows(pipeline, "select value from points where indicator = 'up' order by time_ns")[
        0
    ] == (0.0,)


def test_a_page_that_jumps_between_processes_is_called_out_and_not_read_as_resets(
    pipeline: Pipeline, page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    page.pages = [PAGE % {"tokens": n} for n in (9_000, 100, 9_010, 110, 9_020, 120, 9_030, 130)]
    scraped(
        pipeline,
        [scrape.Target(page.url, "lb", 0.1)],
        "select 1 from points where value = 130 and kind = 2",
    )
    assert "answers for several processes in turn" in caplog.text
    apart = rows(
        pipeline,
        "select instance, max(value) from points where kind = 2 and instance like 'lb#%' group by all order by all",
    )
    assert apart == [("lb#0", 9_030.0), ("lb#1", 130.0)]


def test_a_restart_is_no_second_process() -> None:
    processes = scrape.Processes()
    assert [processes.identify({"a": v}) for v in (10.0, 100.0, *range(1, 26), 200.0)] == [0, 0] + [
        1
    ] * 26
    told = scrape.Processes()
    assert [
        told.identify({"a": v}, started) for v, started in ((20.0, 1.0), (3.0, 2.0), (25.0, 2.0))
    ] == [0, 1, 1]
    assert (processes.flips, told.flips) == (0, 0)


def test_of_a_page_with_many_counters_some_recognise_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scrape, "MOST_COUNTERS", 5)
    counters = {("x", str(n)): float(n) for n in range(1_000)}
    some = scrape._some(counters)
    assert len(some) == 5
    assert scrape._some(dict(reversed(counters.items()))).keys() == some.keys()
    assert scrape._some(some) is some


def test_returns_are_told_by_the_start_of_the_process_too() -> None:
    processes = scrape.Processes()
    assert [
        processes.identify({"a": v}, started)
        for v, started in ((5.0, 1.0), (6.0, 2.0), (7.0, 1.0), (8.0, 2.0))
    ] == [0, 1, 0, 1]
    assert processes.flips == 2


def test_every_address_behind_a_name_is_an_instance(
    pipeline: Pipeline, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def two(host: str, port: int) -> list[str]:
        return ["127.0.0.1", "127.0.0.2"]

    monkeypatch.setattr(scrape, "_addresses", two)
    scraped(
        pipeline,
        [scrape.Target(f"http://engines.test:{page.port}/metrics", None, 0.1)],
        "select 1 from points where indicator = 'up' group by all having count(distinct instance) = 2",
    )
    found = dict(
        rows(
            pipeline, "select instance, max(value) from points where indicator = 'up' group by all"
        )
    )
    assert set(found) == {
        f"engines.test/127.0.0.1:{page.port}",
        f"engines.test/127.0.0.2:{page.port}",
    }
    assert found[f"engines.test/127.0.0.1:{page.port}"] == 1.0
    assert page.hosts[0] == f"engines.test:{page.port}"


def test_localhost_is_one_instance() -> None:
    assert asyncio.run(scrape._addresses("127.0.0.1", 1)) == []
    assert len(asyncio.run(scrape._addresses("localhost", 80))) <= 1


def test_targets_come_from_flags_and_the_settings_file(tmp_path: Path) -> None:
    path = tmp_path / "overrun.toml"
    path.write_text(
        '[scrape]\ninterval_s = 2\nurls = ["http://a:1"]\ntargets = [{url = "http://b:2/x", instance = "gpu", token_file = "t"}]\n'
    )
    assert scrape.targets(load(path, {}).scrape, ["http://c:3/metrics", "http://a:1/metrics"]) == [
        scrape.Target("http://c:3/metrics", None, 2.0),
        scrape.Target("http://a:1/metrics", None, 2.0),
        scrape.Target("http://b:2/x", "gpu", 2.0, Path("t")),
    ]
    assert scrape.targets(Settings().scrape) == []


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"every": 1}, "unknown key .scrape. every"),
        ({"urls": ["ftp://x"]}, "ftp://x.*is not a URL"),
        ({"urls": "http://x"}, "is not a list"),
        ({"targets": [{"name": "x"}]}, "is not a target"),
        ({"interval_s": 0}, "interval_s = 0"),
        ({"urls": ["http://h:99999"]}, "is not a URL"),
    ],
)
def test_a_wrong_target_stops_the_start(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        scrape.targets(table)


def test_the_command_refuses_a_wrong_target(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        cli.app,
        [
            "serve",
            "--db",
            str(tmp_path / "t.db"),
            "--scrape",
            "localhost:8000",
            "--http-port",
            "0",
            "--grpc-port",
            "0",
        ],
    )
    assert done.exit_code == 2
    assert "http://127.0.0.1:8000/metrics" in done.output


def test_a_saved_page_is_imported_with_the_time_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "gpu-3").mkdir()
    path = tmp_path / "gpu-3" / "page.prom"
    path.write_text(PAGE % {"tokens": 5})
    ((signal, body),) = read_bodies(path)
    request = ExportMetricsServiceRequest.FromString(body)
    attributes = {
        a.key: a.value.string_value for a in request.resource_metrics[0].resource.attributes
    }
    assert (signal, attributes) == (
        "metrics",
        {"service.name": "vllm", "service.instance.id": "gpu-3"},
    )
    point = request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0]
    assert point.time_unix_nano == path.stat().st_mtime_ns


def test_a_free_port_that_nobody_answers_on_is_down(pipeline: Pipeline) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}/metrics"
        scraped(
            pipeline,
            [scrape.Target(url, "gone", 0.1)],
            "select 1 from points where indicator = 'up' and value = 0 and instance = 'gone'",
        )
    assert rows(pipeline, "select instance, state, reason from v_targets") == [
        ("gone", "down", "connection refused")
    ]


@pytest.mark.parametrize("equals", ['="', '= "', ' = "'])
def test_a_page_of_labels_without_end_is_refused_before_it_is_parsed(
    monkeypatch: pytest.MonkeyPatch, equals: str
) -> None:
    def parse(text: str) -> Any:
        raise AssertionError("it was parsed")

    monkeypatch.setattr(prometheus, "plain_text", parse)
    wide = ",".join(f'l{n}{equals}x"' for n in range(20_000))
    with pytest.raises(prometheus.TooManySamples, match="characters in one line"):
        prometheus.parse(f"# TYPE vllm:x gauge\nvllm:x{{{wide}}} 1\n")
    monkeypatch.setattr(prometheus, "MAX_LABELS", 1_000)
    many = "\n".join(f'vllm:x{{a{equals}{n}"}} 1' for n in range(2_000))
    with pytest.raises(prometheus.TooManySamples, match="1,000 labels"):
        prometheus.parse(many)
