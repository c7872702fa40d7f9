"""What may an agent ask, and in which form does it get the answer? Tools of the Model Context Protocol over the table of questions, read-only and bounded.

An answer is text of at most 12,000 characters, as the commands print it, except for the report: that is a small JSON object, so that the fix's name can be handed
to `whatif`. Names in answers come from telemetry, which anybody may have sent: the server's instructions call them data. `mcp` is the protocol's official SDK.

Over HTTP the port has the limits of the collector's own: connections, heads, bodies and the time that they take; and few answers are made at once.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import threading
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, Final

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from overrun.analysis.front import commands
from overrun.analysis.front import question_table as table
from overrun.analysis.front.asked import Asked, Source
from overrun.analysis.front.explanation_lines import said_of
from overrun.analysis.front.report import Report, from_json
from overrun.analysis.words.errors import AnalysisError, nearest
from overrun.analysis.words.finding import Finding
from overrun.collector.access import auth
from overrun.collector.access.auth import Tokens
from overrun.collector.errors import CollectorError
from overrun.collector.receive.http_protocol import limited

MOST: Final = 12_000  # characters of an answer: about 4,000 tokens
# A question has some hundred bytes; an agent holds a connection or two. The rows of a report stay in memory while it is made.
MAX_BODY: Final = 65_536
MAX_CONNECTIONS: Final = 64
_BODY_S: Final = 10.0
_AT_ONCE: Final = 2
_MOST_FINDINGS, _MOST_ROWS, _WIDTH = 4, 20, 110
_WORDS: Final = tomllib.loads(
    Path(__file__).with_name("agent_tools.toml").read_text(encoding="utf-8")
)
_READS: Final = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
_WINDOW: Final = (table.SINCE, table.FROM, table.TO, table.parameter("route"))
_JUDGED: Final = (*_WINDOW, table.SLO)
_FIX: Final = replace(
    table.parameter("fix"),
    help="The fix, as `report` names it under `whatif`, or `fixes` lists it.",
    required=True,
)
_LIMIT: Final = replace(
    table.parameter("limit"), help=f"At most {_MOST_ROWS} rows.", default=10, most=_MOST_ROWS
)
# Further values of `whatif`, which each fix names itself.
_PARAMETERS: Final = "parameters"


@dataclass(frozen=True, slots=True)
class _Tool:
    """A tool: the question that it asks, what may be given and how the answer is written."""

    name: str
    entry: table.Entry[Any]
    parameters: tuple[table.Parameter, ...]
    form: str = "text"

    def names(self) -> list[str]:
        """What may be given."""
        further = [_PARAMETERS] if self.entry is table.WHATIF else []
        return [*(_name(parameter) for parameter in self.parameters), *further]

    def signature(self) -> inspect.Signature:
        """What may be given, as the protocol's SDK reads it."""
        taken = [_taken(parameter) for parameter in self.parameters]
        if self.entry is table.WHATIF:
            said = "The fix's own parameters, as `report` gives them, such as {'max_tokens': 512}."
            hint = Annotated[dict[str, str | int | float] | None, Field(description=said)]
            kind = inspect.Parameter.KEYWORD_ONLY
            taken.append(inspect.Parameter(_PARAMETERS, kind, default=None, annotation=hint))
        return inspect.Signature(taken)


_TOOLS: Final = (
    _Tool("report", table.REPORT, (*_JUDGED, table.SERVICE, table.parameter("model")), "json"),
    _Tool("facts", table.FACTS, _JUDGED),
    _Tool("traces", table.REQUESTS, (*_WINDOW, table.parameter("sort"), _LIMIT)),
    _Tool("trace", table.TRACE, table.TRACE.parameters),
    _Tool("compare", table.COMPARE, (*map(table.parameter, ("before", "after", "route", "slo")),)),
    _Tool("fixes", table.FIXES, (), "json"),
    _Tool("whatif", table.WHATIF, (_FIX, *_JUDGED)),
    _Tool("plan", table.PLAN, _JUDGED),
    _Tool("doctor", table.DOCTOR, (table.SINCE, table.FROM, table.TO)),
)


def server(source: Source) -> MCPServer[None]:
    """A server whose tools ask `source`."""
    made = _Server(name="overrun", instructions=_WORDS["instructions"], log_level="ERROR")
    turn = threading.BoundedSemaphore(_AT_ONCE)
    for tool in _TOOLS:
        made.add_tool(
            _function(tool, source, turn),
            name=tool.name,
            description=_WORDS["tools"][tool.name],
            annotations=_READS,
            structured_output=False,
        )
    return made


class _Server(MCPServer[None]):
    """Refuses a misspelt argument, which the SDK leaves out, and takes a number where a text is meant."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[None, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool.

        Raises:
            ToolError: an unknown argument or a value that cannot be read, with the remedy.
        """
        known = next((tool.names() for tool in _TOOLS if tool.name == name), None)
        if known is not None:
            given = {f"{n}_" if iskeyword(n) else n: value for n, value in arguments.items()}
            if unknown := [n for n in given if n not in known]:
                near = f": {nearest(unknown[0], known)}" if known else ""
                raise ToolError(f"unknown parameter {unknown[0][:64]!r}{near}")
            arguments = {n: str(v) if type(v) in (int, float) else v for n, v in given.items()}
        return await super().call_tool(name, arguments, context)


