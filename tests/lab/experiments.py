"""The experiments: a healthy stretch, a fault, and the configuration that undoes it.

Fault and fix meet the same arrivals and lengths. Nothing here is read by the product. `HELD_BACK` names the
experiments that are looked at only when the product is finished.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    fault. `whatif` is the command that predicts `fixed`, without the window; empty where nothing predicts it.
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
    twice, thin = Load().scaled(2.0), Load(rate=1.4)
    eight = engine(seats=8, law="table")
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
            "tenant_table",
            "one tenant sends two and a half times what all others send",
            *("queue", ("noisy_tenant",), ("tenant_quota",)),
            (),
            Setup(engines=(eight,), load=thin),
            Setup(engines=(eight,), load=replace(thin, noisy_factor=2.5)),
            Setup(engines=(eight,), load=thin),
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


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in _all() + _of_other_laws() + _of_several_ranks_and_callers()
}
HELD_BACK = tuple(experiment.name for experiment in _of_several_ranks_and_callers())
