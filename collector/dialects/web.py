"""HTTP, RPC, database, messaging and MCP conventions, old and new names, and those that Micrometer and Brave have for HTTP.

Source: semantic-conventions stable HTTP/DB and their 1.2x predecessors; Spring's HTTP observations as pinpoint#14198 describes them; Brave's HTTP tags.
"""

from overrun.collector.dialects import Dialect, Field, Mark, SpanName

ORDER = 90
# MCP: what its methods are for. A server that asks its client for an answer of a model has the model call below it.
_MCP = (
    ("plain", "tool", ("tools/call",)),
    ("plain", "retrieval", ("resources/read",)),
    ("plain", "prompt", ("prompts/get",)),
    ("plain", "wait_user", ("elicitation/create",)),
    ("container", "other", ("sampling/createMessage",)),
    (
        "plain",
        "network",
        (
            "initialize",
            "server/discover",
            "ping",
            "tools/list",
            "resources/list",
            "resources/templates/list",
            "prompts/list",
            "roots/list",
            "resources/subscribe",
            "resources/unsubscribe",
            "completion/complete",
            "logging/setLevel",
            "notifications/initialized",
        ),
    ),
)
_MCP_SCOPE = "opentelemetry.instrumentation.mcp"
DIALECT = Dialect(
    precedence=90,
    name="otel",
    scopes=("fastapi",),
    prefixes=("http.", "db.", "url.", "rpc.", "messaging.", "mcp.", "asgi."),
    fields=(
        Field("http_status", "http.response.status_code", "status"),
        Field("http_status", "http.status_code", "status", rank=1),
        Field("route", "http.route", served=True),
        Field("route", "http.target", "path", rank=8, served=True),
        Field("route", "url.path", "path", rank=9, served=True),
        # Micrometer's (Spring): a template, `UNKNOWN` or `/**` where it knows none. Brave's path; Envoy, AWS X-Ray and Spring have the whole URL too.
        Field("route", "uri", "path", rank=1, served=True, beside="outcome"),
        Field("route", "http.path", "path", rank=10, served=True),
        Field("route", "http.url", "path", rank=11, served=True),
        Field("route", "url.full", "path", rank=12, served=True),
        Field("http_status", "status", "status", rank=2, beside="outcome"),
        Field("error_type", "exception", "given", rank=5, beside="outcome"),
        Field("operation", "db.operation.name", rank=5),
        Field("operation", "db.operation", rank=6),
        Field("operation", "mcp.method.name", rank=7),
        # botocore's.
        Field("attempts", "retry_attempts", "resends", rank=5),
    ),
    marks=(
        Mark("asgi.event.type", "folded", "other"),
        *(
            Mark("mcp.method.name", role, stage, frozenset(methods))
            for role, stage, methods in _MCP
        ),
        Mark("messaging.operation.type", "plain", "queue", frozenset({"receive"})),
        Mark("messaging.operation", "plain", "queue", frozenset({"receive"})),
        Mark("db.system.name", "plain", "retrieval"),
        Mark("db.system", "plain", "retrieval"),
        Mark("db.vector.query.top_k", "plain", "retrieval"),
    ),
    # FastAPI's own spans (0.163): what is done for a request hangs below the first, but goes on after it, beside the second.
    names=(
        SpanName(r"fastapi\.(dependencies|endpoint)", "folded", "other", "fastapi"),
        # Express: what parses a request comes before its work.
        SpanName(r"middleware - \w*[pP]arser", "container", "other"),
        # Of MCP, by the name alone: OpenLLMetry's `tools/list.mcp`, Logfire's `MCP request: tools/list`.
        *(
            SpanName(
                rf"MCP (?:server handle )?request: (?:{named})(?: .*)?|(?:{named})\.mcp",
                role,
                stage,
            )
            for role, stage, methods in _MCP
            for named in ["|".join(methods)]
        ),
        SpanName("ResponseStreamWriter|RequestStreamWriter", "folded", "other", _MCP_SCOPE),
        SpanName(r"mcp\.client\.session|mcp\.server", "container", "other", _MCP_SCOPE),
    ),
    text_keys=(
        "url.query",
        "db.query.text",
        "db.statement",
        "http.request.body",
        "http.response.body",
        "db.query.summary",
        "http.query",
    ),
)