def _function(tool: _Tool, source: Source, turn: threading.BoundedSemaphore) -> Callable[..., str]:
    """What answers a tool's call, with the signature that its parameters say."""

    def run(**given: Any) -> str:
        further = given.pop(_PARAMETERS, None) or {}
        given = {name: value for name, value in given.items() if value != ""}
        try:
            asked = Asked.read(tool.entry, {**further, **given}, source, tool.form)
            asked = replace(asked, width=_WIDTH)
            with turn:
                said = (commands.whatif if tool.entry is table.WHATIF else commands.ask)(asked)
        except (AnalysisError, CollectorError) as error:
            raise ToolError(str(error)) from error
        if tool.entry is table.REPORT:
            return json.dumps(brief(from_json(said.encode())), indent=1)
        return _cut(said)

    run.__signature__ = tool.signature()  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in tool.signature().parameters.values()}
    run.__name__ = tool.name
    return run


def _name(parameter: table.Parameter) -> str:
    return f"{parameter.name}_" if iskeyword(parameter.name) else parameter.name


def _taken(parameter: table.Parameter) -> inspect.Parameter:
    """A parameter of a question as one of a function: numbers with their limits, texts as they are."""
    limits = {} if parameter.kind is str else {"ge": parameter.least, "le": parameter.most}
    hint = Annotated[parameter.kind, Field(description=parameter.help, **limits)]  # type: ignore[name-defined]
    default = "" if parameter.default is None else parameter.default
    return inspect.Parameter(
        _name(parameter),
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if parameter.required else default,
        annotation=hint,
    )


def brief(report: Report) -> dict[str, Any]:
    """The report's answer without its tables."""
    verdict = report.verdict
    causes = [f for f in report.findings if f.rule == verdict.cause]
    others = [f for f in report.findings if f.rule != verdict.cause]
    window = report.window
    made = {
        "window": {
            "from": window.start.isoformat() if window.start else None,
            "to": window.end.isoformat() if window.end else None,
            "requests": window.requests,
        },
        "verdict": {
            "status": verdict.status,
            "sentence": verdict.sentence,
            "stage": verdict.stage,
            "cause": verdict.cause,
            "cause_status": verdict.cause_status,
            "onset": verdict.onset.isoformat() if verdict.onset else None,
            "do_now": verdict.mitigation,
            "owner": verdict.owner,
        },
        "latency_ms": {
            name: {quantile: _rounded(getattr(q, quantile)) for quantile in ("p50", "p95", "p99")}
            for name in ("ttft", "e2e", "tpot")
            if (q := getattr(report.latency, f"{name}_ms")).n
        },
        "goodput": report.goodput.ratio,
        "causes": [_cause(finding) for finding in [*causes, *others][:_MOST_FINDINGS]],
        "data_problems": [
            {"check": check.check, "detail": check.detail[:200]}
            for check in report.data_quality
            if check.status != "ok"
        ][:_MOST_FINDINGS],
    }
    said = report.explanation
    return made if said is None else {"explanation": said_of(said), **made}


def _cause(finding: Finding) -> dict[str, Any]:
    predicted = finding.fix.predicted if finding.fix else None
    return {
        "rule": finding.rule,
        "stage": finding.stage,
        "confidence": round(finding.confidence, 2),
        "headline": finding.headline,
        "trace_ids": finding.exemplars[:2],
        "fix": None
        if finding.fix is None
        else {
            "id": finding.fix.id,
            "title": finding.fix.title,
            # What to hand to `whatif`, as it is.
            "whatif": finding.fix.whatif,
            "parameters": {name: str(value) for name, value in finding.fix.parameters.items()},
            "expected": None
            if predicted is None
            else {
                "metric": f"{predicted.metric} P{predicted.quantile * 100:g}",
                "before_ms": _rounded(predicted.before),
                "after_ms": _rounded(predicted.after),
                "interval_ms": [_rounded(end) for end in predicted.interval or ()] or None,
                "is_bound": predicted.bound,
            },
        },
    }


def _rounded(ms: float | None) -> float | None:
    return None if ms is None else round(ms, 1)


def _cut(text: str) -> str:
    if len(text) <= MOST:
        return text
    return f"{text[:MOST]}\n... cut after {MOST:,} characters: narrow the window, the route or the limit"


def serve_stdio(source: Source) -> None:
    """Answer on standard input and output until they end."""
    server(source).run("stdio")


def serve_http(source: Source, port: int) -> None:
    """Answer by streamable HTTP at /mcp of a port of this machine. With a read token in the environment, a client must carry it."""
    app: ASGIApp = server(source).streamable_http_app(json_response=True, stateless_http=True)
    token = Tokens.from_environment(os.environ).read
    uvicorn.run(
        guarded(app, token),
        host="127.0.0.1",
        port=port,
        http=limited(MAX_CONNECTIONS),
        log_level="warning",
        ws="none",
    )


def guarded(app: ASGIApp, token: str | None) -> ASGIApp:
    """The application behind a bearer token, if there is one, and with bodies that are small and come in time."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        try:
            auth.check(headers.get(b"authorization", b"").decode("latin-1"), token)
            async with asyncio.timeout(_BODY_S):
                body = await _body(receive)
        except (auth.Unauthorized, TimeoutError) as error:
            await _refuse(send, 408 if isinstance(error, TimeoutError) else 401)
            return
        if body is None:
            await _refuse(send, 413)
            return
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return whole.pop() if whole else await receive()

        await app(scope, again, send)

    return checked


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None if it is over MAX_BODY."""
    body = bytearray()
    while len(body) <= MAX_BODY:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return bytes(body) if len(body) <= MAX_BODY else None


async def _refuse(send: Send, status: int) -> None:
    headers = [(b"content-length", b"0"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
