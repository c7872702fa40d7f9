"""Which windows did nobody tune the rules on? Small worlds whose laws of service are other ones than those of our simulators, each broken in a few ways.

A heavy-tailed M/G/k, processor sharing, a server that polls two classes, a provider with a token bucket, a single-threaded front, and an application around a
quick model. Constants are round numbers that were chosen before any report was read. Half of a window is healthy; then one thing changes. The limit is what
the healthy half kept at P95, and a third more. `SIGHTS` are what the sender may leave out. Used by `referee_set --worlds FOLDER`.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from overrun.analysis.front.file_import import import_files
from overrun.collector.config import load
from tests.corpus.otlp import CLIENT, chat, resource, span, write

HALF_MS: Final = 600_000.0
# A hard window: so many of all its requests miss the limit, twice as many of those since the change. That is the middle of the 2 to 5 % of our simulator's.
HARD: Final = 0.045
_HALVINGS: Final = 9
# What a sender leaves out: nothing, engine spans, also first tokens, token counts, all that was before the change, most requests, two traces in three.
SIGHTS: Final = ("whole", "client", "no_first", "no_tokens", "no_baseline", "few", "one_in_three")


@dataclass
class Call:
    """One request with its model call: when it was asked, what it carries, and what each part of it took (ms)."""

    at: float
    input: int
    output: int
    tenant: str = "a"
    kind: str = "m"
    engine: str = "e0"
    search: float = 60.0
    before: float = 0.0  # in the application before the call, without a span
    attempts: list[tuple[float, float, int]] = field(default_factory=list)  # from, for, status
    front: float = 5.0  # between client and engine
    queue: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0

    @property
    def call_at(self) -> float:
        return self.at + self.search + self.before

    @property
    def first(self) -> float:
        return self.front + self.queue + self.prefill + self._lost

    @property
    def _lost(self) -> float:
        return next((start for start, _, status in self.attempts if status == 200), 0.0)

    @property
    def whole(self) -> float:
        return self.first + self.decode

    @property
    def e2e(self) -> float:
        return self.search + self.before + self.whole + 10.0


class Stored(NamedTuple):
    """A window's store, its limit, and the part of the requests since the change that miss it."""

    db: Path
    slo: str
    missed: float


class World(NamedTuple):
    """A law of service, what was changed in it (`make` takes the part of the change, 0..1, that happens), and which causes explain that, by what is left out
    (`""` for the rest; empty: nothing is wrong)."""

    law: str
    change: str
    make: Callable[[float], Callable[[random.Random], list[Call]]]
    right: dict[str, frozenset[str]]
    stages: frozenset[str]


def _arrivals(
    draw: random.Random, every: Callable[[float], float], until: float = 2 * HALF_MS
) -> Iterator[float]:
    at = 0.0
    while (at := at + draw.expovariate(1.0 / every(at))) < until:
        yield at


def _later(at: float) -> bool:
    return at >= HALF_MS


def _ask(draw: random.Random, at: float, **more: Any) -> Call:
    return Call(
        at,
        input=int(draw.lognormvariate(6.5, 0.6)),
        output=max(8, int(60 * draw.paretovariate(2.1))),
        tenant=draw.choice("abcdef"),
        **more,
    )


def mgk(
    *,
    every: Callable[[float], float] = lambda _: 900.0,
    servers: Callable[[float], int] = lambda _: 8,
    pace: Callable[[float], float] = lambda _: 30.0,
    longer: Callable[[float], float] = lambda _: 1.0,
    at_once: Callable[[float], int] = lambda _: 1,
) -> Callable[[random.Random], list[Call]]:
    """First come, first served by so many servers; a token takes `pace` ms, answers have a Pareto length."""

    def make(draw: random.Random) -> list[Call]:
        free = [0.0] * 64
        out = []
        for begin in _arrivals(draw, every):
            for _ in range(at_once(begin)):
                call = _ask(draw, begin + draw.uniform(0.0, 50.0))
                call.output = min(4_000, int(call.output * longer(begin)))
                k = servers(call.call_at)
                seat = min(range(k), key=free.__getitem__)
                start = max(call.call_at + call.front, free[seat])
                call.queue = start - call.call_at - call.front
                call.prefill = 40.0 + 0.02 * call.input
                call.decode = pace(start) * call.output * draw.uniform(0.9, 1.1)
                free[seat] = start + call.prefill + call.decode
                out.append(call)
        return out

    return make


