"""The scenarios with a fault, by id. Amounts come from `calibrate.py`; each was checked there against the shares that its severities ask for."""

from __future__ import annotations

import math
from typing import Final

from overrun.sample_traces.simulator.scenarios import (
    AGENT,
    AGENT_SLO,
    CHAT,
    CHAT_SLO,
    HOSTED,
    MODEL,
    RAG,
    RAG_SLO,
    TIGHT,
    Fix,
    Scenario,
    changed,
    set_to,
    turn,
    twice_the_replicas,
    undo,
)
from overrun.sample_traces.simulator.settings import Settings
from overrun.sample_traces.simulator.traffic import NOISY


def _endless_history(settings: Settings, amount: float) -> Settings:
    return changed(
        settings, history_kept=50, history_tokens=round(settings.history_tokens * amount)
    )


def _less_kv(settings: Settings, amount: float) -> Settings:
    return changed(settings, kv_tokens=round(settings.kv_tokens * (1.0 - amount)))


def _straggler(settings: Settings, amount: float) -> Settings:
    return changed(settings, slow=(1.0, 1.0, amount, 1.0))


def _impatience(settings: Settings, amount: float) -> Settings:
    """Clients that ask once more after 0.45 s: without an end to retries the storm would never be a small one."""
    return changed(settings, growth=amount, retry_after_s=0.45, retries=1)


def _unchunked(settings: Settings, amount: float) -> Settings:
    return changed(settings, chunked=False, token_budget=16_384, batch_rps=amount)


def _huge(settings: Settings, amount: float) -> Settings:
    return changed(settings, huge_every_s=15.0, huge_tokens=round(amount))


def _kv_back(before: Settings, after: Settings) -> list[Fix]:
    return [
        Fix(
            "kv_size",
            {"factor": before.kv_tokens / after.kv_tokens},
            lambda settings: changed(settings, kv_tokens=before.kv_tokens),
        )
    ]


def _prefix_back(before: Settings, after: Settings) -> list[Fix]:
    # The mean of a lognormal with sigma 0.35 is 1.063 times its median.
    ratio = after.system_tokens / (after.system_tokens + 1.063 * after.input_tokens)
    return [
        Fix(
            "prefix_cache",
            {"hit_ratio": round(ratio, 3)},
            lambda settings: changed(settings, system_broken_share=0.0),
        )
    ]


def limited(settings: Settings, share_ratio: float) -> Settings:
    """A quota for the noisy tenant: this share of the tokens, prompt and answer, that the application takes without its flood."""
    # The mean of a lognormal is exp(sigma^2 / 2) times its median.
    own, out = (
        median
        * math.exp(sigma**2 / 2.0)
        * (1.0 - (1.0 - settings.other_size) * settings.other_share)
        for median, sigma in (
            (settings.input_tokens, settings.input_sigma),
            (settings.output_tokens, settings.output_sigma),
        )
    )
    return changed(
        settings,
        noisy_quota=share_ratio
        * settings.rate_rps
        * settings.growth
        * (settings.system_tokens + own + out),
    )


def _quota(before: Settings, after: Settings) -> list[Fix]:
    share = 0.084  # that tenant's part of all requests without the flood
    return [
        Fix(
            "tenant_quota",
            {"tenant": NOISY, "share_ratio": share},
            lambda settings: limited(settings, share),
        )
    ]


def _cooled(before: Settings, after: Settings) -> list[Fix]:
    return [
        Fix(
            "hardware",
            {"time_factor": before.throttled / after.throttled},
            lambda settings: changed(settings, throttled=before.throttled),
        )
    ]


def _scale_up(settings: Settings, amount: float) -> Settings:
    return changed(
        settings, growth=1.4, replicas=settings.replicas + 3, cold_replicas=(2, 3, 4), cold_s=amount
    )


def _rejected_drafts(settings: Settings, amount: float) -> Settings:
    return changed(settings, acceptance=settings.acceptance - amount)


