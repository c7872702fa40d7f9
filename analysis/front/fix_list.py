"""Which fixes can be asked for, and what may each be given?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from overrun.analysis.whatif import catalogue


class ParameterInfo(msgspec.Struct, kw_only=True):
    """One parameter of a fix. `kind` is int, float, str or bool; `default` is null where it must be given."""

    name: str
    kind: str
    help: str
    required: bool
    default: Any = None


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
                )
                for p in catalogue.parameters(fix)
            ],
        )
        for fix in catalogue.fixes()
    ]
