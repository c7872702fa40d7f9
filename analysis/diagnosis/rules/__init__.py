"""One diagnosis per file; a rule is found by being in this folder. Each has `diagnose(case)`."""

import importlib
import pkgutil
from types import ModuleType


def rules() -> dict[str, ModuleType]:
    """Return every rule by its id."""
    return {
        name: importlib.import_module(f"{__name__}.{name}")
        for _, name, _ in pkgutil.iter_modules(__path__)
    }
