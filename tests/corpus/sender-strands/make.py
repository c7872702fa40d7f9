"""Strands Agents: first tokens and durations in milliseconds under names that elsewhere are seconds, sums on the agent's span, cycles around calls."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written

SCOPE = {"scope": "strands.telemetry.tracer", "service": "strands-agents"}


def serve(trace: Trace) -> None:
    with (
        trace.within("POST /invocations", **served("/invocations")),
        trace.within(
            "invoke_agent Strands Agents",
            **SCOPE,
            attributes={
                "gen_ai.system": "strands-agents",
                "gen_ai.agent.name": "Strands Agents",
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.request.model": "us.anthropic.claude-sonnet-4-20250514-v1:0",
                "gen_ai.usage.prompt_tokens": 2_200,
                "gen_ai.usage.completion_tokens": 200,
                "gen_ai.usage.input_tokens": 2_200,
                "gen_ai.usage.output_tokens": 200,
                "gen_ai.usage.total_tokens": 2_400,
                "gen_ai.usage.cache_read_input_tokens": 300,
                "gen_ai.usage.cache_write_input_tokens": 0,
            },
        ),
    ):
        for cycle, (read, wrote) in enumerate(((1_000, 60), (1_200, 140))):
            with trace.within(
                "execute_event_loop_cycle",
                **SCOPE,
                attributes={"event_loop.cycle_id": f"{trace.number}-{cycle}"},
            ):
                trace.step(
                    "chat",
                    1_520,
                    **SCOPE,
                    attributes={
                        "gen_ai.system": "strands-agents",
                        "gen_ai.operation.name": "chat",
                        "gen_ai.request.model": "us.anthropic.claude-sonnet-4-20250514-v1:0",
                        "gen_ai.usage.prompt_tokens": read,
                        "gen_ai.usage.input_tokens": read,
                        "gen_ai.usage.completion_tokens": wrote,
                        "gen_ai.usage.output_tokens": wrote,
                        "gen_ai.usage.total_tokens": read + wrote,
                        "gen_ai.usage.cache_read_input_tokens": 150,
                        "gen_ai.server.time_to_first_token": 420,
                        "gen_ai.server.request.duration": 1_500,
                    },
                )
                if cycle == 0:
                    trace.step(
                        "execute_tool calculator",
                        300,
                        **SCOPE,
                        attributes={
                            "gen_ai.operation.name": "execute_tool",
                            "gen_ai.tool.name": "calculator",
                            "gen_ai.tool.status": "success",
                        },
                    )


def make(folder: Path) -> None:
    written(folder, requests(serve, n=60, seed=59))
