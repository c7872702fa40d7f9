"""A real Prometheus federates two engines: what `/federate` sends is read as those engines, and one that stops is down.

Debian's package gives the program (`make test` unpacks it where it can); without it the test is skipped, except where CI=true.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.sources import scrape
from tests.collector.conftest import rows
from tests.collector.sources.test_scrape import PAGE, scraped

PROMETHEUS = shutil.which("prometheus") or shutil.which(
    Path(sys.prefix) / "prometheus" / "usr" / "bin" / "prometheus"
)
CONFIG = """global: {scrape_interval: 1s}
scrape_configs:
- job_name: vllm
  static_configs: [{targets: [%s]}]
"""


class Engine:
    """A page whose counters grow by 100 tokens/s since the engine began."""

    def __init__(self) -> None:
        began = time.monotonic()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write((PAGE % {"tokens": 100.0 * (time.monotonic() - began)}).encode())

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.name = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[tuple[str, list[Engine]]]:
    if PROMETHEUS is None:
        if os.environ.get("CI") == "true":
            pytest.fail(
                "prometheus is not here: `make test` unpacks it, or apt-get install prometheus"
            )
        pytest.skip("prometheus is not here")
    engines = [Engine(), Engine()]
    config, port = tmp_path / "prometheus.yml", free_port()
    config.write_text(CONFIG % ", ".join(f'"{engine.name}"' for engine in engines))
    process = subprocess.Popen(
        [
            PROMETHEUS,
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + 60
        while True:
            try:
                if (
                    "vllm:generation_tokens_total"
                    in httpx.get(
                        f"{url}/federate", params={"match[]": '{job="vllm"}'}, trust_env=False
                    ).text
                ):
                    break
            except httpx.HTTPError:
                pass
            assert time.monotonic() < end, "prometheus did not scrape the engines within a minute"
            time.sleep(0.2)
        yield f"{url}/federate?match[]=%7Bjob%3D%22vllm%22%7D", engines
    finally:
        process.terminate()
        process.wait(30)
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
    rates = dict(
        rows(
            pipeline,
            "select instance, avg(value) from v_metric_points where indicator = 'output_tokens' group by instance",
        )
    )
    assert rates == {name: pytest.approx(100.0, rel=0.2) for name in names}
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
