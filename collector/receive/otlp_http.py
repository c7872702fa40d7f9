"""OTLP over HTTP: POST /v1/traces, /v1/metrics, /v1/logs in protobuf or JSON, plain or compressed. Bytes in, status out; no storage logic."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable

import zstandard
from google.protobuf.message import Message
from starlette.endpoints import HTTPEndpoint
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from overrun.collector.access import auth
from overrun.collector.config import CollectorSettings
from overrun.collector.decode import items, otlp_json
from overrun.collector.decode.old_otlp import is_old, modern
from overrun.collector.errors import (
    BadPayload,
    CollectorError,
    NoSuchPath,
    PayloadTooLarge,
    TooSlow,
    UnsupportedMedia,
    WrongMethod,
)
from overrun.collector.ingest.writer import LOGS, METRICS, TRACES, Stored, Writer
from overrun.collector.normalise import log_records
from overrun.collector.process.admission import Place
from overrun.collector.receive import converting, responses
from overrun.collector.sources import log_events

PROTOBUF, JSON = "application/x-protobuf", "application/json"
# The items of a body up to this size are counted in the event loop: 0.5 ms at most, and handing it to a thread costs a tenth of that.
_INLINE_BYTES = 262_144
_PIECE = 262_144  # inflated at once
# Compressed bytes handed to zstd at once: its blocks are at least 4 bytes and make 128 KiB each, so a bomb overshoots the limit by 4 MiB at most.
_ZSTD_STEP = 128
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS  # whichever of the two headers is there
_LANGFUSE = "/api/public/otel"  # where its SDKs send below LANGFUSE_BASE_URL


class Receiver:
    """OTLP over HTTP in front of a writer: `routes()` for the application. With a `token`, senders must carry it."""

    def __init__(
        self, writer: Writer, settings: CollectorSettings, token: str | None = None
    ) -> None:
        self._writer = writer
        self._settings = settings
        self._token = token

    def routes(self) -> list[Route]:
        """The three OTLP paths, also where Langfuse's SDKs send; any other path below /v1/ gets OTLP's "not found"."""
        signals = [
            Route(f"{prefix}/v1/{signal}", self._endpoint(signal))
            for prefix in ("", _LANGFUSE)
            for signal in responses.SIGNALS
        ]
        # Without `methods` a class takes every method; a function would be answered 405 in plain text.
        return [*signals, Route("/v1/{rest:path}", self._endpoint(None))]

    def _endpoint(self, signal: str | None) -> type[HTTPEndpoint]:
        receive = self._receive

        class Endpoint(HTTPEndpoint):
            async def dispatch(self) -> None:
                answer = await receive(signal, Request(self.scope, self.receive))
                await answer(self.scope, self.receive, self.send)

        return Endpoint

    async def _receive(self, signal: str | None, request: Request) -> Response:
        media = _media(request)
        origin = request.headers.get("origin", "")
        allowed = bool(origin) and (
            origin in self._settings.cors_origins or "*" in self._settings.cors_origins
        )
        if request.method == "OPTIONS" and allowed and signal:
            return Response(status_code=204, headers=_cors(origin))
        try:
            if signal is None:
                raise _no_such_path(request)
            if request.method != "POST":
                raise WrongMethod(f"{request.method} is not supported at /v1/{signal}: use POST")
            auth.check(request.headers.get("authorization"), self._token)
            stored = await self._store(signal, media, request)
            answer = _answer(responses.success(signal, stored), media, 200)
        except CollectorError as error:
            self._writer.tally.count(
                "refused_requests", protocol="http", signal=signal or "none", reason=error.reason
            )
            answer = _failed(error, media)
        if allowed:
            answer.headers.update(_cors(origin))
        return answer

    async def _store(self, signal: str, media: str, request: Request) -> Stored:
        if media not in (PROTOBUF, JSON):
            raise UnsupportedMedia(
                f"content type {media[:100] or '(none)'!r} is not OTLP: send {PROTOBUF} or {JSON}"
            )
        limits = self._settings
        most = limits.max_body_mib << 20
        declared = request.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > most:
            raise PayloadTooLarge(
                f"the body has {declared} bytes, the limit is {most}: send smaller batches"
            )
        self._check_room(signal, declared)
        with self._writer.admission.body() as place:
            body = await _read(request, most, limits.body_timeout_s, place.take)
            if encoding := request.headers.get("content-encoding", ""):
                sent, inflated = len(body), limits.max_decompressed_mib << 20
                body = await converting.run(_decompressed, body, encoding, inflated, place.take)
                place.give(sent)
            if media == JSON:
                sent = len(body)
                body = await converting.run(_from_json, signal, body, place)
                place.give(sent)
            return await store(signal, body, self._writer, place)

    def _check_room(self, signal: str, declared: str) -> None:
        """Refuse from the head on what would be refused once it has come: the rest of a refused body is thrown away as it comes, and takes no memory."""
        if signal != "logs" and declared.isdigit():  # of logs little is queued, if anything
            self._writer.check_room(TRACES if signal == "traces" else METRICS, int(declared))


def _from_json(signal: str, body: bytes, place: Place) -> bytes:
    place.take_items(items.count_json(body))
    converted = otlp_json.to_protobuf(signal, body)
    place.take(len(converted))
    return converted


def _no_such_path(request: Request) -> NoSuchPath:
    return NoSuchPath(
        f"no receiver at {request.url.path[:100]!r}: send to {', '.join(f'/v1/{s}' for s in responses.SIGNALS)}"
    )


async def not_found(request: Request, error: Exception) -> Response:
    """The application's answer where nothing is: in OTLP's words to a sender whose endpoint lacks the path, which posts to `/`."""
    media = _media(request)
    if request.method == "POST" and media in (PROTOBUF, JSON):
        return _failed(_no_such_path(request), media)
    return PlainTextResponse("Not Found", 404)


def _media(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _cors(origin: str) -> dict[str, str]:
    """What lets a page of an allowed origin send from the browser."""
    return {
        "access-control-allow-origin": origin,
        "access-control-allow-methods": "POST",
        "access-control-max-age": "7200",
        "vary": "origin",
        "access-control-allow-headers": "authorization, content-encoding, content-type, traceparent, tracestate, x-requested-with",
    }


async def store(signal: str, body: bytes, writer: Writer, place: Place) -> Stored:
    """Hand a protobuf body to the writer and wait for its commit (log records that report no span are only counted).

    Raises:
        PayloadTooLarge: it has more items than any body may. QueueFull: there is no room for so many now.
    """
    if signal == "logs":
        return await _store_notes(body, writer, place)
    small = len(body) <= _INLINE_BYTES and not is_old(body)
    if small:
        place.take_items(items.count(signal, body, writer.admission.body_items))
    else:
        body = await converting.run(_counted, signal, body, place)
    stored = writer.submit(TRACES if signal == "traces" else METRICS, body, place.items)
    place.queued()
    return await asyncio.wrap_future(stored)


def _counted(signal: str, body: bytes, place: Place) -> bytes:
    """A body whose items have their room, in today's words."""
    place.take_items(items.count(signal, body, place.most))
    return modern(body)


