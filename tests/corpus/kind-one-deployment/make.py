"""LiteLLM's SDK picks one of two deployments of a model in turn; the one in another region becomes slow. Whole answers, the names of LiteLLM's second version."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written
from tests.corpus.otlp import CLIENT

BASES = ("prod-eastus.openai.azure.com", "prod-sweden.openai.azure.com")


def serve(trace: Trace) -> None:
    base = trace.draw.choice(BASES)
    slow = trace.later and base == BASES[1]
    with trace.within("POST /summarise", **served("/summarise")):
        trace.now += trace.about(8)
        output = int(trace.about(140, 0.4))
        whole = (trace.about(5_200, 0.3) if slow else trace.about(450)) + 12.0 * output
        trace.step(
            "chat gpt-4o",
            whole,
            kind=CLIENT,
            scope="litellm",
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "azure",
                "gen_ai.request.model": "gpt-4o",
                "gen_ai.response.model": "gpt-4o-2024-11-20",
                "gen_ai.usage.input_tokens": int(trace.about(800, 0.5)),
                "gen_ai.usage.output_tokens": output,
                "server.address": base,
                "server.port": 443,
                "litellm.call_id": f"c{trace.number}",
                "litellm.call_type": "acompletion",
            },
        )


def make(folder: Path) -> None:
    written(folder, requests(serve, n=700, every_ms=1_500, seed=93))
