"""SGLang with one engine that reads and one that writes: the way of the KV cache between them becomes slow."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written

ENGINE = {"service": "sglang", "scope": "sglang server"}


def serve(trace: Trace) -> None:
    read, output = int(trace.about(4_000, 0.1)), int(trace.about(160, 0.3))
    waited, prefill = trace.about(30), 120 + 0.06 * read
    moved = trace.about(2_600 if trace.later else 90, 0.4)
    decode = 14.0 * output
    with trace.within("POST /generate", **served("/generate")):
        start = trace.now
        with trace.within(
            " Req 5f1c",
            **ENGINE,
            attributes={
                "module": "sglang::request",
                "gen_ai.request.model": "deepseek",
                "gen_ai.response.model": "deepseek",
                "gen_ai.usage.prompt_tokens": read,
                "gen_ai.usage.completion_tokens": output,
                "gen_ai.usage.cached_tokens": 0,
            },
        ) as told:
            trace.step("tokenize", 4, **ENGINE)
            trace.step("prefill_waiting", waited, **ENGINE)
            trace.step("prefill_forward", prefill, **ENGINE)
            trace.step("prefill_transfer_kv_cache", moved, **ENGINE)
            trace.step("decode_waiting", 12, **ENGINE)
            told["gen_ai.latency.time_to_first_token"] = (trace.now - start + 14) / 1e3
            told["gen_ai.latency.time_in_model_decode"] = decode / 1e3
            trace.step("decode_forward", decode, **ENGINE)
            told["gen_ai.latency.e2e"] = (trace.now - start) / 1e3


def make(folder: Path) -> None:
    written(folder, requests(serve, n=600, every_ms=1_500, seed=52))
