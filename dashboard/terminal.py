"""What would one type in a terminal to see the same as the page? Commands to copy, every word of them quoted."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from overrun.dashboard import data


def report(asked: data.Asked) -> str:
    """The command that prints the report of the page's window and filters."""
    return written(["report"], dict(asked))


def whatif(asked: data.Asked, query: Mapping[str, str]) -> str:
    """The command that asks for a fix, given what the address of the What-if page says (`fix` and its parameters behind `p_`)."""
    parameters = {
        name.removeprefix("p_"): value for name, value in query.items() if name.startswith("p_")
    }
    return written(["whatif", query["fix"].replace("_", "-")], {**parameters, **dict(asked)})


def written(words: list[str], flags: Mapping[str, str]) -> str:
    """A command with flags and the server's address."""
    pairs = [
        part
        for name, value in {**flags, "url": data.url()}.items()
        for part in (f"--{name.replace('_', '-')}", value)
    ]
    return shlex.join(["overrun", *words, *pairs])
