"""Is an address that of a model's API, and what is asked there? An address or path in, an operation out."""

from __future__ import annotations

import re

# Addresses by their ends.
_ASKED = (
    ("embeddings", re.compile(r"/(?:embed|embeddings|rerank)$")),
    ("text_completion", re.compile(r"(?<!chat)/(?:completions?|generate|generate_stream)$")),
    ("chat", re.compile(r"/(?:chat/completions|api/chat|messages|responses|chat_completions)$")),
)
_LONGEST = 2_000  # characters


def path_of(address: str) -> str:
    """The path of an address, without its query."""
    path = address[:_LONGEST].partition("?")[0]
    if "://" in path:
        path = "/" + path.partition("://")[2].partition("/")[2]
    return path


def asked_of(address: str) -> str:
    """What is asked of a model at an address: `chat`, `text_completion`, `embeddings`; "" where it is no model's."""
    path = path_of(address)
    return next((what for what, ends in _ASKED if ends.search(path)), "")