async def _store_notes(body: bytes, writer: Writer, place: Place) -> Stored:
    def told() -> tuple[int, list[log_records.Note], int, bytes]:
        counted = _counted("logs", body, place)
        return *log_records.told(counted), *log_events.calls(counted)

    records, notes, calls, spans = await converting.run(told)
    waiting = []
    if notes:
        waiting.append(writer.submit(LOGS, log_records.pack(notes), len(notes)))
    if calls:
        waiting.append(writer.submit(TRACES, spans, calls))
    for stored in waiting:
        place.queued()
        await asyncio.wrap_future(stored)
    left_out = records - len(notes) - calls
    return Stored(len(notes) + calls, left_out, log_records.NOT_STORED if left_out else "")


async def _read(
    request: Request, limit: int, timeout_s: float, take: Callable[[int], None]
) -> bytes:
    try:
        async with asyncio.timeout(timeout_s):
            return await _read_all(request, limit, take)
    except TimeoutError as error:
        raise TooSlow(f"the body did not arrive within {timeout_s:g} s") from error


async def _read_all(request: Request, limit: int, take: Callable[[int], None]) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise PayloadTooLarge(f"the body has more than {limit} bytes: send smaller batches")
            take(len(part))
            parts.append(part)
    except ClientDisconnect as error:
        raise BadPayload("the connection ended before the end of the body") from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompressed(body: bytes, encoding: str, limit: int, take: Callable[[int], None]) -> bytes:
    """The body without its content encoding, never more than `limit` bytes of it, each of which was taken from the budget before it was made."""
    encoding = encoding.strip().lower().removeprefix("x-")
    if encoding == "identity":
        take(len(body))
        return body
    try:
        if encoding == "zstd":
            out = _unzstd(body, limit, take)
        elif encoding == "gzip" or (encoding == "deflate" and not _is_bare(body)):
            out = _inflate(body, limit, _GZIP_OR_ZLIB, take)
        elif encoding == "deflate":
            out = _inflate(body, limit, -zlib.MAX_WBITS, take)
        else:
            raise UnsupportedMedia(
                f"content encoding {encoding[:100]!r} is not known: use gzip, zstd, deflate or none"
            )
    except (zlib.error, zstandard.ZstdError) as error:
        wanted = "deflate, with or without a zlib header" if encoding == "deflate" else encoding
        raise BadPayload(f"the body is not {wanted}: {error}") from error
    if len(out) > limit:
        raise PayloadTooLarge(
            f"the body decompresses to more than {limit} bytes: send smaller batches"
        )
    return out


