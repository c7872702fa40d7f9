"""What does one odd value mean? Senders put numbers into strings, strings into quotes, whole documents into strings and times into words.

Every function takes one value as Python has it (the text of an attribute, or what stands at a path of a JSON document) and returns what it
means, or None if it means nothing: pure, total, bounded. `normalise/spans.py` asks once per distinct value of a batch, and only where the attribute
is there at all.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from overrun.collector.normalise.quarantine import MAX_DURATION_NS

MAX_TOKENS = 1 << 40  # a larger token count is no count
MAX_DOCUMENT = 1 << 20  # characters; a longer JSON text is not looked into
# Clocks with millisecond resolution (JavaScript's) put a moment up to that much before the start of its own span.
SLACK_NS = 1_000_000

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FLAGS = {"true": True, "false": False, "1": True, "0": False}
# Rust prints std::time::Duration as 1.5s, 12.3ms, 456.7µs (micro sign or Greek mu) or 80ns.
_DURATION = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)(s|ms|us|\u00b5s|\u03bcs|ns)")
_UNIT_NS = {"s": 1e9, "ms": 1e6, "us": 1e3, "\u00b5s": 1e3, "\u03bcs": 1e3, "ns": 1.0}
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?")
_FRACTION = re.compile(r"[.,](\d+)")
_PYTHON_WORDS = {"None": "null", "True": "true", "False": "false", "'": '"'}
_PYTHON = re.compile(r"'|\b(?:None|True|False)\b")


def document(text: str) -> object:
    """The document that a JSON text holds, also one with Python's NaN and Infinity, or a printed Python dict of plain names and numbers."""
    if not text or text[0] not in "{[" or len(text) > MAX_DOCUMENT:
        return None
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        pass
    for candidate in (text, _PYTHON.sub(lambda m: _PYTHON_WORDS[m[0]], text)):
        try:
            return json.loads(candidate)
        except (ValueError, RecursionError):
            continue
    return None


def at(found: object, path: tuple[str, ...]) -> object:
    """What stands at `path` of a document: names step into objects, numbers (-1: the last) into lists; None if nothing does."""
    for step in path:
        if isinstance(found, dict):
            found = found.get(step)
        elif isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        elif isinstance(found, list) and found and step == "-1":
            found = found[-1]
        else:
            return None
    return found


def number(value: object) -> float | None:
    """A finite number, also from a string or a quoted string."""
    if isinstance(value, str):
        try:
            value = float(value.strip().strip('"'))
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def count(value: object) -> int | None:
    """A count: a whole number from 0 to MAX_TOKENS."""
    found = number(value)
    return int(found) if found is not None and 0 <= found <= MAX_TOKENS else None


def status(value: object) -> int | None:
    """An HTTP status: 100 to 999."""
    found = count(value)
    return found if found is not None and 100 <= found < 1000 else None


def resends(value: object) -> int | None:
    """The number of attempts that a number of resends implies."""
    found = count(value)
    return None if found is None else found + 1


def flag(value: object) -> bool | None:
    """true or false, also as the strings "True", "false", "1" and "0"."""
    if isinstance(value, bool):
        return value
    return _FLAGS.get(value.strip().strip('"').lower()) if isinstance(value, str) else None


def streams(value: object) -> bool | None:
    """Whether an operation's name says that it streams (`ai.streamText.doStream`, `ConverseStream`) or answers at once (`ai.generateText.doGenerate`, Bedrock's
    `Converse`); what is put together from chunks (LangChain's `AIMessageChunk`) was streamed."""
    if not isinstance(value, str):
        return None
    lower = value.lower()
    return (
        True
        if "stream" in lower or lower.endswith("chunk")
        else False
        if "generate" in lower or lower in ("converse", "invokemodel")
        else None
    )


def ended(value: object) -> str | None:
    """The word that says how an answer of OpenAI's Responses API ended, if it is one: its status, or that it ends with the call of a tool."""
    return (
        value
        if isinstance(value, str)
        and value
        in ("completed", "incomplete", "failed", "cancelled", "function_call", "custom_tool_call")
        else None
    )


