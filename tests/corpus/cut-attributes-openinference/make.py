"""A long conversation as flattened attributes: the SDK keeps 128 of them, and model and counts are among those that it dropped."""

from pathlib import Path

from tests.corpus.otlp import resource, span, write


def make(folder: Path) -> None:
    spans = []
    for n in range(3):
        messages = {f"llm.input_messages.{i}.message.role": "user" for i in range(127)}
        spans += [
            span(
                n,
                "POST /chat",
                10_000 * n,
                2_000,
                "server root",
                {"http.request.method": "POST", "http.route": "/chat"},
            ),
            span(
                n,
                "ChatCompletion",
                10_000 * n + 10,
                1_900,
                "internal llm < root",
                messages | {"openinference.span.kind": "LLM"},
                more={"droppedAttributesCount": 61 + n, "droppedLinksCount": 2},
            ),
        ]
    write(folder / "traces.json", resource("agent", spans, "openinference.instrumentation.openai"))