def sharing(
    *,
    every: Callable[[float], float] = lambda _: 700.0,
    capacity: Callable[[float], float] = lambda _: 600.0,
    prompts: Callable[[float], float] = lambda _: 1.0,
    longer: Callable[[float], float] = lambda _: 1.0,
    tenant: Callable[[random.Random, float], str | None] = lambda *_: None,
) -> Callable[[random.Random], list[Call]]:
    """All calls share `capacity` tokens a second, each at most 50; a hundred tokens of a prompt cost as much as one of an answer; nobody waits for a place."""

    def make(draw: random.Random) -> list[Call]:
        calls = [_ask(draw, at) for at in _arrivals(draw, every)]
        for call in calls:
            call.input = int(call.input * prompts(call.at))
            call.output = min(4_000, int(call.output * longer(call.at)))
            call.tenant = tenant(draw, call.at) or call.tenant
        waiting = sorted(range(len(calls)), key=lambda n: calls[n].call_at)
        left: dict[int, float] = {}
        now, first = 0.0, 0
        while first < len(waiting) or left:
            following = calls[waiting[first]].call_at + 5.0 if first < len(waiting) else 1e18
            rate = min(50.0, capacity(now) / max(len(left), 1)) / 1e3
            soonest = min(left, key=left.__getitem__, default=None)
            done = now + left[soonest] / rate if soonest is not None else 1e18
            until = min(following, done, now + 1_000.0 if left else 1e18)
            for n in left:
                left[n] -= rate * (until - now)
            now = until
            for n in [n for n, rest in left.items() if rest <= 1e-6]:
                call = calls[n]
                spent = now - call.call_at - call.front
                read = call.input / 100.0 / (call.input / 100.0 + call.output)
                call.prefill, call.decode = spent * read, spent * (1.0 - read)
                del left[n]
            if following <= now and first < len(waiting):
                call = calls[waiting[first]]
                left[waiting[first]] = call.input / 100.0 + call.output
                first += 1
        return calls

    return make


def polling(
    *,
    every: Callable[[float], float] = lambda _: 1_500.0,
    part_b: Callable[[float], float] = lambda _: 0.3,
    switch: Callable[[float], float] = lambda _: 400.0,
) -> Callable[[random.Random], list[Call]]:
    """One server with two classes (adapters): it serves one until none of it waits, then changes over, which takes `switch` ms; four calls at a time."""

    def make(draw: random.Random) -> list[Call]:
        calls = [_ask(draw, at) for at in _arrivals(draw, every)]
        for call in calls:
            call.kind = "m-b" if draw.random() < part_b(call.at) else "m-a"
            call.tenant = "batch" if call.kind == "m-b" else call.tenant
            call.output = min(call.output, 500)
        waiting: dict[str, list[Call]] = {"m-a": [], "m-b": []}
        todo, now, kind = sorted(calls, key=lambda one: one.call_at), 0.0, "m-a"
        at = 0
        while at < len(todo) or any(waiting.values()):
            if not any(waiting.values()):
                now = max(now, todo[at].call_at + 5.0)
            while at < len(todo) and todo[at].call_at + 5.0 <= now:
                waiting[todo[at].kind].append(todo[at])
                at += 1
            if not waiting[kind]:
                kind = "m-b" if kind == "m-a" else "m-a"
                now += switch(now)
                continue
            together, waiting[kind] = waiting[kind][:4], waiting[kind][4:]
            for call in together:
                call.queue = now - call.call_at - call.front
                call.prefill, call.decode = 30.0 + 0.02 * call.input, 12.0 * call.output
            now += max(call.prefill + call.decode for call in together)
        return calls

    return make