def words(value: object) -> str | None:
    r"""A text; one that is itself JSON of a text (`"\"TOOL\""`) without its quotes; a number or flag printed. Empty is None."""
    if isinstance(value, str):
        text = unquoted(value)
        return text if text and encodable(text) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else None


def unquoted(text: str) -> str:
    """The text without the quotes and escapes of JSON, if it is a JSON string; otherwise as it is."""
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return text
    try:
        inner = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return inner if isinstance(inner, str) and encodable(inner) else text


def first(value: object) -> str | None:
    """The first item of a list, of a JSON list or a printed Python list or tuple in a string, or the text itself."""
    if isinstance(value, str):
        listed = (
            f"[{value[1:-1].rstrip(' ,')}]" if value[:1] == "(" and value[-1:] == ")" else value
        )
        if not listed.startswith("["):
            return value.strip('"') or None
        found = document(listed)
        if found is None:
            return value
        value = found
    item = value[0] if isinstance(value, list) and value else None
    return item if isinstance(item, str) and item and encodable(item) else None


def encodable(text: str) -> bool:
    """Whether a text can be written as UTF-8: JSON can spell halves of characters (`\\ud800`), Arrow and DuckDB cannot hold them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def nanoseconds(value: object, scale: float) -> int | None:
    """A duration from 0 to ten years given in units of `scale` nanoseconds."""
    found = number(value)
    return (
        round(found * scale)
        if found is not None and 0 <= found * scale <= MAX_DURATION_NS
        else None
    )


def seconds(value: object) -> int | None:
    """Seconds as nanoseconds."""
    return nanoseconds(value, 1e9)


def millis(value: object) -> int | None:
    """Milliseconds as nanoseconds."""
    return nanoseconds(value, 1e6)


def duration(value: object) -> int | None:
    """A duration with its unit, as Rust prints it (`1.234567s`, `12.3ms`, `456.7µs`, `80ns`), in nanoseconds; a bare number has no unit."""
    found = _DURATION.fullmatch(value.strip().strip('"')) if isinstance(value, str) else None
    return None if found is None else nanoseconds(found[1], _UNIT_NS[found[2]])


def moment(value: object) -> int | None:
    """An ISO-8601 time (`2026-11-20T10:23:25.503809Z`, also in quotes; without an offset it is UTC), or a number of s, ms, µs or ns since 1970, told by its
    size (from 2001 to 2286), as Unix nanoseconds."""
    text = value.strip().strip('"') if isinstance(value, str) else ""
    if not _MOMENT.fullmatch(text):
        found = number(value) or 0.0
        power = next((power for power in (0, 3, 6, 9) if 1e9 <= found / 10**power < 1e10), None)
        return (
            None
            if power is None
            else round((value if isinstance(value, int) else found) * 10 ** (9 - power))
        )
    fraction = _FRACTION.search(text)
    try:
        whole = datetime.fromisoformat(_FRACTION.sub("", text))
    except ValueError:
        return None
    since = (whole if whole.tzinfo else whole.replace(tzinfo=UTC)) - _EPOCH
    below = int(fraction[1][:9].ljust(9, "0")) if fraction else 0
    found = (since.days * 86_400 + since.seconds) * 10**9 + below
    return found if 0 <= found < 2**63 else None


def since(moment_ns: int | None, start_ns: int) -> int | None:
    """The time from a span's start to a moment; None if the moment lies more than SLACK_NS before it."""
    if moment_ns is None or not -SLACK_NS <= moment_ns - start_ns <= MAX_DURATION_NS:
        return None
    return max(moment_ns - start_ns, 0)


def chat_id(text: object) -> str | None:
    """The id of a chat's answer whose request has this UUID (Dynamo)."""
    return f"chatcmpl-{text}" if isinstance(text, str) and _UUID.fullmatch(text) else None


