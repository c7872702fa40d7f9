"""What of an attribute may be stored? Prompt and completion text is dropped, unknown text that is long or a sentence keeps only length and hash,
URLs lose their query.

The decision is made per attribute key, so it costs nothing per span; only values that are really replaced are touched one by one.
"""

from __future__ import annotations

import functools
import hashlib
import re

from overrun.collector.normalise import wording
from overrun.collector.normalise.limits import MAX_KEY
from overrun.collector.normalise.stages import derived, dialects, fold
from overrun.collector.normalise.word_lists import words
from overrun.collector.normalise.wording import redacted
from overrun.collector.process.remember import remembered

KEEP, STRIP_QUERY, REDACT, DROP, MEASURE = range(5)

# Unknown text up to this length is kept: the longest identifiers (ARNs, image digests) fit, a prompt rarely does.
MAX_UNKNOWN_TEXT = 128
BLOB_STARTS = ("{", "[", '"', " ", "\t", "\r", "\n")
# Unknown text with this many spaces is a sentence; names of processors and systems have up to three.
SENTENCE_SPACES = 4
# ...and with this many it may be something that somebody said (wording.is_speech).
LOOKED_AT_SPACES = 2
# What is on this list may be longer, and may have as many words as it likes, but for types of errors: some senders put a message there.
_LONG_ALLOWED = frozenset(
    {
        "user_agent.original",
        "http.user_agent",
        "service.name",
        "exception.type",
        "error.type",
        "code.function.name",
        "host.cpu.model.name",
        "modelName",
        "thread.name",
        "thread_label",
    }
)
_URL_KEYS = frozenset(
    {
        "url.full",
        "http.url",
        "http.target",
        "url.path",
        "http.request.url",
        "server.url",
        "url",
        "http.referer",
        "http.referrer",
        "mcp.resource.uri",
        "http.request.header.referer",
        "http.request.header.origin",
        "http.response.header.location",
    }
)
# A key one of whose words is one of these carries text that a person or a model wrote.
_TEXT_WORDS = words("text_words")
# ...and these where they stand last: `tool_response` is a text, `gen_ai.response.model` is none.
_TEXT_ENDS = frozenset(
    {
        "response",
        "request",
        "preview",
        "data",
        "argument",
        "params",
        "parameters",
        "variables",
        "locals",
        "filter",
        "goal",
        "context",
        "evidence",
        "conversation",
        "speech",
        "subtitles",
        "memo",
        "remark",
        "remarks",
        "complaint",
        "html",
        "markdown",
        "sms",
        "sql",
        "cypher",
        "command",
        "json",
        "return",
        "error",
    }
)
_VALUES = ("value", "values")
# Keys that carry such text although none of their words reports it.
_TEXT_KEYS = frozenset(
    {
        "ai.value",
        "ai.values",
        "ai.response.object",
        "ai.response.toolCalls",
        "ai.response.providerMetadata",
        "process.command_line",
        "gen_ai.choice",
        "llm.function_call",
        "mcp.response.value",
        "graphql.source",
        "graphql.document",
        "aws.lambda.event",
        "exception.cause",
        "return_value",
        "guardrail.reason",
        "events",
    }
)
# What is bound to a query, one key a parameter.
_TEXT_STARTS = ("db.query.parameter.", "db.operation.parameter.")
# Where somebody is, as good as a name.
_PERSONAL = frozenset(
    {
        "client.address",
        "client.socket.address",
        "http.client_ip",
        "enduser.pseudo.id",
        "http.request.header.x-forwarded-for",
    }
)
# Keys that carry what opens doors: never stored, from any sender (captured request headers, most of all).
_SECRETS = re.compile(
    r"(?:authorization|cookie|password|passwd|secret|api[-_]?key|credential|private[-_]?key|access[-_]?token|auth[-_]?token)s?$",
    re.IGNORECASE,
)
# ...unless it is a number or a name about such text.
_NOT_TEXT = re.compile(
    r"(?:^|_)(?:tokens?|count|length|size|type|kind|hash|id|ids|name|names|mime_type|format|role|version|ms|s|chunks?|ratio|price|cost|effort|limit|remaining|reset)$"
)
# What the text of messages, prompts and answers is spread under, a key each.
_TEXT_TREES = (
    "gen_ai.prompt.",
    "gen_ai.completion.",
    "llm.input_messages.",
    "llm.output_messages.",
    "mlflow.span",
)
_SEGMENTS = re.compile(r"[._\-/:\[\] ]+|(?<=[a-z])(?=[A-Z])")


@derived
def action(key: str) -> int:
    """What happens to the text under an attribute key: KEEP (up to MAX_UNKNOWN_TEXT), STRIP_QUERY, REDACT (length and hash) or DROP."""
    if (
        len(key) > MAX_KEY
    ):  # under which nothing is stored, so that none of its words need be looked at
        return DROP
    spelled = _spelled(key)
    if spelled in _folded(_URL_KEYS):
        return STRIP_QUERY
    if (
        spelled in _text_keys()
        or spelled.startswith(tuple(_folded(_TEXT_TREES)))
        or _SECRETS.search(key)
    ):
        return DROP
    words = _words(re.sub(r"(?:[._\-\[\]]+\d+)+\]?$", "", key))  # `argument.0` is an argument
    # `parameters.city.value` (google-genai's functions) is what `parameters` are.
    said = words and (
        words[-1] in _TEXT_ENDS
        or any(w in _TEXT_WORDS for w in words)
        or (words[-1] in _VALUES and not _TEXT_ENDS.isdisjoint(words))
    )
    if (
        spelled in _folded(_TEXT_KEYS)
        or spelled.startswith(tuple(_folded(_TEXT_STARTS)))
        or (said and not _NOT_TEXT.search(words[-1]))
    ):
        return REDACT
    return KEEP


