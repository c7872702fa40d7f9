"""What brings about what? Causes of latency, the states that they lead to, and the stages in which a request then loses time: one graph, from roots to stages.

Ranking explains an excess from the roots of this graph down (`ranking.py`), a verdict shows the way from its cause to the stage (`path_to`), and the drawing in
the site draws it (`mermaid`). A cause carries the name of its rule. A state has no rule of its own: a fact shows it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, Literal, NamedTuple

import msgspec

Kind = Literal["cause", "state", "stage"]


class Node(NamedTuple):
    """A cause, a state or a stage: what it is in a few words, and the fact of `evidence.fact_table` that shows it (None: only its rule does).

    `also` are further facts that show it, where a sender records other telemetry. `last`: the cause is concluded only where nothing distinguishes slow calls
    from others, because it is what remains. `reaction`: it answers to slowness, so whatever drives it comes first. `change`: only a time before shows it,
    because a window by itself looks alike where it has always been so.
    """

    label: str
    fact: str | None = None
    kind: Kind = "cause"
    last: bool = False
    reaction: bool = False
    change: bool = False
    also: tuple[str, ...] = ()

    @property
    def facts(self) -> tuple[str, ...]:
        """Every fact that shows it, the one that shows it best first."""
        return () if self.fact is None else (self.fact, *self.also)


class PathStep(msgspec.Struct, kw_only=True):
    """One step of the way from a cause to the stage that loses the time.

    `kind` is cause, state or stage. `fact` names the row of `overrun explain facts` that shows it: of several, the first that changed clearly. It is null where only a
    rule does. `seen` says whether this window shows it: a rule found it or its fact changed clearly.
    """

    node: str
    label: str
    kind: Kind
    fact: str | None = None
    seen: bool = False
    reasons: dict[str, str] = {}

    def __post_init__(self) -> None:
        if self.fact is None:
            self.reasons = {"fact": "no fact shows it, only its rule"}


# The facts of stages are named so.
OF_STAGE: Final = "stage."
NODES: Final[Mapping[str, Node]] = {
    # Demand: what callers send.
    "under_capacity": Node(
        "more work arrives than the engines can do", "arrivals", last=True, change=True
    ),
    "burst_arrivals": Node("requests arrive in bursts", "bursts"),
    "noisy_tenant": Node("one tenant sends much more", "tenant_share", change=True),
    "prompt_bloat": Node("prompts are longer", "input", also=("input_slow",), change=True),
    "huge_context": Node("a few prompts are huge", "input", also=("input_slow",)),
    "long_outputs": Node(
        "answers are longer", "output", also=("output_slow", "reasoning", "reasoning_slow")
    ),
    "agent_loop": Node("agents take more steps", "repeats"),
    "retry_storm": Node(
        "clients repeat slow calls", "attempts", reaction=True, also=("lost_inside",)
    ),
    "missing_cancellation": Node("engines write for clients that left", "for_nobody"),
    "one_kind_of_call": Node("calls of one kind need more time", "kind"),
    # Engines: what is done with it.
    "prefix_cache_lost": Node(
        "less of the input is cached", "cache", also=("cache_slow",), change=True
    ),
    "kv_pressure": Node(
        "the KV cache is full",
        "kv_usage",
        also=("kv_capacity", "preemptions"),
    ),
    "too_few_seats": Node("the engine runs too few calls at a time", "waiting"),
    "head_of_line": Node("requests wait behind a long one while others pass", "overtaken"),
    "batch_past_knee": Node("too many calls share a batch", "batch", change=True),
    "decode_stall": Node("answers stop while prompts are read", "read_meanwhile"),
    "small_chunks": Node("prompts are read in smaller pieces", "read_pace", change=True),
    "mixed_lengths": Node("short and long calls share a batch", "batch"),
    "speculation_not_paying": Node("drafts cost more than they save", "drafts"),
    "engine_pauses": Node("the engine pauses", None),
    "gpu_throttled": Node("the GPU is slower", "clock", change=True),
    "straggler_replica": Node("one replica is slower", "replica_pace"),
    "hot_replica": Node("one replica gets too many calls", "replica_share"),
    "cold_start": Node("a replica starts cold", None),
    "model_changed": Node("another model answers", "pace", change=True),
    # Providers, seen from their clients.
    "provider_queueing": Node(
        "calls wait at the provider", "first_equal_load", last=True, also=("refusals",), change=True
    ),
    "token_rate_sag": Node(
        "the provider writes more slowly", "pace_equal_load", last=True, change=True
    ),
    "provider_spikes": Node("single calls are slow at random", None, last=True),
    # The way there and back.
    "client_throttled": Node(
        "calls wait in their client",
        "waited_inside",
        also=("refusals", "lost_inside"),
    ),
    "connection_churn": Node("calls open new connections", "engine_gap"),
    "stalled_connection": Node(
        "a name lookup or handshake times out", "constant", also=("silence",)
    ),
    "cross_region": Node("calls go to another region", "engine_gap"),
    "gateway_queue": Node("a gateway or front end is busy", "engine_gap"),
    "not_streaming": Node("the stream is held back", "first_against_end"),
    # The application around the calls.
    "slow_dependency": Node("another service is slow", None),
    "sequential_calls": Node("calls run one after the other", None),
    "oversized_side_model": Node("a side task uses a large model", None),
    # What these lead to.
    "more_work": Node("the engine has more to do", "in_flight", "state"),
    "more_to_read": Node(
        "the engine reads more tokens", "to_read", "state", also=("read_meanwhile",)
    ),
    "queue_wait": Node("calls wait for the engine", "waiting", "state", also=("queued",)),
    "slower_tokens": Node("each token takes longer", "pace", "state"),
    "late_first_token": Node(
        "the first token comes late", "first_token", "state", also=("first_equal_load",)
    ),
    "outside_engine": Node("a call spends time outside of the engine", "engine_gap", "state"),
    # Where a request loses the time.
    **{
        stage: Node(stage.replace("_", " "), f"{OF_STAGE}{stage}", "stage")
        for stage in (
            *("queue", "kv_transfer", "prefill", "decode", "first_token", "generation"),
            *("network", "gateway", "retrieval", "prompt", "guardrail", "tool", "post", "other"),
        )
    },
}

_AT_ENGINE: Final = ("queue_wait", "slower_tokens")
_AT_CLIENT: Final = ("outside_engine", "late_first_token", "generation", "provider_queueing")
_OWN: Final = ("retrieval", "prompt", "guardrail", "tool", "post", "other", "network")
# What comes with a cause: its signature holds that of what it brings.
BRINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "under_capacity": ("more_work",),
    "burst_arrivals": ("more_work",),
    "noisy_tenant": (
        "more_work",
        "prompt_bloat",
        "huge_context",
        "long_outputs",
    ),
    "prompt_bloat": ("more_to_read",),
    "huge_context": ("prompt_bloat", "more_to_read"),
    "long_outputs": ("more_work", "decode", "generation"),
    "agent_loop": ("prompt_bloat", "more_work", *_OWN),
    "retry_storm": ("more_work", "provider_queueing", "late_first_token"),
    "missing_cancellation": ("more_work", "under_capacity"),
    "one_kind_of_call": ("queue_wait", *_AT_CLIENT),
    "prefix_cache_lost": ("more_to_read",),
    "kv_pressure": (*_AT_ENGINE, "more_to_read"),
    "too_few_seats": ("under_capacity", "queue_wait"),
    "head_of_line": ("queue_wait",),
    "batch_past_knee": ("slower_tokens", "under_capacity"),
    "decode_stall": ("token_rate_sag", *_AT_ENGINE),
    "small_chunks": ("queue_wait", "prefill"),
    "mixed_lengths": _AT_ENGINE,
    "speculation_not_paying": _AT_ENGINE,
    "engine_pauses": _AT_ENGINE,
    "gpu_throttled": _AT_ENGINE,
    "straggler_replica": (*_AT_ENGINE, "late_first_token"),
    "hot_replica": _AT_ENGINE,
    "cold_start": ("straggler_replica", "slow_dependency", "generation", "provider_queueing"),
    "model_changed": (*_AT_ENGINE, "late_first_token"),
    "provider_queueing": ("late_first_token", "generation"),
    "token_rate_sag": ("slower_tokens",),
    "provider_spikes": ("late_first_token", "generation"),
    "client_throttled": ("other", *_AT_CLIENT),
    "connection_churn": ("slow_dependency", *_AT_CLIENT),
    "stalled_connection": ("slow_dependency", *_AT_CLIENT),
    "cross_region": ("slow_dependency", *_AT_CLIENT),
    "gateway_queue": _AT_CLIENT,
    "not_streaming": ("late_first_token", "outside_engine", "decode", "provider_queueing"),
    "slow_dependency": (*_OWN, "kv_transfer", "gateway"),
    "sequential_calls": ("slow_dependency",),
    "oversized_side_model": ("slow_dependency", "guardrail", "tool", "prompt", "post", "retrieval"),
    "more_to_read": ("more_work", "decode_stall", "late_first_token"),
    "more_work": _AT_ENGINE,
    "queue_wait": ("queue", "late_first_token", "kv_transfer"),
    "slower_tokens": ("decode", "generation", "prefill"),
    "late_first_token": ("first_token", "prefill"),
    "outside_engine": ("network", "gateway"),
}
# What may come of it: counts only where the finding shows that something else drives it.
MAY_DRIVE: Final[Mapping[str, tuple[str, ...]]] = {
    "more_work": (
        *("kv_pressure", "batch_past_knee", "decode_stall", "missing_cancellation"),
        *("provider_queueing", "token_rate_sag"),
    ),
    "kv_pressure": ("prefix_cache_lost",),
    "queue_wait": ("retry_storm", "missing_cancellation"),
    "slower_tokens": ("retry_storm", "batch_past_knee", "kv_pressure", "missing_cancellation"),
    "late_first_token": ("retry_storm", "token_rate_sag", "provider_queueing"),
    "outside_engine": ("retry_storm",),
    "model_changed": ("token_rate_sag", "provider_queueing"),
}


def is_last(cause: str) -> bool:
    """Return whether a cause is what remains where nothing distinguishes slow calls from others."""
    return cause in NODES and NODES[cause].last


def is_change(cause: str) -> bool:
    """Return whether only a time before shows a cause."""
    return cause in NODES and NODES[cause].change


def is_reaction(cause: str) -> bool:
    """Return whether a cause answers to slowness."""
    return cause in NODES and NODES[cause].reaction


def brings(cause: str, other: str) -> bool:
    """Return whether a node leads to another one for certain."""
    return other in _reached(cause, driven=False)


def may_bring(cause: str, other: str) -> bool:
    """Return whether a node leads to another one, for certain or at times."""
    return other in _reached(cause, driven=True)


@functools.cache
def _reached(start: str, *, driven: bool) -> frozenset[str]:
    """All nodes behind one."""
    reached, waiting = {start}, [start]
    while waiting:
        node = waiting.pop()
        after = (*BRINGS.get(node, ()), *(MAY_DRIVE.get(node, ()) if driven else ()))
        waiting += [other for other in after if other not in reached]
        reached |= {*after}
    return frozenset(reached - {start})


def path_to(cause: str, stage: str, seen: Collection[str] = ()) -> list[str]:
    """Return the way from a cause to the stage that loses the time: with the fewest causes that are not `seen`, then most that are, then shortest; [] without any."""
    ways = list(_ways((cause,), stage))

    def worth(way: tuple[str, ...]) -> tuple[int, int, int]:
        causes = [name for name in way[1:] if NODES[name].kind == "cause"]
        hits = sum(name in seen for name in causes)
        return len(causes) - hits, -hits, len(way)

    best = min(ways, key=worth, default=())
    return list(best)


def _ways(way: tuple[str, ...], stage: str) -> Iterator[tuple[str, ...]]:
    """All ways that go on from the last node of one to a stage."""
    if way[-1] == stage:
        yield way
        return
    for other in BRINGS.get(way[-1], ()):
        if other not in way:
            yield from _ways((*way, other), stage)


def steps(
    cause: str, stage: str, found: Collection[str], shown: Callable[[str], bool]
) -> list[PathStep]:
    """Return the way from a cause to a stage, step by step; `found` are the causes that rules found, `shown` says whether a fact changed clearly."""
    out = []
    for name in path_to(cause, stage, found):
        node = NODES[name]
        lost = node.kind == "stage"
        clear = None if lost else next((fact for fact in node.facts if shown(fact)), None)
        seen = lost or clear is not None or name in found
        out.append(
            PathStep(
                node=name, label=node.label, kind=node.kind, fact=clear or node.fact, seen=seen
            )
        )
    return out


def mermaid() -> str:
    """Return the graph as a Mermaid flowchart: causes as boxes, states as rounded boxes, stages as hexagons; dashed is what may come of it."""
    shapes = {"cause": ("[", "]"), "state": ("(", ")"), "stage": ("{{", "}}")}
    lines = ["flowchart LR"]
    lines += [
        f'  {name}{shapes[node.kind][0]}"{node.label}"{shapes[node.kind][1]}'
        for name, node in NODES.items()
    ]
    for edges, arrow in ((BRINGS, "-->"), (MAY_DRIVE, "-.->")):
        lines += [f"  {one} {arrow} {other}" for one, others in edges.items() for other in others]
    return "\n".join(lines) + "\n"
