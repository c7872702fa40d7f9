"""Overrun: which stage of an LLM application overran the latency budget, why, and what each fix would buy.

The names of `__all__` are the Python API (docs/PYTHON.md); they are loaded at their first use, so that `import overrun` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from overrun.analysis.front.python_api import (
        Html,
        Recording,
        connect,
        diagnose,
        open,
        read,
    )
    from overrun.analysis.front.report import Report
    from overrun.analysis.words.errors import AnalysisError
    from overrun.collector.errors import CollectorError

_HOMES = {
    **dict.fromkeys(
        ("Html", "Recording", "connect", "diagnose", "open", "read"),
        "overrun.analysis.front.python_api",
    ),
    "Report": "overrun.analysis.front.report",
    "AnalysisError": "overrun.analysis.words.errors",
    "CollectorError": "overrun.collector.errors",
}
__all__ = [
    "AnalysisError",
    "CollectorError",
    "Html",
    "Recording",
    "Report",
    "__version__",
    "connect",
    "diagnose",
    "open",
    "read",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'overrun' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
