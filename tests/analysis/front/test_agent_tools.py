"""An agent asks over the Model Context Protocol with the SDK's own client: tools that only read, bounded answers, errors with a remedy."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from overrun.analysis.front import agent_tools
from overrun.analysis.front.asked import Source
from overrun.analysis.front.file_import import import_files
from overrun.collector.config import CollectorSettings, Settings
from tests.conftest import ROOT

TRANSCRIPT = json.loads(Path(__file__).with_name("transcript_rag_ask.json").read_text())


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    db = tmp_path_factory.mktemp("agent") / "x.db"
    settings = Settings(collector=CollectorSettings(db=str(db)))
    recording = ROOT / "sample_traces" / "recordings" / TRANSCRIPT["recording"]
    import_files([recording], settings, url=None, progress=lambda at, total: None)
    return Source(settings, db, None)


def asking(source: Source, ask: Callable[[Client], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with Client(agent_tools.server(source)) as client:
            return await ask(client)

    return asyncio.run(run())


def test_every_tool_only_reads_and_says_what_its_parameters_mean(source: Source) -> None:
    async def listed(client: Client) -> Any:
        return (await client.list_tools()).tools

    tools = asking(source, listed)
    names = ["report", "facts", "traces", "trace", "compare", "fixes", "whatif", "plan", "doctor"]
    assert [tool.name for tool in tools] == names
    for tool in tools:
        assert tool.annotations.read_only_hint
        assert tool.description
        for name, parameter in tool.input_schema["properties"].items():
            assert "description" in parameter, (tool.name, name)
    # All descriptions together are read by the agent before its first question.
    assert sum(len(tool.model_dump_json()) for tool in tools) < 12_000


def test_a_transcript_leads_from_the_question_to_the_fix(source: Source) -> None:
    """At most four calls; each name that a later call uses was in an earlier answer, and the last one is the gain of the verdict's own fix."""
    calls = TRANSCRIPT["calls"]
    assert len(calls) <= 4

    async def follow(client: Client) -> list[str]:
        answers = []
        for call in calls:
            answer = await client.call_tool(call["tool"], call["arguments"])
            assert not answer.is_error, answer.content[0].text
            answers.append(answer.content[0].text)
        return answers

    answers = asking(source, follow)
    for call, answer in zip(calls, answers, strict=True):
        assert len(answer) <= agent_tools.MOST + 200
        for word in call["learned"]:
            assert word in answer, (call["tool"], word)
    first = json.loads(answers[0])
    fix = first["causes"][0]["fix"]
    assert calls[1]["arguments"]["trace_id"] in first["causes"][0]["trace_ids"]
    assert (fix["whatif"], fix["parameters"]) == (
        calls[3]["arguments"]["fix"],
        calls[3]["arguments"]["parameters"],
    )
    assert first["verdict"]["cause"] == "slow_dependency"


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("report", {"route": "/nope"}, "known are /rag/ask"),
        ("report", {"sinse": "1h"}, "unknown parameter 'sinse': nearest known is 'since'"),
        ("traces", {"limit": 21}, "less than or equal to 20"),
        ("whatif", {"fix": "cap", "parameters": {"max_token": 9}}, "nearest known is 'max_tokens'"),
        ("whatif", {"fix": "cap", "parameters": {"max_tokens": 0}}, "max_tokens '0' is not"),
    ],
)
def test_a_mistake_is_an_error_with_its_remedy(
    source: Source, tool: str, arguments: dict[str, Any], said: str
) -> None:
    async def ask(client: Client) -> Any:
        return await client.call_tool(tool, arguments)

    answer = asking(source, ask)
    assert answer.is_error
    assert said in answer.content[0].text


def test_a_number_may_be_given_as_a_number_and_a_time_by_its_name(source: Source) -> None:
    async def ask(client: Client) -> list[Any]:
        return [
            await client.call_tool("traces", {"limit": limit, "from": "2020-01-01"})
            for limit in (3, "3")
        ]

    as_number, as_text = asking(source, ask)
    assert not as_number.is_error, as_number.content[0].text
    assert as_number.content[0].text == as_text.content[0].text
    assert "3 of 385 requests" in as_number.content[0].text


def test_a_read_token_is_wanted_where_one_is_set() -> None:
    app = Starlette(routes=[Route("/mcp", lambda request: PlainTextResponse("fine"))])
    assert TestClient(agent_tools.guarded(app, None)).get("/mcp").text == "fine"
    client = TestClient(agent_tools.guarded(app, "t"))
    assert client.get("/mcp").status_code == 401
    assert client.get("/mcp", headers={"authorization": "Bearer no"}).status_code == 401
    assert client.get("/mcp", headers={"authorization": "Bearer t"}).text == "fine"


def test_bodies_are_small_and_come_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def echo(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(len(await request.body())))

    app = agent_tools.guarded(Starlette(routes=[Route("/mcp", echo, methods=["POST"])]), None)
    client = TestClient(app)
    assert client.post("/mcp", content=b"x" * agent_tools.MAX_BODY).text == str(
        agent_tools.MAX_BODY
    )
    assert client.post("/mcp", content=b"x" * (agent_tools.MAX_BODY + 1)).status_code == 413
    monkeypatch.setattr(agent_tools, "_BODY_S", 0.01)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(3600)
        return {}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/mcp", "method": "POST", "headers": []}
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 408


def test_few_answers_are_made_at_once(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, under_way, most = threading.Lock(), 0, 0

    def slow(*_: Any, **__: Any) -> str:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.01)
        with lock:
            under_way -= 1
        return "{}"

    monkeypatch.setattr(agent_tools.commands, "ask", slow)

    async def ask(client: Client) -> list[Any]:
        return await asyncio.gather(*(client.call_tool("doctor", {}) for _ in range(12)))

    assert len(asking(source, ask)) == 12
    assert 1 <= most <= 2


def test_streamable_http_answers_a_question(source: Source) -> None:
    app = agent_tools.server(source).streamable_http_app(json_response=True, stateless_http=True)
    asked = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "doctor", "arguments": {}},
    }
    headers = {"accept": "application/json, text/event-stream", "host": "127.0.0.1:8000"}
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        made = client.post("/mcp", json=asked, headers=headers)
        elsewhere = client.post("/mcp", json=asked, headers={**headers, "host": "evil.example"})
    assert "rag-api" in made.json()["result"]["content"][0]["text"]
    assert elsewhere.status_code == 421
