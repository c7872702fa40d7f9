"""OTLP over HTTP: POST /v1/traces, /v1/metrics, /v1/logs in protobuf or JSON, plain or compressed. Bytes in, status out; no storage logic."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable

import zstandard
from google.protobuf.message import Message
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from collector import auth, otlp_json, responses
from collector.errors import BadPayload, CollectorError, PayloadTooLarge, UnsupportedMedia
from collector.writer import METRICS, TRACES, Stored, Writer

PROTOBUF, JSON = "application/x-protobuf", "application/json"
# JSON bodies over this size are converted outside the event loop, so that one sender does not hold up the others.
_INLINE_JSON_BYTES = 16_384
# Compressed bytes handed to zstd at once: its blocks are at least 4 bytes and make 128 KiB each, so a bomb overshoots the limit by 16 MiB at most.
_ZSTD_STEP = 512


def routes(writer: Writer, max_body_bytes: int, token: str | None = None) -> list[Route]:
    """The three OTLP routes over a writer; with a `token`, senders must carry it."""
    return [Route(f"/v1/{signal}", _endpoint(signal, writer, max_body_bytes, token), methods=["POST"]) for signal in responses.SIGNALS]


def _endpoint(signal: str, writer: Writer, max_body_bytes: int, token: str | None) -> Callable[[Request], Awaitable[Response]]:
    async def receive(request: Request) -> Response:
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            auth.check(request.headers.get("authorization"), token)
            if media not in (PROTOBUF, JSON):
                raise UnsupportedMedia(f"content type {media or '(none)'!r} is not OTLP: send {PROTOBUF} or {JSON}")
            body = _decompressed(await _read(request, max_body_bytes), request.headers.get("content-encoding", ""), max_body_bytes)
            if media == JSON:
                inline = len(body) <= _INLINE_JSON_BYTES
                body = otlp_json.to_protobuf(signal, body) if inline else await asyncio.to_thread(otlp_json.to_protobuf, signal, body)
            stored = await store(signal, body, writer)
        except CollectorError as error:
            return _failed(error, media)
        return _answer(responses.success(signal, stored), media, 200)

    return receive


async def store(signal: str, body: bytes, writer: Writer) -> Stored:
    """Hand a protobuf body to the writer and wait for its commit (logs are only counted)."""
    if signal == "logs":
        return responses.logs(body)
    return await asyncio.wrap_future(writer.submit(TRACES if signal == "traces" else METRICS, body))


async def _read(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise PayloadTooLarge(f"the body has {declared} bytes, the limit is {limit}: send smaller batches")
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise PayloadTooLarge(f"the body has more than {limit} bytes: send smaller batches")
            parts.append(part)
    except ClientDisconnect as error:
        raise BadPayload("the connection ended before the body did") from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """The body without its content encoding, never more than `limit` bytes of it."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    try:
        if encoding == "zstd":
            out = _unzstd(body, limit)
        elif encoding in ("gzip", "deflate"):
            out = _inflate(body, limit)
        else:
            raise UnsupportedMedia(f"content encoding {encoding!r} is not known: use gzip, zstd, deflate or none")
    except (zlib.error, zstandard.ZstdError) as error:
        raise BadPayload(f"the body is not {encoding}: {error}") from error
    if len(out) > limit:
        raise PayloadTooLarge(f"the body decompresses to more than {limit} bytes: send smaller batches")
    return out


def _inflate(body: bytes, limit: int) -> bytes:
    # 47 = 32 + 15: accept the gzip and the zlib header, whichever is there.
    stream = zlib.decompressobj(47)
    out = stream.decompress(body, limit + 1)
    while stream.eof and stream.unused_data and len(out) <= limit:  # gzip members may follow each other
        body, stream = stream.unused_data, zlib.decompressobj(47)
        out += stream.decompress(body, limit + 1 - len(out))
    if len(out) <= limit and not stream.eof:
        raise BadPayload("the compressed body ends too early")
    return out


def _unzstd(body: bytes, limit: int) -> bytes:
    frames = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    stream = frames.decompressobj()
    out = bytearray()
    at = 0
    while at < len(body) and len(out) <= limit:
        if stream.eof:  # frames may follow each other
            stream = frames.decompressobj()
        piece = body[at : at + _ZSTD_STEP]
        out += stream.decompress(piece)
        at += len(piece) - len(stream.unused_data)
    # A stream_reader would return what there is of a truncated frame without a word, and half a body would be acknowledged.
    if len(out) <= limit and not stream.eof:
        raise BadPayload("the compressed body ends too early")
    return bytes(out)


def _failed(error: CollectorError, media: str) -> Response:
    response = _answer(responses.failure(error), media, error.http_status)
    retry_after_s = getattr(error, "retry_after_s", None)
    if retry_after_s is not None:
        response.headers["retry-after"] = str(retry_after_s)
    return response


def _answer(message: Message, media: str, status: int) -> Response:
    """A message in the encoding of the request; JSON for a sender whose own encoding is not known."""
    if media == PROTOBUF:
        return Response(message.SerializeToString(), status, media_type=PROTOBUF)
    return Response(otlp_json.to_json(message), status, media_type=JSON)
