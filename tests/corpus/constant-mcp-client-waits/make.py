"""Tools of an MCP server: the server works for milliseconds, its caller sees five seconds more, for every tool alike."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written
from tests.corpus.otlp import CLIENT, SERVER

TOOLS = (("list_flows", 12), ("get_flow", 40), ("search_docs", 600), ("run_report", 2_000))


def serve(trace: Trace) -> None:
    with trace.within("POST /run", **served("/run")):
        trace.chat(trace.about(350), trace.about(900))
        tool, takes = trace.draw.choice(TOOLS)
        with trace.within(
            f"tools/call {tool}",
            kind=CLIENT,
            attributes={
                "mcp.method.name": "tools/call",
                "gen_ai.tool.name": tool,
                "gen_ai.operation.name": "execute_tool",
            },
        ):
            trace.now += (5_000 if trace.later else 0) + trace.about(8)
            trace.step(
                f"tools/call {tool}",
                trace.about(takes),
                kind=SERVER,
                service="mcp-server",
                attributes={"mcp.method.name": "tools/call", "gen_ai.tool.name": tool},
            )
            trace.now += 3
        trace.chat(trace.about(350), trace.about(900))


def make(folder: Path) -> None:
    written(folder, requests(serve, seed=54))