def bucket(
    *,
    every: Callable[[float], float] = lambda _: 1_200.0,
    refill: Callable[[float], float] = lambda _: 1_800.0,
    freezes: Callable[[float], float] = lambda _: 0.0,
    first_ms: Callable[[random.Random, float], float] = lambda draw, _: draw.gammavariate(9, 40),
    pace: Callable[[random.Random, float], float] = lambda draw, _: draw.uniform(14, 18),
) -> Callable[[random.Random], list[Call]]:
    """A provider that lets `refill` tokens a second pass (30,000 at once), refuses others with 429 and Retry-After, and serves what passes at once."""

    def make(draw: random.Random) -> list[Call]:
        calls = [_ask(draw, at) for at in _arrivals(draw, every)]
        attempts = [(call.call_at, n, 0) for n, call in enumerate(calls)]
        heapq.heapify(attempts)
        level, last = 30_000.0, 0.0
        while attempts:
            now, n, tried = heapq.heappop(attempts)
            call = calls[n]
            level = min(30_000.0, level + refill(now) * (now - last) / 1e3)
            last = now
            if level < call.input + call.output and tried < 6:
                wait = 1e3 * (call.input + call.output - level) / refill(now)
                call.attempts.append((now - call.call_at, 60.0, 429))
                heapq.heappush(attempts, (now + 60.0 + wait + draw.uniform(0, 500), n, tried + 1))
                continue
            level -= call.input + call.output
            call.prefill = first_ms(draw, now)
            if draw.random() < freezes(now):
                call.prefill += 9_000.0
            call.decode = pace(draw, now) * call.output
            start = now - call.call_at
            call.attempts.append((start, call.front + call.prefill + call.decode, 200))
        return calls

    return make


def single(
    *,
    every: Callable[[float], float] = lambda _: 800.0,
    work: Callable[[random.Random, Call], float] = lambda draw, _: draw.gammavariate(4, 30),
    where: str = "before",
) -> Callable[[random.Random], list[Call]]:
    """One thread does `work` ms for every call, `before` it in the application or at the `front` of an engine that always has room."""

    def make(draw: random.Random) -> list[Call]:
        free, out = 0.0, []
        for at in _arrivals(draw, every):
            call = _ask(draw, at)
            call.output = min(call.output, 400)
            comes = call.at + call.search
            free = max(free, comes) + work(draw, call)
            setattr(call, where, getattr(call, where) + free - comes)
            call.prefill, call.decode = 50.0 + 0.02 * call.input, 11.0 * call.output
            out.append(call)
        return out

    return make


def around(
    *,
    every: Callable[[float], float] = lambda _: 1_000.0,
    search: Callable[[random.Random, float], float] = lambda draw, _: draw.lognormvariate(4, 0.8),
) -> Callable[[random.Random], list[Call]]:
    """An application that searches before it asks a model with room for all; a search takes as long as it is said to."""

    def make(draw: random.Random) -> list[Call]:
        out = []
        for at in _arrivals(draw, every):
            call = _ask(draw, at, search=search(draw, at))
            call.output = min(call.output, 300)
            call.prefill, call.decode = 60.0 + 0.02 * call.input, 13.0 * call.output
            out.append(call)
        return out

    return make


def _then(before: float, after: float, strength: float) -> Callable[[float], float]:
    """Return what changes at `HALF_MS`, by the part `strength` (0..1) of the whole change."""
    return lambda at: before + strength * (after - before) if _later(at) else before


def _whole(before: int, after: int, strength: float) -> Callable[[float], int]:
    return lambda at: round(_then(before, after, strength)(at))


def _of(*causes: str, **by_sight: tuple[str, ...]) -> dict[str, frozenset[str]]:
    return {"": frozenset(causes)} | {name: frozenset(one) for name, one in by_sight.items()}


