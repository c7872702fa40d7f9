"""What world is simulated? Every knob of traffic, application, engine, provider and telemetry, in one flat table; faults and fixes replace some of them.

Times are in seconds unless the name says milliseconds; sizes are tokens.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One state of the world. A run has one before the onset and one after it."""

    # Traffic. Rates are requests per second of the whole application.
    rate_rps: float = 6.0
    growth: float = 1.0  # factor on the rate
    diurnal: float = 0.0  # amplitude of a sine of 20 minutes on the rate
    burst_every_s: float = 0.0  # 0: none
    burst_s: float = 4.0
    burst_factor: float = 1.0
    tenants: int = 8
    noisy_share: float = 0.0  # share of all requests that one tenant sends in addition
    noisy_input_factor: float = 1.0
    noisy_output_factor: float = 1.0
    noisy_quota: float = 0.0  # tokens per second that the engines' gateway lets that tenant have, its ordinary requests among them; 0: any
    batch_rps: float = 0.0  # summaries of a nightly job on the same engines
    batch_system_tokens: int = 0  # head that the job's prompts share
    batch_input_tokens: float = 5200.0  # median of what is not shared
    batch_output_tokens: float = 420.0
    batch_max_tokens: int = 1024

    # Application.
    kind: str = "rag"  # rag, chat or agent
    service: str = "rag-api"
    route: str = "/rag/ask"
    other_route: str = ""  # a second, lighter route, or none
    other_share: float = 0.0
    other_size: float = 0.5  # how long its questions and answers are beside those of the first
    repeat_share: float = 0.0  # share of requests that ask one of the common questions, word for word; prompts are hashed then
    response_cache: bool = False  # in front of the model: what was answered is not asked again
    version: str = "2.4.1"
    pods: int = 2
    system_tokens: int = 1500
    system_broken_share: float = (
        0.0  # prompts whose head differs each time, so that no prefix matches
    )
    input_tokens: float = 700.0  # median of what is not shared
    input_sigma: float = 0.35
    input_share: float = 1.0  # share of requests that `input_factor` strikes
    input_factor: float = 1.0
    output_tokens: float = 70.0
    output_sigma: float = 0.30
    output_share: float = 1.0  # share of requests that `output_factor` strikes
    output_factor: float = 1.0
    reasoning_share: float = 0.0  # share of requests that think before they answer
    reasoning_tokens: float = 0.0
    deep_share: float = 0.0  # share of those whose reasoning is `deep_factor` times as long
    deep_factor: float = 5.0
    max_tokens: int = 1024
    history_tokens: int = 220  # what a turn of a session adds to the prompt of the next
    history_kept: int = 6  # turns
    input_limit: int = 0  # longest prompt that is let through whole; 0: any
    huge_every_s: float = 0.0
    huge_tokens: int = 0
    guard_ms: float = 12.0
    guard_model: str = ""  # a remote model does the guarding
    embed_ms: float = 28.0
    search_ms: float = 45.0
    search_sigma: float = 0.30
    search_share: float = 1.0  # share of searches that `search_factor` strikes
    search_factor: float = 1.0
    stores: int = 2
    sequential_share: float = (
        0.0  # share of requests that ask stores and tools one after the other instead of at once
    )
    rerank_ms: float = 35.0
    post_ms: float = 8.0
    tool_ms: float = 160.0
    tool_sigma: float = 0.35
    tool_hang_share: float = 0.0
    tool_hang_s: float = 0.0
    tools: int = 2
    steps: int = 2
    loop_share: float = 0.0
    loop_steps: int = 0
    silent_ms: float = 0.0  # work in the handler that no span covers
    tokenizer_us: float = 0.0  # per input token, on the application's one thread; 0: off the loop
    buffered_share: float = (
        0.0  # share of requests behind a proxy that holds the stream back until it is complete
    )
    pooled: bool = True  # connections are reused
    handshake_ms: float = 45.0
    handshake_sigma: float = 0.6
    rtt_ms: float = 1.5
    client_slots: int = 0  # how many model calls may be out at once; 0: any number
    gateway_slots: int = 0  # places in the proxy before the engine; 0: no proxy
    gateway_ms: float = 3.0
    retry_after_s: float = 0.0  # asks again when no token came by then; 0: patient
    retries: int = 0
    retry_cancels: bool = False
    give_up_share: float = 0.0  # users who leave
    give_up_s: float = 0.0
    suggestion_tokens: float = (
        0.0  # of follow-up questions written beside the answer and dropped when it is there
    )
    cancels: bool = True  # the engine is told when a client leaves

    # Engine: every replica alike, but for `slow`.
    provider: bool = False  # an opaque provider instead of engines
    model: str = "qwen3-8b-instruct"
    replicas: int = 2
    slow: tuple[float, ...] = ()  # factor on a replica's iteration time
    router: str = "least"  # least, round_robin, tenant or lanes
    affinity_share: float = 1.0  # share of requests that a router by tenant or lanes sends to a replica of theirs, the others to the least loaded
    lane_replicas: int = (
        0  # the last ones, which a router by lanes keeps for the long answers of the nightly job
    )
    max_num_seqs: int = 48
    token_budget: int = 2048
    chunked: bool = True
    graph_limit: int = 512  # sequences up to which iterations run as recorded graphs; larger batches are launched kernel by kernel
    kv_tokens: int = 160_000
    prefix_cache: bool = True
    cold_replicas: tuple[
        int, ...
    ] = ()  # replicas that join at the onset, with an empty cache and kernels still to compile
    cold_s: float = 0.0
    draft_tokens: int = 0
    acceptance: float = 0.7
    throttled: float = 1.0  # factor on every iteration while the accelerators' clocks are down

    # Provider.
    provider_ttft_ms: float = 320.0
    provider_ttft_sigma: float = 0.25
    provider_tpot_ms: float = 13.0
    provider_queue_s: float = 0.0  # mean of a wait that comes and goes by the minute
    provider_429: float = 0.0
    provider_sag: float = 1.0  # factor on the time per token, for the second half of an answer
    provider_spike_share: float = 0.0
    provider_spike_s: float = 0.0
    provider_model: str = "gpt-4.1-mini-2025-04-14"


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """What of the world is seen. The same world may be seen whole or by its clients alone."""

    engine_spans: bool = True
    engine_metrics: bool = True
    traces: bool = True
    scrape_s: float = 15.0
    sampling: float = 1.0  # of heads
    lost_spans: float = 0.0
    skew_ms: float = 0.0  # of the engines' clock
    chunk_events: bool = False  # one event per chunk on the client's span
