"""One request as Jaeger's interface downloads it and as Zipkin's API answers it: client and server, an error, a limit that took events, a 64-bit trace id."""

import json
from pathlib import Path
from typing import Any

from tests.corpus.otlp import T0_MS

US = T0_MS * 1_000


def tag(key: str, value: Any) -> dict[str, Any]:
    return {
        "key": key,
        "type": {bool: "bool", int: "int64", float: "float64"}.get(type(value), "string"),
        "value": value,
    }


def jaeger() -> dict[str, Any]:
    def span(
        id: str, parent: str, name: str, at: int, ms: int, process: str, **tags: Any
    ) -> dict[str, Any]:
        told = [tag(key.replace("__", "."), value) for key, value in tags.items()]
        return {
            "traceID": "fdf62307efeff787",
            "spanID": id,
            "operationName": name,
            "startTime": US + at * 1_000,
            "duration": ms * 1_000,
            "tags": told,
            "references": [{"refType": "CHILD_OF", "traceID": "fdf62307efeff787", "spanID": parent}]
            if parent
            else [],
            "logs": [
                {
                    "timestamp": US + (at + 400) * 1_000,
                    "fields": [tag("event", "gen_ai.content.completion.chunk")],
                }
            ]
            if name == "chat m"
            else [],
            "processID": process,
            "warnings": None,
        }

    spans = [
        span(
            "d2ba034a01986c7b",
            "",
            "POST /chat",
            0,
            3_000,
            "p1",
            span__kind="server",
            http__route="/chat",
            http__status_code=200,
        ),
        span(
            "b3045c9d5b067266",
            "d2ba034a01986c7b",
            "post",
            20,
            500,
            "p1",
            span__kind="client",
            http__method="POST",
            http__url="http://crm/x",
            error=True,
        ),
        span(
            "c3045c9d5b067266",
            "d2ba034a01986c7b",
            "chat m",
            600,
            2_300,
            "p1",
            span__kind="client",
            gen_ai__operation__name="chat",
            gen_ai__request__model="m",
            gen_ai__usage__output_tokens=40,
            otel__dropped_events_count=39,
            otel__scope__name="lib",
        ),
    ]
    return {
        "data": [
            {
                "traceID": "fdf62307efeff787",
                "spans": spans,
                "processes": {"p1": {"serviceName": "app", "tags": [tag("host.name", "h1")]}},
            }
        ],
        "total": 0,
        "errors": None,
    }


def zipkin() -> list[list[dict[str, Any]]]:
    def span(
        id: str, parent: str, kind: str, name: str, at: int, ms: int, service: str, **tags: str
    ) -> dict[str, Any]:
        out = {
            "traceId": "0e7d931cac953d54",
            "id": id,
            "kind": kind,
            "name": name,
            "timestamp": US + 60_000_000 + at * 1_000,
            "duration": ms * 1_000,
            "localEndpoint": {"serviceName": service, "ipv4": "10.0.0.7"},
            "tags": {key.replace("__", "."): value for key, value in tags.items()},
        }
        return out | ({"parentId": parent} if parent else {})

    server = span(
        "1e7d931cac953d54",
        "0e7d931cac953d54",
        "SERVER",
        "post /v1/answer",
        40,
        2_700,
        "gateway",
        http__path="/v1/answer",
        http__method="POST",
    )
    return [
        [
            span(
                "0e7d931cac953d54",
                "",
                "SERVER",
                "post /chat",
                0,
                3_000,
                "app",
                http__path="/chat",
                http__method="POST",
            ),
            span(
                "1e7d931cac953d54",
                "0e7d931cac953d54",
                "CLIENT",
                "post",
                20,
                2_800,
                "app",
                http__method="POST",
                http__path="/v1/answer",
            ),
            server | {"shared": True},
            span(
                "2e7d931cac953d54",
                "1e7d931cac953d54",
                "CLIENT",
                "chat m",
                60,
                2_500,
                "gateway",
                gen_ai__operation__name="chat",
                gen_ai__request__model="m",
                gen_ai__usage__output_tokens="40",
            ),
        ]
    ]


def make(folder: Path) -> None:
    (folder / "jaeger.json").write_text(json.dumps(jaeger()))
    (folder / "trace.json").write_text(json.dumps(zipkin(), indent=1))
