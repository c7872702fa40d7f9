"""Guardrails AI: a guard around an answer, its steps, the model call that it makes for the answer, and validators; OpenInference calls all of them guardrails.

Source: payloads of guardrails-ai 0.11.0 with openinference-instrumentation-guardrails 0.1.27. A call tells no counts: the client's instrumentation does.
"""

from overrun.collector.dialects import Dialect, Mark

ORDER = 29
DIALECT = Dialect(
    name="guardrails",
    scopes=("guardrails-ai",),
    marks=(
        Mark(
            "type",
            "container",
            "other",
            frozenset({"guardrails/guard", "guardrails/guard/step"}),
            strong=True,
        ),
        # What is given to check has a span of a call, too, without parameters.
        Mark("llm.invocation_parameters", "llm", "generation", beside="guard.name", strong=True),
        Mark("type", "container", "other", frozenset({"guardrails/guard/step/call"})),
        Mark(
            "type",
            "plain",
            "guardrail",
            frozenset({"guardrails/guard/step/validator"}),
            strong=True,
        ),
    ),
    hints=(
        (
            "output_tokens",
            "an instrumentation of the model client of the guard (such as openinference-instrumentation-openai)",
        ),
    ),
)
