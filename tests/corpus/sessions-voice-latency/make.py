"""Conversations of a Pipecat bot: each turn begins with the caller's speech, which nobody waits for, and says itself how long the bot was silent after it."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, written

OF = {"scope": "pipecat", "service": "phone-bot"}


def turn(trace: Trace, number: int) -> None:
    began = {"turn.number": number, "turn.type": "conversation", "turn.was_interrupted": False}
    with trace.within("turn", **OF, attributes=began) as said:
        trace.now += trace.about(5_200, 0.5)
        stopped = trace.now
        trace.now += trace.about(260)
        trace.step("stt", 4, **OF, attributes={"gen_ai.system": "deepgram", "metrics.ttfb": 0.24})
        ttfb, output = trace.about(900 if trace.later else 330), int(trace.about(40))
        trace.step(
            "llm",
            ttfb + 6.0 * output,
            **OF,
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.system": "openai",
                "gen_ai.request.model": "gpt-4.1-mini",
                "stream": True,
                "metrics.ttfb": ttfb / 1e3,
                "gen_ai.usage.input_tokens": int(300 + 180 * number + trace.about(90)),
                "gen_ai.usage.output_tokens": output,
            },
        )
        sounds = trace.now + 4
        said["turn.user_bot_latency_seconds"] = (sounds - stopped) / 1e3
        trace.now = sounds
        trace.step("tts", 180, **OF, attributes={"gen_ai.system": "cartesia"})
        trace.now += trace.about(4_000)


def serve(trace: Trace) -> None:
    with trace.within("conversation", **OF, attributes={"conversation.id": f"call-{trace.number}"}):
        for number in range(1, trace.draw.choice((4, 5, 6))):
            turn(trace, number)


def make(folder: Path) -> None:
    written(folder, requests(serve, n=150, every_ms=11_000, seed=17))
