"""A link of some length: passes bytes between a port and a server on, each a fixed time later.

`python -m tests.lab.link PORT TARGET_PORT DELAY_MS`. The delay is that of one direction; a round trip takes it twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time

PIECE_BYTES = 65_536


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Pass on what `reader` gets, `delay_s` later and in its order; then close."""
    way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def arrive() -> None:
        while True:
            due, piece = await way.get()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
        writer.close()

    arriving = asyncio.create_task(arrive())
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(PIECE_BYTES):
            way.put_nowait((time.monotonic() + delay_s, piece))
    way.put_nowait((time.monotonic() + delay_s, b""))
    with contextlib.suppress(ConnectionError):
        await arriving


async def serve(port: int, target: int, delay_s: float) -> None:
    """Accept connections for ever."""

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(carry(reader, far_writer, delay_s), carry(far_reader, writer, delay_s))

    server = await asyncio.start_server(accepted, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    here, there, delay_ms = sys.argv[1:4]
    asyncio.run(serve(int(here), int(there), float(delay_ms) / 1e3))