def given(text: object) -> str | None:
    """A text that is no word for nothing (JSON's `null`, as Logfire writes out what is not there; Micrometer's `none`)."""
    return text if isinstance(text, str) and text.lower() not in ("null", "none") else None


# How a `Field` names its reader -> what reads the value at its path.
BY_NAME: dict[str, Callable[[object], object]] = {
    "text": words,
    "path": words,
    "first": first,
    "int": count,
    "float": number,
    "status": status,
    "resends": resends,
    "seconds": seconds,
    "millis": millis,
    "duration": duration,
    "moment": moment,
    "bool": flag,
    "streams": streams,
    "ended": ended,
    "chat_id": chat_id,
    "given": given,
    "present": lambda value: value is not None or None,
}


# --- one word for one thing ---

_FINISH = {
    "stop": (
        "end_turn",
        "eos",
        "eos_token",
        "stop_sequence",
        "stop_token",
        "complete",
        "completed",
        "endoftext",
    ),
    "length": ("max_tokens", "max_output_tokens", "model_length", "max_length", "incomplete"),
    "tool_calls": ("tool_call", "tool_use", "function_call", "function_calls", "custom_tool_call"),
    "content_filter": (
        "content_filtered",
        "safety",
        "refusal",
        "guardrail_intervened",
        "recitation",
        "prohibited_content",
        "blocklist",
    ),
    "error": ("failed",),
    "abort": ("aborted", "cancelled", "canceled"),
}
_FINISH_OF = {word: reason for reason, words_ in _FINISH.items() for word in (reason, *words_)}
# Which of a provider's interfaces was called (Vercel AI SDK: `openai.chat`) is no part of its name.
_CLASS = re.compile(r"^<class '([^']+)'>$")
_INTERFACE = re.compile(
    r"\.(?:chat|responses?|messages|completions?|embeddings?|generative-ai|image|transcription|speech|reranking|textEmbedding)$"
)


def finish_reason(text: str) -> str:
    """A finish reason in OpenAI's words (stop, length, tool_calls, content_filter); an unknown one as it was sent."""
    word = text.rsplit(".", 1)[-1].lower().replace("-", "_").replace(" ", "_")
    return _FINISH_OF.get(word, text)


def error_type(text: str) -> str:
    """The name of an error's class, also as Python prints the class (Semantic Kernel)."""
    return _CLASS.sub(r"\1", text)


def provider(text: str) -> str:
    """A provider's name in small letters (OpenLLMetry wrote `OpenAI`, as some still do), without the interface that was called."""
    return (_INTERFACE.sub("", text) or text).lower()


# Providers that count a model's thoughts beside the output tokens, but in the total, by their documentation.
_THOUGHTS_BESIDE = ("gcp", "google", "gemini", "vertex", "xai", "x_ai", "x-ai")


def thoughts_apart(provider_name: str | None, rest: int, reasoning: int | None) -> bool:
    """Whether the `rest` of the total, which neither the input nor the output tokens have, is what the model thought."""
    beside = provider_name is not None and provider_name.lower().startswith(_THOUGHTS_BESIDE)
    return rest == reasoning if reasoning is not None else beside


# Providers whose input token count contains the cached ones, by their documentation: a larger cached count there is an error of the sender.
_CACHED_INSIDE = (
    "openai",
    "azure",
    "az.ai",
    "deepseek",
    "gcp",
    "google",
    "vertex",
    "xai",
    "x_ai",
    "x-ai",
    "mistral",
    "groq",
    "vllm",
    "sglang",
)


def cached_apart(provider_name: str | None, input_tokens: int, cached: int, written: int) -> bool:
    """Whether cached tokens stand beside the input tokens instead of in them (Anthropic's own counts): seen from a sum that cannot be a part."""
    inside = provider_name is not None and provider_name.lower().startswith(_CACHED_INSIDE)
    return not inside and cached + written > input_tokens
