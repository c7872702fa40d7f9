"""AgentScope: GenAI names, and cached tokens under its own.

Source: payloads of agentscope 2.0.10. It says `stop` of every answer, and tells no first token.
"""

from overrun.collector.dialects import Dialect, Field

ORDER = 49
_USAGE = "agentscope.usage"
DIALECT = Dialect(
    name="agentscope",
    prefixes=("agentscope.",),
    scopes=("agentscope",),
    fields=(
        Field("cached_tokens", f"{_USAGE}.cache_input_tokens", "int", rank=20),
        Field("cache_write_tokens", f"{_USAGE}.cache_creation_input_tokens", "int", rank=20),
    ),
)
