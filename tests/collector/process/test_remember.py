"""What is remembered of texts that senders choose is bounded in length, not in number alone."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

import overrun.collector.decode
import overrun.collector.normalise
from overrun.collector.process.remember import LONGEST, remembered


def test_a_long_text_is_read_anew_each_time() -> None:
    read: list[str] = []

    @remembered(4)
    def upper(text: str) -> str:
        read.append(text)
        return text.upper()

    assert [upper("a"), upper("a")] == ["A", "A"]
    long = "x" * (LONGEST + 1)
    assert upper(long) == upper(long) == long.upper()
    assert read == ["a", long, long]
    assert upper.cache_info().currsize == 1  # type: ignore[attr-defined]


MODULES = [
    importlib.import_module(f"{package.__name__}.{found.name}")
    for package in (overrun.collector.normalise, overrun.collector.decode)
    for found in pkgutil.iter_modules(package.__path__)
]
# Their callers hand over short texts alone.
BOUNDED_BY_CALLER = {"_parse", "_source"}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_no_cache_of_texts_is_bounded_in_number_alone(module: ModuleType) -> None:
    """Every function that a module keeps results of has no text as an argument, or remembers short ones alone."""
    for name, held in vars(module).items():
        if isinstance(held, functools._lru_cache_wrapper) and name not in BOUNDED_BY_CALLER:
            kinds = {p.annotation for p in inspect.signature(held).parameters.values()}
            assert not kinds & {"str", "bytes", str, bytes}, f"{module.__name__}.{name}"
