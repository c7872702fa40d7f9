"""What may be stored of an opted-in prompt in place of its text? (`[privacy] prompt_features`)

A text attribute that carries a prompt is stored under its own key as one line of numbers, `[prompt: SCORE@TABLE N N N ...]`: the counts of
`overrun.collector.normalise.prompt_shape`, and before them the verbosity score with the name of the table it is by, or `-` where no table is configured
(`[privacy] prompt_table`). The text itself goes where it would have gone: nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from overrun.collector.arrays import Float32Array
from overrun.collector.config import PrivacySettings
from overrun.collector.errors import ConfigError
from overrun.collector.normalise.prompt_shape import SHAPE, shape, words_of
from overrun.collector.normalise.readers import document
from overrun.collector.normalise.verbosity import (
    TABLE_SIZE,
    hashed,
    read_table,
    score,
    table_id,
)

# The file of an artifact that holds the table.
TABLE_FILE = "ngram_ridge.f16"
_KEYS = frozenset({
    "gen_ai.input.messages", "gen_ai.prompt", "llm.prompts", "input.value", "ai.prompt", "ai.prompt.messages", "mlflow.spanInputs",
    "langfuse.observation.input", "pydantic_ai.all_messages", "llm.openai.messages",
})  # fmt: skip
# One key a message. The last one is what the model was asked.
_INDEXED = re.compile(
    r"(?:gen_ai\.prompt|llm\.prompts)\.\d{1,4}\.(?:content|user)|llm\.input_messages\.\d{1,4}\.message\.content"
)
_LINE = re.compile(r"\[prompt: (?:-|(-?[0-9.]+)@([0-9a-f]{8}))((?: [0-9.e+-]+)+)\]")
_MAX_DEPTH = 8

Measure = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a stored line says: the counts by the names of SHAPE, and the score of which table, if any."""

    shape: tuple[float, ...]
    verbosity: float | None
    table: str | None


def is_prompt(key: str) -> bool:
    """Whether the text under an attribute key is what a model was asked."""
    return key in _KEYS or _INDEXED.fullmatch(key) is not None


def measuring(settings: PrivacySettings) -> Measure | None:
    """What turns a prompt into its line; None if prompts are not to be looked at, or are stored as they are.

    Raises:
        ConfigError: `prompt_table` is not a table, or prompts are not opted in.
    """
    if settings.prompt_table and not settings.prompt_features:
        raise ConfigError(
            "privacy.prompt_table is set but privacy.prompt_features is not: set prompt_features = true, or remove the table"
        )
    if not settings.prompt_features or settings.store_text:
        return None
    data, table = read_table_file(settings.prompt_table) if settings.prompt_table else (b"", None)
    name = table_id(data)
    return lambda text: line_of(text, table, name)


def read_table_file(path: str) -> tuple[bytes, Float32Array]:
    """The table in an artifact folder or file, as bytes and as weights.

    Raises:
        ConfigError: there is none, or it is of another build.
    """
    file = Path(path) / TABLE_FILE if Path(path).is_dir() else Path(path)
    try:
        data = file.read_bytes() if file.stat().st_size == 2 * TABLE_SIZE else b""
    except OSError as error:
        raise ConfigError(
            f"privacy.prompt_table: {file} cannot be read ({error.strerror}): name the folder of a predictor trained with prompts"
        ) from error
    table = read_table(data)
    if table is None:
        raise ConfigError(
            f"privacy.prompt_table: {file} is not a table of {2 * TABLE_SIZE:,} bytes: train the predictor again with this build"
        )
    return data, table


def line_of(text: str, table: Float32Array | None = None, name: str = "") -> str:
    """The line that is stored of an attribute's text; empty where no prompt can be found in it."""
    prompt = asked(text)
    if not prompt:
        return ""
    words = words_of(prompt)
    counts = shape(prompt, words)
    scored = "-" if table is None else f"{score(table, hashed(words), counts):.4f}@{name}"
    return f"[prompt: {scored} {' '.join(f'{count:.6g}' for count in counts)}]"


def read_line(line: str | None) -> Measured | None:
    """What `line_of` wrote; None if it is something else, or of a build with other counts."""
    found = _LINE.fullmatch(line or "")
    if found is None:
        return None
    try:
        counts = tuple(map(float, found[3].split()))
        verbosity = None if found[1] is None else float(found[1])
    except ValueError:
        return None
    return Measured(counts, verbosity, found[2]) if len(counts) == len(SHAPE) else None


def asked(text: str) -> str:
    """The newest message of the user in an attribute's text: a plain text is one, JSON is searched for messages."""
    if text[:1] not in ("{", "["):
        return text
    found = document(text)
    return "" if found is None else _newest(found, 0)


def _newest(value: object, depth: int) -> str:
    """The last text in a message, a list of messages or parts, or an object that holds one of these."""
    if isinstance(value, str):
        return value
    if depth > _MAX_DEPTH:
        return ""
    if isinstance(value, list):
        users = [
            one for one in value if isinstance(one, dict) and one.get("role") in ("user", "human")
        ]
        return _first(_newest(one, depth + 1) for one in reversed(users or value))
    if isinstance(value, dict):
        inside = (
            value[name]
            for name in ("messages", "prompt", "input", "content", "parts", "text", "args")
            if name in value
        )
        return _first(_newest(one, depth + 1) for one in inside)
    return ""


def _first(texts: Iterable[str]) -> str:
    return next((text for text in texts if text), "")
