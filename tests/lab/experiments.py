"""The experiments: a healthy stretch, a fault, and the configuration that undoes it.

Fault and fix meet the same arrivals and lengths. Nothing here is read by the product. `HELD_BACK` names the
experiments that are looked at only when the product is finished.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from tests.lab.application import Settings
from tests.lab.load import Load
from tests.lab.servers import Engine

COMMON = ("--max-num-batched-tokens", "2048", "--block-size", "32")


def engine(
    *flags: str, seats: int = 32, law: str = "roofline", speed: float = 1.0, **more: float
) -> Engine:
    """A vLLM server with `seats` sequences at most."""
    return Engine((*COMMON, "--max-num-seqs", str(seats), *flags), law, speed, **more)  # type: ignore[arg-type]


def llama(slots: int) -> Engine:
    """A server of llama.cpp with room for 2,048 tokens in each slot."""
    flags = ("-np", str(slots), "-c", str(2048 * slots))
    return Engine(flags, kind="llama.cpp")


USUAL_APP, USUAL_LOAD = Settings(), Load()
USUAL_ENGINE = engine()


@dataclass(frozen=True)
class Setup:
    """Everything that serves one phase, and what is sent to it."""

    engines: tuple[Engine, ...] = (USUAL_ENGINE,)
    app: Settings = USUAL_APP
    load: Load = USUAL_LOAD
    held_bytes: int = 0  # a gateway holds streams back until so many bytes are there; 0: no gateway
    tls: bool = False  # a gateway that ends TLS before each engine
    one_way_ms: float = 0.0  # a link of this length before each engine or its gateway
    give_up_s: float = 0.0  # when the user leaves; 0: never


@dataclass(frozen=True)
class Experiment:
    """One fault with its truth.

    `stage` and `causes` are what a right diagnosis names; `advice` holds the fixes (ids of what-ifs) that undo the
    fault. `whatif` is the command that predicts `fixed`, without the window; empty where nothing predicts it. `policies` are those of `overrun routing`
    by which the fault and the fixed phase run; empty where lengths route nothing.
    """

    name: str
    what: str
    stage: str
    causes: tuple[str, ...]
    advice: tuple[str, ...]
    whatif: tuple[str, ...]
    healthy: Setup
    fault: Setup
    fixed: Setup
    policies: tuple[str, ...] = ()


HEALTHY = Setup()


def _app(**changes: object) -> Setup:
    return Setup(app=Settings(**changes))  # type: ignore[arg-type]


def _all() -> tuple[Experiment, ...]:
    few_seats = Setup(engines=(engine(seats=2),))
    small_kv = ("--num-gpu-blocks-override", "90", "--max-model-len", "2048")
    long_answers = Load(rate=4.0, output_median=100, output_most=400)
    long_prompts = Load(rate=1.6, long_share=0.15, long_tokens=3000)
    return (
        Experiment(
            "seats",
            "two sequences at a time where memory has room for hundreds",
            *("queue", ("too_few_seats",), ("max_sequences",)),
            ("max-sequences", "--sequences", "32"),
            *(HEALTHY, few_seats, HEALTHY),
        ),
        Experiment(
            "load",
            "three times the requests",
            *("queue", ("under_capacity",), ("replicas",)),
            ("replicas", "--replicas", "2"),
            Setup(engines=(engine(seats=6),)),
            Setup(engines=(engine(seats=6),), load=Load().scaled(3.0)),
            Setup(engines=(engine(seats=6), engine(seats=6)), load=Load().scaled(3.0)),
        ),
        Experiment(
            "runaway",
            "one answer in ten goes on to 400 tokens",
            *("decode", ("long_outputs",), ("cap",)),
            ("cap", "--max-tokens", "96"),
            HEALTHY,
            _app(runaway_share=0.1, runaway_tokens=400),
            _app(runaway_share=0.1, runaway_tokens=400, cap_tokens=96),
        ),
        Experiment(
            "prefix",
            "a time stamp before the shared system prompt",
            *("prefill", ("prefix_cache_lost",), ("prefix_cache",)),
            ("prefix-cache", "--hit-ratio", "0.8"),
            HEALTHY,
            _app(stamp_head=True),
            HEALTHY,
        ),
        Experiment(
            "kv",
            "KV blocks for eight requests, where nine run at a time",
            *("queue", ("kv_pressure",), ("kv_size",)),
            ("kv-size", "--factor", "8"),
            Setup(load=long_answers),
            Setup(engines=(engine(*small_kv),), load=long_answers),
            Setup(load=long_answers),
        ),
        Experiment(
            "retrieval",
            "30 % of the retrievals take 2.5 s longer",
            *("retrieval", ("slow_dependency",), ("clip",)),
            ("clip", "--stage", "retrieval", "--limit-ms", "60"),
            HEALTHY,
            _app(slow_share=0.3, slow_ms=2500.0),
            HEALTHY,
        ),
        Experiment(
            "long_prompts",
            "15 % of the prompts are 3,000 tokens longer",
            *("prefill", ("prompt_bloat", "huge_context"), ("context_limit",)),
            ("context-limit", "--max-input-tokens", "840"),
            Setup(load=replace(long_prompts, long_share=0.0)),
            Setup(load=long_prompts),
            Setup(load=replace(long_prompts, long_share=0.0)),
        ),
        Experiment(
            "bursts",
            "the same number of requests, all within a tenth of each 20 s",
            *("queue", ("burst_arrivals",), ("smoothing", "replicas", "admission")),
            ("replicas", "--replicas", "2"),
            Setup(engines=(engine(seats=8),)),
            Setup(engines=(engine(seats=8),), load=Load(burst_every_s=20.0)),
            Setup(engines=(engine(seats=8), engine(seats=8)), load=Load(burst_every_s=20.0)),
        ),
        Experiment(
            "tenant",
            "one tenant sends twice what all others send",
            *("queue", ("noisy_tenant",), ("tenant_quota",)),
            (),
            Setup(engines=(engine(seats=8),), load=Load(rate=1.6)),
            Setup(engines=(engine(seats=8),), load=Load(rate=1.6, noisy_factor=2.0)),
            Setup(engines=(engine(seats=8),), load=Load(rate=1.6)),
        ),
        Experiment(
            "pool",
            "the application holds three connections to its engine",
            *("queue", ("client_throttled",), ("client_limits",)),
            (),
            HEALTHY,
            _app(pool=3),
            HEALTHY,
        ),
        Experiment(
            "slots",
            "one slot of llama.cpp's server where eight would do",
            *("queue", ("too_few_seats",), ("max_sequences",)),
            (),
            Setup(engines=(llama(8),), load=Load(rate=1.6)),
            Setup(engines=(llama(1),), load=Load(rate=1.6)),
            Setup(engines=(llama(8),), load=Load(rate=1.6)),
        ),
        Experiment(
            "leavers",
            "users leave after 3 s, their answers are written to the end",
            *("queue", ("missing_cancellation",), ("cancellation",)),
            (),
            Setup(engines=(engine(seats=8),), load=Load(rate=1.8)),
            Setup(
                engines=(engine(seats=8),),
                app=Settings(cancel_on_disconnect=False, runaway_share=0.25, runaway_tokens=700),
                load=Load(rate=1.8),
                give_up_s=3.0,
            ),
            Setup(
                engines=(engine(seats=8),),
                app=Settings(runaway_share=0.25, runaway_tokens=700),
                load=Load(rate=1.8),
                give_up_s=3.0,
            ),
        ),
        Experiment(
            "gateway",
            "a gateway holds 16 kB of each stream",
            *("network", ("not_streaming",), ("streaming",)),
            (),
            HEALTHY,
            Setup(held_bytes=16_384),
            HEALTHY,
        ),
        Experiment(
            "slow_replica",
            "one of two replicas runs at 45 % of the other's speed",
            *("decode", ("straggler_replica",), ("eject", "routing")),
            (),  # no what-if makes the slow one as fast as the other
            Setup(engines=(engine(), engine())),
            Setup(engines=(engine(), engine(speed=0.45))),
            Setup(engines=(engine(), engine())),
        ),
        Experiment(
            "retries",
            "calls that take longer than 4 s are sent again at a busy engine",
            *("queue", ("retry_storm",), ("retries",)),
            (),
            HEALTHY,
            Setup(engines=(engine(seats=3),), app=Settings(timeout_s=4.0, retries=2)),
            Setup(engines=(engine(seats=3),)),
        ),
    )


def _of_other_laws() -> tuple[Experiment, ...]:
    """Faults under the laws of tiles and of the measured table."""
    tiles, table = engine(law="tiles"), engine(law="table")
    few_tiles, six_table = engine(seats=3, law="tiles"), engine(seats=6, law="table")
    far = Setup(engines=(table,), tls=True, one_way_ms=150.0)
    longer = Load(rate=1.6, own_tokens=(1260, 1440))
    busy = Load(rate=4.5)
    return (
        Experiment(
            "seats_tiles",
            "three sequences at a time on another law of pace",
            *("queue", ("too_few_seats",), ("max_sequences",)),
            ("max-sequences", "--sequences", "32"),
            Setup(engines=(tiles,)),
            Setup(engines=(few_tiles,)),
            Setup(engines=(tiles,)),
        ),
        Experiment(
            "load_table",
            "nearly twice the requests on measured step times",
            *("queue", ("under_capacity",), ("replicas",)),
            ("replicas", "--replicas", "2"),
            Setup(engines=(six_table,)),
            Setup(engines=(six_table,), load=busy),
            Setup(engines=(six_table, six_table), load=busy),
        ),
        Experiment(
            "slower",
            "the engine runs at half its speed",
            *("decode", ("gpu_throttled", "token_rate_sag"), ("hardware", "eject")),
            ("hardware", "--time-factor", "0.5"),
            Setup(engines=(table,), load=Load(rate=1.8)),
            Setup(engines=(engine(law="table", speed=0.5),), load=Load(rate=1.8)),
            Setup(engines=(table,), load=Load(rate=1.8)),
        ),
        Experiment(
            "bloat",
            "every prompt is 1,200 tokens longer",
            *("prefill", ("prompt_bloat",), ("prompt_trim", "context_limit")),
            ("prompt-trim", "--tokens", "1200"),
            Setup(engines=(tiles,), load=replace(longer, own_tokens=(60, 240))),
            Setup(engines=(tiles,), load=longer),
            Setup(engines=(tiles,), load=replace(longer, own_tokens=(60, 240))),
        ),
        Experiment(
            "tool",
            "the tool takes 1.4 s longer in every request",
            *("tool", ("slow_dependency",), ("clip",)),
            ("clip", "--stage", "tool", "--limit-ms", "40"),
            Setup(engines=(tiles,), app=Settings(tool_ms=40.0)),
            Setup(engines=(tiles,), app=Settings(tool_ms=1440.0)),
            Setup(engines=(tiles,), app=Settings(tool_ms=40.0)),
        ),
        Experiment(
            "churn",
            "each call opens a TLS connection of its own over 300 ms of way",
            *("network", ("connection_churn",), ("connection_pooling",)),
            ("connection-pooling", "--network-ms", "310"),
            far,
            replace(far, app=Settings(keep_alive=False)),
            far,
        ),
        Experiment(
            "region",
            "the engine is 400 ms away, there and back",
            *("network", ("cross_region",), ("co_location",)),
            ("co-location", "--network-ms", "5"),
            Setup(engines=(table,)),
            Setup(engines=(table,), one_way_ms=200.0),
            Setup(engines=(table,)),
        ),
        Experiment(
            "pauses",
            "a step takes 1.6 s longer each 11 s",
            *("decode", ("engine_pauses",), ("no_pauses",)),
            (),
            Setup(engines=(tiles,)),
            Setup(engines=(engine(law="tiles", pause_every_s=11.0, pause_ms=1600.0),)),
            Setup(engines=(tiles,)),
        ),
    )


def _of_several_ranks_and_callers() -> tuple[Experiment, ...]:
    """Two ranks behind one address, and faults of callers under other laws."""
    tiles, table = engine(law="tiles"), engine(law="table")
    ranks = ("--data-parallel-size", "2")
    two, two_small = engine(*ranks, law="tiles"), engine(*ranks, seats=2, law="tiles")
    twice = Load().scaled(2.0)
    burst = replace(Load(rate=2.2), burst_every_s=18.0)
    six = engine(seats=6, law="tiles")
    return (
        Experiment(
            "ranks",
            "two sequences at a time on each of two data-parallel ranks behind one address",
            *("queue", ("too_few_seats",), ("max_sequences",)),
            ("max-sequences", "--sequences", "32"),
            Setup(engines=(two,), load=twice),
            Setup(engines=(two_small,), load=twice),
            Setup(engines=(two,), load=twice),
        ),
        Experiment(
            "bursts_tiles",
            "the same number of requests, all within a tenth of each 18 s",
            *("queue", ("burst_arrivals",), ("smoothing", "replicas", "admission")),
            ("replicas", "--replicas", "2"),
            Setup(engines=(six,), load=replace(burst, burst_every_s=0.0)),
            Setup(engines=(six,), load=burst),
            Setup(engines=(six, six), load=burst),
        ),
        Experiment(
            "held_table",
            "a gateway holds 9 kB of each stream",
            *("network", ("not_streaming",), ("streaming",)),
            (),
            Setup(engines=(table,)),
            Setup(engines=(table,), held_bytes=9_000),
            Setup(engines=(table,)),
        ),
        Experiment(
            "retrieval_tiles",
            "12 % of the searches take 4 s longer",
            *("retrieval", ("slow_dependency",), ("clip",)),
            ("clip", "--stage", "retrieval", "--limit-ms", "60"),
            Setup(engines=(tiles,)),
            Setup(engines=(tiles,), app=Settings(slow_share=0.12, slow_ms=4000.0)),
            Setup(engines=(tiles,)),
        ),
    )


def _of_lengths() -> tuple[Experiment, ...]:
    """More requests than two kinds of answers leave room for, served by predicted length: in this order, or on two lanes."""
    few, many = (Load(rate=rate, report_share=0.15) for rate in (2.8, 4.4))
    in_turn = (engine(seats=3, law="tiles"), engine(seats=3, law="tiles"))
    one = engine(seats=9)
    ordered = engine("--scheduling-policy", "priority", seats=9)
    return (
        Experiment(
            "priority",
            "half as many requests again; the engine then serves the shortest predicted answer first",
            *("queue", ("under_capacity",), ("routing", "replicas", "admission")),
            ("routing", "--policy", "shortest_first"),
            Setup(engines=(one,), load=few),
            Setup(engines=(one,), load=many),
            Setup(engines=(ordered,), load=many, app=Settings(order="priority")),
            ("least_requests", "shortest_first"),
        ),
        Experiment(
            "lanes",
            "half as many requests again on two replicas in turn; then long predicted answers go to a replica of their own",
            *("queue", ("under_capacity",), ("routing", "replicas", "admission")),
            ("routing", "--policy", "lanes"),
            Setup(engines=in_turn, load=few),
            Setup(engines=in_turn, load=many),
            Setup(engines=in_turn, load=many, app=Settings(order="lanes")),
            ("round_robin", "lanes"),
        ),
    )


def _of_changes() -> tuple[Experiment, ...]:
    """Engines that are restarted or join, agents, several changes at once, and front ends."""
    table, tiles = engine(law="table"), engine(law="tiles")
    again = engine(law="table", same_address=True)
    agent, steps = Load(rate=1.5), Settings(rounds=2)
    wide = Load(rate=2.0, shared_tokens=1500)
    more = replace(wide, rate=2.4, output_median=46)
    changed = Settings(retrieval_ms=90.0)
    thin, six = Load(rate=1.3), engine(seats=6, law="tiles")
    scaled, small = Load(rate=5.0), engine(seats=6, law="table")
    cold = engine(seats=6, law="table", cold_s=45.0, cold_factor=5.0)
    leave = Setup(
        engines=(engine(seats=8, law="tiles"),),
        app=Settings(runaway_share=0.3, runaway_tokens=420),
        load=Load(rate=2.1),
        give_up_s=3.0,
    )
    slow_front = engine(law="table", tokenise_us=300.0)
    drafts = '{"method": "ngram", "num_speculative_tokens": 24, "prompt_lookup_min": 1, "prompt_lookup_max": 2}'
    speculating = engine("--speculative-config", drafts, law="table")
    repeating = Setup(engines=(table,), load=Load(rate=4.0), app=Settings(vocabulary=150))
    reading = Load(rate=1.8, long_share=0.2, long_tokens=2400)
    pieces = ("--max-num-batched-tokens", "64")
    return (
        Experiment(
            "restarted",
            "two sequences at a time after a restart at the same address",
            *("queue", ("too_few_seats",), ("max_sequences",)),
            ("max-sequences", "--sequences", "32"),
            Setup(engines=(again,)),
            Setup(engines=(replace(engine(seats=2, law="table"), same_address=True),)),
            Setup(engines=(again,)),
        ),
        Experiment(
            "agent",
            "three agents in ten make six calls instead of two, with one tool call again and again",
            *("decode", ("agent_loop",), ("step_cap",)),
            ("step-cap", "--steps", "2"),
            Setup(engines=(table,), load=agent, app=steps),
            Setup(
                engines=(table,),
                load=agent,
                app=Settings(rounds=2, loop_share=0.3, loop_rounds=6),
            ),
            Setup(engines=(table,), load=agent, app=steps),
        ),
        Experiment(
            "mixed_changes",
            "a fifth more requests, longer answers, slower searches, and a time stamp before the system prompt, all at once",
            *("prefill", ("prefix_cache_lost",), ("prefix_cache",)),
            ("prefix-cache", "--hit-ratio", "0.88"),
            Setup(engines=(tiles,), load=wide),
            Setup(engines=(tiles,), load=more, app=Settings(retrieval_ms=90.0, stamp_head=True)),
            Setup(engines=(tiles,), load=more, app=changed),
        ),
        Experiment(
            "tenant_tiles",
            "one tenant sends three times what all others send",
            *("queue", ("noisy_tenant",), ("tenant_quota",)),
            (),
            Setup(engines=(six,), load=thin),
            Setup(engines=(six,), load=replace(thin, noisy_factor=3.3)),
            Setup(engines=(six,), load=thin),
        ),
        Experiment(
            "cold_replica",
            "twice the requests, and a second replica that is cold for 45 s when it joins after 30 s",
            *("decode", ("cold_start",), ("warm_pool",)),
            ("warm-pool",),
            Setup(engines=(small,)),
            Setup(engines=(small, cold), load=scaled, app=Settings(joins_at_s=30.0)),
            Setup(engines=(small, small), load=scaled, app=Settings(joins_at_s=30.0)),
        ),
        Experiment(
            "leavers_tiles",
            "users leave after 3 s, their answers are written to the end",
            *("queue", ("missing_cancellation",), ("cancellation",)),
            (),
            Setup(engines=leave.engines, load=leave.load),
            replace(leave, app=msgspec.structs.replace(leave.app, cancel_on_disconnect=False)),
            leave,
        ),
        Experiment(
            "tokeniser",
            "the engine's front end takes 0.3 ms longer for each token of a prompt",
            *("network", ("gateway_queue",), ("front_end_capacity", "gateway_capacity")),
            (),
            Setup(engines=(table,)),
            Setup(engines=(slow_front,)),
            Setup(engines=(table,)),
        ),
        Experiment(
            "speculation",
            "the engine drafts 24 tokens a step by n-grams, of which few are accepted",
            *("decode", ("speculation_not_paying",), ("speculation", "speculation_off")),
            ("speculation", "--enabled", "false"),
            repeating,
            replace(repeating, engines=(speculating,)),
            repeating,
        ),
        Experiment(
            "small_pieces",
            "prompts are read in pieces of 64 tokens, and a fifth of them is long",
            *("prefill", ("small_chunks",), ("chunked_prefill",)),
            ("chunked-prefill", "--token-budget", "2048"),
            Setup(load=reading),
            Setup(engines=(engine(*pieces),), load=reading),
            Setup(load=reading),
        ),
    )


def _of_kinds_seen_before() -> tuple[Experiment, ...]:
    """Other cases of kinds that were missed and mended: pauses, users who leave, and a tenant that sends most of all."""
    table = engine(law="table")
    left = Setup(
        engines=(engine(seats=6, law="table"),),
        app=Settings(runaway_share=0.25, runaway_tokens=500),
        load=Load(rate=2.4),
        give_up_s=2.5,
    )
    five, few = engine(seats=5), Load(rate=1.0)
    return (
        Experiment(
            "pauses_table",
            "a step takes 0.9 s longer each 7 s",
            *("decode", ("engine_pauses",), ("no_pauses",)),
            (),
            Setup(engines=(table,)),
            Setup(engines=(engine(law="table", pause_every_s=7.0, pause_ms=900.0),)),
            Setup(engines=(table,)),
        ),
        Experiment(
            "leavers_table",
            "users leave after 2.5 s, and a new version writes their answers to the end",
            *("queue", ("missing_cancellation",), ("cancellation",)),
            (),
            left,
            replace(left, app=msgspec.structs.replace(left.app, cancel_on_disconnect=False)),
            left,
        ),
        Experiment(
            "tenant_roofline",
            "one tenant sends four times what all others send",
            *("queue", ("noisy_tenant",), ("tenant_quota",)),
            (),
            Setup(engines=(five,), load=few),
            Setup(engines=(five,), load=replace(few, noisy_factor=4.0)),
            Setup(engines=(five,), load=few),
        ),
    )


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in _all()
    + _of_other_laws()
    + _of_several_ranks_and_callers()
    + _of_lengths()
    + _of_changes()
    + _of_kinds_seen_before()
}
HELD_BACK = tuple(
    experiment.name for experiment in _of_lengths() + _of_changes() + _of_kinds_seen_before()
)
