"""What real packages sent comes to what the mock provider behind them saw: `data/senders/NAME.traces.zst` is the bodies of a run, one after another
(messages put together are one message), `NAME.jsonl` a line per request to the provider, refused ones included. Prompts are synthetic."""

from __future__ import annotations

import functools
import json
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import zstandard

from tests.collector.oracle_store import Held, Row, held, pipeline, send

SENDERS = Path(__file__).parents[1] / "data" / "senders"
TOLD = (
    "response_id",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "finish_reason",
)
KEYS = {
    "response_id": "id",
    "input_tokens": "pt",
    "output_tokens": "ct",
    "cached_tokens": "cached",
    "reasoning_tokens": "reason",
    "finish_reason": "finish",
}
# What packages themselves get wrong of an interface: a first chunk without a token, or one of an answer that was not streamed; `stop` of an answer that was cut
# off or asks for a tool; a span that ends before its stream; thoughts that were in the output tokens already.
WRONG = {
    ("vercel-5", "responses"): {"ttft_ms"},
    ("langfuse-js", "responses"): {"ttft_ms"},
    ("mastra", "chat"): {"ttft_ms"},
    ("opentelemetry-openai-js", "responses"): {"finish_reason"},
    ("google-adk", "gemini"): {"finish_reason"},
    ("google-adk", "chat"): {"finish_reason", "output_tokens"},
    ("traceloop-js", "responses"): {"e2e_ms"},
}
MODEL_STAGES = ("queue_ms", "prefill_ms", "decode_ms", "first_token_ms", "generation_ms")


@dataclass(frozen=True, slots=True)
class Sender:
    """What a run was and what its package leaves out: `requests` of the application, `failed` calls as the package tells them, columns that it never
    (`absent`) or sometimes (`sometimes`) tells, how many spans have a stage that is no model's, who was asked for."""

    requests: int
    failed: int
    stages: dict[str, int]
    dialect: str
    absent: Sequence[str] = ()
    sometimes: Sequence[str] = ()
    user: bool = True
    attempts: Sequence[int] = ()  # where told, those above one


RUNS = {
    name: Sender(**of) for name, of in tomllib.loads((SENDERS / "runs.toml").read_text()).items()
}


@functools.cache
def run(name: str) -> Held:
    """A run, taken in as one body."""
    with pipeline() as one:
        send(
            one,
            [
                zstandard.ZstdDecompressor().decompress(
                    (SENDERS / f"{name}.traces.zst").read_bytes(), max_output_size=1 << 24
                )
            ],
        )
        return held(one)


@functools.cache
def truth(name: str) -> tuple[Row, ...]:
    """The requests that the provider answered with text, in order."""
    lines = [json.loads(line) for line in (SENDERS / f"{name}.jsonl").read_text().splitlines()]
    return tuple(line for line in lines if "finish" in line)


def answered(name: str) -> list[tuple[Row, Row]]:
    """(call, what the provider saw of it), by response id where it is told, else in order."""
    calls = {id(c): c for c in run(name).calls if not c["error"]}
    by_id: dict[str, Row] = {}
    for call in calls.values():
        by_id.setdefault(call["response_id"] or "", call)
    pairs = [(by_id[t["id"]], t) for t in truth(name) if t["id"] in by_id]
    left = [c for key, c in calls.items() if key not in {id(c) for c, _ in pairs}]
    ids = [c["response_id"] for c, _ in pairs]
    left = [c for c in left if c["response_id"] not in ids]
    rest = [t for t in truth(name) if t["id"] not in by_id]
    return pairs + list(zip(left, rest, strict=True))


