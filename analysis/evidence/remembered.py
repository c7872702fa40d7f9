"""How is what several rules derive from the same case, or from the same calls, computed once? `remembered` keeps it with them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

_Of = TypeVar("_Of")
_Made = TypeVar("_Made")


def remembered(function: Callable[[_Of], _Made]) -> Callable[[_Of], _Made]:
    """Make a function of one object keep each answer in that object, for as long as it lives. Nobody may change the object or the answer."""
    name = f"{function.__module__}.{function.__qualname__}"

    @functools.wraps(function)
    def once(of: _Of) -> _Made:
        known = vars(of)
        if name not in known:
            known[name] = function(of)
        made: _Made = known[name]
        return made

    return once
