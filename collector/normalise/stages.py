"""Which stage of the request does a span belong to? Codes of stages and roles, and the rules that classify a span, first hit wins.

`classify` works on columns: attribute rules are looked up per distinct key (and value), name rules per distinct (scope, name) of the batch.
Order: our own attribute; folded spans; engines and their phases; attributes; the name; the span's kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from overrun.collector.dialects import Dialect, Mark, SpanName, load
from overrun.collector.normalise import search_urls
from overrun.collector.normalise.readers import unquoted
from overrun.collector.normalise.word_lists import words
from overrun.collector.process.remember import remembered

T = TypeVar("T")

STAGES = (
    *("network", "gateway", "retrieval", "prompt", "guardrail", "queue", "kv_transfer", "prefill"),
    *("decode", "tool", "post", "wait_user", "other", "first_token", "generation"),
)
# plain: its own time is its stage's. container: only time that no child covers, and that is `other`. llm: a model call seen by its client.
# engine: a request seen by the inference server. phase: a part of an engine request, or a step to a connection. folded: no stage, children move to its parent.
# write: a database write, `post` wherever it stands: what a request stores is no part of what it looks up.
# turn: a container that is a request in the trace of a session. model_request: a client's request to a model over HTTP or RPC, which is a call where no span
# of a call encloses or repeats it. Of both assembly decides.
ROLES = ("plain", "container", "llm", "engine", "phase", "folded", "write", "model_request", "turn")
STAGE = {name: code for code, name in enumerate(STAGES)}
ROLE = {name: code for code, name in enumerate(ROLES)}
MODEL_ROLES = pa.array([ROLE["llm"], ROLE["engine"]], pa.uint8())
MODEL_STAGES = ("queue", "kv_transfer", "prefill", "decode", "first_token", "generation")

# The lower the rank, the earlier the rule is asked. RANK_NAME is of names that a vocabulary knows, RANK_WORD of words in any.
(
    RANK_OWN,
    RANK_FOLDED,
    RANK_ENGINE,
    RANK_PHASE,
    RANK_ATTRIBUTE,
    RANK_KIND_WORD,
    RANK_NAME,
    RANK_WORD,
    RANK_KIND,
) = 5, 10, 20, 30, 40, 55, 60, 62, 80
# Within attributes: what names the operation outright comes before what only hints at the protocol.
_STAGE_ORDER = {"guardrail": 0, "tool": 1, "retrieval": 3, "generation": 2, "post": 4, "other": 5}

# Whole words only: `postgres` is not post, an insurance policy is not a policy check.
_WORD_RULES = (
    (
        "guardrail",
        r"guard|guardrails?|moderat(?:e|ion)|safety|pii|jailbreak|policy_check|content_filter",
    ),
    ("wait_user", r"wait_user|human_approval|human_in_the_loop|await_user|wait_for_user"),
    (
        "retrieval",
        r"retriev(?:e|al|er)|rerank(?:er|ing)?|vector|vector_search|search|embed(?:ding|dings)?|fetch_docs|similarity_search|knn",
    ),
    ("prompt", r"prompt|template|tokeni[sz]e|render|format_messages|build_prompt"),
    (
        "queue",
        r"queue|queued|wait|waiting|admission|backoff|retry[ _.-]sleep|semaphore|throttle|rate[ _-]?limit(?:er|ing)?",
    ),
    (
        "post",
        r"post|post_?process(?:ing)?|parser?|citations?|persist|serialization|evaluat(?:e|ion|or)|stream_to_client|output|format(?:ting|ter)?",
    ),
    ("tool", r"tool|tools|tool_call|function_call"),
)
_WORDS = tuple(
    (stage, re.compile(rf"(?:^|[^a-z0-9])(?:{pattern})(?:$|[^a-z0-9])", re.IGNORECASE))
    for stage, pattern in _WORD_RULES
)
# `StrOutputParser` is three words. Tools are not looked for in them: a `ToolNode` runs tools and is none.
_WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Ways to a connection (Go's otelhttptrace, Node's dns and net, Java's Netty, .NET's sockets with the peer behind the name), which precede the first byte; what
# else in otelhttptrace is the exchange itself.
_HANDSHAKES = re.compile(
    r"http\.(?:getconn|dns|connect|tls)|dns\.lookup|t(?:cp|ls)\.connect|RESOLVE|CONNECT|SSL handshake"
    r"|(?:DNS lookup|socket connect|TLS client handshake)(?: \S+)?"
)
_EXCHANGE = re.compile(r"http\.(?:send|headers|receive)")
_HTTP_NOISE = re.compile(r"(?:\S+ ){0,3}(?:http|websocket) (?:send|receive)")
# A route named after its method (`POST /chat`, Next.js' `fetch POST https://...`) shows nothing about the stage. In small letters (Spring's `http post`, Brave's
# `post /chat`) a verb is one where it stands after `http` or before a path.
_VERBS = "GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|TRACE|CONNECT"
_HTTP_METHOD = re.compile(
    rf"(?:fetch |HTTP )?(?:{_VERBS}|HTTP)(?:\s|$)|(?i:http (?:{_VERBS})(?:\s|$)|(?:{_VERBS}) (?:/|\S+://))"
)
_WRITE_VERBS = words("write_verbs")


@dataclass(frozen=True, slots=True)
class StageVote:
    """One rule's verdict on a span: the lowest rank wins."""

    rank: int
    role: int
    stage: int


