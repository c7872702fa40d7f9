"""Each tool's API, as it is documented, gives the requests that it stores: found, read piece by piece, and counted once."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import TRACES
from overrun.collector.sources.remote.address import Address
from overrun.collector.sources.remote.pull import Progress, Pulled, Taker, Wanted, pull
from tests.collector.conftest import rows
from tests.collector.sources.remote.servers import Answer, Asked, answer, serving

T0 = 1_795_640_000  # Unix seconds
NS = 1_000_000_000
TRACES_OF = range(1, 6)


def moment(number: int) -> int:
    """When trace `number` began: 40 s after the one before."""
    return T0 + 40 * number


def iso(time_s: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_s, UTC).isoformat().replace("+00:00", "Z")


def hex_of(number: int) -> str:
    return f"{number:032x}"


def otlp_span(number: int) -> dict[str, Any]:
    return {
        "traceId": base64.b64encode(bytes.fromhex(hex_of(number))).decode(),
        "spanId": base64.b64encode(number.to_bytes(8, "big")).decode(),
        "name": "chat m",
        "kind": "SPAN_KIND_CLIENT",
        "startTimeUnixNano": str(moment(number) * NS),
        "endTimeUnixNano": str(moment(number) * NS + 2 * NS),
        "attributes": [
            {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
            {"key": "gen_ai.request.model", "value": {"stringValue": "m"}},
            {"key": "gen_ai.usage.output_tokens", "value": {"intValue": str(10 * number)}},
        ],
    }


def within(asked: Asked, start: str, end: str, per_s: float = 1.0) -> list[int]:
    low, high = (float(asked.parameters[name]) / per_s for name in (start, end))
    return [n for n in TRACES_OF if low <= moment(n) < high]


def tempo(asked: Asked) -> Answer:
    if asked.path == "/api/search":
        found = within(asked, "start", "end")
        return answer(
            {
                "traces": [{"traceID": hex_of(n).lstrip("0")} for n in found]
                + [{"traceID": "../../x"}]
            }
        )
    number = int(asked.path.rsplit("/", 1)[1], 16)
    if number == 5:
        return 404, {}, b"trace not found"
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    return answer(
        {"batches": [{"resource": resource, "scopeSpans": [{"spans": [otlp_span(number)]}]}]}
    )


def jaeger(asked: Asked) -> Answer:
    if asked.path == "/api/services":
        return answer({"data": ["shop", "jaeger-query", "engine"]})
    tag = {"key": "gen_ai.usage.output_tokens", "type": "int64"}
    return answer(
        {
            "data": [
                {
                    "traceID": hex_of(n),
                    "processes": {"p1": {"serviceName": "shop", "tags": []}},
                    "spans": [
                        {
                            "traceID": hex_of(n),
                            "spanID": f"{n:016x}",
                            "operationName": "chat m",
                            "processID": "p1",
                            "startTime": moment(n) * 1_000_000,
                            "duration": 2_000_000,
                            "tags": [
                                {**tag, "value": 10 * n},
                                {"key": "gen_ai.operation.name", "value": "chat"},
                                {"key": "gen_ai.request.model", "value": "m"},
                            ],
                        }
                    ],
                }
                for n in within(asked, "start", "end", 1e6)
                if n < 5
            ]
        }
    )


def observation(number: int) -> dict[str, Any]:
    return {
        "id": f"{number:016x}",
        "traceId": hex_of(number),
        "type": "GENERATION",
        "name": "chat",
        "startTime": iso(moment(number)),
        "endTime": iso(moment(number) + 2),
        "completionStartTime": iso(moment(number) + 1),
        "model": "m",
        "usageDetails": {"input": 5, "output": 10 * number},
        "parentObservationId": None,
    }


def _iso_within(asked: dict[str, str]) -> list[int]:
    low, high = (asked[name].replace("+00:00", "Z") for name in ("fromStartTime", "toStartTime"))
    return [n for n in TRACES_OF if n < 5 and low <= iso(moment(n)).replace("Z", ".000Z") < high]


def langfuse(asked: Asked) -> Answer:
    if asked.path != "/api/public/v2/observations":
        return 404, {}, b"{}"
    found = _iso_within(asked.parameters)
    at = int(asked.parameters.get("cursor", "0"))
    meta = {"cursor": str(at + 1)} if at + 1 < len(found) else {}
    return answer({"data": [observation(n) for n in found[at : at + 1]], "meta": meta})


def old_langfuse(asked: Asked) -> Answer:
    if asked.path != "/api/public/observations":
        return 404, {}, b"{}"
    found, page = _iso_within(asked.parameters), int(asked.parameters["page"])
    meta = {"page": page, "totalPages": max(len(found), 1)}
    return answer({"data": [observation(n) for n in found[page - 1 : page]], "meta": meta})


def langsmith(asked: Asked) -> Answer:
    if asked.path == "/api/v1/sessions":
        return answer([{"id": "p-1", "name": "shop"}, {"id": "p-2", "name": "other"}])
    document = asked.document
    assert document["session"] == ["p-1"]
    assert "inputs" not in document["select"]
    low, high = document["start_time"], document["filter"].split('"')[1]
    found = [
        n for n in TRACES_OF if n < 5 and low <= iso(moment(n)).replace("Z", ".000+00:00") < high
    ]
    at = int(document.get("cursor") or 0)
    runs = [
        {
            "id": f"00000000-0000-0000-0000-{n:012x}",
            "trace_id": f"00000000-0000-0000-0000-{n:012x}",
            "parent_run_id": None,
            "session_id": "p-1",
            "name": "ChatOpenAI",
            "run_type": "llm",
            "start_time": iso(moment(n)),
            "first_token_time": iso(moment(n) + 1),
            "end_time": iso(moment(n) + 2),
            "status": "success",
            "prompt_tokens": 5,
            "completion_tokens": 10 * n,
            "extra": {"metadata": {"ls_model_name": "m"}},
        }
        for n in found[at : at + 1]
    ]
    return answer({"runs": runs, "cursors": {"next": str(at + 1) if at + 1 < len(found) else None}})


def phoenix(asked: Asked) -> Answer:
    if asked.path == "/v1/projects":
        return answer({"data": [{"name": "shop", "id": "x"}], "next_cursor": None})
    assert asked.path == "/v1/projects/shop/spans/otlpv1"
    low, high = asked.parameters["start_time"], asked.parameters["end_time"]
    found = [
        n for n in TRACES_OF if n < 5 and low <= iso(moment(n)).replace("Z", ".000+00:00") < high
    ]
    at = int(asked.parameters.get("cursor") or 0)
    spans = [
        {
            "trace_id": hex_of(n),
            "span_id": f"{n:016x}",
            "parent_span_id": None,
            "name": "chat",
            "start_time_unix_nano": moment(n) * NS,
            "end_time_unix_nano": moment(n) * NS + 2 * NS,
            "attributes": [
                {"key": "openinference.span.kind", "value": {"string_value": "LLM"}},
                {"key": "llm.model_name", "value": {"string_value": "m", "int_value": None}},
                {"key": "llm.token_count.completion", "value": {"int_value": 10 * n}},
            ],
            "events": [],
            "status": {"code": 1, "message": None},
        }
        for n in found[at : at + 1]
    ]
    return answer({"data": spans, "next_cursor": str(at + 1) if at + 1 < len(found) else None})


def mlflow(asked: Asked) -> Answer:
    if asked.path.endswith("/experiments/search"):
        return answer({"experiments": [{"experiment_id": "0", "name": "shop"}]})
    if asked.path.endswith("/traces/get"):
        number = int(asked.parameters["trace_id"].removeprefix("tr-"), 16)
        span = otlp_span(number)
        return answer({"trace": {"trace_info": {}, "spans": [span]}})
    document = asked.document
    low, high = (int(word) for word in document["filter"].split() if word.isdigit())
    found = [n for n in TRACES_OF if n < 5 and low <= moment(n) * 1000 < high]
    place = {"mlflow_experiment": {"experiment_id": "0"}}
    infos = [{"trace_id": f"tr-{hex_of(n)}", "trace_location": place} for n in found]
    return answer({"traces": infos} if infos else {})


def clickhouse(asked: Asked) -> Answer:
    assert asked.parameters["readonly"] == "1"
    assert "from db.spans where" in asked.body.decode()
    found = within(asked, "param_from_ms", "param_to_ms", 1e3)
    lines = [
        {
            "TraceId": hex_of(n),
            "SpanId": f"{n:016x}",
            "ParentSpanId": "",
            "SpanName": "chat m",
            "SpanKind": "Client",
            "ServiceName": "shop",
            "ResourceAttributes": {"service.name": "shop"},
            "ScopeName": "",
            "SpanAttributes": {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "m",
                "gen_ai.usage.output_tokens": str(10 * n),
            },
            "StartNs": str(moment(n) * NS),
            "Duration": str(2 * NS),
            "StatusCode": "Unset",
            "EventNs": [str(moment(n) * NS + NS)],
            "EventNames": ["gen_ai.content.chunk"],
            "EventAttributes": [{}],
        }
        for n in found
        if n < 5
    ]
    return lined(lines)


def signoz(asked: Asked) -> Answer:
    """A ClickHouse that has SigNoz's tables alone: which there are is asked first."""
    assert asked.parameters["readonly"] == "1"
    query = asked.body.decode()
    if "system.tables" in query:
        return lined([{"database": "signoz_traces", "name": "distributed_signoz_index_v3"}])
    assert "from signoz_traces.distributed_signoz_index_v3 where" in query
    chunk = {"name": "gen_ai.content.chunk", "attributeMap": {}, "isError": False}
    return lined(
        {
            "trace_id": hex_of(n),
            "span_id": f"{n:016x}",
            "parent_span_id": "",
            "name": "chat m",
            "kind_string": "Client",
            "duration_nano": str(2 * NS),
            "status_code_string": "Unset",
            "attributes_string": {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"},
            "attributes_number": {"gen_ai.usage.output_tokens": 10.0 * n},
            "attributes_bool": {},
            "resources_string": {"service.name": "shop"},
            "events": [json.dumps({**chunk, "timeUnixNano": moment(n) * NS + NS})],
            "links": json.dumps([{"traceId": hex_of(n), "spanId": "1", "refType": "CHILD_OF"}]),
            "start_ns": str(moment(n) * NS),
        }
        for n in within(asked, "param_from_ms", "param_to_ms", 1e3)
        if n < 5
    )


def lined(values: Iterable[dict[str, Any]]) -> Answer:
    return 200, {}, "\n".join(json.dumps(value) for value in values).encode()


@pytest.mark.parametrize(
    ("kind", "respond", "match", "service"),
    [
        ("tempo", tempo, '{ resource.service.name = "shop" }', "shop"),
        ("jaeger", jaeger, "", "shop"),
        ("langfuse", langfuse, "", "langfuse"),
        ("langfuse", old_langfuse, "", "langfuse"),
        ("langsmith", langsmith, "shop", "shop"),
        ("phoenix", phoenix, "", "shop"),
        ("mlflow", mlflow, "", "shop"),
        ("clickhouse", clickhouse, "db.spans", "shop"),
        ("clickhouse", signoz, "", "shop"),
    ],
)
def test_the_requests_of_a_window_are_read(
    pipeline: Pipeline, kind: str, respond: Callable[[Asked], Answer], match: str, service: str
) -> None:
    """Traces 1 to 4 began at 40, 80, 120 and 160 s and took 2 s; their calls made 10, 20, 30 and 40 tokens. The fifth is gone, or outside."""
    with serving(respond) as server:
        done = pulled(pipeline, Address(kind, server.url), match)
    assert done.notes == []
    pipeline.drain()
    found = rows(
        pipeline,
        "select c.output_tokens, c.model, epoch(r.start)::bigint, r.e2e_ms from v_requests r join v_llm_calls c using (trace_id) order by all",
    )
    assert found == [(10 * n, "m", moment(n), 2_000.0) for n in range(1, 5)]
    assert rows(pipeline, "select distinct service from v_spans") == [(service,)]


def pulled(
    pipeline: Pipeline, address: Address, match: str, progress: Progress | None = None
) -> Pulled:
    def take(signal: str, body: bytes) -> None:
        assert signal == "traces"
        pipeline.writer.submit(TRACES, body).result()

    wanted = Wanted([address], match, float(T0), float(T0 + 190))
    taker = Taker(take, lambda: None, lambda part: None)
    return pull(wanted, progress or Progress(None), taker, environment={}, sleep=lambda s: None)


def test_a_pull_goes_on_where_it_stopped(pipeline: Pipeline, tmp_path: Path) -> None:
    """The server fails within the second of two pieces: the first is not read again, and the window stays that of the first attempt."""
    failing = True

    def respond(asked: Asked) -> Answer:
        if failing and int(asked.parameters.get("start", 0)) > T0:
            return 500, {}, b"out of order"
        return tempo(asked)

    kept = tmp_path / "x.db.pull.json"
    with serving(respond) as server:
        address = Address("tempo", server.url)
        from overrun.collector.errors import ImportFailed

        with pytest.raises(ImportFailed, match="answered 500: out of order"):
            pulled(pipeline, address, "", Progress(kept))
        assert kept.stat().st_mode & 0o777 == 0o600
        failing, before = False, len(server.asked)
        done = pulled(pipeline, address, "", Progress(kept))
        starts = [a.parameters["start"] for a in server.asked[before:] if a.path == "/api/search"]
    assert done.resumed == [str(address)]
    assert str(T0) not in starts
    assert not kept.exists()
    pipeline.drain()
    assert rows(pipeline, "select count(*) from v_requests") == [(4,)]
