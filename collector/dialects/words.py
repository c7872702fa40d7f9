"""What a vocabulary is: its fields, marks, names of spans and metrics, as the files of this folder and a user's settings make them (reading.py)."""

from __future__ import annotations

from dataclasses import dataclass

# How a value is read (collector/normalise/readers.py). `first` is the first item of an array, of a JSON array in a string, or the value itself; `path` a URL
# path; `duration` carries its unit, as Rust prints it; `moment` is an ISO time, taken from the span's start on; `present` is true if the attribute
# is there, `streams` if its value reports it; `resends` is one attempt more than the number; `ended` is the word
# with which OpenAI's Responses API ends an answer; `chat_id` is a request's UUID as the id of a chat's answer, `given` a text other than `null`.
READERS = (
    "text",
    "int",
    "float",
    "bool",
    "seconds",
    "millis",
    "duration",
    "moment",
    "first",
    "status",
    "path",
    "present",
    "streams",
    "resends",
    "ended",
    "chat_id",
    "given",
)


@dataclass(frozen=True, slots=True)
class Field:
    """canonical column <- attribute `key`, read by `reader` (one of READERS); lower rank wins.

    With `path`, the value is a document (JSON in a string, or a map) and what stands at the path is read; counts at the paths of `plus` are
    added to it (a sender that lists cached tokens beside the others). With `served`, not on CLIENT spans: the route that a client calls is another's.
    With `beside` (not with `path`), only on spans that have this attribute too: what a common word means there.
    """

    column: str
    key: str
    reader: str = "text"
    rank: int = 0
    path: tuple[str, ...] = ()
    plus: tuple[tuple[str, ...], ...] = ()
    served: bool = False
    beside: str = ""


@dataclass(frozen=True, slots=True)
class EventField:
    """canonical column <- attribute `key` of span events named `event`, where no attribute of the span gave it; of several events the largest
    number, or the first text, counts. With `failed`, only on spans whose status is an error."""

    column: str
    event: str
    key: str
    reader: str = "text"
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A span that carries attribute `key` (with one of `values`, or one that matches `pattern` as a whole, if given) has this role and stage. A `weak` one
    is asked after the span's name (one of model calls last), a `strong` one before everything but `overrun.stage`. `beside` (not with values or a
    pattern) as in Field; with `client` (likewise) only on CLIENT spans, and before the words of their names."""

    key: str
    role: str
    stage: str
    values: frozenset[str] = frozenset()
    weak: bool = False
    strong: bool = False
    pattern: str = ""
    beside: str = ""
    client: bool = False


@dataclass(frozen=True, slots=True)
class SpanName:
    """A span whose name matches `pattern` (a regular expression, whole string) under scope `scope` (or any, if empty) has this role and stage.
    `strong` as in Mark."""

    pattern: str
    role: str
    stage: str
    scope: str = ""
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Metric:
    """Metric `name` is indicator `indicator`; values times `scale` are in SI units. `where` keeps only points with these attributes.

    With `labels` the value is the product of these attributes (numbers as text): as in an `_info` metric. With `scope` it holds for metrics of
    that instrumentation scope or below it. `sum_as` is the indicator that a histogram's growing sum is. If several names report one indicator at
    once, the first in the tables counts (a name and its successor repeat the same); one that `adds` counts beside the others.
    """

    name: str
    indicator: str
    scale: float = 1.0
    where: tuple[tuple[str, str], ...] = ()
    labels: tuple[str, ...] = ()
    scope: str = ""
    sum_as: str = ""
    adds: bool = False


@dataclass(frozen=True, slots=True)
class Dialect:
    """One vocabulary. `prefixes` of attribute keys decide the name shown for a span (`v_spans.dialect`): the longest prefix, then the
    lowest `precedence` of all its keys (what is special to one sender before what all use). A span under one of `scopes` (or below
    it) is this dialect's, whatever its keys say. A span event named in `chunk_events` is one chunk of a stream (`*` at the end stands for the
    rest of the name), one in `attempt_events` an attempt's start, from the last of which on an attribute counts the first token; an attribute in `failures`
    with one of its values (the first of an array) marks the span as failed, with any status, and so does an exception of a span under `scopes` if
    `exceptions_fail`. A span with one of `answers` has not failed, whatever its status, if it holds no exception. Attributes that hold all that one of
    `stored_answers` lists (a value at a path of the key's document, or the text itself at none; None: any but an empty one, ...: nothing) mark a model
    call's answer came out of a cache of answers. `hints` lists, per canonical column that senders of this dialect may leave out, what to switch on.
    Under the scopes of `cached_apart` input tokens leave out the cached ones.
    Spans with a (scope, name) in `wrappers` come from an instrumentation of a client that shares its scope with a framework's; spans under the scopes of
    `names_tasks` that end in `.task` are named after the task's description."""

    name: str
    prefixes: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    marks: tuple[Mark, ...] = ()
    names: tuple[SpanName, ...] = ()
    first_token_events: tuple[str, ...] = ()
    chunk_events: tuple[str, ...] = ()
    attempt_events: tuple[str, ...] = ()
    event_fields: tuple[EventField, ...] = ()
    failures: tuple[tuple[str, frozenset[str]], ...] = ()
    exceptions_fail: bool = False
    answers: tuple[str, ...] = ()
    stored_answers: tuple[tuple[tuple[str, tuple[str, ...], object], ...], ...] = ()
    hints: tuple[tuple[str, str], ...] = ()
    text_keys: tuple[str, ...] = ()
    cached_apart: tuple[str, ...] = ()
    wrappers: tuple[tuple[str, str], ...] = ()
    names_tasks: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = ()
    model_labels: tuple[str, ...] = ()
    precedence: int = 10