def _vote(rank: int, role: str, stage: str) -> StageVote:
    return StageVote(rank, ROLE[role], STAGE[stage])


CONTAINER = _vote(RANK_KIND + 5, "container", "other")
NETWORK = _vote(RANK_KIND, "plain", "network")
# What seemed a model call, and the server's span that was given one's values, where the answer came out of a cache of answers: no model worked.
STORED_ANSWER, SERVED_STORED = (
    _vote(RANK_ATTRIBUTE - 1, "plain", "gateway"),
    _vote(RANK_ATTRIBUTE - 1, "container", "other"),
)
# Whose names are those of topics, queues and jobs: their words show nothing of what is done (`publish search-jobs`, AutoGen's `output_topic`).
MESSAGING_KEYS = ("messaging.system", "messaging.destination.name", "messaging.destination")
# Attributes that hold a statement or its first word: writing or reading.
_VALUE_KEYS = (
    "db.operation.name",
    "db.operation",
    "db.statement",
    "db.query.text",
    "db.query.summary",
)
# What tools put before a statement for readers of the database's log.
_SQL_COMMENT = re.compile(r"(?:\s|/\*.*?\*/|--[^\n]*\n)+", re.DOTALL)
_NETWORK_KEYS = frozenset(
    {"http.request.method", "http.method", "url.full", "http.url", "rpc.system", "rpc.system.name"}
)
# What only spans of HTTP have, and beside what: the conventions, old and new, which Brave, Envoy, AWS X-Ray and Datadog share in parts; Micrometer's (Spring)
# are common words, so two of them are wanted.
HTTP_KEYS = (
    *(
        (key, "")
        for key in (
            "http.request.method",
            "http.method",
            "url.full",
            "http.url",
            "http.path",
            "http.target",
            "http.route",
            "http.status_code",
            "http.response.status_code",
        )
    ),
    ("uri", "outcome"),
)
# Words for what a process does itself, not for what it asks for over HTTP: there they are of the verb (`axios.post`) or of somebody else's path.
OWN_WORK = frozenset({"post", "prompt", "queue"})
# What a client asked of models that make no text, over plain HTTP: the last part of the path (OpenAI, Cohere, Jina, Voyage, Ollama, text-embeddings-inference;
# Gemini's methods; Bedrock's models by their names).
URL_KEYS = ("url.full", "http.url", "url.path", "http.target", "http.path", "uri")
_FINDS = r"/(?:re-?rank(?:ing)?|embed(?:dings?|_all|_sparse)?)|:(?:batchE|e)mbedContents?|/model/[^/?#]*(?:embed|rerank)[^/?#]*/invoke"
MODEL_PATHS = rf"^[^?#]*(?:{_FINDS}|/moderations)/?(?:[?#]|$)"

# What a span is, in the words that platforms share, under any key (`lmnr.span.type`, `agentops.span.kind`): a vocabulary that names it comes first.
_KIND_KEY = re.compile(
    r"(?:.*[._:])?(?:span|observation|run|step)[._]?(?:kind|type)", re.IGNORECASE
)
_KINDS = {
    word: (role, stage)
    for role, stage, words in (
        ("llm", "generation", ("llm", "generation", "chat_model", "llm_call", "model_call")),
        ("plain", "tool", ("tool", "tool_call", "mcp_tool_call", "function_call")),
        ("plain", "guardrail", ("guardrail", "guardrails", "moderation")),
        (
            "plain",
            "retrieval",
            (
                "retriever",
                "retrieval",
                "embedding",
                "embeddings",
                "reranker",
                "rerank",
                "reranking",
            ),
        ),
        ("plain", "prompt", ("prompt", "prompt_template")),
        ("plain", "post", ("evaluator", "evaluation", "parser")),
        ("container", "other", ("agent", "chain", "workflow", "task", "session", "step", "entry")),
    )
    for word in words
}