def _is_bare(body: bytes) -> bool:
    """Whether a `deflate` body has neither the zlib header that HTTP asks for (RFC 9110, 8.4.1.2) nor gzip's: many clients send the bare stream.

    A zlib header (RFC 1950, 2.2) names method 8 and is a multiple of 31; a bare stream that begins so would have bits set in a block's padding.
    """
    zlib_header = len(body) >= 2 and body[0] & 0x8F == 8 and (body[0] << 8 | body[1]) % 31 == 0
    return bool(body) and not zlib_header and body[:2] != b"\x1f\x8b"


def _inflate(body: bytes, limit: int, bits: int, take: Callable[[int], None]) -> bytes:
    stream = zlib.decompressobj(bits)
    parts: list[bytes] = []
    size = 0
    while size <= limit:
        room = min(_PIECE, limit + 1 - size)
        take(room)
        part = stream.decompress(body, room)
        take(len(part) - room)
        parts.append(part)
        size += len(part)
        if not stream.eof:
            body = stream.unconsumed_tail
            if not body and len(part) < room:
                raise BadPayload("the compressed body ends too early")
        elif stream.unused_data:  # gzip members may follow each other
            body, stream = stream.unused_data, zlib.decompressobj(bits)
        else:
            break
    return b"".join(parts)


def _unzstd(body: bytes, limit: int, take: Callable[[int], None]) -> bytes:
    frames = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    stream = frames.decompressobj()
    out = bytearray()
    at = 0
    while at < len(body) and len(out) <= limit:
        if stream.eof:  # frames may follow each other
            stream = frames.decompressobj()
        piece = body[at : at + _ZSTD_STEP]
        part = stream.decompress(piece)
        take(len(part))
        out += part
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
    if isinstance(error, TooSlow):
        response.headers["connection"] = "close"
    if isinstance(error, WrongMethod):
        response.headers["allow"] = "POST"
    if isinstance(error, UnsupportedMedia):
        response.headers["accept-encoding"] = "gzip, deflate, zstd"
    if isinstance(error, auth.Unauthorized):
        response.headers["www-authenticate"] = "Bearer"
    return response


def _answer(message: Message, media: str, status: int) -> Response:
    """A message in the encoding of the request; JSON for a sender whose own encoding is not known."""
    if media == PROTOBUF:
        return Response(message.SerializeToString(), status, media_type=PROTOBUF)
    return Response(otlp_json.to_json(message), status, media_type=JSON)
