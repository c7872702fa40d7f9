"""A gateway between application and engine that holds a stream back until so many bytes are there.

`python -m tests.lab.gateway PORT ENGINE_URL HELD_BYTES [CERTIFICATE.pem]`. With a certificate, whose file holds its key too, it speaks TLS.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

PASSED_ON = ("traceparent", "tracestate", "content-type", "accept")


async def held(pieces: AsyncIterator[bytes], held_bytes: int) -> AsyncIterator[bytes]:
    """The same bytes in pieces of at least `held_bytes`; the rest at the end."""
    waiting = b""
    async for piece in pieces:
        waiting += piece
        if len(waiting) >= held_bytes:
            yield waiting
            waiting = b""
    if waiting:
        yield waiting


def application(engine: str, held_bytes: int) -> Starlette:
    """A reverse proxy of one engine's chat completions."""
    client = httpx.AsyncClient(timeout=httpx.Timeout(None, connect=30))

    async def forward(request: Request) -> StreamingResponse:
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        outgoing = client.build_request(
            "POST", engine + request.url.path, content=await request.body(), headers=headers
        )
        answer = await client.send(outgoing, stream=True)

        async def body() -> AsyncIterator[bytes]:
            try:
                async for piece in held(answer.aiter_bytes(), held_bytes):
                    yield piece
            finally:
                await answer.aclose()

        media = answer.headers.get("content-type", "text/event-stream")
        return StreamingResponse(body(), answer.status_code, media_type=media)

    return Starlette(routes=[Route("/{path:path}", forward, methods=["POST"])])


if __name__ == "__main__":
    port, url, size = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    certificate = sys.argv[4] if len(sys.argv) > 4 else None
    uvicorn.run(
        application(url, size),
        host="127.0.0.1",
        port=port,
        log_level="warning",
        ssl_certfile=certificate,
        timeout_keep_alive=75,
    )