_own: Dialect | None = None
_derived: list[Callable[[], None]] = []


def derived(function: Callable[..., T], maxsize: int = 65_536) -> Callable[..., T]:
    """`function` with its results remembered (process/remember.py), for what follows from the vocabularies: they are forgotten when these change."""
    cached: Any = remembered(maxsize)(function)
    _derived.append(cached.cache_clear)
    return cached  # type: ignore[no-any-return]


def learn(own: Dialect | None) -> None:
    """Make the operator's own vocabulary the first one; None for none. It holds for the whole process, as the settings do."""
    global _own
    if own != _own:
        _own = own
        for forget in _derived:
            forget()


@derived
def dialects() -> tuple[Dialect, ...]:
    """Every vocabulary, in order of precedence."""
    return (*((_own,) if _own else ()), *load())


def fold(key: str) -> str:
    """A key in one spelling: exporters turn dots into underscores or colons."""
    return key.replace(":", ".").replace("_", ".")


@derived
def _spelled() -> dict[str, str]:
    """Spelling -> known attribute key; a key is its own spelling before it is another's (the key of stored answers is another's first)."""
    keys = [f.key for d in dialects() for f in d.fields] + [
        m.key for d in dialects() for m in d.marks
    ]
    keys += [f.key for d in dialects() for f in d.event_fields]
    keys += [
        beside
        for d in dialects()
        for beside in (*(f.beside for f in d.fields), *(m.beside for m in d.marks))
        if beside
    ]
    keys += [key for d in dialects() for key in (*d.answers, *(key for key, _ in d.failures))]
    stored = [key for d in dialects() for one in d.stored_answers for key, *_ in one]
    out = {fold(key): key for key in reversed([*keys, *stored, *_VALUE_KEYS, *_NETWORK_KEYS])}
    return out | {key: key for key in keys}


@derived
def known_name(key: str) -> str:
    """The known attribute key that `key` is a spelling of (`gen_ai_usage_input_tokens`); itself if it is none."""
    known = _spelled()
    return key if key in known and known[key] == key else known.get(fold(key), key)


def mark_rank(mark: Mark) -> int:
    """Where in the order a mark stands; folded before engine before phase before the rest."""
    if mark.strong:
        return RANK_OWN
    if mark.client:
        return RANK_WORD - 1
    if mark.weak:
        return RANK_NAME + (10 if mark.role == "llm" else 5)
    by_role = {
        "folded": RANK_FOLDED,
        "engine": RANK_ENGINE,
        "phase": RANK_PHASE,
        "write": RANK_ATTRIBUTE,
    }
    return by_role.get(
        mark.role,
        RANK_ATTRIBUTE
        + 2 * _STAGE_ORDER.get(mark.stage, 3)
        + (0 if mark.values or mark.pattern else 1),
    )


@derived
def marks_by_key() -> dict[str, tuple[Mark, ...]]:
    """Attribute key -> the marks that look at it."""
    out: dict[str, tuple[Mark, ...]] = {}
    for dialect in dialects():
        for mark in dialect.marks:
            out[mark.key] = (*out.get(mark.key, ()), mark)
    return out


def of_key(key: str) -> list[tuple[StageVote, Mark]]:
    """The stage that the mere presence of an attribute means, and its marks with their conditions."""
    return [
        (_vote(mark_rank(m), m.role, m.stage), m)
        for m in marks_by_key().get(known_name(key), ())
        if not m.values and not m.pattern
    ]


def of_value(key: str, value: str) -> StageVote | None:
    """The stage that an attribute's value means; `overrun.stage` beats every other rule."""
    key, value = known_name(key), unquoted(value)
    if key == "overrun.stage":
        return StageVote(0, ROLE["plain"], STAGE[value]) if value in STAGE else None
    if key in _VALUE_KEYS:
        comment = _SQL_COMMENT.match(value)
        words = value[comment.end() if comment else 0 :].split(None, 1)
        verb = words[0].lower() if words else ""
        # `create_collection` is OpenLIT's.
        return (
            _vote(RANK_ATTRIBUTE, "write", "post")
            if verb in _WRITE_VERBS or verb.partition("_")[0] in _WRITE_VERBS
            else None
        )
    said = [
        m
        for m in marks_by_key().get(key, ())
        if value in m.values
        or value.upper() in m.values
        or (m.pattern and re.fullmatch(m.pattern, value))
    ]
    found = [_vote(mark_rank(m), m.role, m.stage) for m in said]
    if not found and names_kind(key) and (kind := _KINDS.get(value.lower().replace("-", "_"))):
        return _vote(RANK_KIND_WORD if kind[0] != "container" else RANK_NAME + 5, *kind)
    return min(found, key=lambda v: v.rank) if found else None


