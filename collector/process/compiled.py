"""Where are compiled kernels kept? Names the cache folder before numba is imported, so that they are compiled once per machine and version."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any


def _cache_folder() -> str:
    """Where compiled kernels are kept: the user's cache folder, or a temporary one where that cannot be written."""
    wanted = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "overrun" / "numba"
    try:
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError:
        return tempfile.mkdtemp(prefix="overrun-numba-")
    return str(wanted) if os.access(wanted, os.W_OK) else tempfile.mkdtemp(prefix="overrun-numba-")


# Must be set before numba is imported; a read-only installation then still works.
os.environ.setdefault("NUMBA_CACHE_DIR", _cache_folder())

import numpy as np
from numba import njit

# With the first kernel numba looks for SciPy's linear algebra, which none of ours uses: a tenth of every start's CPU, and 9 MB. Now it finds none.
if (_BLAS := "scipy.linalg.cython_blas") not in sys.modules:
    sys.modules[_BLAS] = None  # type: ignore[assignment]
    importlib.import_module("numba.np.arraymath")
    del sys.modules[_BLAS]

# For loops that make no arrays: without counting references to those they are given, which cost half of the time of short functions (numba 0.65 has
# no public name for it). `inlined` ones become part of their caller, or handing their arguments on costs the other half.
lean: Any = functools.partial(njit, cache=True, nogil=True, _nrt=False)
inlined: Any = functools.partial(lean, forceinline=True)

__all__ = ["inlined", "lean", "njit", "read_only"]


def read_only(array: np.ndarray[Any, Any]) -> Any:
    """The array for a kernel that only reads it. Arrow's memory may not be written to and numpy's may: two types, each of which is compiled for."""
    view = array.view()
    view.flags.writeable = False
    return view