_ENGINE: Final = frozenset({"queue", "prefill", "decode", "first_token", "generation"})
# An engine that writes more slowly at the same load, without a word why: no cause of ours, unless it is seen as a provider.
_SLOW: Final = ("none", "gpu_throttled", "slower_tokens", "token_rate_sag")
# From outside, the same is a far side that queues.
_SLOW_FAR: Final = (*_SLOW, "provider_queueing")
_SWAPS_FAR: Final = ("displaced", "one_kind_of_call", "none", "provider_queueing")
WORLDS: Final = (
    World("mgk", "calm", lambda _: mgk(), _of(), frozenset()),
    World(
        "mgk",
        "load",
        lambda s: mgk(every=_then(900, 470, s)),
        _of("under_capacity", no_baseline=("under_capacity", "too_few_seats", "provider_queueing")),
        _ENGINE,
    ),
    World(
        "mgk",
        "servers",
        lambda s: mgk(servers=_whole(8, 4, s)),
        _of(
            "too_few_seats",
            "none",
            client=("provider_queueing", "none", "too_few_seats"),
            no_first=("provider_queueing", "none", "too_few_seats"),
            no_baseline=("too_few_seats", "under_capacity", "none"),
        ),
        _ENGINE,
    ),
    World(
        "mgk",
        "longer",
        lambda s: mgk(longer=_then(1.0, 2.0, s)),
        _of("long_outputs", no_tokens=("none", "under_capacity")),
        _ENGINE,
    ),
    World(
        "mgk",
        "slower",
        lambda s: mgk(pace=_then(30.0, 55.0, s)),
        _of(*_SLOW, client=_SLOW_FAR, no_first=_SLOW_FAR),
        _ENGINE,
    ),
    World(
        "mgk",
        "bursts",
        lambda s: mgk(every=_then(900, 9_000, s), at_once=_whole(1, 10, s)),
        _of("burst_arrivals"),
        _ENGINE,
    ),
    World("sharing", "calm", lambda _: sharing(), _of(), frozenset()),
    World(
        "sharing",
        "load",
        lambda s: sharing(every=_then(700, 230, s)),
        _of(
            "under_capacity",
            "batch_past_knee",
            no_baseline=("under_capacity", "batch_past_knee", "token_rate_sag", "none"),
        ),
        _ENGINE,
    ),
    World(
        "sharing",
        "capacity",
        lambda s: sharing(capacity=_then(600, 190, s)),
        _of(*_SLOW, "provider_queueing", "batch_past_knee"),
        _ENGINE,
    ),
    World(
        "sharing",
        "prompts",
        lambda s: sharing(every=_then(420, 420, s), prompts=_then(1.0, 12.0, s)),
        _of(
            "prompt_bloat",
            "decode_stall",
            no_tokens=("none", "under_capacity", "token_rate_sag", "provider_queueing"),
        ),
        _ENGINE,
    ),
    World(
        "sharing",
        "tenant",
        lambda s: sharing(
            every=_then(700, 230, s),
            tenant=lambda draw, at: "g" if draw.random() < _then(0.0, 0.67, s)(at) else None,
        ),
        _of("noisy_tenant"),
        _ENGINE,
    ),
    World("polling", "calm", lambda _: polling(), _of(), frozenset()),
    World(
        "polling",
        "class",
        lambda s: polling(every=_then(1_500, 900, s), part_b=_then(0.3, 0.62, s)),
        _of("noisy_tenant", "under_capacity"),
        _ENGINE,
    ),
    World(
        "polling",
        "switch",
        lambda s: polling(switch=_then(400, 5_000, s)),
        _of("displaced", "one_kind_of_call", "none", client=_SWAPS_FAR, no_first=_SWAPS_FAR),
        _ENGINE,
    ),
    World("bucket", "calm", lambda _: bucket(), _of(), frozenset()),
    World(
        "bucket",
        "quota",
        lambda s: bucket(refill=_then(1_800, 500, s)),
        _of("client_throttled", "provider_queueing"),
        _ENGINE,
    ),
    World(
        "bucket",
        "load",
        lambda s: bucket(every=_then(1_200, 380, s)),
        _of("client_throttled", "under_capacity"),
        _ENGINE,
    ),
    World(
        "bucket",
        "freezes",
        lambda s: bucket(freezes=_then(0.0, 0.08, s)),
        _of("provider_spikes"),
        _ENGINE,
    ),
    World(
        "bucket",
        "first",
        lambda s: bucket(
            first_ms=lambda draw, at: (
                draw.gammavariate(9, 40) + (s * draw.gammavariate(2, 2_500) if _later(at) else 0.0)
            )
        ),
        _of("provider_queueing", no_baseline=("provider_queueing", "provider_spikes", "none")),
        _ENGINE,
    ),
    World(
        "bucket",
        "pace",
        lambda s: bucket(pace=lambda draw, at: draw.uniform(14, 18) * _then(1.0, 2.2, s)(at)),
        _of("token_rate_sag"),
        _ENGINE,
    ),
    World("front", "calm", lambda _: single(where="front"), _of(), frozenset()),
    World(
        "front",
        "load",
        lambda s: single(every=_then(800, 125, s), where="front"),
        _of(
            "gateway_queue",
            client=("provider_queueing", "under_capacity", "gateway_queue"),
            no_first=("provider_queueing", "under_capacity", "gateway_queue"),
        ),
        frozenset({"network", "gateway", *_ENGINE}),
    ),
    World(
        "front",
        "work",
        lambda s: single(
            work=lambda draw, call: draw.gammavariate(4, 30) * _then(1.0, 6.0, s)(call.at),
            where="front",
        ),
        _of(
            "gateway_queue",
            client=("provider_queueing", "gateway_queue"),
            no_first=("provider_queueing", "gateway_queue"),
        ),
        frozenset({"network", "gateway", *_ENGINE}),
    ),
    World("thread", "calm", lambda _: single(), _of(), frozenset()),
    World(
        "thread",
        "work",
        lambda s: single(
            work=lambda draw, call: draw.gammavariate(4, 30) * _then(1.0, 6.0, s)(call.at)
        ),
        _of("one_at_a_time", "unattributed_time"),
        frozenset({"other"}),
    ),
    World(
        "thread",
        "load",
        lambda s: single(every=_then(800, 124, s)),
        _of("one_at_a_time", "unattributed_time", "under_capacity"),
        frozenset({"other"}),
    ),
    World("around", "calm", lambda _: around(), _of(), frozenset()),
    World(
        "around",
        "search",
        lambda s: around(
            search=lambda draw, at: (
                draw.lognormvariate(4, 0.8)
                + (s * draw.paretovariate(1.6) * 700 if _later(at) else 0)
            )
        ),
        _of("slow_dependency"),
        frozenset({"retrieval"}),
    ),
    World(
        "around",
        "rare",
        lambda s: around(
            search=lambda draw, at: (
                draw.lognormvariate(4, 0.8)
                + (6_000 if draw.random() < _then(0.0, 0.12, s)(at) else 0)
            )
        ),
        _of("slow_dependency"),
        frozenset({"retrieval"}),
    ),
)


