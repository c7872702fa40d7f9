"""Which words are spans and metrics read by? The lists of `words.toml`."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources


@functools.cache
def _lists() -> dict[str, list[str]]:
    text = resources.files(__package__).joinpath("words.toml").read_text("utf-8")
    return tomllib.loads(text)


def words(name: str) -> frozenset[str]:
    """The words of one list."""
    return frozenset(_lists()[name])
