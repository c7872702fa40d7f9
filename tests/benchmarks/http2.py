"""How is a gRPC call written by hand, so that it can be written wrongly? Frames of HTTP/2 and the head of a call."""

from __future__ import annotations

from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """An HTTP/2 frame (RFC 9113, 4.1)."""
    return (
        len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload
    )


def header(name: bytes, value: bytes) -> bytes:
    """A header as a literal that is not indexed, its name and value as they are (RFC 7541, 6.2.2); of 126 bytes at most."""
    return b"\x00" + b"".join(bytes((len(text),)) + text for text in (name[:126], value[:126]))


def head(method: str = EXPORT) -> bytes:
    """The headers of a call."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "a",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    return b"".join(header(name.encode(), value.encode()) for name, value in headers.items())
