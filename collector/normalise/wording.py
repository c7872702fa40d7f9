"""What of a name may be stored? Names of spans, events, metrics, routes, sessions, tenants and attributes are chosen by programs, and some programs put into them
what a person said, an address, a card's number or a token.

A name that programs chose becomes a template (`mail to {email}`, `SELECT users`), or keeps its code words and a hash of the rest. What tells one from another
(a session, a tenant, a model) becomes a hash as a whole, so that two of them stay two. Each distinct text is read once and remembered, in bounded memory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from urllib.parse import unquote_plus

from overrun.collector.process.remember import remembered

# Distinct texts that each function remembers: names of programs repeat, and a flood of distinct ones must not be kept.
_REMEMBERED = 4_096
# Of a longer name so much is read; a name is stored up to half of it (spans.MAX_NAME), so that nothing private is cut in two and missed.
_READ = 512
# So many words of speech in one name are a sentence: the longest names of instrumentations ("executing api route (app) /api/chat") have three or four.
SPEECH_WORDS = 5
# ...and so many are, if one of them is a word with which people speak of themselves or ask.
_ASKING_WORDS = 3
_SLUG_WORDS = 6  # of a path segment: `how-do-i-reset-my-password`


# Between these, no letter or digit touches what was found.
_BEGIN, _END = r"(?<![^\W_])", r"(?![^\W_])"
_EMAIL = re.compile(
    rf"{_BEGIN}[\w.!#$%&'*+=^`|~-]{{1,64}}(?:@|%40)[A-Za-z0-9-]{{1,63}}(?:\.[A-Za-z0-9-]{{1,63}}){{1,8}}"
)
# Starts and shapes of tokens that their issuers publish for scanners (GitHub, Slack, AWS, Google, Stripe, OpenAI, Anthropic, Hugging Face, npm, GitLab), JSON
# Web Tokens (RFC 7519), credentials of HTTP (RFC 9110, 11.4), and assignments that say what they are.
_TOKEN = re.compile(
    rf"{_BEGIN}(?:(?:sk|pk|rk)[-_][\w-]{{16,}}|gh[pousr]_\w{{16,}}|github_pat_\w{{16,}}|glpat-[\w-]{{16,}}|xox[a-z]-[\w-]{{10,}}|A[KS]IA[0-9A-Z]{{16}}"
    r"|AIza[\w-]{30,}|hf_\w{16,}|npm_\w{20,}|eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?|(?i:bearer|basic) [\w+/=.~-]{8,}"
    r"|-----BEGIN [A-Z ]{3,}|(?i:password|passwd|pwd|secret|api[_-]?key|access[_-]?token)\s?[=:]\s?\S{4,})"
)
_DIGITS = rf"{_BEGIN}\d(?:[ -]?\d){{12,18}}{_END}"
_CARD = re.compile(_DIGITS)
_IBAN = re.compile(rf"{_BEGIN}[A-Z]{{2}}\d\d(?: ?[A-Z0-9]{{4}}){{2,7}}(?: ?[A-Z0-9]{{1,4}})?{_END}")
# International, in brackets, in the North American grouping, with a trunk zero; and the United States' social security numbers.
_PHONE = re.compile(
    rf"(?<![\w.-])(?:\+\d{{1,3}}(?:[ ().-]{{0,2}}\d){{6,13}}|\(\d{{2,5}}\)[ -]?\d{{2,4}}[ -]?\d{{2,4}}[ -]?\d{{0,4}}"
    rf"|\d{{3}}[-.]\d{{3}}[-.]\d{{4}}|0\d{{2,4}}[ /-]\d{{3,4}}[ -]?\d{{2,8}}|\d{{3}}-\d{{2}}-\d{{4}}){_END}(?![-.]\d)"
)
_USER_INFO = re.compile(r"(?<=://)[^/@\s]*@")
_URL_QUERY = re.compile(r"(://[^\s?#]*)[?#]\S*")


def _is_card(digits: str) -> bool:
    """Whether these are a payment card's number: its issuer's first digit and its check digit (ISO/IEC 7812)."""
    found = [int(d) for d in digits if d.isdigit()]
    doubled = (d * 2 - 9 * (d > 4) if i % 2 else d for i, d in enumerate(reversed(found)))
    return found[0] in (2, 3, 4, 5, 6) and sum(doubled) % 10 == 0


def _is_iban(text: str) -> bool:
    """Whether this is a bank account's number, by its check digits (ISO 13616)."""
    bare = text.replace(" ", "")
    return int("".join(str(int(c, 36)) for c in bare[4:] + bare[:4])) % 97 == 1


