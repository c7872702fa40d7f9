"""Run the demo: mock model server, RAG service and a seeded load; then send every span and say what was measured.

    python -m overrun.sample_traces.app.run --duration 15 --rate 30 --incident slow-retrieval --endpoint http://127.0.0.1:4318

Both servers listen on free ports of 127.0.0.1; the only other connection is the one to the OTLP endpoint.
"""

import argparse
import asyncio
import contextlib
import os
import random
import signal
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

import httpx
import uvicorn
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from starlette.types import ASGIApp

from overrun.sample_traces.app import model_server, rag
from overrun.sample_traces.app.backends import HANDBOOK_TOKENS, Backends
from overrun.sample_traces.app.incident import KINDS, Incident

# An overloaded machine must not pile up requests without end: past this many the open loop waits for one to finish.
MAX_IN_FLIGHT = 256
DRAIN_S = 20.0  # the longest healthy or faulty request takes about 8 s
ORDER_SHARE = 0.4
QUESTIONS = (
    "how long does a refund take",
    "which spare parts are kept in stock",
    "can I still change the address",
    "what do I need for a repair under guarantee",
)


@dataclass(frozen=True)
class Answer:
    """What the client saw of one request; times are None when it failed. `faulty`: sent after the incident began."""

    faulty: bool
    ttft_ms: float | None
    e2e_ms: float | None


class QuietServer(uvicorn.Server):
    """uvicorn without its signal handlers: two servers share this process, and the load decides when both stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


@dataclass
class CountedExporter(SpanExporter):
    """Passes spans on and counts those that were accepted and those that were not, for the summary line."""

    inner: SpanExporter
    accepted: int = field(default=0)
    refused: int = field(default=0)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export one batch."""
        result = self.inner.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.accepted += len(spans)
        else:
            self.refused += len(spans)
        return result

    def shutdown(self) -> None:
        """Close the inner exporter."""
        self.inner.shutdown()