def _spelled(key: str) -> str:
    """A key in one spelling: exporters turn dots into underscores or colons, and write it in capitals."""
    return fold(key).lower()


@functools.cache
def _folded(keys: frozenset[str] | tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(_spelled, keys))


def _words(key: str) -> list[str]:
    """The words of a key in lower case, whichever way it is spelled: `spanInputs` is `span`, `inputs`."""
    return [w.lower() for w in _SEGMENTS.split(key) if w]


@derived
def is_user(key: str) -> bool:
    """Whether an attribute names a person: a known user id, or one of a sender whose vocabulary is not known (`metadata.userId`)."""
    if len(key) > MAX_KEY:
        return False
    words = _words(key)
    if _spelled(key) in _user_keys() | _folded(_PERSONAL) or words[-1:] in (
        ["user"],
        ["userid"],
        ["username"],
        ["email"],
        ["phone"],
    ):
        return True
    if (words[-1:] == ["number"] and "phone" in words) or (
        words[-1:] == ["address"] and "email" in words
    ):
        return True
    return (
        words[-1:] in (["id"], ["name"])
        and not _PEOPLE.isdisjoint(words[:-1])
        and "agent" not in words
    )


_PEOPLE = frozenset({"user", "enduser", "patient", "customer", "person"})


@derived
def _user_keys() -> frozenset[str]:
    return frozenset(
        _spelled(f.key) for dialect in dialects() for f in dialect.fields if f.column == "user_hash"
    )


# A key inside a JSON text or a printed Python dict, escaped or not, that has a text, list or object as its value. Its end is looked for so far: a long word
# would be read again from each of its letters.
_INNER_KEYS = re.compile(r"""([A-Za-z_][\w.\-]{0,200})\\*["']\s*:\s*\\*["'\[{]""")


@derived
def holds_text(blob: str) -> bool:
    """Whether a short JSON text under an innocent key carries people's words inside: `{"prompt": "..."}`."""
    return any(action(key) in (REDACT, DROP) or is_user(key) for key in _INNER_KEYS.findall(blob))


@derived
def _text_keys() -> frozenset[str]:
    return frozenset(_spelled(key) for dialect in dialects() for key in dialect.text_keys)


# Inside a document: words in a row behind a quotation mark, each beginning with a letter.
_QUOTED_SENTENCE = re.compile(r"""["'][^"']*(?: +[^\W\d][^"' ]*){4}""")


def is_sentence(text: str) -> bool:
    """Whether a short text is a sentence, and no name, code or list of them."""
    document = text.startswith(("{", "[", '"'))
    said = (
        _QUOTED_SENTENCE.search(text) is not None
        if document
        else text.strip().count(" ") >= SENTENCE_SPACES
    )
    return said or wording.UNSPACED.search(text) is not None


@remembered(8_192)
def allows_long(key: str) -> bool:
    """Whether text under this key may be longer than MAX_UNKNOWN_TEXT."""
    return key in _LONG_ALLOWED or (len(key) <= MAX_KEY and _words(key)[-2:] == ["user", "agent"])


@remembered(8_192)
def allows_words(key: str) -> bool:
    """Whether text under this key may be a sentence."""
    return allows_long(key) and not key.endswith("type")


def without_task(name: str, hash_key: bytes = b"") -> str:
    """A span's name without the description of the task that it is named after: what is left of a text, and the kind."""
    text, _, kind = name.rpartition(".")
    return f"{redacted(text, hash_key)}.{kind}" if kind == "task" else name


def without_query(url: str) -> str:
    """A URL or path without user info, query and fragment: people's words travel there."""
    bare = re.split(r"[?#]", url, maxsplit=1)[0]
    return re.sub(r"(?<=://)[^/@]*@", "", bare)


def is_said(key: str, text: str, keep_long: frozenset[str] = frozenset()) -> bool:
    """Whether a text under a key that nobody knows is somebody's words, or private. Under the keys of `keep_long` the operator wants it."""
    if key in keep_long:
        return False
    if allows_words(key):  # `Mozilla/5.0 (X11; Linux x86_64)`
        return wording.is_private(text) or ("/" not in text and wording.is_speech(text))
    return is_sentence(text) or wording.is_private(text) or wording.is_speech(text)


@remembered(8_192)
def user_hash(user: str, salt: bytes) -> str:
    """A user id as 16 hex digits of salted BLAKE2b: equal users stay equal within one store, and they cannot be listed."""
    return hashlib.blake2b(
        user.encode("utf-8", "surrogatepass"), digest_size=8, key=salt
    ).hexdigest()


def clean(
    key: str,
    value: str,
    *,
    store_text: bool,
    salt: bytes | None,
    keep_long: frozenset[str] = frozenset(),
    hash_key: bytes = b"",
) -> str | None:
    """One attribute as it may be stored; None if not at all. User ids are hashed with `salt` unless it is None, texts with `hash_key`.

    For resources, scopes and metrics; span columns go the vectorised way (normalise/spans.py).
    """
    if salt is not None and is_user(key) and value:
        return user_hash(value, salt)
    if store_text:
        return value
    what = action(key)
    if what == DROP:
        return None
    if what == STRIP_QUERY:
        value = wording.address(without_query(value))
    long = len(value) > MAX_UNKNOWN_TEXT and not (key in keep_long or allows_long(key))
    said = is_said(key, value, keep_long)
    if what == REDACT or long or said or (value.startswith(BLOB_STARTS) and holds_text(value)):
        return redacted(value, hash_key)
    return value
