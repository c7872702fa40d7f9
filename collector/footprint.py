"""How does the server keep its memory small? What it does before anything heavy is imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not looked for here", name=fullname)
        return None


def keep_small() -> None:
    """For a process that only serves. Arrow imports pandas, where it is installed, to ask of the first list that it converts whether that is a Series,
    and then never again: 50 MB for nothing, unless it finds none at that moment."""
    import pyarrow as pa

    blind = _NoPandas()
    sys.meta_path.insert(0, blind)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(blind)