def seen(calls: list[Call], sight: str) -> list[Call]:
    """The calls of which anything is stored."""
    if sight == "no_baseline":
        return [call for call in calls if _later(call.at)]
    if sight == "few":
        begin = next(n for n, call in enumerate(calls) if _later(call.at))
        return calls[begin - 100 : begin + 100]
    return calls[::3] if sight == "one_in_three" else calls


def write_calls(path: Path, calls: list[Call], sight: str) -> None:
    """Write what a sender records of these calls."""
    client, served = [], []
    engine = sight not in ("client", "no_first") and not any(call.attempts for call in calls)
    for call in calls:
        name = call.at
        client.append(
            span(
                name,
                "POST /ask",
                call.at,
                call.e2e,
                "server root",
                http__route="/ask",
                tenant__id=call.tenant,
            )
        )
        client.append(
            span(
                name,
                "search",
                call.at + 1.0,
                call.search - 2.0,
                "client search < root",
                db__system__name="qdrant",
                db__operation__name="search",
                server__address="vectors",
            )
        )
        tokens = {
            "gen_ai.usage.input_tokens": call.input,
            "gen_ai.usage.output_tokens": call.output,
        }
        told: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": call.kind,
            "gen_ai.provider.name": "openai" if call.attempts else "vllm",
        }
        told |= {} if sight == "no_tokens" else tokens
        told |= (
            {} if sight == "no_first" else {"gen_ai.response.time_to_first_chunk": call.first / 1e3}
        )
        client.append(chat(name, call.call_at, call.whole + 4.0, parent="root", attributes=told))
        client += [
            span(
                name,
                "POST",
                call.call_at + start + 1.0,
                ms,
                key=("http", number),
                parent="chat",
                kind=CLIENT,
                http__request__method="POST",
                http__response__status_code=status,
                server__address="api.example",
            )
            for number, (start, ms, status) in enumerate(call.attempts)
            if sight != "client"
        ]
        if engine:
            served.append(_engine(call, sight))
    write(path, resource("assistant", client), *([resource("vllm", served)] if engine else []))