def test_every_run_is_told_of() -> None:
    assert {p.name.removesuffix(".traces.zst") for p in SENDERS.glob("*.traces.zst")} == set(RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_calls_and_requests_are_counted_once(name: str) -> None:
    found, sender = run(name), RUNS[name]
    # Requests of services and routes that ask no model stand beside those of the application, which do.
    assert (
        sum(one["workload"] not in ("side", "other") for one in found.requests) == sender.requests
    )
    assert Counter(c["error"] for c in found.calls) == +Counter(
        {False: len(truth(name)), True: sender.failed}
    )
    assert {s["dialect"] for s in found.spans if s["role"] == "llm"} == {sender.dialect}


@pytest.mark.parametrize("name", RUNS)
def test_calls_have_the_providers_numbers(name: str) -> None:
    sender = RUNS[name]
    for call, true in answered(name):
        for column in TOLD:
            untold = column in sender.sometimes and (
                call[column] is None or column == "response_id"
            )
            if untold or column in {*sender.absent, *WRONG.get((name, true["ep"]), ())}:
                continue
            # A count of none may be left out.
            assert (call[column] or 0) == (true[KEYS[column]] or 0), (column, call["response_id"])
        assert call["e2e_ms"] >= true["e2e"] * 1000 - 2 or "e2e_ms" in WRONG.get(
            (name, true["ep"]), ()
        )
        assert call["streaming"] in (None, true["stream"])
    for column in sender.absent:
        assert all(call[column] is None for call, _ in answered(name)), column


@pytest.mark.parametrize("name", RUNS)
def test_streams_have_their_first_token(name: str) -> None:
    if "ttft_ms" in RUNS[name].absent:
        return
    for call, true in answered(name):
        if "ttft_ms" in WRONG.get((name, true["ep"]), ()) or (
            "ttft_ms" in RUNS[name].sometimes and call["ttft_ms"] is None
        ):
            continue
        assert (call["ttft_ms"] is not None) == true["stream"]
        if true["stream"]:
            assert true["ttft"] * 1000 - 2 <= call["ttft_ms"] <= call["e2e_ms"]
            # What follows takes as long as at the provider, and what a busy machine adds (OpenAI's client loads a second's worth at its first response).
            assert call["e2e_ms"] - call["ttft_ms"] <= (true["e2e"] - true["ttft"]) * 1000 + (
                1_500 if true["ep"] == "responses" else 300
            )


@pytest.mark.parametrize("name", RUNS)
def test_requests_spend_the_time_of_their_calls_on_models(name: str) -> None:
    calls = Counter[str]()
    for call in run(name).calls:
        calls[call["trace_id"]] += call["e2e_ms"]
    for request in run(name).requests:
        if request["llm_calls"]:
            # A busy machine's pauses, and what lies between attempts.
            assert sum(request[s] for s in MODEL_STAGES) >= 0.5 * min(
                calls[request["trace_id"]], request["e2e_ms"]
            ), request["trace_id"]


@pytest.mark.parametrize("name", RUNS)
def test_stages_users_and_attempts_are_told(name: str) -> None:
    found, sender = run(name), RUNS[name]
    # A request to a model that a call's span encloses is its way over the network.
    ways = ("plain", "model_request")
    counts = Counter(s["stage"] for s in found.spans if s["role"] in ways)
    assert {stage: counts[stage] for stage in sender.stages} == sender.stages
    assert any(r["user_hash"] for r in found.requests) == sender.user
    assert sorted(c["attempts"] for c in found.calls if (c["attempts"] or 0) > 1) == list(
        sender.attempts
    )


def test_an_answer_out_of_a_gateways_cache_is_a_request_without_a_model_call() -> None:
    found = run("litellm-v1")
    [stored] = [s for s in found.spans if s["stage"] == "gateway"]
    [made] = [c for c in found.calls if c["response_id"] == stored["response_id"]]
    assert made["end"] < stored["start"]
    assert made["e2e_ms"] > 5 * stored["duration_ms"]
    [request] = [r for r in found.requests if r["trace_id"] == stored["trace_id"]]
    assert (
        request["llm_calls"],
        request["ttft_ms"],
        request["output_tokens"],
        request["model"],
        request["status"],
    ) == (0, None, None, None, "ok")
    assert request["e2e_ms"] > request["gateway_ms"] == pytest.approx(stored["duration_ms"], abs=1)


@pytest.mark.parametrize("name", RUNS)
def test_words_of_people_are_not_kept(name: str) -> None:
    kept = repr(run(name))
    assert [
        words
        for words in ("quiet prompt", "capital of", "w1 w2", "secret word", "sunny in", "Paris is")
        if words in kept
    ] == []
