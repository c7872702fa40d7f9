"""Microsoft's Agent Framework: executors of a workflow stand beside each other and link to the message that began them, in one trace."""

from pathlib import Path

from tests.corpus.otlp import CLIENT, INTERNAL, PRODUCER, resource, span, write


def make(folder: Path) -> None:
    spans = []
    for number in range(60):
        at = 8_000.0 * number
        spans += [
            span(
                number,
                "POST /run",
                at,
                6_100,
                "server root",
                {"http.route": "/run", "http.request.method": "POST"},
            ),
            span(number, "workflow.run", at + 10, 6_050, "run < root", {"workflow.id": "w1"}),
        ]
        begin = at + 20
        for step, name in enumerate(("Writer", "Reviewer", "Editor")):
            links = [(number, f"send{step - 1}")] if step else []
            spans += [
                span(
                    number,
                    f"executor.process {name}",
                    begin,
                    1_900,
                    key=f"exec{step}",
                    parent="run",
                    kind=INTERNAL,
                    links=links,
                    attributes={
                        "executor.id": name,
                        "executor.type": "AgentExecutor",
                        "message.type": "AgentExecutorRequest",
                    },
                ),
                span(
                    number,
                    f"invoke_agent {name}",
                    begin + 5,
                    1_850,
                    key=f"agent{step}",
                    parent=f"exec{step}",
                    attributes={
                        "gen_ai.operation.name": "invoke_agent",
                        "gen_ai.agent.name": name,
                        "gen_ai.usage.input_tokens": 500,
                        "gen_ai.usage.output_tokens": 90,
                    },
                ),
                span(
                    number,
                    "chat gpt-4o",
                    begin + 15,
                    1_800,
                    key=f"chat{step}",
                    parent=f"agent{step}",
                    kind=CLIENT,
                    attributes={
                        "gen_ai.operation.name": "chat",
                        "gen_ai.provider.name": "azure.ai.openai",
                        "gen_ai.request.model": "gpt-4o",
                        "gen_ai.usage.input_tokens": 500,
                        "gen_ai.usage.output_tokens": 90,
                    },
                ),
                span(
                    number,
                    "message.send",
                    begin + 1_870,
                    15,
                    key=f"send{step}",
                    parent=f"exec{step}",
                    kind=PRODUCER,
                    attributes={
                        "message.type": "AgentExecutorResponse",
                        "message.destination_executor_id": "next",
                    },
                ),
                span(
                    number,
                    "edge_group.process SingleEdgeGroup",
                    begin + 1_886,
                    4,
                    key=f"edge{step}",
                    parent="run",
                    links=[(number, f"send{step}")],
                    attributes={"edge_group.type": "SingleEdgeGroup", "edge_group.delivered": True},
                ),
            ]
            begin += 2_000
    write(folder / "traces.json", resource("agents", spans, scope="agent_framework"))