def _always(_: str) -> bool:
    return True


_PRIVATE: tuple[tuple[str, re.Pattern[str], Callable[[str], bool]], ...] = (
    ("{token}", _TOKEN, _always),
    ("{email}", _EMAIL, _always),
    ("{account}", _IBAN, _is_iban),
    ("{card}", _CARD, _is_card),
    ("{phone}", _PHONE, _always),
)


def without_private(text: str) -> str:
    """The text with a word in place of each e-mail address, phone number, card, account and token, and URLs without user info and query."""
    if "://" in text:
        text = _URL_QUERY.sub(r"\1", _USER_INFO.sub("", text))
    for word, pattern, check in _PRIVATE:
        text = pattern.sub(
            lambda m, word=word, check=check: word if check(m[0]) else m[0],  # type: ignore[misc]
            text,
        )
    return text


def _holds_private(text: str) -> bool:
    return _USER_INFO.search(text) is not None or any(
        check(m[0]) for _, pattern, check in _PRIVATE for m in pattern.finditer(text)
    )


@remembered(_REMEMBERED)
def is_private(text: str) -> bool:
    """Whether the text has an e-mail address, phone number, card, account, token or a URL with a user in it, as it is or percent-encoded."""
    return _holds_private(text) or ("%" in text and _holds_private(unquote_plus(text)))


# --- speech ---

# A word of speech: letters, with an apostrophe or a hyphen between them. `RunnableSequence`, `get_weather` and `gpt-4o` are none.
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_CODE_WORD = re.compile(r"[a-z][A-Z]")
_AROUND = ".,;:!?\"'…«»“”¿¡"
# Words with which people speak of themselves, ask and beg, in languages whose words are not names of programs' parts.
_ASKING_TEXT = (
    "i i'm me my mine myself we our you your yours he she his her their they what what's how why who whose where please want need tell should could would am"
    " ich mir mich mein meine meinen meiner du dein deine wir unser unsere wie was warum wer bitte kann möchte"
    " je j'ai moi nous vous votre quel quelle pourquoi qui puis"
    " yo mis qué cómo quién quiero puedo necesito mio mia perché voglio meu minha você quem quero preciso"
)
_ASKING = frozenset(_ASKING_TEXT.split())
# Letters of scripts that put no spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese.
UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]{12,}"
)


def _is_word(part: str) -> bool:
    return _WORD.fullmatch(part) is not None and _CODE_WORD.search(part) is None


@remembered(_REMEMBERED)
def is_speech(text: str) -> bool:
    """Whether a name reads like something that somebody said: five words, three of which one asks or speaks of the speaker, or a question."""
    if UNSPACED.search(text) or "\n" in text.strip():
        return True
    words = [word for part in text.split() if _is_word(word := part.strip(_AROUND))]
    if len(words) >= SPEECH_WORDS:
        return True
    asks = any(word.lower().replace("’", "'") in _ASKING for word in words)
    return (len(words) >= _ASKING_WORDS and asks) or (
        len(words) > 1 and text.rstrip().endswith(("?", "？"))
    )


# --- what is stored ---


def redacted(text: str, salt: bytes = b"") -> str:
    """What is kept of a text: its length and a hash with the store's `salt`, so that equal texts can still be told to be equal."""
    digest = hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"), digest_size=8, key=salt
    ).hexdigest()
    return f"[text: {len(text)} characters, {digest}]"