def names_kind(key: str) -> bool:
    """Whether an attribute of any platform names the kind of its span, by its key."""
    return _KIND_KEY.fullmatch(key) is not None


@derived
def value_keys() -> frozenset[str]:
    """Attribute keys whose values a rule looks at."""
    with_values = {
        key for key, marks in marks_by_key().items() if any(m.values or m.pattern for m in marks)
    }
    return frozenset(with_values | {"overrun.stage", *_VALUE_KEYS})


@derived
def tells_by_value(key: str) -> bool:
    """Whether a rule looks at the values of an attribute."""
    return known_name(key) in value_keys() or names_kind(key)


@derived
def _span_names() -> tuple[tuple[SpanName, re.Pattern[str]], ...]:
    return tuple(
        (rule, re.compile(rule.pattern)) for dialect in dialects() for rule in dialect.names
    )


@derived
def of_name(scope: str, name: str) -> StageVote | None:
    """The stage by scope and name: an engine's own span names first, then whole words of the field."""
    for rule, pattern in _span_names():
        # A scope rule holds for the scope itself and what is below it (`vllm` covers `vllm.tracing.otel`).
        if (
            not rule.scope or scope == rule.scope or scope.startswith(rule.scope + ".")
        ) and pattern.fullmatch(name):
            ranks = {
                "folded": RANK_FOLDED,
                "engine": RANK_ENGINE,
                "phase": RANK_PHASE,
                "write": RANK_ATTRIBUTE,
            }
            return _vote(
                RANK_OWN if rule.strong else ranks.get(rule.role, RANK_NAME), rule.role, rule.stage
            )
    if _HTTP_NOISE.fullmatch(name) or _EXCHANGE.fullmatch(name) or name == "raw_gen_ai_request":
        return _vote(RANK_FOLDED, "folded", "other")
    if _HANDSHAKES.fullmatch(name):
        return _vote(RANK_NAME, "phase", "network")
    parted = _WORD_BEGINS.sub("_", name)
    for stage, named in () if _HTTP_METHOD.match(name) else _WORDS:
        if named.search(name if stage == "tool" else parted):
            return _vote(RANK_WORD, "plain", stage)
    return None


def of_url(url: str) -> StageVote:
    """The stage of a client's span by a URL that contains one of MODEL_PATHS."""
    return _vote(
        RANK_NAME,
        "plain",
        "guardrail" if re.match(r"[^?#]*/moderations/?(?:[?#]|$)", url) else "retrieval",
    )


# The URL of a client's request: the pattern that it matches, and the verdict. A write is known by more of its path than a search.
URL_RULES = (
    (search_urls.WRITE_PATHS, _vote(RANK_NAME - 2, "write", "post")),
    (search_urls.SEARCH_PATHS, _vote(RANK_NAME - 1, "plain", "retrieval")),
)
MODEL_REQUEST = _vote(RANK_NAME, "model_request", "network")
MODEL_CHECK = _vote(RANK_NAME, "plain", "guardrail")
# The verdict by its host, if nothing else gives one.
SEARCH_HOST = _vote(RANK_NAME + 1, "plain", "retrieval")


def is_network_key(key: str) -> bool:
    """Whether a client span with this attribute is a call over the network."""
    return known_name(key) in _NETWORK_KEYS


@derived
def names_tasks(scope: str) -> bool:
    """Whether spans of this scope are named after what somebody wrote that is to be done."""
    return any(scope == s or scope.startswith(s + ".") for d in dialects() for s in d.names_tasks)


@derived
def wrappers() -> tuple[tuple[str, str], ...]:
    """(scope, span name) of a client wrapper's spans under the scope of a framework's instrumentation."""
    return tuple(wrapper for dialect in dialects() for wrapper in dialect.wrappers)


@derived
def dialect_of(key: str) -> tuple[int, int] | None:
    """(precedence, index in `dialects()`) of the vocabulary that an attribute key belongs to: the longest matching prefix."""
    key = known_name(key)
    found = [
        (len(prefix), d.precedence, i)
        for i, d in enumerate(dialects())
        for prefix in d.prefixes
        if key.startswith(prefix)
    ]
    return max(found)[1:] if found else None


@derived
def dialect_of_scope(scope: str) -> int:
    """Index in `dialects()` of the vocabulary that an instrumentation scope belongs to; -1 if none claims it."""
    claims = [
        i
        for i, d in enumerate(dialects())
        for s in d.scopes
        if scope == s or scope.startswith(s + ".")
    ]
    return claims[0] if claims else -1
