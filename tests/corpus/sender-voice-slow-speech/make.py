"""A voice agent of Pipecat, a trace per conversation: the synthesis of speech becomes slow, the model does not."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, written

PIPECAT = {"scope": "pipecat", "service": "pipecat-demo"}


def serve(trace: Trace) -> None:
    with trace.within(
        "conversation",
        **PIPECAT,
        attributes={"conversation.id": f"c-{trace.number}", "conversation.type": "voice"},
    ):
        for turn in range(3):
            with trace.within(
                "turn",
                **PIPECAT,
                attributes={
                    "turn.number": turn + 1,
                    "turn.type": "conversation",
                    "turn.was_interrupted": False,
                },
            ):
                trace.step(
                    "stt",
                    trace.about(220),
                    **PIPECAT,
                    attributes={"gen_ai.system": "deepgram", "metrics.ttfb": 0.2},
                )
                ttfb = trace.about(350)
                trace.step(
                    "llm",
                    ttfb + 400,
                    **PIPECAT,
                    attributes={
                        "gen_ai.operation.name": "chat",
                        "gen_ai.system": "openai",
                        "gen_ai.request.model": "gpt-4o-mini",
                        "stream": True,
                        "metrics.ttfb": ttfb / 1e3,
                        "gen_ai.usage.input_tokens": 500,
                        "gen_ai.usage.output_tokens": 45,
                    },
                )
                speech = trace.about(2_400 if trace.later else 300)
                trace.step(
                    "tts",
                    speech + 200,
                    **PIPECAT,
                    attributes={
                        "gen_ai.system": "sarvam",
                        "metrics.ttfb": speech / 1e3,
                        "metrics.character_count": 140,
                    },
                )


def make(folder: Path) -> None:
    written(folder, requests(serve, every_ms=9_000, n=360, seed=58))
