"""HTTP, RPC, database, messaging and MCP conventions, old and new names. Source: semantic-conventions stable HTTP/DB and their 1.2x predecessors."""

from collector.dialects import Dialect, Field, Mark, SpanName

ORDER = 90
DIALECT = Dialect(
    precedence=90,
    name="otel",
    scopes=("fastapi",),
    prefixes=("http.", "db.", "url.", "rpc.", "messaging.", "mcp."),
    fields=(
        Field("http_status", "http.response.status_code", "status"),
        Field("http_status", "http.status_code", "status", rank=1),
        Field("route", "http.route", served=True),
        Field("route", "http.target", "path", rank=8, served=True),
        Field("route", "url.path", "path", rank=9, served=True),
        Field("operation", "db.operation.name", rank=5),
        Field("operation", "db.operation", rank=6),
        Field("operation", "mcp.method.name", rank=7),
        # botocore's.
        Field("attempts", "retry_attempts", "resends", rank=5),
    ),
    marks=(
        Mark("asgi.event.type", "folded", "other"),
        Mark("mcp.method.name", "plain", "tool", frozenset({"tools/call"})),
        Mark("mcp.method.name", "plain", "network", frozenset({"initialize", "server/discover", "ping", "tools/list", "resources/list", "prompts/list"})),
        Mark("mcp.method.name", "plain", "retrieval", frozenset({"resources/read"})),
        Mark("mcp.method.name", "plain", "prompt", frozenset({"prompts/get"})),
        Mark("messaging.operation.type", "plain", "queue", frozenset({"receive"})),
        Mark("messaging.operation", "plain", "queue", frozenset({"receive"})),
        Mark("db.system.name", "plain", "retrieval"),
        Mark("db.system", "plain", "retrieval"),
        Mark("db.vector.query.top_k", "plain", "retrieval"),
    ),
    # FastAPI's own spans (0.163): what is done for a request hangs below the first, but goes on after it, beside the second.
    names=(SpanName(r"fastapi\.(dependencies|endpoint)", "folded", "other", "fastapi"),),
    text_keys=("url.query", "db.query.text", "db.statement", "http.request.body", "http.response.body", "db.query.summary", "http.query"),
)
