"""Real servers, real dashboards and the system's Chromium for the browser tests."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2
from streamlit.components.v2 import manifest_scanner

from overrun.dashboard import launch
from tests.analysis.builders import store
from tests.conftest import ServerProcess, settled
from tests.dashboard.fake_api import FakeApi, fake_api
from tests.dashboard.watched import Open, Site, Watched
from tests.waiting import LIMIT_S

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
# Written into every attribute that reaches a page; each would leave a mark on `window` if anything ran it.
HOSTILE = (
    "<script>window.pwned=1</script>",
    '"><img src=x onerror="window.pwned=2">',
    "[a](javascript:window.pwned=3) **b** $\\alpha$",
    "\x1b[31mred\x1b[0m <svg/onload=window.pwned=4>",
    "{{7*7}} </style><style>body{display:none}</style>",
)


@pytest.fixture(autouse=True)
def _no_components(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streamlit looks through every installed package for components before each run of a page in this process: half of the time a run takes."""
    monkeypatch.setattr(manifest_scanner, "scan_component_manifests", list)


# --no-opt: no page here lives long enough to earn back what optimising its program costs, a tenth of the browser's time.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--js-flags=--no-opt",
]


@pytest.fixture(
    scope="module"
)  # Playwright keeps an event loop running in this thread: not beyond the tests that need it
def chromium() -> Iterator[Any]:
    """What starts the system's Chromium."""
    if CHROMIUM is None:
        message = (
            "no system Chromium: install it (apt-get install chromium) to run the browser tests"
        )
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        yield playwright.chromium


@pytest.fixture(scope="module")
def browser(chromium: Any) -> Iterator[Any]:
    """The system's Chromium, headless and silent; every context of it begins with nothing."""
    running = chromium.launch(executable_path=CHROMIUM, args=FLAGS)
    yield running
    running.close()


@pytest.fixture(scope="module")
def context(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One light profile, on disk: only there Chromium keeps what it compiled of the program, half of what loading a page costs it."""
    made = chromium.launch_persistent_context(
        tmp_path_factory.mktemp("profile"),
        executable_path=CHROMIUM,
        args=FLAGS,
        color_scheme="light",
        reduced_motion="reduce",
        viewport={"width": 1280, "height": 900},
    )
    made.set_default_timeout(1_000 * LIMIT_S)  # a slow machine is no failure
    yield made
    made.close()


@pytest.fixture
def opened(context: Any) -> Iterator[Open]:
    """Open a page; closed at the end of the test."""
    made: list[Watched] = []

    def new() -> Watched:
        made.append(Watched(context))
        return made[-1]

    yield new
    for watched in made:
        watched.page.close()


@pytest.fixture(scope="module")
def empty_api() -> Iterator[FakeApi]:
    """A server that holds nothing, in this process: a test that has its lock keeps it waiting."""
    with fake_api(store()) as api:
        yield api


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory, empty_api: FakeApi
) -> Iterator[dict[str, Site]]:
    """A server with its dashboard, which holds, each in a window of its own, the demo recording, an engine without metrics, a client alone, hostile
    names and one single request; and a dashboard over an API that holds nothing."""
    with ExitStack() as stack:
        server = ServerProcess(tmp_path_factory.mktemp("demo") / "overrun.db", forked=True)
        stack.callback(server.stop)
        apis = {"demo": server.http, "empty": empty_api.url}
        ports = {name: launch.pick_port(0) for name in apis}
        dashboards = {name: launch.run(url, ports[name]) for name, url in apis.items()}
        for process in dashboards.values():
            stack.callback(_ended, process)
        recorded = _send_recordings(server.http)
        made = {
            "hostile": send_made(server.http, timedelta(hours=3), 120),
            "one": send_made(server.http, timedelta(hours=6), 1),
        }
        settled(server.http)
        urls = {name: launch.wait_ready(dashboards[name], ports[name]) for name in apis}
        windows = recorded | made
        yield {
            name: Site(urls["demo"], server.http, window) for name, window in windows.items()
        } | {"empty": Site(urls["empty"], apis["empty"], {})}


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(LIMIT_S)


RECORDED = {
    "demo": "vllm-spans",
    "metrics-missing": "sglang-spans",
    "client-only": "semconv-genai-openai",
}


def _send_recordings(base: str) -> dict[str, dict[str, str]]:
    command = [
        sys.executable,
        "-m",
        "overrun.sample_traces.replay",
        "--endpoint",
        base,
        "--recording",
        *RECORDED.values(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    sent = {
        row["name"]: {"from": row["from"], "to": row["to"], "slo": row["slo"]}
        for row in json.loads(done.stdout)["recordings"]
    }
    return {name: sent[recording] for name, recording in RECORDED.items()}


def send_made(
    base: str, ago: timedelta, count: int, names: Sequence[str] = HOSTILE
) -> dict[str, str]:
    """Requests whose every name is an attack (or one of `names`), one a second; returns their window."""
    start = datetime.now(UTC) - ago
    body = _made_body(start, int(start.timestamp()), count, names)
    answer = httpx.post(
        f"{base}/v1/traces",
        content=body,
        headers={"content-type": "application/x-protobuf"},
        trust_env=False,
        timeout=LIMIT_S,
    )
    assert answer.status_code == 200, answer.text
    times = {"from": start - timedelta(seconds=1), "to": start + timedelta(minutes=3)}
    return {name: time.strftime("%Y-%m-%dT%H:%M:%SZ") for name, time in times.items()}


def _made_body(start: datetime, seed: int, count: int, names: Sequence[str]) -> bytes:
    """Slow requests: a SERVER root with a retrieval and a streamed model call."""
    request = ExportTraceServiceRequest()
    for number in range(count):
        evil = names[number % len(names)]
        group = request.resource_spans.add(
            resource=Resource(attributes=[_text("service.name", evil)])
        )
        begin = int((start + timedelta(seconds=number)).timestamp() * 1e9)
        trace, root = (1_000_000 * seed + number).to_bytes(16, "big"), (1).to_bytes(8, "big")
        spans = [
            (
                root,
                b"",
                evil,
                trace_pb2.Span.SPAN_KIND_SERVER,
                0,
                6000,
                [_text("http.route", evil), _text("http.request.method", "POST")],
            ),
            (
                (2).to_bytes(8, "big"),
                root,
                f"retrieval {evil}",
                trace_pb2.Span.SPAN_KIND_CLIENT,
                0,
                4000,
                [_text("gen_ai.operation.name", "retrieval")],
            ),
            (
                (3).to_bytes(8, "big"),
                root,
                f"chat {evil}",
                trace_pb2.Span.SPAN_KIND_CLIENT,
                4000,
                2000,
                [
                    _text("gen_ai.operation.name", "chat"),
                    _text("gen_ai.request.model", evil),
                    _text("error.note", evil),
                    KeyValue(
                        key="gen_ai.response.time_to_first_chunk", value=AnyValue(double_value=0.5)
                    ),
                    KeyValue(key="gen_ai.usage.output_tokens", value=AnyValue(int_value=100)),
                ],
            ),
        ]
        group.scope_spans.add(
            spans=[
                trace_pb2.Span(
                    trace_id=trace,
                    span_id=span,
                    parent_span_id=parent,
                    name=name,
                    kind=kind,
                    start_time_unix_nano=begin + offset * 10**6,
                    end_time_unix_nano=begin + (offset + length) * 10**6,
                    attributes=attributes,
                )
                for span, parent, name, kind, offset, length, attributes in spans
            ]
        )
    return request.SerializeToString()


def _text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))