_SQL = re.compile(
    r"\s*(SELECT|INSERT|UPDATE|DELETE|MERGE|UPSERT|REPLACE|WITH|CREATE|ALTER|DROP|CALL|EXEC(?:UTE)?|SHOW|TRUNCATE)\b",
    re.IGNORECASE,
)
_SQL_PART = re.compile(r"\b(?:FROM|INTO|UPDATE|JOIN|TABLE|CALL|SET|VALUES|WHERE)\b", re.IGNORECASE)
_SQL_TABLE = re.compile(
    r"\b(?:FROM|INTO|UPDATE|JOIN|TABLE|CALL)\s+[`\"\[]?([A-Za-z_][\w$.]*)", re.IGNORECASE
)
_PATH = re.compile(r"\S*/\S*")
_ID = re.compile(r"\d{6,}|[0-9a-fA-F]{16,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# What a span's name may begin with before somebody's words: a word of code, a method, or an operation of the conventions.
_CODE = re.compile(r"\w+[_./:{][\w./:{}]*|/\S*|GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS")
_OPERATIONS = frozenset(
    {"chat", "embeddings", "tool", "agent", "task", "step", "call", "chain", "llm"}
)


def _segment(part: str) -> str:
    said = unquote_plus(part)
    if (
        said.count(" ") >= 2
        or len([w for w in re.split(r"[-_ ]", said) if w.isalpha()]) >= _SLUG_WORDS
        or is_private(said)
        or is_speech(said)
    ):
        return "{text}"
    return part


@remembered(_REMEMBERED)
def address(url: str) -> str:
    """A path or URL with a word in place of each segment that is a text or private; without user info, query and parameters."""
    bare = re.split(r"[?#;]", _USER_INFO.sub("", url), maxsplit=1)[0]
    scheme, slashes, rest = bare.partition("://")
    host, sep, path = rest.partition("/") if slashes else ("", "", scheme)
    kept = "/".join(part if "{" in part else _segment(part) for part in path.split("/"))
    return f"{scheme}://{host}{sep}{kept}" if slashes else kept


@remembered(_REMEMBERED)
def route(path: str) -> str:
    """As `address`, with `{id}` in place of each segment that is a number or a hash: requests to one route are counted together."""
    return "/".join("{id}" if _ID.fullmatch(part) else part for part in address(path).split("/"))


def _statement(text: str) -> str | None:
    """A statement of SQL as its verb and its first table, as the database conventions summarise it; None if it is none."""
    verb = _SQL.match(text)
    if verb is None or not _SQL_PART.search(text) or " " not in text.strip():
        return None
    table = _SQL_TABLE.search(text)
    short = f"{verb[1].upper()} {table[1]}" if table else verb[1].upper()
    return text if len(text.split()) <= 3 and not re.search(r"['\"]", text) else short


# What `redacted` made, which is read again where one name is made of another.
_REDACTED = re.compile(r"\[text: \d+ characters, [0-9a-f]{16}\](?:\.task)?")


def _is_document(text: str) -> bool:
    return (
        text.lstrip().startswith(("{", "[")) and ":" in text and _REDACTED.fullmatch(text) is None
    )


@remembered(_REMEMBERED)
def name(text: str, salt: bytes = b"") -> str:
    """A name that a program chose (of a span, event, metric, scope, service or attribute), as it may be stored."""
    text = text[:_READ]
    if _is_document(text):
        return redacted(text, salt)
    statement = _statement(text)
    if statement is not None:
        return without_private(statement)
    out = _PATH.sub(lambda m: route(m[0]), text) if "/" in text else text
    out = without_private(out)
    if not is_speech(out):
        return out
    parts, head = out.split(" "), 0
    while head < len(parts) and _CODE.fullmatch(parts[head]):
        head += 1
    if not head and parts[0].strip(_AROUND) in _OPERATIONS:
        head = 1
    return " ".join([*parts[:head], redacted(" ".join(parts[head:]), salt)])


@remembered(_REMEMBERED)
def identity(text: str, salt: bytes = b"") -> str:
    """What tells one session, tenant, model or instance from another, as it may be stored: a hash of what reads like a text or is private."""
    said = unquote_plus(text) if "%" in text or "+" in text else text
    if is_private(text) or is_speech(text) or is_speech(said) or _is_document(text):
        return redacted(text, salt)
    return text
