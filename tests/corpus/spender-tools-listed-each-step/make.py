"""An agent of four steps that asks three MCP servers for their tools before each step, where it once kept the list."""

from pathlib import Path

from tests.corpus.app_world import Trace, posted, requests, served, written

SERVERS = ("tickets.mcp.example.net", "wiki.mcp.example.net", "calendar.mcp.example.net")


def serve(trace: Trace) -> None:
    with (
        trace.within("POST /agent", **served("/agent")),
        trace.within("invoke_agent helper", attributes={"gen_ai.operation.name": "invoke_agent"}),
    ):
        for step in range(4):
            for server in SERVERS if trace.later else ():
                trace.step("POST", trace.about(180), **posted(f"https://{server}/mcp"))
            trace.chat(trace.about(400), trace.about(1_100))
            if step < 3:
                with trace.within(
                    "execute_tool find",
                    attributes={
                        "gen_ai.operation.name": "execute_tool",
                        "gen_ai.tool.name": "find",
                    },
                ):
                    trace.step("POST", trace.about(150), **posted(f"https://{SERVERS[0]}/mcp"))


def make(folder: Path) -> None:
    written(folder, requests(serve, seed=51))
