"""Which fixes are there, and what does each ask? Read from the files of `fixes/` as text: a list of commands must not wait for what the fixes import."""

from __future__ import annotations

import ast
import functools
import re
from importlib import resources

from overrun.analysis.words.errors import nearest

_PREDICTS = re.compile(r"^def predict\(", re.MULTILINE)


@functools.cache
def pages() -> dict[str, str]:
    """Return the page (docstring) of every fix by its id, in alphabetical order."""
    files = sorted(
        (file.name.removesuffix(".py"), file.read_text(encoding="utf-8"))
        for file in resources.files("overrun.analysis.whatif.fixes").iterdir()
        if file.name.endswith(".py")
    )
    # Nothing but the docstring is parsed: each page is a file of code.
    return {
        name: (ast.get_docstring(ast.parse(text[: text.index('"""', 3) + 3])) or "").strip()
        for name, text in files
        if _PREDICTS.search(text)
    }


def named(fix: str) -> str | None:
    """Return the id of a fix as somebody writes it (`-` and `_` are the same), None where there is none."""
    name = fix.strip().replace("-", "_").lower()
    return name if name in pages() else None


def unknown(fix: str) -> str:
    """Return the sentence for a fix that does not exist, with the nearest one."""
    return f"fix {fix[:64]!r} is unknown: {nearest(fix.strip().replace('-', '_').lower(), pages())}"


def question(fix: str) -> str:
    """Return what a fix asks, without "What if": for a list under that heading."""
    return " ".join(pages()[fix].partition("?")[0].removeprefix("What if ").split())
