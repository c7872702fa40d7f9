"""Traces as Tempo's API and Grafana's download give them: `batches`, old names of scopes, ids in base64 or hex, words for kinds, times as numbers."""

import base64
import json
from pathlib import Path
from typing import Any

from tests.corpus.otlp import chat, resource, span

_KINDS = {1: "SPAN_KIND_INTERNAL", 2: "SPAN_KIND_SERVER", 3: "SPAN_KIND_CLIENT"}


def told(n: int, *, in_base64: bool) -> dict[str, Any]:
    spans = [
        span(
            n,
            "POST /chat",
            10_000 * n,
            2_000,
            "server root",
            {"http.route": "/chat"},
            more={"parentSpanId": "0000000000000000"},
        ),
        chat(n, 10_000 * n + 10, 1_900, parent="root", ttft_s=0.3),
    ]
    for item in spans:
        item["kind"] = _KINDS[item["kind"]]
        item["startTimeUnixNano"], item["endTimeUnixNano"] = (
            int(item["startTimeUnixNano"]),
            int(item["endTimeUnixNano"]),
        )
        for key in ("traceId", "spanId", "parentSpanId"):
            if in_base64 and key in item:
                item[key] = base64.b64encode(bytes.fromhex(item[key])).decode()
    out = resource("app", spans, "lib")
    [scope] = out.pop("scopeSpans")
    return out | {
        "instrumentationLibrarySpans": [
            {"instrumentationLibrary": scope["scope"], "spans": scope["spans"]}
        ]
    }


def make(folder: Path) -> None:
    (folder / "grafana.json").write_text(
        json.dumps({"batches": [told(1, in_base64=False)]}, indent=2)
    )
    (folder / "tempo-v1.json").write_text(json.dumps({"batches": [told(2, in_base64=True)]}))
    (folder / "tempo-v2.json").write_text(
        json.dumps({"trace": {"resourceSpans": [told(3, in_base64=True)]}, "metrics": {}})
    )
    (folder / "jaeger-v3.json").write_text(
        "\n".join(
            json.dumps({"result": {"resourceSpans": [told(n, in_base64=False)]}}) for n in (4, 5)
        )
    )
    (folder / "search.json").write_text(
        json.dumps({"traces": [{"traceID": "2f3e", "rootTraceName": "POST /chat"}], "metrics": {}})
    )
