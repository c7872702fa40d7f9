"""Voice calls of LiveKit Agents: with another vendor's transcription the text of what a user said is there four seconds later; model and speech are as quick as ever."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, written

OF = {"service": "agent", "scope": "livekit-agents"}


def turn(trace: Trace, number: int) -> None:
    speech = trace.about(2_400, 0.4)
    late = trace.about(4_100, 0.08) if trace.later else trace.about(380, 0.25)
    endpointing = 500.0
    with trace.within("user_turn", **OF) as heard:
        trace.step("user_speaking", speech, **OF)
        stopped = trace.now
        with trace.within("eou_wait", **OF, attributes={"lk.eou.outcome": "committed"}) as wait:
            trace.now += max(late, endpointing)
            trace.step(
                "eou_detection",
                trace.about(30),
                **OF,
                attributes={
                    "lk.eou.endpointing_delay": endpointing / 1e3,
                    "lk.eou.probability": 0.9,
                },
            )
            wait["lk.eou.wait_duration"] = (trace.now - stopped) / 1e3
        heard["lk.transcription_delay"] = late / 1e3
        heard["lk.end_of_turn_delay"] = (trace.now - stopped) / 1e3
        heard["lk.pii.user_transcript"] = "..."
    with trace.within(
        "agent_turn",
        **OF,
        attributes={
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "a",
            "lk.generation_id": f"speech_{number}_1",
            "lk.speech_id": f"speech_{number}",
            "lk.interrupted": False,
        },
    ) as said:
        first, output = trace.about(420), int(trace.about(34, 0.4))
        begin = trace.now
        with trace.within(
            "llm_node",
            **OF,
            attributes={
                "gen_ai.request.model": "gpt-4o-mini",
                "gen_ai.provider.name": "openai",
                "lk.response.ttft": first / 1e3,
            },
        ):
            trace.step(
                "llm_request",
                first + output * 9.0,
                **OF,
                attributes={
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": "openai",
                    "gen_ai.request.model": "gpt-4o-mini",
                    "gen_ai.request.stream": True,
                    "gen_ai.usage.input_tokens": 840,
                    "gen_ai.usage.output_tokens": output,
                    "gen_ai.response.time_to_first_chunk": first / 1e3,
                    "lk.response.ttft": first / 1e3,
                },
            )
        trace.now = begin + first + 30
        tts = trace.about(260)
        with trace.within("tts_node", **OF, attributes={"lk.response.ttfb": tts / 1e3}):
            trace.step("tts_request", tts + 250, **OF)
        said["lk.e2e_latency"] = (trace.now - 250 - stopped) / 1e3
        trace.step("agent_speaking", trace.about(2_200), **OF)


def serve(trace: Trace) -> None:
    with trace.within(
        "agent_session",
        **OF,
        attributes={
            "lk.agent_label": "a",
            "lk.job_id": f"AJ_{trace.number}",
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": "agent_session",
        },
    ):
        trace.step("session_start", trace.about(300), **OF)
        for number in range(trace.draw.choice((2, 3, 4))):
            turn(trace, number)


def make(folder: Path) -> None:
    written(folder, requests(serve, n=300, every_ms=8_000, seed=84))
