"""An agent server with a span for each connection: what a person sends over it is answered by one `invoke_agent` after the other, minutes apart."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, written
from tests.corpus.otlp import SERVER

OF = {"service": "agent-server", "scope": "azure.ai.agentserver"}


def serve(trace: Trace) -> None:
    with trace.within(
        "websocket_session",
        kind=SERVER,
        **OF,
        attributes={"azure.ai.agentserver.invocations_ws.session_id": f"s-{trace.number}"},
    ):
        for _ in range(trace.draw.choice((3, 4, 5))):
            trace.now += trace.about(25_000, 0.6)
            with trace.within(
                "invoke_agent helper",
                **OF,
                attributes={
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.agent.name": "helper",
                    "gen_ai.conversation.id": f"s-{trace.number}",
                },
            ):
                trace.step(
                    "search_orders",
                    trace.about(2_600 if trace.later else 240),
                    service="agent-server",
                    attributes={
                        "gen_ai.operation.name": "execute_tool",
                        "gen_ai.tool.name": "search_orders",
                    },
                )
                trace.chat(trace.about(420), trace.about(2_000))


def make(folder: Path) -> None:
    written(folder, requests(serve, n=150, every_ms=11_000, seed=29))
