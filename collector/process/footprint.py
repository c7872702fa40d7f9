"""How does the server keep its memory small? What it does before anything heavy is imported, and what it gives back now and then."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

# What libraries load where they find it, for nothing that is needed here. Arrow asks pandas of the first list that it converts whether that is a Series, and
# then never again: 50 MB and a third of a second. httpx loads the command of its own, with the libraries of terminals: 0.1 s of CPU.
_UNNEEDED = frozenset({"pandas", "httpx._main"})


class _Without(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in _UNNEEDED:
            raise ModuleNotFoundError(f"{fullname} is not loaded here", name=fullname)
        return None


_ARENA_MAX = (
    -8
)  # of glibc's mallopt: how many heaps its threads share; freed memory of one is no use to another
# Of mallopt, too: what is larger is mapped apart and leaves at once. glibc raises this line to 32 MB by itself, and the buffers of bodies then leave holes.
_MMAP_THRESHOLD = -3
_LARGE = 1 << 20
_DONT_NEED = 4  # of madvise
_EVERY_S = 1.0
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4_096
# Python looks for what refers to itself when there are many new objects. A report leaves a hundred, which hold 100 MB of columns of 10,000 requests: 60
# reports about 1,000 took 893 MiB (docs/results/hardening.json). So the search comes after work of which it costs at most this share, and when memory has grown by so much.
_SHARE = 0.05
_GROWN = 32 << 20
_last_s = 0.0
_search_s = 0.05  # what the last search took; before the first, more than most take
_level = 0  # bytes of memory after the last search


def keep_small() -> None:
    """For a process that only serves: Arrow's own allocator keeps what a large batch took (240 MB under overload); the system's can give back."""
    import pyarrow as pa

    with contextlib.suppress(AttributeError, OSError):  # another libc
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 2)
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE)
    pa.set_memory_pool(pa.system_memory_pool())


def start_light() -> None:
    """Let this process find nothing of `_UNNEEDED` from now on."""
    sys.meta_path.insert(0, _Without())


def settle() -> None:
    """What is loaded by now stays to the end: the collector of cycles need not look through it every few seconds (30 ms and more each time).

    The pages of libraries that only starting needed (compilers, import) leave this process; what is used again comes back from the system's cache.
    """
    gc.collect()
    gc.freeze()
    with contextlib.suppress(AttributeError, OSError):  # another system
        libc = ctypes.CDLL(None)
        for first, size in _clean_code():
            libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), _DONT_NEED)


def _clean_code() -> list[tuple[int, int]]:
    """(address, bytes) of what is mapped from libraries, cannot be written and has not been written (relocated) either."""
    found: list[tuple[int, int]] = []
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            place, _, rest = line.partition(" ")
            if "-" in place and not place.endswith(":"):
                first, end = (int(edge, 16) for edge in place.split("-"))
                library = rest[:2] == "r-" and ".so" in rest
            elif place == "Anonymous:" and library and rest.split() == ["0", "kB"]:
                found.append((first, end - first))
    return found


def own_memory() -> int:
    """Bytes that this process has to itself: resident, without what is mapped from files; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            _, resident, shared, *_ = file.read().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE


def free_cycles(took_s: float) -> None:
    """Free objects that only refer to one another, after work that took so many seconds of CPU, if the search is cheap beside it."""
    if _search_s <= _SHARE * took_s:
        _search()


def _search() -> None:
    global _search_s, _level
    began_s = time.thread_time()
    gc.collect()
    _search_s = time.thread_time() - began_s
    _level = own_memory()


def give_back() -> None:
    """Hand freed memory back to the system, every few seconds at most."""
    global _last_s, _level
    now_s = time.monotonic()
    if now_s - _last_s < _EVERY_S:
        return
    _last_s = now_s
    memory = own_memory()
    _level = min(_level, memory) if _level else memory
    if memory > _level + _GROWN:
        _search()
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
