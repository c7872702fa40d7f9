"""How is a fix asked for on the command line? One sub-command per fix, its flags read off the fix's own signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from overrun.analysis.whatif import catalogue, fix_pages
from overrun.analysis.whatif.prediction import WhatIfError

Ask = Callable[[str, Mapping[str, str | None], Mapping[str, Any]], None]


def command(name: str, common: Mapping[str, Any], ask: Ask) -> Any | None:
    """Return the command of one fix, None when there is none of that name.

    `common` are the flags that every fix takes, by the name of the value: annotation as in a command's signature (default None).
    `ask(fix, own, common)` is called with the fix's own flags as texts and the values of the common ones.
    """
    try:
        fix = catalogue.find(name).__name__.rpartition(".")[2]
    except WhatIfError:
        return None
    own = catalogue.parameters(fix)
    # A flag of the fix's own goes before a filter of the same name.
    shared = {
        key: hint
        for key, hint in common.items()
        if key not in {parameter.name for parameter in own}
    }

    def run(**given: Any) -> None:
        texts = {p.name: None if given[p.name] is None else str(given[p.name]) for p in own}
        ask(fix, texts, {key: given.get(key) for key in common})

    signature = [
        inspect.Parameter(p.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_hint(p))
        for p in own
    ]
    signature += [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)
        for key, hint in shared.items()
    ]
    run.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in signature}
    run.__doc__ = (catalogue.find(fix).__doc__ or "").strip()
    one = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    one.command(name, short_help=fix_pages.question(fix))(run)
    return typer.main.get_command(one)


def _hint(parameter: catalogue.Parameter) -> Any:
    default = (
        "" if parameter.default is None or parameter.required else f" (default {parameter.default})"
    )
    text = f"{parameter.help}{default}{' [required]' if parameter.required else ''}"
    # Values are read as texts and judged by the fix, so that a bad one is refused in its words, here as over HTTP.
    return Annotated[
        str | None,
        typer.Option(
            f"--{parameter.name.replace('_', '-')}",
            help=text,
            metavar=parameter.kind.__name__.upper(),
        ),
    ]
