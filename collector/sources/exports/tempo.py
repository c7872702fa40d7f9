"""Grafana Tempo's and Grafana's downloads, and the answers of Jaeger's API v3: OTLP under another root.

Source: public examples (grafana/tempo#427, #3500, grafana/grafana#38614): `batches` with ids in hex or base64, `{"trace": ...}` of Tempo's API v2, and
`{"result": {"resourceSpans": ...}}`, one a line, of Jaeger.
"""

from __future__ import annotations

from typing import Any

_ROOTS = ("batches", "resourceSpans", "resource_spans")


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The requests of a download, None if it is none."""
    if not isinstance(value, dict):
        return None
    inner = next(
        (value[key] for key in ("trace", "result") if isinstance(value.get(key), dict)), value
    )
    spans = next((inner[root] for root in _ROOTS if isinstance(inner.get(root), list)), None)
    return (
        None
        if spans is None or (inner is value and "batches" not in value)
        else [{"resourceSpans": spans}]
    )