@contextlib.asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[str]:
    """Serve an application on a free port of 127.0.0.1 for the length of the block; yields its base URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    # Connections live longer than any pause of the load: a server that closes an idle one races with its next request.
    config = uvicorn.Config(
        app, lifespan="off", ws="none", access_log=False, log_level="warning", timeout_keep_alive=60
    )
    server = QuietServer(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started and not task.done():
            await asyncio.sleep(0.01)  # uvicorn has no event for it
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()


def connect(base_url: str) -> httpx.AsyncClient:
    """A client that reuses its connections and ignores proxy settings, since both servers are on this machine."""
    limits = httpx.Limits(
        max_connections=None, max_keepalive_connections=MAX_IN_FLIGHT, keepalive_expiry=30
    )
    return httpx.AsyncClient(base_url=base_url, limits=limits, timeout=30, trust_env=False)


def question(generator: random.Random, number: int) -> dict[str, str]:
    """The body of request `number`; the number makes each question, and so each draw of the stand-ins, its own."""
    subject = (
        f"order {number + 10_000}"
        if generator.random() < ORDER_SHARE
        else f"case {number + 10_000}"
    )
    text = f"About {subject}: {generator.choice(QUESTIONS)}?"
    return {"product": generator.choice(sorted(HANDBOOK_TOKENS)), "question": text}


async def ask(client: httpx.AsyncClient, body: dict[str, str], faulty: bool) -> Answer:
    """Send one question and read the stream to its end, as a browser would."""
    started_s, first_s = time.monotonic(), None
    try:
        async with client.stream("POST", rag.ROUTE, json=body) as response:
            response.raise_for_status()
            async for _ in response.aiter_raw():
                first_s = first_s or time.monotonic()
    except httpx.HTTPError:
        return Answer(faulty, None, None)
    ended_s = time.monotonic()
    return Answer(faulty, ((first_s or ended_s) - started_s) * 1e3, (ended_s - started_s) * 1e3)


async def load(
    client: httpx.AsyncClient, options: argparse.Namespace, stop: asyncio.Event
) -> list[Answer]:
    """Poisson arrivals for `--duration` seconds, then the wait for the last answers."""
    generator = random.Random(options.seed)
    slots = asyncio.Semaphore(MAX_IN_FLIGHT)
    tasks: list[asyncio.Task[Answer]] = []
    started_s = due_s = time.monotonic()
    while not stop.is_set():
        due_s += generator.expovariate(options.rate)
        if due_s >= started_s + options.duration:
            break
        # Arrivals are due at fixed moments, however slow the answers are: waiting for answers would hide the slow ones.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), max(0.0, due_s - time.monotonic()))
        await slots.acquire()
        faulty = options.incident != "none" and due_s - started_s >= options.incident_after
        task = asyncio.create_task(ask(client, question(generator, len(tasks)), faulty))
        task.add_done_callback(lambda _: slots.release())
        tasks.append(task)
    return await drain(tasks)


async def drain(tasks: list[asyncio.Task[Answer]]) -> list[Answer]:
    """The answers in order of arrival; a request that hangs is cancelled after DRAIN_S and left out."""
    if tasks:
        _, hanging = await asyncio.wait(tasks, timeout=DRAIN_S)
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
    return [task.result() for task in tasks if not task.cancelled()]


async def drive(
    options: argparse.Namespace, service: TracerProvider, inference: TracerProvider
) -> list[Answer]:
    """Start both servers, send the load, stop both; returns what the client saw."""
    incident = Incident(options.incident, options.incident_after)
    backends = Backends(options.seed, incident)
    engine = model_server.Engine(inference, options.seed, incident)
    stop = asyncio.Event()
    with contextlib.suppress(
        NotImplementedError, ValueError
    ):  # no signals on Windows, nor outside the main thread
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with (
        serving(model_server.create_app(engine)) as engine_url,
        connect(f"{engine_url}/v1/") as model,
        serving(rag.create_app(backends, model, service.get_tracer("rag-demo"))) as service_url,
        connect(service_url) as client,
    ):
        for product in HANDBOOK_TOKENS:
            engine.warm(rag.system_prompt(product))
        incident.start()
        return await load(client, options, stop)


def summary(answers: list[Answer], incident: str, accepted: int, refused: int) -> str:
    """One line: counts, then P50 and P95 as the client measured them, for the healthy part and for the incident."""
    failed = sum(answer.e2e_ms is None for answer in answers)
    parts = [
        f"rag-demo: {len(answers)} requests, {failed} failed, {accepted} spans accepted, {refused} not"
    ]
    for name, faulty in (("healthy", False), (incident, True)):
        times = [
            (a.e2e_ms, a.ttft_ms) for a in answers if a.faulty is faulty and a.e2e_ms and a.ttft_ms
        ]
        if len(times) < 2:
            continue
        e2e, ttft = (
            [round(value) for value in p50_p95(column)] for column in zip(*times, strict=True)
        )
        parts.append(
            f"{name} n={len(times)} e2e_p50_ms={e2e[0]} e2e_p95_ms={e2e[1]} ttft_p50_ms={ttft[0]} ttft_p95_ms={ttft[1]}"
        )
    return "; ".join(parts)


def p50_p95(values: Sequence[float]) -> tuple[float, float]:
    """The two percentiles with linear interpolation; needs two values."""
    cuts = statistics.quantiles(values, n=20, method="inclusive")
    return cuts[9], cuts[18]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m overrun.sample_traces.app.run", description="Instrumented RAG demo."
    )
    parser.add_argument(
        "--duration",
        type=float,
        default=15.0,
        help="seconds of arrivals; the last answers come after",
    )
    parser.add_argument(
        "--rate", type=float, default=30.0, help="mean requests per second (Poisson)"
    )
    parser.add_argument("--incident", choices=KINDS, default="none")
    parser.add_argument(
        "--incident-after", type=float, help="seconds of healthy load first; default: half"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--endpoint", help="OTLP endpoint; default: OTEL_EXPORTER_OTLP_ENDPOINT")
    parser.add_argument(
        "--protocol", choices=("http/protobuf", "grpc"), help="default: OTEL_EXPORTER_OTLP_PROTOCOL"
    )
    options = parser.parse_args(arguments)
    if options.rate <= 0 or options.duration <= 0:
        parser.error(
            f"--rate and --duration must be above 0, got {options.rate} and {options.duration}"
        )
    if options.incident_after is None:
        options.incident_after = options.duration / 2
    return options


def set_environment(options: argparse.Namespace) -> None:
    """Flags become the OTEL_* variables that the SDK reads, so that the service itself knows only the standard way."""
    for name, value in (("ENDPOINT", options.endpoint), ("PROTOCOL", options.protocol)):
        if value:
            os.environ[f"OTEL_EXPORTER_OTLP_{name}"] = value
            os.environ.pop(f"OTEL_EXPORTER_OTLP_TRACES_{name}", None)  # it would win over the flag
    # The default batch waits 5 s: too long for someone who watches a dashboard fill.
    os.environ.setdefault("OTEL_BSP_SCHEDULE_DELAY", "500")
    os.environ.setdefault("OTEL_BSP_MAX_QUEUE_SIZE", "8192")
    # Exporters obey proxy variables even for this machine.
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = ",".join(
        [
            *filter(None, [os.environ.get("NO_PROXY") or os.environ.get("no_proxy")]),
            "127.0.0.1",
            "localhost",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns 0 when all spans were accepted, 1 when the endpoint refused some or was not there."""
    options = parse(arguments)
    set_environment(options)
    exporters = [CountedExporter(rag.span_exporter()) for _ in range(2)]
    service = rag.tracer_provider("rag-demo", "1.0.0", exporters[0])
    inference = rag.tracer_provider(
        "model-server", "0.33.0", exporters[1], **model_server.resource_attributes()
    )
    try:
        answers = asyncio.run(drive(options, service, inference))
    finally:
        for provider in (service, inference):
            provider.shutdown()  # sends what is still in the batch
    accepted, refused = (
        sum(counts) for counts in zip(*((e.accepted, e.refused) for e in exporters), strict=True)
    )
    print(summary(answers, options.incident, accepted, refused), file=sys.stderr)
    return 1 if refused or not accepted else 0


if __name__ == "__main__":
    sys.exit(main())
