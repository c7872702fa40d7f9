"""Where are bodies inflated, converted and counted? In two threads of their own: never in the event loop, and never behind readers of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
# Objects of a JSON body take ten times its size: few at once. What waits here is bounded by the budget (process/admission.py), which it holds already.
_WORKERS = 2
_pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="overrun-convert")


async def run(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work` from one of the threads."""
    return await asyncio.get_running_loop().run_in_executor(_pool, partial(work, *args, **kwargs))
