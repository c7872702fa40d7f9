"""What happened? One simulated window: a world before the onset, another after it, everything that was seen, and how long users waited."""

from __future__ import annotations

from dataclasses import dataclass

from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics

from overrun.sample_traces.simulator import traffic
from overrun.sample_traces.simulator.app import App, Outcome
from overrun.sample_traces.simulator.calls import Caller
from overrun.sample_traces.simulator.clock import Clock, Process
from overrun.sample_traces.simulator.engine import Engine
from overrun.sample_traces.simulator.provider import Provider
from overrun.sample_traces.simulator.scrape import Scraper, scrape_gpu
from overrun.sample_traces.simulator.settings import Settings, Telemetry
from overrun.sample_traces.simulator.spans import Book, Span
from overrun.sample_traces.simulator.traffic import Plan

# After the last arrival the world goes on until its requests have ended, but not for ever where a queue never drains.
_DRAIN_S = 240.0


@dataclass(frozen=True)
class Window:
    """All that a run left behind. `outcomes` are in order of their ends; times in seconds since the window's start."""

    spans: list[Span]
    scrapes: list[list[ResourceMetrics]]
    outcomes: list[Outcome]
    arrivals: int
    engines: list[Engine]


def simulate(
    plan: Plan,
    *,
    duration_s: float,
    seed: int,
    telemetry: Telemetry,
    start_ns: int = 0,
    name: str = "",
    dice: int = 0,
) -> Window:
    """Run one window; the same input gives the same output, bit for bit.

    `name` keeps the ids of different windows of one seed apart; with other `dice` the same requests meet other hiccups of the engines.
    """
    clock, book = Clock(), Book(f"{name}/{seed}")
    base = plan[0][1]
    state = [base]
    engines = [
        Engine(clock, base, index, seed, dice)
        for index in range(0 if base.provider else base.replicas)
    ]
    caller = Caller(clock, book, lambda: engines, Provider(seed), telemetry.chunk_events)
    app = App(clock, book, lambda: state[0], caller)
    requests = traffic.draw(plan, duration_s, seed)

    def change(to: Settings) -> None:
        _reconfigure(clock, engines, state[0], to, seed, dice)
        state[0] = to

    for since, settings in plan[1:]:
        clock.at(since, change, settings)
    for request in requests:
        clock.at(request.at, _arrive, clock, app.handle(request))
    scrapes: list[list[ResourceMetrics]] = []
    if telemetry.engine_metrics and not base.provider:
        clock.start(_scraping(engines, telemetry.scrape_s, duration_s, start_ns, scrapes))
    clock.run(duration_s + _DRAIN_S)
    return Window(book.spans, scrapes, app.outcomes, len(requests), engines)


def _reconfigure(
    clock: Clock, engines: list[Engine], now: Settings, to: Settings, seed: int, dice: int
) -> None:
    """Other flags for the engines that run; replicas that are added or cold begin with an empty cache."""
    for index in range(len(engines), 0 if to.provider else to.replicas):
        engines.append(Engine(clock, to, index, seed, dice))
        engines[index].born = clock.now
    for engine in engines:
        engine.reconfigure(to)
        if engine.index in to.cold_replicas and engine.index not in now.cold_replicas:
            engine.born = clock.now
            engine.cache.clear()
            engine.kv_cache = 0
    if not to.provider:
        del engines[to.replicas :]


def _arrive(clock: Clock, process: Process) -> None:
    clock.start(process)


def _scraping(
    engines: list[Engine],
    every_s: float,
    duration_s: float,
    start_ns: int,
    out: list[list[ResourceMetrics]],
) -> Process:
    scrapers: dict[int, Scraper] = {}
    elapsed = 0.0
    while elapsed < duration_s:
        out.append(
            [
                scrapers.setdefault(engine.index, Scraper(engine)).scrape(start_ns)
                for engine in engines
            ]
        )
        out[-1] += [scrape_gpu(engine, start_ns) for engine in engines]
        yield every_s
        elapsed += every_s
