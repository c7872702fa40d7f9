"""Which requests of clients over HTTP or RPC ask a model for text? By path, host and name, as `model_endpoints.toml` lists them."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable
from importlib import resources
from typing import Final

from overrun.collector.process.remember import remembered

_END: Final = r"/?(?:[?#]|$)"
_HOST_START: Final = r"(?i)^(?:[a-z][a-z0-9+.-]*://)?(?:[^/?#@]*@)?"
_HOST_END: Final = r"(?::[0-9]+)?(?:[/?#]|$)"


@functools.cache
def _vocabulary() -> dict[str, list[str]]:
    """The lists of the file: `paths`, `names`, `checks`, and for each of its hosts `hosts` and `at` (their paths as one expression)."""
    text = resources.files(__package__).joinpath("model_endpoints.toml").read_text("utf-8")
    document = tomllib.loads(text)
    return {
        "paths": document["paths"],
        "names": document["names"],
        "checks": [document["checks"]],
        "hosts": [one["hosts"] for one in document["at"]],
        "at": ["|".join(one["paths"]) for one in document["at"]],
    }


@functools.cache
def paths() -> str:
    """The expression that a URL or path contains if it is a model's by itself (RE2)."""
    return _before_query(_vocabulary()["paths"])


@functools.cache
def names() -> re.Pattern[str]:
    """What the name of an RPC client's span is, as a whole."""
    return re.compile("|".join(_vocabulary()["names"]))


@functools.cache
def paths_at_hosts() -> tuple[tuple[str, str], ...]:
    """Pairs of what a host (or a URL from its beginning) and a path contain; both together are a model's (RE2)."""
    found = zip(_vocabulary()["hosts"], _vocabulary()["at"], strict=True)
    return tuple((_host(hosts), _before_query([at])) for hosts, at in found)


@functools.cache
def checks() -> str:
    """What a host (or a URL from its beginning) contains whose models check what is asked or said (RE2)."""
    return _host(_vocabulary()["checks"][0])


def _host(names: str) -> str:
    return f"{_HOST_START}(?:{names}){_HOST_END}"


def _before_query(some: Iterable[str]) -> str:
    # A group of one name may stand once in an expression: the names are needed in `model_of` alone.
    unnamed = "|".join(re.sub(r"\?P<model>", "?:", one) for one in some)
    return rf"^[^?#]*(?:{unnamed}){_END}"


@functools.cache
def _naming() -> tuple[re.Pattern[str], ...]:
    known = [one for one in _vocabulary()["paths"] if "?P<model>" in one]
    return tuple(re.compile(rf"^[^?#]*{path}{_END}") for path in known)


@remembered(65_536)
def model_of(url: str) -> str | None:
    """The model that a URL's path names; None where none does."""
    found = (pattern.match(url) for pattern in _naming())
    return next((match["model"].replace("%3A", ":") for match in found if match), None)


@remembered(65_536)
def host_of(text: str) -> str | None:
    """The host of a URL without user and port, or the text itself where it is a host alone; None of a path."""
    match = re.match(
        r"(?:[a-zA-Z][a-zA-Z0-9+.-]*://)?(?:[^/?#@]*@)?(\[[0-9a-fA-F:]+\]|[^/?#:@]+)", text
    )
    return match[1] if match else None
