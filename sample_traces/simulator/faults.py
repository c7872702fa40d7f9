"""The scenarios with a fault, by id. Amounts come from `calibrate.py`; each was checked there against the shares that its severities ask for."""

from __future__ import annotations

from typing import Final

from sample_traces.simulator.scenarios import (
    CHAT,
    CHAT_SLO,
    HOSTED,
    MODEL,
    RAG,
    RAG_SLO,
    TIGHT,
    Scenario,
    changed,
    set_to,
    turn,
    twice_the_replicas,
    undo,
)
from sample_traces.simulator.settings import Settings


def _endless_history(settings: Settings, amount: float) -> Settings:
    return changed(settings, history_kept=50, history_tokens=round(settings.history_tokens * amount))


def _less_kv(settings: Settings, amount: float) -> Settings:
    return changed(settings, kv_tokens=round(settings.kv_tokens * (1.0 - amount)))


def _straggler(settings: Settings, amount: float) -> Settings:
    return changed(settings, slow=(1.0, 1.0, amount, 1.0))


def _impatience(settings: Settings, amount: float) -> Settings:
    """A little more traffic, and clients that ask again after 1/amount seconds."""
    return changed(settings, growth=1.2, retry_after_s=1.0 / amount, retries=3)


SCENARIOS: Final = {s.id: s for s in (
    Scenario(
        id="long_outputs", number="1", title="Answers run away after a change of the prompt", world=RAG, slo=RAG_SLO,
        fault=turn("output_share", output_factor=4.0), amounts=(0.30, 0.098, 0.033), bounds=(0.005, 0.6),
        causes=("long_outputs",), stages=("decode",), client_causes=("long_outputs",), client_stages=MODEL,
        fixes=set_to("cap", {"max_tokens": 112}, max_tokens=112)),
    Scenario(
        id="prompt_bloat", number="3", title="A session's history is kept without end", world=CHAT, slo=CHAT_SLO,
        fault=_endless_history, amounts=(3.0, 2.5, 2.0), bounds=(1.0, 6.0),
        causes=("prompt_bloat",), stages=("prefill", "queue", "decode"), client_causes=("prompt_bloat",), client_stages=("first_token", "decode"),
        fixes=undo("trim", "history_kept", "history_tokens")),
    Scenario(
        id="prefix_cache_lost", number="4", title="A timestamp at the head of the prompt breaks the prefix",
        world=changed(RAG, system_tokens=3600, input_tokens=500.0), slo=RAG_SLO,
        fault=turn("system_broken_share"), amounts=(0.273, 0.165, 0.111), bounds=(0.02, 0.6),
        causes=("prefix_cache_lost",), stages=("prefill", "decode", "queue"), client_causes=("prefix_cache_lost",), client_stages=("first_token", "decode"),
        fixes=undo("prefix", "system_broken_share")),
    Scenario(
        id="kv_pressure", number="5", title="The KV cache shrinks and sequences are preempted",
        world=changed(CHAT, kv_tokens=70_000, rate_rps=7.0), slo=CHAT_SLO, fault=_less_kv, amounts=(0.7, 0.68, 0.66), bounds=(0.55, 0.8),
        causes=("kv_pressure",), stages=("queue", "decode", "prefill"), client_causes=("none", "provider_queueing", "under_capacity"), client_stages=MODEL,
        fixes=undo("kv", "kv_tokens")),
    Scenario(
        id="under_capacity", number="8", title="More users than the engines can serve", world=TIGHT, slo=RAG_SLO,
        fault=turn("growth"), amounts=(1.61, 1.52, 1.46), bounds=(1.2, 1.8),
        causes=("under_capacity",), stages=("queue",), client_causes=("under_capacity", "provider_queueing", "none"), client_stages=("first_token",),
        fixes=twice_the_replicas),
    Scenario(
        id="burst_arrivals", number="9", title="Requests arrive in bursts at the same mean rate", world=TIGHT, slo=RAG_SLO,
        fault=turn("burst_factor", burst_every_s=30.0, burst_s=4.0), amounts=(3.06, 2.28, 1.97), bounds=(1.5, 4.0),
        causes=("burst_arrivals",), stages=("queue",), client_causes=("burst_arrivals", "provider_queueing"), client_stages=("first_token",),
        fixes=twice_the_replicas),
    Scenario(
        id="straggler_replica", number="11", title="One of four replicas is slow", world=changed(CHAT, replicas=4, rate_rps=8.0, router="round_robin"),
        slo=CHAT_SLO, fault=_straggler, amounts=(4.0, 1.96, 1.65), bounds=(1.1, 5.0),
        causes=("straggler_replica",), stages=("decode",), client_causes=("none", "token_rate_sag"), client_stages=MODEL, fixes=undo("straggler", "slow")),
    Scenario(
        id="noisy_tenant", number="13", title="One tenant floods the engines with long prompts", world=changed(TIGHT, max_num_seqs=10), slo=RAG_SLO,
        fault=turn("noisy_share", noisy_input_factor=4.0, noisy_output_factor=1.6), amounts=(0.23, 0.125, 0.055), bounds=(0.02, 0.3),
        causes=("noisy_tenant",), stages=("queue", "prefill", "decode"), client_causes=("noisy_tenant",), client_stages=MODEL,
        fixes=undo("tenant_quota", "noisy_share")),
    Scenario(
        id="retry_storm", number="14", title="The client asks again when the first token is late", world=TIGHT, slo=RAG_SLO,
        fault=_impatience, amounts=(1.25, 1.0, 0.8), bounds=(0.3, 2.0),
        causes=("retry_storm",), stages=("queue",), client_causes=("retry_storm",), client_stages=("first_token",),
        fixes=undo("retries", "retries", "retry_after_s")),
    Scenario(
        id="provider_queueing", number="15", title="The provider lets calls wait for minutes on end, and refuses some", world=HOSTED, slo=RAG_SLO,
        fault=turn("provider_queue_s", provider_429=0.02, retries=2), amounts=(0.9, 0.585, 0.403), bounds=(0.1, 4.0),
        causes=("provider_queueing",), stages=("first_token",), client_causes=("provider_queueing",), client_stages=("first_token",)),
    Scenario(
        id="slow_dependency", number="18", title="A vector store turns slow", world=RAG, slo=RAG_SLO,
        fault=turn("search_share", search_factor=40.0, search_sigma=0.4), amounts=(0.4, 0.13, 0.045), bounds=(0.01, 1.0),
        causes=("slow_dependency",), stages=("retrieval",), client_causes=("slow_dependency",), client_stages=("retrieval",),
        fixes=undo("clip", "search_factor", "search_sigma")),
)}
