"""What may be remembered of what senders choose? Results for short texts, so many of them at most.

A cache that is bounded in entries alone is not bounded in memory: whoever sends 65,536 different names of 16 kB would fill it with 1 GB.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
# Names of programs are shorter, all but a few.
LONGEST = 256


def remembered(most: int, longest: int = LONGEST) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator as functools.lru_cache, for functions of names: a call with a text (or bytes) longer than `longest` is made anew each time."""

    def of(function: Callable[P, R]) -> Callable[P, R]:
        cached = functools.lru_cache(most)(function)

        def asked(*args: P.args, **kwargs: P.kwargs) -> R:
            for value in args:
                if isinstance(value, str | bytes) and len(value) > longest:
                    return function(*args, **kwargs)
            return cached(*args, **kwargs)  # type: ignore[arg-type]  # it would want them hashable

        kept: Any = functools.update_wrapper(asked, function)
        kept.cache_clear, kept.cache_info = cached.cache_clear, cached.cache_info
        return asked

    return of
