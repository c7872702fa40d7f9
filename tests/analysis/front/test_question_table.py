"""One table of questions: routes, /openapi.json, client and flags follow from it, and the server answers as described, whatever it is asked."""

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

from overrun.analysis.front import api, question_table
from overrun.analysis.front.openapi import openapi
from overrun.analysis.front.question_table import ENTRIES, PREFIX, Parameter
from overrun.analysis.numbers.requests import request_list
from overrun.analysis.words import slo
from overrun.analysis.words.encoding import decode
from overrun.analysis.words.errors import AnalysisError
from overrun.collector.access.auth import Tokens
from overrun.collector.config import CollectorSettings
from overrun.collector.receive import erase_http, otlp_http
from tests.conftest import ServerProcess

DOCUMENT = msgspec.json.decode(openapi())
SAMPLES = Path(__file__).parents[3] / "sample_traces/recordings"
TEXTS = st.one_of(
    st.sampled_from(["", "e2e", "ttft:1", "-1h", "1h", "2026-11-20", "0", "-1", "1e400", "nan"]),
    st.text(max_size=12),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    running = ServerProcess(tmp_path_factory.mktemp("api") / "t.db", forked=True)
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


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda entry: entry.path)
def test_an_entry_names_a_function_that_takes_its_parameters_and_returns_its_type(
    entry: question_table.Entry[Any],
) -> None:
    name = next(name for name, value in vars(question_table).items() if value is entry)
    said = re.sub(r"Final\[Entry\[(.*)\]\]", r"\1", question_table.__annotations__[name])
    answer = entry.answer_type()
    assert said in (getattr(answer, "__name__", ""), re.sub(r"[\w.]+\.", "", str(answer)))
    taken = entry.taken()
    behind = {"con", "reading", "now", "window", "slo", "budgets", "prices"}
    host = {"simulate", "sought", "recent", "with_findings", "begin", "ask", "watched"}
    raw = {"texts", "settings", "default_since"} if entry.more else set()
    assert set(taken) <= behind | host | raw | {"out", "ledger", *entry.names}
    own = set(entry.names) - {p.name for p in question_table.WINDOW}
    assert entry.more or own <= set(taken)
    for form in entry.forms:
        assert callable(entry.writer(form))


def test_the_tables_choices_are_those_of_the_functions() -> None:
    choices = {p.name: p.choices for entry in ENTRIES.values() for p in entry.parameters}
    assert choices["metric"] in (slo.METRICS, ())
    assert question_table.METRIC.choices == slo.METRICS
    assert choices["sort"] == request_list.SORTS
    [limit] = [p for p in question_table.REQUESTS.parameters if p.name == "limit"]
    assert (limit.default, limit.most) == (request_list.DEFAULT_LIMIT, request_list.MOST_LISTED)


@pytest.mark.parametrize(
    ("parameter", "text", "wanted"),
    [
        (Parameter("n", "", int, default=3, least=1, most=9), "", 3),
        (Parameter("n", "", int, least=1, most=9), "9", 9),
        (Parameter("n", "", int, least=1, most=9), "0", "n '0' is not a whole number from 1 to 9"),
        (Parameter("n", "", int, least=1, most=9), "2.5", "whole number"),
        (Parameter("x", "", float), "1e3", 1000.0),
        (Parameter("x", "", float), "nan", "x 'nan' is not a number"),
        (Parameter("x", "", float), "-1", "x '-1' is not a number"),
        (Parameter("m", "", choices=("ttft", "e2e")), "tfft", "nearest known is 'ttft'"),
        (Parameter("m", "the first window", required=True), None, "m is missing: the first window"),
    ],
)
def test_a_value_is_read_or_refused_with_its_remedy(
    parameter: Parameter, text: str | None, wanted: Any
) -> None:
    if isinstance(wanted, str):
        with pytest.raises(AnalysisError, match=re.escape(wanted)):
            parameter.read(text)
    else:
        assert parameter.read(text) == wanted


def test_every_route_of_the_server_is_described() -> None:
    class Anything:
        def __getattr__(self, name: str) -> Any:
            return self

        def __call__(self, *_: Any, **__: Any) -> Any:
            return self

    nothing: Any = Anything()
    routes: list[Route] = [
        *api.routes(nothing, nothing, nothing),
        *otlp_http.Receiver(nothing, CollectorSettings()).routes(),
        erase_http.route(nothing, Tokens(), nothing),
    ]
    # What is asked beside the paths of OTLP is told that nothing is there.
    paths = {route.path for route in routes if "{rest:path}" not in route.path}
    assert paths == set(DOCUMENT["paths"])


def test_the_server_gives_its_description_without_a_token(server: ServerProcess) -> None:
    answer = ask(server, "/openapi.json")
    assert (answer.status_code, answer.json()["openapi"]) == (200, "3.1.0")
    assert answer.content == openapi()


@pytest.mark.parametrize("name", [path for path in ENTRIES if "{" not in path])
def test_an_answer_has_the_described_type(server: ServerProcess, name: str) -> None:
    required = {
        "compare": {"before": "-2h..-1h", "after": "-1h..now"},
        "proofs": {"findings": "long_outputs:decode;slow_dependency:retrieval"},
    }
    answer = ask(server, f"{PREFIX}/{name}", required.get(name))
    assert answer.status_code == 200, answer.text
    decode(answer.content, ENTRIES[name].answer_type())


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
    asked = [p for p, one in DOCUMENT["paths"].items() if "get" in one and p != "/metrics"]
    path = data.draw(st.sampled_from(sorted(asked)))
    known = [one["name"] for one in DOCUMENT["paths"][path]["get"].get("parameters", [])]
    parameters = data.draw(st.dictionaries(st.sampled_from([*known, "x"]), TEXTS, max_size=3))
    segment = data.draw(st.sampled_from(["cap", "requests", "0" * 32, "x", "%00"]))
    answer = ask(server, filled(path, segment), parameters)
    assert answer.status_code in documented(path), (path, parameters, answer.text)
