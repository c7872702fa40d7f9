"""/openapi.json describes every route, and the server answers as described, whatever it is asked."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import Route

from overrun.analysis.front import api
from overrun.analysis.front.api_table import ENDPOINTS, EXPORT_PARAMETERS, PREFIX, openapi
from overrun.analysis.words.encoding import decode
from tests.conftest import ServerProcess

DOCUMENT = msgspec.json.decode(openapi())
SAMPLES = Path(__file__).parents[3] / "sample_traces/recordings"
TEXTS = st.one_of(
    st.sampled_from(["", "e2e", "ttft:1", "-1h", "1h", "2026-11-20", "0", "-1", "1e400", "nan"]),
    st.text(max_size=12),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    running = ServerProcess(tmp_path_factory.mktemp("api") / "t.db")
    recorded = next(iter(sorted(SAMPLES.glob("*/*.traces.pb.zst"))))
    headers = {"content-type": "application/x-protobuf", "content-encoding": "zstd"}
    httpx.post(f"{running.http}/v1/traces", content=recorded.read_bytes(), headers=headers)
    yield running
    running.stop()


def ask(server: ServerProcess, path: str, parameters: dict[str, str] | None = None) -> Any:
    return httpx.get(
        f"{server.http}{path}", params=parameters, trust_env=False, verify=False, timeout=120
    )


def filled(path: str, value: str = "cap") -> str:
    return re.sub(r"\{\w+\}", value, path)


def documented(path: str) -> set[int]:
    return {int(status) for status in DOCUMENT["paths"][path]["get"]["responses"]}


def test_every_route_of_the_read_side_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    class Anything:
        def __getattr__(self, name: str) -> Any:
            return self

        def __call__(self, *_: Any, **__: Any) -> Any:
            return self

    routes: list[Route] = api.routes(Anything(), Anything(), Anything())  # type: ignore[arg-type]
    assert {route.path for route in routes} - {"/openapi.json"} == set(DOCUMENT["paths"])


def test_the_server_gives_its_description_without_a_token(server: ServerProcess) -> None:
    answer = ask(server, "/openapi.json")
    assert (answer.status_code, answer.json()["openapi"]) == (200, "3.1.0")
    assert answer.content == openapi()


@pytest.mark.parametrize("name", [name for name in ENDPOINTS if "{" not in name])
def test_an_answer_has_the_described_type(server: ServerProcess, name: str) -> None:
    given = {"before": "-2h..-1h", "after": "-1h..now"} if name == "compare" else {}
    answer = ask(server, f"{PREFIX}/{name}", given)
    assert answer.status_code == 200, answer.text
    decode(answer.content, ENDPOINTS[name].answer)


@pytest.mark.parametrize("path", [path for path in DOCUMENT["paths"] if path.startswith(PREFIX)])
def test_an_unknown_parameter_is_refused_with_a_sentence(server: ServerProcess, path: str) -> None:
    answer = ask(server, filled(path), {"sinse": "1h"})
    assert answer.status_code == 400
    assert "sinse" in answer.json()["error"]


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_is_asked_the_status_is_a_described_one(
    server: ServerProcess, data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(sorted(p for p in DOCUMENT["paths"] if p != "/metrics")))
    name = path.removeprefix(f"{PREFIX}/")
    known = ENDPOINTS[name].parameters if name in ENDPOINTS else EXPORT_PARAMETERS
    parameters = data.draw(st.dictionaries(st.sampled_from([*known, "x"]), TEXTS, max_size=3))
    segment = data.draw(st.sampled_from(["cap", "requests", "0" * 32, "x", "%00"]))
    answer = ask(server, filled(path, segment), parameters)
    assert answer.status_code in documented(path), (path, parameters, answer.text)
