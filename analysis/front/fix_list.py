"""Which fixes can be asked for, and what may each be given?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from overrun.analysis.whatif import catalogue


class ParameterInfo(msgspec.Struct, kw_only=True):
    """One parameter of a fix. `kind` is int, float, str or bool; `default` is null where it must be given. Numbers lie between `least` and `most`, without
    those that `open_ends` names; null where nothing limits them."""

    name: str
    kind: str
    help: str
    required: bool
    default: Any = None
    least: float | None = None
    most: float | None = None
    open_ends: list[str] = []

    def takes(self, value: float) -> bool:
        """Whether a number lies within the limits."""
        return catalogue.within(value, self.least, self.most, self.open_ends)


class FixInfo(msgspec.Struct, kw_only=True):
    """One fix that can be asked for: its question in a sentence, and what it may be given."""

    fix: str
    question: str
    parameters: list[ParameterInfo]


def listed(begin: Callable[[], None] = lambda: None) -> list[FixInfo]:
    """Return every fix with its parameters. `begin` is called first: one of the fixes will be asked for."""
    begin()
    return [
        FixInfo(
            fix=fix,
            question=catalogue.summary(fix),
            parameters=[
                ParameterInfo(
                    name=p.name,
                    kind=p.kind.__name__,
                    help=p.help,
                    required=p.required,
                    default=p.default,
                    least=p.least,
                    most=p.most,
                    open_ends=list(p.open_ends),
                )
                for p in catalogue.parameters(fix)
            ],
        )
        for fix in catalogue.fixes()
    ]
