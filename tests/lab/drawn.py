"""Experiments that nobody chose: kind, law of pace, load, lengths and the fault's size are drawn, and `drawn_7` is always the same one.

The product is finished when one of them is first looked at. What it teaches is mended with others of its kind in mind, and the next look takes other numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.lab.application import Settings
from tests.lab.experiments import EXPERIMENTS, HELD_BACK, Experiment, Setup, engine
from tests.lab.load import Load

LAWS = ("roofline", "tiles", "table", "graphs")
Draw = Callable[[random.Random, str, Load], Experiment]


Truth = tuple[str, tuple[str, ...], tuple[str, ...]]


def _experiment(
    what: str,
    truth: Truth,
    healthy: Setup,
    fault: Setup,
    fixed: Setup,
    *,
    whatif: tuple[str, ...] = (),
) -> Experiment:
    return Experiment("", what, *truth, whatif, healthy, fault, fixed)


def _seats(rng: random.Random, law: str, load: Load) -> Experiment:
    few = rng.choice((1, 2))
    many = Setup(engines=(engine(law=law),), load=load)
    truth = ("queue", ("too_few_seats",), ("max_sequences",))
    return _experiment(
        f"{few} sequences at a time",
        truth,
        *(many, replace(many, engines=(engine(law=law, seats=few),)), many),
        whatif=("max-sequences", "--sequences", "32"),
    )


def _load(rng: random.Random, law: str, load: Load) -> Experiment:
    factor = rng.uniform(2.0, 3.2)
    one = engine(law=law, seats=rng.choice((4, 5, 6)))
    more = load.scaled(factor)
    truth = ("queue", ("under_capacity",), ("replicas",))
    return _experiment(
        f"{factor:.1f} times the requests",
        truth,
        Setup(engines=(one,), load=load),
        Setup(engines=(one,), load=more),
        Setup(engines=(one, one), load=more),
        whatif=("replicas", "--replicas", "2"),
    )


def _runaway(rng: random.Random, law: str, load: Load) -> Experiment:
    share, tokens = rng.uniform(0.07, 0.2), rng.randint(260, 600)
    app = Settings(runaway_share=share, runaway_tokens=tokens)
    capped = Settings(runaway_share=share, runaway_tokens=tokens, cap_tokens=2 * load.output_median)
    usual = Setup(engines=(engine(law=law),), load=load)
    return _experiment(
        f"{share:.0%} of the answers go on to {tokens} tokens",
        ("decode", ("long_outputs",), ("cap",)),
        *(usual, replace(usual, app=app), replace(usual, app=capped)),
        whatif=("cap", "--max-tokens", str(2 * load.output_median)),
    )


def _prefix(rng: random.Random, law: str, load: Load) -> Experiment:
    usual = Setup(
        engines=(engine(law=law),), load=replace(load, shared_tokens=rng.randint(900, 1800))
    )
    truth = ("prefill", ("prefix_cache_lost",), ("prefix_cache",))
    return _experiment(
        "a time stamp before the shared system prompt",
        truth,
        *(usual, replace(usual, app=Settings(stamp_head=True)), usual),
    )


def _search(rng: random.Random, law: str, load: Load) -> Experiment:
    share, ms = rng.uniform(0.1, 1.0), rng.uniform(1200.0, 4000.0)
    usual = Setup(engines=(engine(law=law),), load=load)
    return _experiment(
        f"{share:.0%} of the searches take {ms / 1000:.1f} s longer",
        ("retrieval", ("slow_dependency",), ("clip",)),
        *(usual, replace(usual, app=Settings(slow_share=share, slow_ms=ms)), usual),
        whatif=("clip", "--stage", "retrieval", "--limit-ms", "60"),
    )


def _prompts(rng: random.Random, law: str, load: Load) -> Experiment:
    share, tokens = rng.uniform(0.1, 0.3), rng.randint(2000, 4000)
    load = replace(load, rate=min(load.rate, 1.6))
    usual = Setup(engines=(engine(law=law),), load=load)
    longer = replace(load, long_share=share, long_tokens=tokens)
    return _experiment(
        f"{share:.0%} of the prompts are {tokens:,} tokens longer",
        ("prefill", ("prompt_bloat", "huge_context"), ("context_limit", "prompt_trim")),
        *(usual, replace(usual, load=longer), usual),
        whatif=(
            "context-limit",
            "--max-input-tokens",
            str(load.shared_tokens + load.own_tokens[1]),
        ),
    )


def _bursts(rng: random.Random, law: str, load: Load) -> Experiment:
    every = rng.uniform(12.0, 25.0)
    one = engine(law=law, seats=rng.randint(5, 9))
    in_bursts = replace(load, burst_every_s=every)
    truth = ("queue", ("burst_arrivals",), ("smoothing", "replicas", "admission"))
    return _experiment(
        f"the same number of requests, all within a tenth of each {every:.0f} s",
        truth,
        Setup(engines=(one,), load=load),
        Setup(engines=(one,), load=in_bursts),
        Setup(engines=(one, one), load=in_bursts),
        whatif=("replicas", "--replicas", "2"),
    )


def _tenant(rng: random.Random, law: str, load: Load) -> Experiment:
    factor = rng.uniform(2.0, 4.0)
    usual = Setup(
        engines=(engine(law=law, seats=rng.choice((4, 5, 6))),),
        load=replace(load, rate=load.rate * 0.55),
    )
    truth = ("queue", ("noisy_tenant",), ("tenant_quota",))
    return _experiment(
        f"one tenant sends {factor:.1f} times what all others send",
        truth,
        *(usual, replace(usual, load=replace(usual.load, noisy_factor=factor)), usual),
    )


def _pool(rng: random.Random, law: str, load: Load) -> Experiment:
    pool = rng.choice((1, 2))
    usual = Setup(engines=(engine(law=law),), load=load)
    return _experiment(
        f"the application holds {pool} connections to its engine",
        ("queue", ("client_throttled",), ("client_limits",)),
        *(usual, replace(usual, app=Settings(pool=pool)), usual),
    )


def _held(rng: random.Random, law: str, load: Load) -> Experiment:
    held = rng.randint(7_000, 24_000)
    usual = Setup(engines=(engine(law=law),), load=load)
    return _experiment(
        f"a gateway holds {held:,} bytes of each stream",
        ("network", ("not_streaming",), ("streaming",)),
        *(usual, replace(usual, held_bytes=held), usual),
    )


def _slow_replica(rng: random.Random, law: str, load: Load) -> Experiment:
    speed = rng.uniform(0.3, 0.55)
    both = Setup(engines=(engine(law=law), engine(law=law)), load=load)
    return _experiment(
        f"one of two replicas runs at {speed:.0%} of the other's speed",
        ("decode", ("straggler_replica",), ("eject", "routing")),
        *(both, replace(both, engines=(engine(law=law), engine(law=law, speed=speed))), both),
    )


def _slower(rng: random.Random, law: str, load: Load) -> Experiment:
    speed = rng.uniform(0.35, 0.6)
    usual = Setup(engines=(engine(law=law),), load=replace(load, rate=load.rate * 0.7))
    return _experiment(
        f"the engine runs at {speed:.0%} of its speed",
        ("decode", ("gpu_throttled", "token_rate_sag", "slower_tokens"), ("hardware", "eject")),
        *(usual, replace(usual, engines=(engine(law=law, speed=speed),)), usual),
        whatif=("hardware", "--time-factor", f"{speed:.2f}"),
    )


def _far(rng: random.Random, law: str, load: Load) -> Experiment:
    one_way = rng.uniform(120.0, 350.0)
    usual = Setup(engines=(engine(law=law),), load=load)
    return _experiment(
        f"the engine is {2 * one_way:.0f} ms away, there and back",
        ("network", ("cross_region",), ("co_location",)),
        *(usual, replace(usual, one_way_ms=one_way), usual),
        whatif=("co-location", "--network-ms", "5"),
    )


def _pauses(rng: random.Random, law: str, load: Load) -> Experiment:
    every, ms = rng.uniform(6.0, 14.0), rng.uniform(900.0, 2200.0)
    usual = Setup(engines=(engine(law=law),), load=load)
    paused = engine(law=law, pause_every_s=every, pause_ms=ms)
    return _experiment(
        f"a step takes {ms / 1000:.1f} s longer each {every:.0f} s",
        ("decode", ("engine_pauses",), ("no_pauses",)),
        *(usual, replace(usual, engines=(paused,)), usual),
    )


def _given_up(rng: random.Random, law: str, load: Load) -> Experiment:
    """Callers who give up before their first token ask again; those who give up later fail. What makes them do so is the lack of seats."""
    timeout_s = rng.uniform(3.0, 6.0)
    usual = Setup(
        engines=(engine(law=law),), load=load, app=Settings(timeout_s=timeout_s, retries=2)
    )
    return _experiment(
        f"2 sequences at a time, and calls that take longer than {timeout_s:.1f} s are given up",
        ("queue", ("too_few_seats", "retry_storm"), ("max_sequences", "retries")),
        *(usual, replace(usual, engines=(engine(law=law, seats=2),)), usual),
    )


KINDS: tuple[Draw, ...] = (
    *(_seats, _load, _runaway, _prefix, _search, _prompts, _bursts, _tenant, _pool, _held),
    *(_slow_replica, _slower, _far, _pauses, _given_up),
)


def drawn(number: int) -> Experiment:
    """Experiment `drawn_{number}`; numbers that differ by less than `len(KINDS)` are of different kinds."""
    rng = random.Random(f"drawn {number}")
    law = rng.choice(LAWS)
    median = rng.randint(25, 70)
    load = Load(
        rate=rng.uniform(80.0, 120.0) / median,
        shared_tokens=rng.randint(200, 900),
        own_tokens=(40, rng.randint(120, 400)),
        output_median=median,
        output_sigma=rng.uniform(0.3, 0.8),
        output_most=6 * median,
    )
    found = KINDS[number % len(KINDS)](rng, law, load)
    return replace(
        found, name=f"drawn_{number}", what=f"{found.what}, under the law of {law} (drawn)"
    )


def named(name: str) -> Experiment | None:
    """The experiment of this name: a chosen one, or `drawn_NUMBER`."""
    kind, _, number = name.partition("_")
    if kind == "drawn" and number.isdecimal():
        return drawn(int(number))
    return EXPERIMENTS.get(name)


def held_back(name: str) -> bool:
    """Whether nothing was developed on this experiment before it was first scored."""
    return name in HELD_BACK or name.startswith("drawn_")