def _retrieval_and_stall(settings: Settings, amount: float) -> Settings:
    return changed(
        _unchunked(settings, 0.1 + 0.5 * amount), search_factor=40.0, search_share=0.12 * amount
    )


def _three_at_once(settings: Settings, amount: float) -> Settings:
    return changed(
        settings,
        slow=(1.0, 1.0 + 1.2 * amount, 1.0, 1.0),
        output_factor=3.0,
        output_share=0.1 * amount,
        silent_ms=1500.0 * amount,
    )


def _fewer_places(settings: Settings, amount: float) -> Settings:
    return changed(settings, gateway_slots=10, growth=amount)


def _lost_lengths(settings: Settings, amount: float) -> Settings:
    return changed(settings, affinity_share=1.0 - amount)


def _fewer_calls_out(settings: Settings, amount: float) -> Settings:
    return changed(settings, client_slots=10, growth=amount)


SCENARIOS: Final = {
    s.id: s
    for s in (
        Scenario(
            id="long_outputs",
            number="1",
            title="Answers run away after a change of the prompt",
            world=RAG,
            slo=RAG_SLO,
            fault=turn("output_share", output_factor=4.0),
            amounts=(0.30, 0.098, 0.033),
            bounds=(0.005, 0.6),
            causes=("long_outputs",),
            stages=("decode",),
            client_causes=("long_outputs",),
            client_stages=MODEL,
            fixes=set_to("cap", {"max_tokens": 112}, max_tokens=112),
        ),
        Scenario(
            id="prompt_bloat",
            number="3",
            title="A session's history is kept without end",
            world=CHAT,
            slo=CHAT_SLO,
            fault=_endless_history,
            amounts=(2.9, 2.56, 2.25),
            bounds=(1.0, 6.0),
            causes=("prompt_bloat",),
            stages=("prefill", "queue", "decode"),
            client_causes=("prompt_bloat",),
            client_stages=("first_token", "decode"),
            fixes=set_to("context_limit", {"max_input_tokens": 2_000}, input_limit=2_000),
        ),
        Scenario(
            id="prefix_cache_lost",
            number="4",
            title="A timestamp at the head of the prompt breaks the prefix",
            world=changed(RAG, system_tokens=3600, input_tokens=500.0),
            slo=RAG_SLO,
            fault=turn("system_broken_share"),
            amounts=(0.273, 0.165, 0.111),
            bounds=(0.02, 0.6),
            causes=("prefix_cache_lost",),
            stages=("prefill", "decode", "queue"),
            client_causes=("prefix_cache_lost",),
            client_stages=("first_token", "decode"),
            fixes=_prefix_back,
        ),
        Scenario(
            id="kv_pressure",
            number="5",
            title="The KV cache shrinks and sequences are preempted",
            world=changed(CHAT, kv_tokens=70_000, rate_rps=7.0),
            slo=CHAT_SLO,
            fault=_less_kv,
            amounts=(0.819, 0.792, 0.758),
            bounds=(0.6, 0.88),
            causes=("kv_pressure",),
            stages=("queue", "decode", "prefill"),
            client_causes=("none", "provider_queueing", "under_capacity", "token_rate_sag"),
            client_stages=MODEL,
            fixes=_kv_back,
        ),
        Scenario(
            id="under_capacity",
            number="8",
            title="More users than the engines can serve",
            world=TIGHT,
            slo=RAG_SLO,
            fault=turn("growth"),
            amounts=(1.61, 1.52, 1.46),
            bounds=(1.2, 1.8),
            causes=("under_capacity",),
            stages=("queue",),
            client_causes=("under_capacity", "provider_queueing", "none"),
            client_stages=("first_token",),
            fixes=twice_the_replicas,
        ),
        Scenario(
            id="burst_arrivals",
            number="9",
            title="Requests arrive in bursts at the same mean rate",
            world=TIGHT,
            slo=RAG_SLO,
            fault=turn("burst_factor", burst_every_s=30.0, burst_s=4.0),
            amounts=(3.06, 2.28, 1.97),
            bounds=(1.5, 4.0),
            causes=("burst_arrivals",),
            stages=("queue",),
            client_causes=("burst_arrivals", "provider_queueing"),
            client_stages=("first_token",),
            fixes=twice_the_replicas,
        ),
        Scenario(
            id="straggler_replica",
            number="11",
            title="One of four replicas is slow",
            world=changed(CHAT, replicas=4, rate_rps=8.0, router="round_robin"),
            slo=CHAT_SLO,
            fault=_straggler,
            amounts=(4.0, 1.96, 1.65),
            bounds=(1.1, 5.0),
            causes=("straggler_replica",),
            stages=("decode",),
            client_causes=("none", "token_rate_sag"),
            client_stages=MODEL,
            fixes=set_to("eject", {}, replicas=3, slow=()),
        ),
        Scenario(
            id="noisy_tenant",
            number="13",
            title="One tenant floods the engines with long prompts",
            world=changed(TIGHT, max_num_seqs=10),
            slo=RAG_SLO,
            fault=turn("noisy_share", noisy_input_factor=4.0, noisy_output_factor=1.6),
            amounts=(0.23, 0.125, 0.055),
            bounds=(0.02, 0.3),
            causes=("noisy_tenant",),
            stages=("queue", "prefill", "decode"),
            client_causes=("noisy_tenant",),
            client_stages=MODEL,
            fixes=_quota,
        ),
        Scenario(
            id="retry_storm",
            number="14",
            title="The client asks again when the first token is late",
            world=TIGHT,
            slo=RAG_SLO,
            fault=_impatience,
            amounts=(1.0, 0.92, 0.85),
            bounds=(0.6, 1.4),
            causes=("retry_storm",),
            stages=("queue",),
            client_causes=("retry_storm",),
            client_stages=("first_token",),
            fixes=undo("retries", "retries", "retry_after_s"),
        ),
        Scenario(
            id="provider_queueing",
            number="15",
            title="The provider lets calls wait for minutes on end, and refuses some",
            world=HOSTED,
            slo=RAG_SLO,
            fault=turn("provider_queue_s", provider_429=0.02, retries=2),
            amounts=(0.9, 0.585, 0.403),
            bounds=(0.1, 4.0),
            causes=("provider_queueing",),
            stages=("first_token",),
            client_causes=("provider_queueing",),
            client_stages=("first_token",),
        ),
        Scenario(
            id="slow_dependency",
            number="18",
            title="A vector store turns slow",
            world=RAG,
            slo=RAG_SLO,
            fault=turn("search_share", search_factor=40.0, search_sigma=0.4),
            amounts=(0.382, 0.134, 0.041),
            bounds=(0.01, 1.0),
            causes=("slow_dependency",),
            stages=("retrieval",),
            client_causes=("slow_dependency",),
            client_stages=("retrieval",),
            fixes=undo("restore", "search_factor", "search_sigma"),
        ),
        Scenario(
            id="reasoning_inflation",
            number="2",
            title="Hard questions make the model think five times as long",
            world=changed(CHAT, reasoning_share=1.0, reasoning_tokens=50.0, max_tokens=4096),
            slo="ttft:2500 e2el:7000",
            fault=turn("deep_share", deep_factor=6.0),
            amounts=(0.306, 0.109, 0.0347),
            bounds=(0.01, 0.8),
            causes=("reasoning",),
            stages=("decode", "first_token", "generation"),
            client_causes=("reasoning",),
            client_stages=MODEL,
            fixes=undo("restore", "deep_share"),
        ),
        Scenario(
            id="decode_stall",
            number="6",
            title="Long prompts stop everybody's tokens, with chunking off",
            world=changed(
                RAG,
                rate_rps=5.0,
                input_tokens=950.0,
                input_sigma=0.5,
                token_budget=512,
                batch_rps=0.1,
            ),
            slo="ttft:2000 e2el:4000",
            chunk_events=True,
            fault=_unchunked,
            amounts=(0.788, 0.512, 0.306),
            bounds=(0.1, 1.2),
            causes=("decode_stall",),
            stages=("decode", "prefill", "queue"),
            client_causes=("decode_stall", "none", "token_rate_sag", "provider_queueing"),
            client_stages=MODEL,
            fixes=undo("chunked_prefill", "chunked", "token_budget", token_budget=512),
        ),
        Scenario(
            id="batch_past_knee",
            number="7",
            title="The sequence limit is raised past what the engine runs well",
            world=changed(CHAT, output_tokens=220.0, rate_rps=7.5, max_num_seqs=32, graph_limit=32),
            slo="ttft:2000 e2el:9000",
            fault=turn("growth", max_num_seqs=256),
            amounts=(1.2, 1.185, 1.175),
            bounds=(1.0, 1.6),
            causes=("batch_past_knee",),
            stages=("decode",),
            client_causes=("none", "token_rate_sag", "under_capacity"),
            client_stages=MODEL,
            fixes=undo("max_sequences", "max_num_seqs", sequences=32),
        ),
        Scenario(
            id="huge_context",
            number="10",
            title="One huge context every half minute",
            world=RAG,
            slo=RAG_SLO,
            fault=_huge,
            amounts=(70_200.0, 30_500.0, 10_600.0),
            bounds=(4_000.0, 110_000.0),
            causes=("huge_context",),
            stages=("prefill", "queue", "decode"),
            client_causes=("huge_context", "none", "provider_queueing"),
            client_stages=MODEL,
            fixes=set_to("context_limit", {"max_input_tokens": 6_000}, input_limit=6_000),
        ),
        Scenario(
            id="hot_replica",
            number="12",
            title="Affinity by tenant heats one replica",
            world=changed(CHAT, replicas=4, rate_rps=11.0, max_num_seqs=12),
            slo=CHAT_SLO,
            fault=turn("affinity_share", router="tenant"),
            amounts=(0.522, 0.425, 0.37),
            bounds=(0.1, 1.0),
            causes=("hot_replica",),
            stages=("queue", "decode"),
            client_causes=("none", "provider_queueing", "under_capacity"),
            client_stages=MODEL,
            fixes=undo("routing", "router", policy="least_load"),
        ),
        Scenario(
            id="token_rate_sag",
            number="16",
            title="The provider's tokens come slower, in the second half of an answer most",
            world=HOSTED,
            slo=RAG_SLO,
            fault=turn("provider_sag"),
            amounts=(2.8, 2.08, 1.71),
            bounds=(1.1, 5.0),
            chunk_events=True,
            causes=("token_rate_sag",),
            stages=("decode",),
            client_causes=("token_rate_sag",),
            client_stages=("decode", "generation"),
        ),
        Scenario(
            id="provider_spikes",
            number="17",
            title="Now and then the provider takes half a minute",
            world=HOSTED,
            slo=RAG_SLO + " percentile:99 goodput_target:0.99",
            fault=turn("provider_spike_share", provider_spike_s=30.0),
            amounts=(0.06, 0.035, 0.02),
            bounds=(0.005, 0.2),
            causes=("provider_spikes",),
            stages=("first_token",),
            client_causes=("provider_spikes",),
            client_stages=("first_token",),
        ),
        Scenario(
            id="sequential_calls",
            number="19",
            title="A refactoring asks the stores one after the other",
            world=changed(RAG, stores=4, search_ms=280.0),
            slo=RAG_SLO,
            fault=turn("sequential_share"),
            amounts=(0.95, 0.28, 0.085),
            bounds=(0.02, 1.0),
            causes=("sequential_calls",),
            stages=("retrieval",),
            client_causes=("sequential_calls",),
            client_stages=("retrieval",),
            fixes=undo("fan_out", "sequential_share", stage="retrieval"),
        ),
        Scenario(
            id="tool_timeout",
            number="20",
            title="A tool hangs until its timeout",
            world=AGENT,
            slo=AGENT_SLO,
            fault=turn("tool_hang_share", tool_hang_s=8.0),
            amounts=(0.305, 0.1, 0.042),
            bounds=(0.01, 0.6),
            causes=("slow_dependency",),
            stages=("tool",),
            client_causes=("slow_dependency",),
            client_stages=("tool",),
            fixes=undo("restore", "tool_hang_share"),
        ),
        Scenario(
            id="agent_loop",
            number="21",
            title="An agent calls the same tool again and again",
            world=changed(AGENT, rate_rps=3.0),
            slo=AGENT_SLO,
            fault=turn("loop_share", loop_steps=7),
            amounts=(0.158, 0.084, 0.0285),
            bounds=(0.01, 0.6),
            causes=("agent_loop",),
            stages=("decode", "tool", "prefill", "queue"),
            client_causes=("agent_loop",),
            client_stages=("tool", *MODEL),
            fixes=undo("step_cap", "loop_share", steps=3),
        ),
        Scenario(
            id="oversized_side_model",
            number="22",
            title="The guardrail moves to a large remote model",
            world=RAG,
            slo=RAG_SLO,
            fault=turn("provider_ttft_ms", guard_model="gpt-4.1", provider_ttft_sigma=0.5),
            amounts=(850.0, 550.0, 400.0),
            bounds=(100.0, 2500.0),
            causes=("oversized_side_model",),
            stages=("guardrail", "generation", "first_token"),
            client_causes=("oversized_side_model",),
            client_stages=("guardrail", "generation", "first_token"),
            fixes=undo("restore", "guard_model"),
        ),
        Scenario(
            id="cold_start",
            number="23",
            title="New replicas join cold as traffic grows",
            world=CHAT,
            slo=CHAT_SLO,
            fault=_scale_up,
            amounts=(400.0, 153.0, 54.5),
            bounds=(5.0, 600.0),
            causes=("cold_start",),
            stages=("decode", "prefill", "queue"),
            client_causes=("none", "token_rate_sag", "provider_queueing"),
            client_stages=MODEL,
            fixes=set_to("warm_pool", {}, cold_s=0.0),
        ),
        Scenario(
            id="connection_churn",
            number="24",
            title="Every model call opens a connection of its own",
            world=RAG,
            slo=RAG_SLO,
            fault=turn("handshake_ms", pooled=False),
            amounts=(920.0, 568.0, 376.0),
            bounds=(30.0, 2500.0),
            causes=("connection_churn",),
            stages=("network",),
            client_causes=("connection_churn", "provider_queueing", "none"),
            client_stages=("network", "first_token"),
            fixes=undo("connection_pooling", "pooled", network_ms=3.5),
        ),
        Scenario(
            id="serial_orchestrator",
            number="25",
            title="Tokens are counted on the event loop",
            world=changed(RAG, rate_rps=6.0),
            slo=RAG_SLO,
            fault=turn("tokenizer_us"),
            amounts=(134.0, 122.0, 114.0),
            bounds=(20.0, 145.0),
            accepted=("unattributed_time",),
            causes=("one_at_a_time",),
            stages=("other", "prompt"),
            client_causes=("one_at_a_time",),
            client_stages=("other", "prompt"),
            fixes=undo("restore", "tokenizer_us"),
        ),
        Scenario(
            id="not_streaming",
            number="26",
            title="A proxy holds streams back until they are complete",
            world=RAG,
            slo=RAG_SLO,
            fault=turn("buffered_share"),
            amounts=(0.95, 0.29, 0.103),
            bounds=(0.01, 1.0),
            causes=("not_streaming",),
            stages=("decode", "network", "gateway", "other"),
            client_causes=("not_streaming", "provider_queueing"),
            client_stages=("first_token", "generation"),
            fixes=undo("streaming", "buffered_share"),
        ),
        Scenario(
            id="missing_cancellation",
            number="26b",
            title="The engine is no longer told that nobody wants an answer",
            world=changed(CHAT, max_num_seqs=20, suggestion_tokens=250.0, rate_rps=4.0),
            slo=CHAT_SLO,
            fault=turn("suggestion_tokens", cancels=False),
            amounts=(305.0, 264.0, 252.0),
            bounds=(250.0, 900.0),
            causes=("missing_cancellation",),
            stages=("queue", "decode"),
            client_causes=("none", "provider_queueing", "token_rate_sag"),
            client_stages=MODEL,
            fixes=undo("cancellation", "cancels"),
        ),
        Scenario(
            id="speculation_not_paying",
            number="27",
            title="The draft model's tokens are no longer accepted",
            world=changed(CHAT, draft_tokens=4, acceptance=0.75),
            slo="ttft:800 e2el:2600",
            fault=_rejected_drafts,
            amounts=(0.43, 0.312, 0.203),
            bounds=(0.05, 0.75),
            causes=("speculation_not_paying",),
            stages=("decode",),
            client_causes=("none", "token_rate_sag"),
            client_stages=("decode", "generation"),
            fixes=set_to("speculation", {"enabled": "false"}, draft_tokens=0),
        ),
        Scenario(
            id="growth_and_bloat",
            number="M1",
            title="A fifth more users, and longer prompts",
            world=changed(TIGHT, max_num_seqs=9),
            slo=RAG_SLO,
            fault=turn("input_factor", growth=1.3),
            amounts=(1.54, 1.38, 1.2),
            bounds=(1.2, 4.0),
            causes=("prompt_bloat", "under_capacity"),
            stages=("queue", "prefill"),
            client_causes=("prompt_bloat", "under_capacity"),
            client_stages=("first_token", "decode"),
            fixes=lambda b, a: [*undo("restore", "input_factor")(b, a), *twice_the_replicas(b, a)],
        ),
        Scenario(
            id="prefix_then_retries",
            number="M2",
            title="A lost prefix cache makes clients ask again",
            world=changed(
                RAG, system_tokens=3600, input_tokens=500.0, retry_after_s=1.0, retries=2
            ),
            slo=RAG_SLO,
            fault=turn("system_broken_share"),
            amounts=(0.2, 0.14, 0.08),
            bounds=(0.02, 0.5),
            causes=("prefix_cache_lost",),
            chain=("retry_storm",),
            stages=("prefill", "decode", "queue"),
            client_causes=("prefix_cache_lost",),
            client_stages=("first_token", "decode"),
            fixes=_prefix_back,
        ),
        Scenario(
            id="retrieval_and_stall",
            number="M3",
            title="A slow vector store, and prompts that stop everybody's tokens",
            world=changed(
                RAG,
                rate_rps=5.0,
                input_tokens=950.0,
                input_sigma=0.5,
                token_budget=512,
                batch_rps=0.1,
            ),
            slo="ttft:2000 e2el:4000",
            chunk_events=True,
            fault=_retrieval_and_stall,
            amounts=(1.0, 0.5, 0.22),
            bounds=(0.05, 2.0),
            causes=("slow_dependency", "decode_stall"),
            stages=("retrieval", "decode"),
            client_causes=("slow_dependency", "decode_stall"),
            client_stages=("retrieval", "decode"),
            fixes=lambda b, a: [
                *undo("restore", "search_factor", "search_share")(b, a),
                *undo("chunked_prefill", "chunked", "token_budget", token_budget=512)(b, a),
            ],
        ),
        Scenario(
            id="straggler_uninstrumented",
            number="M4",
            title="A straggler, longer answers, and work that no span covers",
            world=changed(CHAT, replicas=4, rate_rps=8.0, router="round_robin"),
            slo=CHAT_SLO,
            fault=_three_at_once,
            amounts=(0.414, 0.293, 0.202),
            bounds=(0.05, 2.0),
            # Time that no span covers hides the others: to say where to instrument is a right answer, and so is each of the others beside it.
            causes=("unattributed_time",),
            accepted=("straggler_replica", "long_outputs"),
            stages=("other", "decode"),
            client_causes=("long_outputs", "unattributed_time"),
            client_stages=("other", *MODEL),
            fixes=set_to("eject", {}, replicas=3, slow=()),
        ),
        Scenario(
            id="gateway_queue",
            number="-",
            title="The proxy before the engines lets too few calls through",
            world=changed(RAG, gateway_slots=64),
            slo=RAG_SLO,
            fault=_fewer_places,
            amounts=(1.25, 1.12, 1.02),
            bounds=(0.5, 1.5),
            causes=("gateway_queue",),
            stages=("gateway", "network", "queue"),
            client_causes=("gateway_queue", "provider_queueing"),
            client_stages=("gateway", "network", "first_token"),
            fixes=undo("restore", "gateway_slots"),
        ),
        Scenario(
            id="client_throttled",
            number="-",
            title="A semaphore in the application lets too few calls out",
            world=HOSTED,
            slo=RAG_SLO,
            fault=_fewer_calls_out,
            amounts=(1.07, 1.0, 0.95),
            bounds=(0.5, 1.3),
            accepted=("unattributed_time",),
            causes=("client_throttled",),
            stages=("other", "queue"),
            client_causes=("client_throttled",),
            client_stages=("other", "queue"),
            fixes=undo("restore", "client_slots"),
        ),
        Scenario(
            id="model_changed",
            number="-",
            title="The provider serves another snapshot, which is slower",
            world=HOSTED,
            slo=RAG_SLO,
            fault=turn(
                "provider_tpot_ms", provider_model="gpt-4.1-mini-2025-11-03", provider_ttft_ms=380.0
            ),
            amounts=(29.0, 22.5, 20.0),
            bounds=(13.0, 50.0),
            causes=("model_changed",),
            stages=("decode", "first_token"),
            client_causes=("model_changed",),
            client_stages=("decode", "first_token"),
        ),
        Scenario(
            id="cross_region",
            number="-",
            title="The engines' traffic goes through another continent",
            world=AGENT,
            slo=AGENT_SLO,
            fault=turn("rtt_ms"),
            amounts=(1300.0, 950.0, 750.0),
            bounds=(20.0, 2500.0),
            causes=("cross_region",),
            stages=("network",),
            client_causes=("cross_region", "provider_queueing", "none"),
            client_stages=("network", "first_token"),
            fixes=undo("co_location", "rtt_ms", network_ms=1.5),
        ),
        Scenario(
            id="gpu_throttled",
            number="-",
            title="The accelerators run hot and lower their clocks",
            world=CHAT,
            slo=CHAT_SLO,
            fault=turn("throttled"),
            amounts=(1.75, 1.5, 1.32),
            bounds=(1.05, 3.0),
            causes=("gpu_throttled",),
            stages=("decode",),
            client_causes=("token_rate_sag", "none"),
            client_stages=("decode", "generation"),
            fixes=_cooled,
        ),
    )
}

