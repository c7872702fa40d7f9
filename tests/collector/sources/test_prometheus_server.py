"""A real Prometheus federates two engines: what `/federate` sends is read as those engines, and one that stops is down.

Debian's package gives the program (`make test` unpacks it where it can); without it the test is skipped, except where CI=true.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.sources import scrape
from tests.collector.conftest import rows
from tests.collector.sources.remote.real_prometheus import PROMETHEUS, listening, wanted
from tests.collector.sources.test_scrape import PAGE, scraped
from tests.waiting import LIMIT_S, until

CONFIG = """global: {scrape_interval: 1s}
scrape_configs:
- job_name: vllm
  static_configs: [{targets: [%s]}]
"""


class Engine:
    """A page whose counter of tokens grows by 100 each time that it is read."""

    def __init__(self) -> None:
        tokens = itertools.count(100, 100)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write((PAGE % {"tokens": next(tokens)}).encode())

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.name = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[tuple[str, list[Engine]]]:
    wanted()
    engines = [Engine(), Engine()]
    config = tmp_path / "prometheus.yml"
    config.write_text(CONFIG % ", ".join(f'"{engine.name}"' for engine in engines))
    flags = (f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}")
    asked = "/federate?match[]=%7Bjob%3D%22vllm%22%7D"
    with listening(PROMETHEUS, *flags) as url:
        get = functools.partial(httpx.get, trust_env=False, verify=False, timeout=LIMIT_S)
        until(lambda: "vllm:generation_tokens_total" in get(url + asked).text)
        yield url + asked, engines
    for engine in engines:
        engine.stop()


def test_a_federated_page_is_read_as_its_engines(
    pipeline: Pipeline, federation: tuple[str, list[Engine]]
) -> None:
    url, engines = federation
    names = sorted(engine.name for engine in engines)
    both = "having count(distinct instance) = 2 and count(distinct time_ns) >= 6"
    scraped(
        pipeline,
        [scrape.Target(url, "prometheus", 0.5)],
        f"select 1 from points where indicator = 'output_tokens' {both}",
    )
    assert rows(
        pipeline,
        "select distinct instance from v_metric_points where indicator = 'queue_depth' order by all",
    ) == [(name,) for name in names]
    assert rows(
        pipeline, "select max(value) from v_metric_points where indicator = 'queue_depth'"
    ) == [(7.0,)]  # and not as often as it was read
    tokens = "where indicator = 'output_tokens' order by all"
    read = rows(pipeline, f"select distinct instance, time_ns / 1e9, value from points {tokens}")
    rates = [
        (name, pytest.approx((after - before) / (then - once), rel=1e-3))
        for (name, once, before), (of, then, after) in itertools.pairwise(read)
        if name == of
    ]
    assert {value % 100 for _, _, value in read} == {0.0}
    assert [
        (name, value)
        for name, _, value in rows(
            pipeline, f"select instance, time, value from v_metric_points {tokens}"
        )
    ] == rates
    assert rows(
        pipeline,
        "select distinct instance, bounds, counts from v_metric_histograms where indicator = 'ttft' order by all",
    ) == [(name, [0.1, 1.0], [2.0, 3.0, 1.0]) for name in names]
    states = "select instance, state from v_targets where instance <> 'prometheus' order by all"
    assert rows(pipeline, states) == [(name, "up") for name in names]
    engines[0].stop()
    scraped(
        pipeline,
        [scrape.Target(url, "prometheus", 0.5)],
        f"select 1 from v_targets where instance = '{engines[0].name}' and state = 'down'",
    )
    assert dict(rows(pipeline, states)) == {engines[0].name: "down", engines[1].name: "up"}
