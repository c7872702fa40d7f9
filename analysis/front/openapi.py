"""How does another program learn what the server can be asked? The table of questions and the other routes as an OpenAPI 3.1 document."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeAlias

import msgspec

from overrun.analysis.front.http_answers import ApiError
from overrun.analysis.front.question_table import ENTRIES, PREFIX, Entry, Parameter
from overrun.collector.lifecycle.forget import Forgotten
from overrun.collector.receive import erase_http

_TYPES: Final = {str: "string", int: "integer", float: "number"}
_MEANINGS: Final = {
    "400": "bad input: the sentence names the value and the remedy",
    "401": "no token or the wrong one",
    "403": "the token does not permit this",
    "404": "not found",
    "405": "use POST",
    "408": "the body did not arrive in time",
    "413": "the body is too large",
    "415": "another content type or encoding is needed",
    "503": "the server is busy: retry later",
}
_ASKED: Final = ("400", "401", "503")
_RECEIVED: Final = ("400", "401", "405", "408", "413", "415", "503")
_Security: TypeAlias = list[dict[str, list[str]]]
_OPEN: Final[_Security] = [{}]
_GUARDED: Final[_Security] = [{}, {"bearer": []}]
# One of the two, and no other field.
_WHOM: Final = {
    "oneOf": [
        {
            "type": "object",
            "required": [name],
            "properties": {name: {"type": "string", "minLength": 1}},
            "additionalProperties": False,
        }
        for name in ("user", "tenant")
    ]
}
# Where Langfuse's SDKs send stands beside OTLP's own path.
_PREFIXES: Final = ("", "/api/public/otel")


@cache
def openapi() -> bytes:
    """The document, in JSON: every route of the server."""
    asked = [entry for entry in ENTRIES.values() if not entry.media]
    schemas, parts = msgspec.json.schema_components(
        [*(entry.answer_type() for entry in asked), ApiError, Forgotten],
        ref_template="#/components/schemas/{name}",
    )
    *answers, error, forgotten = map(_json, schemas)
    contents = {entry.path: answer for entry, answer in zip(asked, answers, strict=True)}
    contents |= {
        entry.path: {kind: {"schema": {"type": "string"}} for kind in entry.media}
        for entry in ENTRIES.values()
        if entry.media
    }
    paths = {
        f"{PREFIX}/{path}": {"get": _question(ENTRIES[path], content, error)}
        for path, content in contents.items()
    }
    erase = {
        "operationId": "forget",
        "summary": "Erase a user or a tenant",
        "security": _GUARDED,
        "requestBody": {"required": True, "content": _json(_WHOM)},
        "responses": _responses(forgotten, ("400", "401", "403", "405", "415", "503"), error),
    }
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Overrun", "version": "1", "license": {"name": "Apache-2.0"}},
        "paths": {
            **paths,
            **_status_routes(error),
            **_receivers(),
            erase_http.PATH: {"post": erase},
        },
        "components": {
            "schemas": parts,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }
    return msgspec.json.encode(document)


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _responses(content: Any, statuses: tuple[str, ...], error: Any) -> dict[str, Any]:
    return {"200": {"description": "the answer", "content": content}} | {
        status: {"description": _MEANINGS[status], "content": error} for status in statuses
    }


def _question(entry: Entry[Any], content: Any, error: Any) -> dict[str, Any]:
    """An operation of the table. What is asked wrongly is 400, an unknown trace 404, and 503 says to come again."""
    statuses = (*_ASKED, "404") if any(map(entry.in_path, entry.parameters)) else _ASKED
    return {
        "operationId": entry.path.replace("/", "_").replace("{", "").replace("}", ""),
        "summary": entry.question,
        "security": _GUARDED,
        "parameters": [
            _parameter(parameter, "path" if entry.in_path(parameter) else "query")
            for parameter in {p.name: p for p in (*entry.parameters, *entry.further())}.values()
        ],
        "responses": _responses(content, tuple(sorted(statuses)), error),
    }


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _TYPES[parameter.kind]}
    if parameter.kind is not str:
        schema |= {"minimum": parameter.least, "maximum": parameter.most}
    schema |= {"enum": list(parameter.choices)} if parameter.choices else {}
    schema |= {"pattern": parameter.pattern} if parameter.pattern else {}
    required = place == "path" or parameter.required
    if not required and schema != {"type": "string"}:
        # An empty value is none at all.
        schema = {"anyOf": [schema, {"const": ""}]}
    schema |= {"default": parameter.default} if parameter.default is not None else {}
    return {
        "name": parameter.name,
        "in": place,
        "required": required,
        "description": parameter.help,
        "schema": schema,
    }


def _status_routes(error: Any) -> dict[str, Any]:
    """How the server itself is: for monitoring of the process. Health checks need no token, and their 503 has the same body as their 200."""
    text = {"text/plain": {"schema": {"type": "string"}}}
    status = _json({"type": "object", "properties": {"status": {"type": "string"}}})
    paths: dict[str, Any] = {
        "/metrics": {
            "get": {
                "operationId": "metrics",
                "summary": "The server's own metrics, for Prometheus",
                "security": _GUARDED,
                "responses": _responses(text, ("401", "503"), error),
            }
        },
        "/openapi.json": {
            "get": {
                "operationId": "openapi",
                "summary": "What can be asked: this document",
                "security": _OPEN,
                "responses": _responses(_json({"type": "object"}), (), error),
            }
        },
    }
    for name, question in (("healthz", "Is the process alive?"), ("readyz", "Is it ready?")):
        answers = _responses(status, (), error)
        answers["503"] = {"description": "not available now", "content": status}
        paths[f"/{name}"] = {
            "get": {
                "operationId": name,
                "summary": question,
                "security": _OPEN,
                "responses": answers,
            }
        }
    return paths


def _receivers() -> Mapping[str, Any]:
    """Where telemetry is sent: OTLP in protobuf or JSON, answered in the encoding that it was sent in; errors are google.rpc.Status."""
    body = {
        "application/x-protobuf": {"schema": {"type": "string", "format": "binary"}},
        "application/json": {"schema": {"type": "object"}},
    }
    return {
        f"{prefix}/v1/{signal}": {
            "post": {
                "operationId": f"{'langfuse_' if prefix else ''}{signal}",
                "summary": f"Send {signal} in OTLP",
                "security": _GUARDED,
                "requestBody": {"required": True, "content": body},
                "responses": _responses(body, _RECEIVED, body),
            }
        }
        for prefix in _PREFIXES
        for signal in ("traces", "metrics", "logs")
    }