# Short answers, and reports of a nightly job that share a head of 4,000 tokens and are 17 times as long, each on a replica of their own.
LANES: Final = changed(
    RAG,
    rate_rps=10.0,
    system_tokens=200,
    input_tokens=80.0,
    output_tokens=150.0,
    output_sigma=0.2,
    router="lanes",
    lane_replicas=1,
    max_num_seqs=64,
    kv_tokens=240_000,
    batch_rps=0.4,
    batch_system_tokens=4000,
    batch_input_tokens=300.0,
    batch_output_tokens=2500.0,
    batch_max_tokens=4096,
)
FURTHER: Final = {
    s.id: s
    for s in (
        Scenario(
            id="mixed_lengths",
            number="-",
            title="The router no longer knows the length of a share of the answers: long ones run beside short ones",
            world=LANES,
            slo="ttft:1500 e2el:3600",
            fault=_lost_lengths,
            amounts=(1.0, 0.35, 0.15),
            bounds=(0.02, 1.0),
            causes=("mixed_lengths",),
            stages=("decode",),
            client_causes=("none", "token_rate_sag"),
            client_stages=MODEL,
            fixes=undo("routing", "affinity_share", policy="lanes"),
        ),
    )
}
"""Beside the scenarios: faults that no table of theirs counts, asked for by name."""
