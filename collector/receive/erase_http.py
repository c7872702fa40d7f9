"""How is somebody erased from a store that a server owns? POST /v1/forget with {"user": ...} or {"tenant": ...}, for holders of the erase token.

Only as application/json: a page in a browser cannot send that to another origin without being asked for permission, which it does not get.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from typing import Final

import duckdb
import msgspec
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from overrun.collector.access import auth
from overrun.collector.access.audit import Audit
from overrun.collector.access.auth import Tokens
from overrun.collector.errors import (
    BadPayload,
    CollectorError,
    StoreUnavailable,
    UnsupportedMedia,
    WrongMethod,
)
from overrun.collector.ingest.lake_pipeline import LakePipeline
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.lifecycle.forget import Forgotten, forget, found_in_tables, names
from overrun.collector.lifecycle.lake_forget import forget_in_lake
from overrun.collector.normalise import privacy

JSON = "application/json"
PATH: Final = "/v1/forget"
_MAX_BYTES = 4_096


class Whom(msgspec.Struct, forbid_unknown_fields=True):
    """Whom to erase: one of the two."""

    user: str | None = None
    tenant: str | None = None


_WHOM: Final = msgspec.json.Decoder(
    Whom
)  # made here and not by the first two who ask at once, which msgspec does not survive (analysis/words/encoding.py)


def route(pipeline: Pipeline | LakePipeline, tokens: Tokens, audit: Audit) -> Route:
    """The route, guarded by the erase token; each request becomes a line of the audit log."""

    async def erase(request: Request) -> Response:
        if request.method != "POST":
            error = WrongMethod(f"{request.method} is not for {PATH}: use POST")
            answer = _refused(error)
            answer.headers["allow"] = "POST"
            return answer
        authorization = request.headers.get("authorization")
        what: dict[str, str] = {}
        counts: dict[str, int] = {}
        try:
            auth.check_erasing(authorization, tokens)
            if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
                raise UnsupportedMedia(f'send {JSON}, such as {{"tenant": "acme"}}')
            whom = _whom(await _body(request))
            what = _hashed(whom, pipeline.store.salt())
            done = await asyncio.to_thread(_erase, pipeline, whom)
            counts = {name: n for name, n in asdict(done).items() if n is not None}
            answer = Response(msgspec.json.encode(done), media_type=JSON)
        except duckdb.Error as error:  # of a lake that cannot be reached
            reason = str(error).splitlines()[0]
            answer = _refused(StoreUnavailable(f"not everything was erased: {reason}. Erase again"))
        except CollectorError as error:
            answer = _refused(error)
            if isinstance(error, auth.Unauthorized):
                answer.headers["www-authenticate"] = "Bearer"
        await asyncio.to_thread(
            audit.write,
            "forget",
            token=auth.kind_of(authorization, tokens),
            peer=request.client.host if request.client else "",
            what=what,
            status=answer.status_code,
            counts=counts,
        )
        return answer

    class Endpoint(HTTPEndpoint):
        async def dispatch(self) -> None:
            answer = await erase(Request(self.scope, self.receive))
            await answer(self.scope, self.receive, self.send)

    # Without `methods` a class takes every method: other ones must not fall through to OTLP's catch-all, which knows nothing of this path.
    return Route(PATH, Endpoint)


def _refused(error: CollectorError) -> Response:
    body = msgspec.json.encode({"error": str(error)})
    return Response(body, error.http_status, media_type=JSON)


def _erase(pipeline: Pipeline | LakePipeline, whom: Whom) -> Forgotten:
    if isinstance(pipeline, LakePipeline):
        return forget_in_lake(pipeline.lake, user=whom.user, tenant=whom.tenant)
    salt = pipeline.store.salt()
    done = pipeline.between_rounds(
        lambda connection: forget(connection, salt, user=whom.user, tenant=whom.tenant)
    )
    with pipeline.store.reading() as con:
        left = found_in_tables(con, names(salt, user=whom.user, tenant=whom.tenant))
    return replace(done, found_rows=left)


def _hashed(whom: Whom, salt: bytes) -> dict[str, str]:
    return {
        f"{kind}_hash": privacy.user_hash(name, salt)
        for kind, name in (("user", whom.user), ("tenant", whom.tenant))
        if name
    }


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BYTES:
            raise BadPayload(f"more than {_MAX_BYTES} bytes to name one user or tenant")
    return body


def _whom(body: bytes) -> Whom:
    try:
        whom = _WHOM.decode(body)
    except msgspec.DecodeError as error:
        raise BadPayload(f'not {{"user": ...}} or {{"tenant": ...}}: {error}') from error
    if bool(whom.user) == bool(whom.tenant):
        raise BadPayload('name one of the two: {"user": ...} or {"tenant": ...}')
    return whom
