"""Wait for what another thread, process or page is about to do, with a limit that a loaded machine does not reach."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

LIMIT_S = 120.0  # below the 300 s that pytest gives a test
_EVERY_S = 0.02

Found = TypeVar("Found")


def until(look: Callable[[], Found], seen: Callable[[], object] | None = None) -> Found:
    """What `look` returns, once that is true.

    Raises:
        AssertionError: it is not true within LIMIT_S; the message says what `seen`, or else `look`, returned last.
    """
    end = time.monotonic() + LIMIT_S
    while not (found := look()):
        assert time.monotonic() < end, f"after {LIMIT_S:g} s: {seen() if seen else found}"
        time.sleep(_EVERY_S)
    return found


async def until_true(look: Callable[[], object]) -> None:
    """As `until`, in an event loop that goes on meanwhile."""
    async with asyncio.timeout(LIMIT_S):
        while not look():
            await asyncio.sleep(_EVERY_S)