def _engine(call: Call, sight: str) -> dict[str, Any]:
    inside = call.queue + call.prefill + call.decode
    tokens = {
        "gen_ai.usage.prompt_tokens": call.input,
        "gen_ai.usage.completion_tokens": call.output,
    }
    return span(
        call.at,
        "llm_request",
        call.call_at + call.front,
        inside,
        "server engine < chat",
        {
            "gen_ai.request.model": call.kind,
            **({} if sight == "no_tokens" else tokens),
            "gen_ai.latency.time_to_first_token": (call.queue + call.prefill) / 1e3,
            "gen_ai.latency.e2e": inside / 1e3,
            "gen_ai.latency.time_in_queue": call.queue / 1e3,
            "gen_ai.latency.time_in_model_prefill": call.prefill / 1e3,
            "gen_ai.latency.time_in_model_decode": call.decode / 1e3,
        },
    )


def calls_of(world: World, seed: int, strength: float) -> tuple[list[Call], float]:
    """Return the calls of a window by their start, and its limit (ms): what the healthy half kept at P95, and a third more."""
    draw = random.Random(f"{world.law} {world.change} {seed}")
    calls = sorted(world.make(strength)(draw), key=lambda one: one.at)
    healthy = sorted(call.e2e for call in calls if not _later(call.at))
    return calls, 4.0 / 3.0 * healthy[int(0.95 * len(healthy))]


def hard_strength(world: World, seed: int) -> float:
    """Return the part of the change by which `HARD` of all requests miss the limit; 1 where the whole change does not bring so many."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        calls, limit = calls_of(world, seed, middle)
        missed = sum(call.e2e > limit for call in calls) / len(calls)
        low, high = (middle, high) if missed < HARD else (low, middle)
    return high


def stored(
    world: World, sight: str, folder: Path, seed: int = 1, *, strength: float = 1.0
) -> Stored:
    """Return the store of a window, made where it is not there yet."""
    calls, limit = calls_of(world, seed, strength)
    place = (
        folder
        / f"{world.law}-{world.change}-{sight}-{seed}{f'-{strength:.3f}' if strength < 1.0 else ''}"
    )
    db = place / "case.db"
    if not db.exists():
        place.mkdir(parents=True, exist_ok=True)
        write_calls(place / "traces.json", seen(calls, sight), sight)
        settings = load(flags={"collector.db": str(db)})
        import_files([place / "traces.json"], settings, url=None, progress=lambda *_: None)
        (place / "traces.json").unlink()
    late = [call.e2e > limit for call in seen(calls, sight) if _later(call.at)]
    return Stored(db, f"e2e:{limit:.0f}", sum(late) / len(late))
