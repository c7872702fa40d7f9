"""What do the sent spans mean? Flat OTLP columns in, the rows of `spans`, `span_events`, `span_links` and `sources` out, column by column.

Work is done per distinct key, name and value of a batch, never per span: attributes are grouped by key once, each canonical column takes
its values from the first source that is present and can be read, and what no column took stays as text under its own key.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from overrun.collector.arrays import BoolArray, IntArray
from overrun.collector.decode import wire
from overrun.collector.decode.columns import (
    ARRAY,
    DROPPED_KEYS,
    Attributes,
    RawSpans,
    Source,
    nested,
    to_ns,
)
from overrun.collector.decode.otlp_spans import decode_spans
from overrun.collector.dialects import EventField, Field
from overrun.collector.normalise import (
    model_endpoints,
    packing,
    privacy,
    quarantine,
    readers,
    search_urls,
    stages,
    wording,
)
from overrun.collector.normalise.grouped import Grouped
from overrun.collector.normalise.known_keys import Enumerations, is_known
from overrun.collector.normalise.limits import MAX_KEY, Limits
from overrun.collector.normalise.packed_texts import packed, text_hash
from overrun.collector.normalise.prompt_features import Measure, is_prompt
from overrun.collector.normalise.quarantine import MAX_DURATION_NS
from overrun.collector.normalise.readers import MAX_TOKENS
from overrun.collector.normalise.samplers import with_samplers

MAX_NAME = 256  # characters of a span or event name

TEXT_COLUMNS = (
    "operation",
    "model",
    "provider",
    "response_id",
    "finish_reason",
    "error_type",
    "route",
    "session",
    "tenant",
    "user_hash",
    "workload",
    "prefix_hash",
    "depends_on",
)
INT_COLUMNS = (
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "max_tokens",
    "ttft_ns",
    "queue_ns",
    "prefill_ns",
    "decode_ns",
    "engine_e2e_ns",
    "turn",
    "http_status",
    "attempts",
)
TOTAL = "total_tokens"  # no column: it shows whether cached and reasoning tokens are in the other counts
_REAL_NS = 10**17  # a time before 1973 is none of a span's
USABLE_EVENT = "overrun.usable_answer"
_HOSTS = (
    "service.instance.id",
    "k8s.pod.name",
    "host.name",
    "container.id",
    "host.id",
)  # what distinguishes replicas of a service, best first
_ERROR = 2  # OTLP's status code
_SERVER, _CLIENT, _PRODUCER, _CONSUMER = 2, 3, 4, 5  # OTLP's span kinds
# SDKs (`telemetry.sdk.language`) that drop what is added after the limit. Read in opentelemetry-java 1.x (SdkSpan.addTimedEvent; 0.x evicted the oldest),
# opentelemetry_sdk for Rust (SpanLimits), Deno's own (denoland/deno#34795), .NET's OTLP serializer (WriteSpanEvents), opentelemetry-php (Span.addEvent) and
# opentelemetry-erlang (otel_events, which sends the newest first). Python, Go, JavaScript and Swift evict the oldest; of others it is not known.
KEEP_FIRST_EVENTS: Final = ("java", "rust", "deno-rust", "dotnet", "php", "erlang")
TTFT_NONE, TTFT_ATTRIBUTE, TTFT_EVENT, TTFT_ENGINE, TTFT_CUT = range(
    5
)  # cut: none, because those events were dropped
MAP_TYPE = pa.map_(pa.string(), pa.string())
_NO_TEXT = pa.array([], pa.string())


@dataclass(frozen=True, slots=True)
class Rules:
    """What the operator decided about text, users and sizes. `salt` keys the hash of user ids."""

    store_text: bool = False
    hash_users: bool = True
    salt: bytes = b""
    keep_long: frozenset[str] = frozenset()
    measure: Measure | None = None  # what stays of an opted-in prompt
    # With it, of attributes that no vocabulary knows only numbers and words of enumerations stay.
    words: Enumerations | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass(slots=True)
class Normalized:
    """Rows ready for the store (all columns of the table but `batch`), and the spans refused per body index (broken ids).

    `shape` of a span is a hash of the keys of its `attribute_values`; `shapes` lists these keys.
    `aside` has the rows of `quarantine`, None if there are none; `warned` lists their bodies. `misdated` are bodies some of whose events were left
    out because they are from before 2000.
    """

    spans: pa.Table
    events: pa.Table
    links: pa.Table
    sources: list[tuple[int, dict[str, Any]]]
    shapes: dict[int, list[str]]
    rejected: dict[int, int] = field(default_factory=dict)
    aside: pa.Table | None = None
    warned: frozenset[int] = frozenset()
    misdated: frozenset[int] = frozenset()


@stages.derived
def fields_by_column() -> dict[str, tuple[Field, ...]]:
    """Canonical column -> where its value may come from, best first."""
    out: dict[str, list[tuple[int, int, Field]]] = {}
    for order, dialect in enumerate(stages.dialects()):
        for f in dialect.fields:
            out.setdefault(f.column, []).append((f.rank, order, f))
    return {
        column: tuple(f for _, _, f in sorted(found, key=lambda x: x[:2]))
        for column, found in out.items()
    }


# --- readers: positions in the batch -> values, and which of them could be read ---------------------------------------------------


def _numbers(
    grouped: Grouped, positions: IntArray
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], BoolArray]:
    """Numbers, also where a sender put them into strings or quoted strings."""
    kinds = grouped.kind[positions]
    for kind, values in ((wire.INT, grouped.int_values), (wire.DOUBLE, grouped.double_values)):
        if (kinds == kind).all():
            out = values[positions].astype(np.float64)
            return out, np.isfinite(out)
    out = np.where(kinds == wire.DOUBLE, grouped.double_values[positions], np.nan)
    out = np.where(kinds == wire.INT, grouped.int_values[positions].astype(np.float64), out)
    texts = np.flatnonzero(kinds == wire.STRING)
    if len(texts):
        read = _per_distinct(grouped.strings.take(pa.array(positions[texts])), readers.number)
        out[texts] = [np.nan if number is None else number for number in read]
    return out, np.isfinite(out)


def _per_distinct(text: pa.StringArray, read: Callable[[str], Any]) -> list[Any]:
    """Read each distinct text once; null stays null."""
    encoded = text.dictionary_encode()
    values = [read(item) for item in encoded.dictionary.to_pylist()]
    return [None if code is None else values[code] for code in encoded.indices.to_pylist()]


def read_int(grouped: Grouped, positions: IntArray) -> tuple[IntArray, BoolArray]:
    """Counts: whole numbers from 0 to MAX_TOKENS."""
    number, ok = _numbers(grouped, positions)
    ok = ok & (number >= 0) & (number <= MAX_TOKENS)
    return np.where(ok, number, 0).astype(np.int64), ok


def read_ns(grouped: Grouped, positions: IntArray, scale: float) -> tuple[IntArray, BoolArray]:
    """Durations from 0 to ten years, in nanoseconds."""
    number, ok = _numbers(grouped, positions)
    ok = ok & (number >= 0) & (number <= MAX_DURATION_NS)  # or the product may overflow
    scaled = np.where(ok, number, 0.0) * scale
    ok = ok & (scaled <= MAX_DURATION_NS)
    return np.rint(np.where(ok, scaled, 0.0)).astype(np.int64), ok


def read_bool(grouped: Grouped, positions: IntArray) -> tuple[BoolArray, BoolArray]:
    """true/false, also as the strings "True" and "False"."""
    out = grouped.int_values[positions].astype(bool)
    ok = grouped.of_kind(positions, wire.BOOL)
    if not ok.all():
        for i in np.flatnonzero(grouped.of_kind(positions, wire.STRING)).tolist():
            said = readers.flag(grouped.strings[int(positions[i])].as_py())
            ok[i], out[i] = said is not None, bool(said)
    return out, ok


def read_first(grouped: Grouped, positions: IntArray) -> pa.StringArray:
    """The first item of an array (finish reasons), of a JSON array in a string, or the text itself; null where there is none."""
    attributes = grouped.attributes
    found = _of_distinct(grouped.strings.take(pa.array(positions)), readers.first)
    has = np.flatnonzero(grouped.of_kind(positions, wire.OTHER))
    others = np.searchsorted(attributes.other_at, positions[has])
    arrays = attributes.other_member[others] == ARRAY
    if arrays.any():
        found = _replaced(
            found,
            has[arrays],
            _of_distinct(attributes.others.take(pa.array(others[arrays])), _first_text),
        )
    return found


def _of_distinct(values: pa.Array, read: Callable[[Any], str | None]) -> pa.StringArray:
    """What `read` makes of each value, as a column; each distinct one is read once, null stays null."""
    encoded = values.dictionary_encode()
    return pa.array([read(item) for item in encoded.dictionary.to_pylist()], pa.string()).take(
        encoded.indices
    )


def _first_text(array: bytes) -> str | None:
    items = nested(ARRAY, array)
    return items[0] if items and isinstance(items[0], str) and items[0] else None


def read_with(
    read: Callable[[Any], Any], grouped: Grouped, positions: IntArray
) -> tuple[Any, BoolArray]:
    """Numbers or flags that `read` (of collector/normalise/readers.py) finds in strings, each distinct string once."""
    return _readable(_per_distinct(grouped.strings.take(pa.array(positions)), read))


def _readable(found: list[Any]) -> tuple[Any, BoolArray]:
    ok = np.array([value is not None for value in found], dtype=bool)
    values = np.array(
        [0 if value is None else value for value in found],
        dtype=np.float64 if any(isinstance(v, float) for v in found) else np.int64,
    )
    return values, ok


def _beside(grouped: Grouped, at: IntArray, key: str) -> IntArray:
    """Those of these attributes on whose span that key is too; all of them for ""."""
    if not key:
        return at
    others = grouped.positions(key)
    return at[:0] if others is None else at[np.isin(grouped.owner[at], grouped.owner[others])]


# --- canonical columns ----------------------------------------------------------------------------------------------------------


class Columns:
    """Builds the canonical columns of one batch of spans of these kinds that start at `start` and last `duration`."""

    def __init__(
        self, grouped: Grouped, kinds: IntArray, start: IntArray, duration: IntArray
    ) -> None:
        self.grouped = grouped
        self.n = len(kinds)
        self.start, self.duration = start, duration
        self.is_client: BoolArray = kinds == _CLIENT
        self._documents: dict[str, tuple[list[object], IntArray]] = {}
        self._known = grouped.code_of.keys() | grouped.spellings.keys()

    def _fields(self, column: str) -> list[Field]:
        """Where the column's values may come from in this batch, best first."""
        return [f for f in fields_by_column().get(column, ()) if f.key in self._known]

    def ints(self, column: str) -> tuple[IntArray, BoolArray]:
        """An integer column and where it has a value."""
        return self._fill(column, np.int64)

    def floats(self, column: str) -> tuple[np.ndarray[Any, np.dtype[np.float64]], BoolArray]:
        """A float column and where it has a value."""
        return self._fill(column, np.float64)

    def bools(self, column: str) -> tuple[BoolArray, BoolArray]:
        """A boolean column and where it has a value."""
        return self._fill(column, np.bool_)

    def _fill(self, column: str, kind: Any) -> tuple[Any, BoolArray]:
        out = np.zeros(self.n, dtype=kind)
        filled = np.zeros(self.n, dtype=bool)
        for f in self._fields(column):
            at = self._positions(f)
            if at is not None and not (f.path and filled[self.grouped.owner[at]].all()):
                values, ok = self._at_path(f, at) if f.path else self._values(f, at)
                if f.reader == "moment":
                    values, ok = self._since_start(at, values, ok)
                self._put(f, out, filled, at, values, ok)
        return out, filled

    def _positions(self, f: Field) -> IntArray | None:
        at = self.grouped.positions(f.key)
        found = None if at is None else _beside(self.grouped, at, f.beside)
        return found if found is None or len(found) else None

    def _values(self, f: Field, at: IntArray) -> tuple[Any, BoolArray]:
        if f.reader in ("seconds", "millis"):
            return read_ns(self.grouped, at, 1e9 if f.reader == "seconds" else 1e6)
        if f.reader == "float":
            return _numbers(self.grouped, at)
        if f.reader == "bool":
            return read_bool(self.grouped, at)
        if f.reader == "present":
            return np.ones(len(at), dtype=bool), np.ones(len(at), dtype=bool)
        if f.reader in ("duration", "moment", "streams"):
            return read_with(readers.BY_NAME[f.reader], self.grouped, at)
        values, ok = read_int(self.grouped, at)
        if f.reader == "status":
            ok &= (values >= 100) & (values < 1000)
        return values + 1 if f.reader == "resends" else values, ok

    def _at_path(self, f: Field, at: IntArray) -> tuple[Any, BoolArray]:
        """What stands at the field's path of each attribute's document, each distinct document read once."""
        documents, codes = self._read_documents(f.key, at)
        read = readers.BY_NAME[f.reader]
        found: list[Any] = [read(readers.at(document, f.path)) for document in documents]
        if f.plus:
            more = [
                sum(readers.count(readers.at(document, path)) or 0 for path in f.plus)
                for document in documents
            ]
            found = [
                value if value is None else value + extra
                for value, extra in zip(found, more, strict=True)
            ]
        values, ok = _readable(found)
        return values[codes], ok[codes]

    def _read_documents(self, key: str, at: IntArray) -> tuple[list[object], IntArray]:
        """The distinct documents under a key, and which of them each attribute at `at` has."""
        if key not in self._documents:
            encoded = self.grouped.text(at).dictionary_encode()
            self._documents[key] = (
                [readers.document(text) for text in encoded.dictionary.to_pylist()],
                encoded.indices.to_numpy(zero_copy_only=False),
            )
        return self._documents[key]

    def _since_start(
        self, at: IntArray, moments: IntArray, ok: BoolArray
    ) -> tuple[IntArray, BoolArray]:
        """The times from spans' starts to moments in them: one outside came from another clock, or in a zone that it does not name (Haystack)."""
        owner = self.grouped.owner[at]
        gap = moments - self.start[owner]
        return np.maximum(gap, 0), ok & (gap >= -readers.SLACK_NS) & (
            gap <= self.duration[owner] + readers.SLACK_NS
        )

    def text(self, column: str) -> pa.Array:
        """A text column; the empty string counts as absent."""
        take = np.full(self.n, -1, dtype=np.int64)
        filled = np.zeros(self.n, dtype=bool)
        # Most values are taken from where they stand; what had to be read first is numbered after all of those.
        strings = self.grouped.strings
        read: list[pa.Array] = []
        size = len(strings)
        for f in self._fields(column):
            at = self._positions(f)
            if at is None or (f.path and filled[self.grouped.owner[at]].all()):
                continue
            if f.reader == "text" and not f.path and self.grouped.is_plain[at].all():
                self._put(f, take, filled, at, at, self.grouped.has_text[at])
                continue
            found = self._texts(f, at)
            ok = pc.fill_null(pc.greater(pc.binary_length(found), 0), False).to_numpy(
                zero_copy_only=False
            )
            self._put(f, take, filled, at, np.arange(size, size + len(at)), ok)
            read.append(found)
            size += len(at)
        if not filled.any():
            return pa.nulls(self.n, pa.string())
        return packing.gathered(
            take,
            filled,
            strings,
            pa.concat_arrays(read) if len(read) > 1 else read[0] if read else _NO_TEXT,
        )

    def _texts(self, f: Field, at: IntArray) -> pa.StringArray:
        if f.path:
            documents, codes = self._read_documents(f.key, at)
            read = readers.BY_NAME[f.reader]
            return pa.array(
                [read(readers.at(document, f.path)) for document in documents], pa.string()
            ).take(pa.array(codes))
        if f.reader == "first":
            return read_first(self.grouped, at)
        found = self.grouped.text(at)
        if f.reader == "path":
            return _paths(found)
        if f.reader in ("chat_id", "given"):
            return _of_distinct(found, readers.chat_id if f.reader == "chat_id" else readers.given)
        quoted = np.flatnonzero(pc.starts_with(found, '"').to_numpy(zero_copy_only=False))
        if not len(quoted):
            return found
        return _replaced(
            found,
            quoted,
            pa.array(
                [readers.unquoted(text) for text in found.take(pa.array(quoted)).to_pylist()],
                pa.string(),
            ),
        )

    def _put(
        self, f: Field, out: Any, filled: BoolArray, at: IntArray, values: Any, ok: BoolArray
    ) -> None:
        rows = self.grouped.owner[at]
        if f.served:
            ok = ok & ~self.is_client[rows]
        use = ok & ~filled[rows]
        # Backwards: of a repeated key, the value that came first is written last and stays.
        out[rows[use][::-1]] = values[use][::-1]
        filled[rows[use]] = True
        # A document holds more than what was read, and a hint is no value: both stay as they came.
        if not f.path and f.reader not in ("present", "streams") and f.column != TOTAL:
            self.grouped.consumed[at[use]] = True


# --- role, stage, dialect -------------------------------------------------------------------------------------------------------


_UNSAID = 10_000  # a rank behind every rule's


def classify(raw: RawSpans, grouped: Grouped, kinds: IntArray) -> tuple[IntArray, IntArray]:  # noqa: C901
    """Role and stage codes per span (by the rules of collector/normalise/stages.py)."""
    n = len(raw)
    best = np.full(n, _UNSAID, dtype=np.int64)
    role = np.zeros(n, dtype=np.int64)
    stage = np.full(n, stages.STAGE["other"], dtype=np.int64)
    network = np.zeros(n, dtype=bool)

    def say(rows: IntArray, vote: stages.StageVote) -> None:
        use = rows[best[rows] > vote.rank]
        best[use], role[use], stage[use] = vote.rank, vote.role, vote.stage

    for key in grouped.keys:
        present, tells, network_key = (
            stages.of_key(key),
            stages.tells_by_value(key),
            stages.is_network_key(key),
        )
        if not present and not tells and not network_key:
            continue
        at = grouped.positions(key)
        if at is None:
            continue
        for said, mark in present:
            if mark.client:
                # Few are left that nothing else has named yet: only of them is it asked what is beside.
                told = at[
                    (kinds[grouped.owner[at]] == _CLIENT) & (best[grouped.owner[at]] > said.rank)
                ]
                say(grouped.owner[_beside(grouped, told, mark.beside)] if len(told) else told, said)
            else:
                say(grouped.owner[_beside(grouped, at, mark.beside)], said)
        if tells:
            encoded = grouped.text(at).dictionary_encode()
            codes = encoded.indices.to_numpy(zero_copy_only=False)
            for code, value in enumerate(encoded.dictionary.to_pylist()):
                verdict = stages.of_value(key, value)
                if verdict is not None:
                    say(grouped.owner[at[codes == code]], verdict)
        if network_key:
            network[grouped.owner[at]] = True
    by_name, named_role, named_stage = _classify_names(raw)
    by_name[_of_messages(grouped, kinds) & (by_name == stages.RANK_WORD)] = _UNSAID
    http = _over_http(grouped, len(raw))
    own_work = np.isin(named_stage, [stages.STAGE[name] for name in stages.OWN_WORK])
    by_name[http & (own_work | (kinds == _SERVER)) & (by_name == stages.RANK_WORD)] = _UNSAID
    use = by_name < best
    best[use], role[use], stage[use] = by_name[use], named_role[use], named_stage[use]
    for key in stages.URL_KEYS:
        at = grouped.positions(key)
        if at is None or not len(at := at[kinds[grouped.owner[at]] == _CLIENT]):
            continue
        urls = grouped.text(at).dictionary_encode()
        for code in np.flatnonzero(
            pc.match_substring_regex(urls.dictionary, stages.MODEL_PATHS).to_numpy(
                zero_copy_only=False
            )
        ).tolist():
            say(
                grouped.owner[at[urls.indices.to_numpy(zero_copy_only=False) == code]],
                stages.of_url(urls.dictionary[code].as_py()),
            )
    asks = np.flatnonzero((kinds == _CLIENT) & (network | http))
    for rows, verdict in _searches(grouped, asks):
        say(rows, verdict)
    server = (kinds == _SERVER) | (kinds == _CONSUMER)
    say(np.flatnonzero(server), stages.CONTAINER)
    # Without a kind (Datadog, old Zipkin) what is asked over HTTP within a trace is a call, unless it has a route.
    calls = (kinds == _CLIENT) & (network | http) | (kinds == 0) & http & (
        raw.parent_id != 0
    ) & ~_has(grouped, "http.route", len(raw))
    asked = np.flatnonzero(calls & (best > stages.MODEL_REQUEST.rank))
    asked = _model_requests(raw, grouped, asked)
    say(_at_hosts(grouped, model_endpoints.checks(), asked), stages.MODEL_CHECK)
    say(asked, stages.MODEL_REQUEST)
    say(np.flatnonzero(calls), stages.NETWORK)
    stored = _stored_answers(grouped)
    stored = stored[role[stored] == stages.ROLE["llm"]]
    say(stored[~server[stored]], stages.STORED_ANSWER)
    say(stored[server[stored]], stages.SERVED_STORED)
    return role, stage


def _searches(grouped: Grouped, asks: IntArray) -> Iterator[tuple[IntArray, stages.StageVote]]:
    """Which of the requests over HTTP are searches or writes of a store, by path and by host."""
    for key in stages.URL_KEYS:
        for pattern, verdict in stages.URL_RULES:
            yield _matching(grouped, key, pattern, asks), verdict
    for key in (*search_urls.HOST_KEYS, *stages.URL_KEYS):
        yield _matching(grouped, key, search_urls.SEARCH_HOSTS, asks), stages.SEARCH_HOST


def _model_requests(raw: RawSpans, grouped: Grouped, asks: IntArray) -> IntArray:
    """Which of the clients' requests ask a model for text, by path, by host and path, or by the name of the method."""
    if not len(asks):
        return asks
    found = [_matching(grouped, key, model_endpoints.paths(), asks) for key in stages.URL_KEYS]
    for host, path in model_endpoints.paths_at_hosts():
        at_host = _at_hosts(grouped, host, asks)
        found += [_matching(grouped, key, path, at_host) for key in stages.URL_KEYS]
    names = raw.name.take(pa.array(asks)).dictionary_encode()
    said = [bool(model_endpoints.names().fullmatch(name)) for name in names.dictionary.to_pylist()]
    by_name = np.array(said, dtype=bool)[names.indices.to_numpy(zero_copy_only=False)]
    return np.unique(np.concatenate([*found, asks[by_name]]))


def _at_hosts(grouped: Grouped, pattern: str, among: IntArray) -> IntArray:
    """Which of these spans name a host that matches."""
    keys = (*search_urls.HOST_KEYS, *stages.URL_KEYS)
    return np.concatenate([_matching(grouped, key, pattern, among) for key in keys])


def _endpoints_into(columns: dict[str, Any], grouped: Grouped, role: IntArray) -> None:
    """Take the host for the provider, and what the path names for the model, of requests to models that do not say theirs. In place."""
    asks = np.flatnonzero(role == stages.ROLE["model_request"])
    for column, keys, read in (
        ("provider", (*search_urls.HOST_KEYS, *stages.URL_KEYS), model_endpoints.host_of),
        ("model", stages.URL_KEYS, model_endpoints.model_of),
    ):
        for key in keys if len(asks) else ():
            at = grouped.positions(key)
            if at is None:
                continue
            missing = asks[columns[column].take(pa.array(asks)).is_null().to_numpy(False)]
            at = np.sort(at[np.isin(grouped.owner[at], missing)])
            texts = _short(_of_distinct(grouped.text(at), read))
            known = texts.is_valid().to_numpy(zero_copy_only=False)
            mask = np.zeros(len(role), dtype=bool)
            mask[grouped.owner[at[known]]] = True
            columns[column] = pc.replace_with_mask(
                columns[column], pa.array(mask), texts.filter(pa.array(known))
            )


def _matching(grouped: Grouped, key: str, pattern: str, among: IntArray) -> IntArray:
    """Which of these spans have a text under a key that a pattern is in."""
    at = grouped.positions(key)
    if at is None or not len(at := at[np.isin(grouped.owner[at], among)]):
        return np.zeros(0, dtype=np.int64)
    texts = grouped.text(at).dictionary_encode()
    hits = pc.match_substring_regex(texts.dictionary, pattern).to_numpy(zero_copy_only=False)
    hit = np.flatnonzero(hits.astype(bool))
    found: IntArray = grouped.owner[at[np.isin(texts.indices.to_numpy(zero_copy_only=False), hit)]]
    return found


def _over_http(grouped: Grouped, n: int) -> BoolArray:
    """Whether a span is of an HTTP exchange, by its attributes."""
    found: BoolArray = np.logical_or.reduce(
        [_has(grouped, key, n, beside) for key, beside in stages.HTTP_KEYS]
    )
    return found


def _has(grouped: Grouped, key: str, n: int, beside: str = "") -> BoolArray:
    """Which of the n spans have an attribute (and another beside it)."""
    found: BoolArray = np.zeros(n, dtype=bool)
    if (at := grouped.positions(key)) is not None:
        found[grouped.owner[_beside(grouped, at, beside)]] = True
    return found


def _of_messages(grouped: Grouped, kinds: IntArray) -> BoolArray:
    """Whether a span hands on or takes what waits in a queue: it is named after that."""
    by_key = [_has(grouped, key, len(kinds)) for key in stages.MESSAGING_KEYS]
    return np.logical_or.reduce([kinds == _PRODUCER, kinds == _CONSUMER, *by_key])  # type: ignore[no-any-return]


def _stored_answers(grouped: Grouped) -> IntArray:
    """The spans whose attributes mark an answer from a cache of answers."""
    found = [np.zeros(0, dtype=np.int64)]
    for stored in (stored for dialect in stages.dialects() for stored in dialect.stored_answers):
        owners: IntArray | None = None
        for key, told in itertools.groupby(stored, key=lambda one: one[0]):
            wanted, at = [*told], grouped.positions(key)
            if at is None:
                break
            texts = grouped.text(
                at if owners is None else (at := at[np.isin(grouped.owner[at], owners)])
            ).dictionary_encode()
            # Only texts that have all the names in them are read.
            named = functools.reduce(
                pc.and_,
                (
                    pc.match_substring(texts.dictionary, path[-1])
                    for _, path, value in wanted
                    if path and value is not ...
                ),
                pa.array([True] * len(texts.dictionary), pa.bool_()),
            )
            said = np.array(
                [
                    name and all(_holds(text, path, value) for _, path, value in wanted)
                    for name, text in zip(
                        named.to_pylist(), texts.dictionary.to_pylist(), strict=True
                    )
                ],
                dtype=bool,
            )
            owners = grouped.owner[at[said[texts.indices.to_numpy(zero_copy_only=False)]]]
        else:
            found += [] if owners is None else [owners]
    return np.concatenate(found)


def _holds(text: str, path: tuple[str, ...], value: object) -> bool:
    """Whether this value stands at the path of a document, or is the text; for None any but an empty one, for ... none."""
    found = readers.at(readers.document(text), path) if path else text
    return (
        bool(found)
        if value is None
        else found is None
        if value is ...
        else type(found) is type(value) and found == value
    )


def _classify_names(raw: RawSpans) -> tuple[IntArray, IntArray, IntArray]:
    """Rank, role and stage per span by its name under its scope; _UNSAID where it shows nothing."""
    names = raw.name.dictionary_encode()
    texts = names.dictionary.to_pylist()
    numbered = {name: i for i, name in enumerate(dict.fromkeys(s.scope_name for s in raw.sources))}
    scope_code = np.array([numbered[s.scope_name] for s in raw.sources], dtype=np.int64)
    pairs, inverse = np.unique(
        scope_code[raw.source] * len(texts) + names.indices.to_numpy(zero_copy_only=False),
        return_inverse=True,
    )
    scopes = list(numbered)
    found = [
        stages.of_name(scopes[pair // len(texts)], texts[pair % len(texts)])
        for pair in pairs.tolist()
    ]
    said = np.array(
        [
            (_UNSAID, 0, 0) if verdict is None else (verdict.rank, verdict.role, verdict.stage)
            for verdict in found
        ],
        dtype=np.int64,
    )
    rank, role, stage = said.reshape(-1, 3).T[:, inverse]
    return rank, role, stage


def dialect_column(raw: RawSpans, grouped: Grouped) -> pa.Array:
    """The vocabulary that a span speaks: its scope's, else the most special one among its attribute keys; null if none is known."""
    of_source = np.array(
        [stages.dialect_of_scope(s.scope_name) for s in raw.sources], dtype=np.int64
    )
    name = of_source[raw.source] if len(raw) else np.zeros(0, dtype=np.int64)
    best = np.where(name >= 0, -1, 1_000)
    names = [d.name for d in stages.dialects()]
    for key in grouped.keys:
        found = stages.dialect_of(key)
        at = grouped.positions(key)
        if found is not None and at is not None:
            precedence, index = found
            rows = grouped.owner[at]
            rows = rows[best[rows] > precedence]
            best[rows], name[rows] = precedence, index
    return pa.array(names, pa.string()).take(pa.array(name, mask=name < 0))


# --- what stays as it was sent ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rest:
    """Attributes that no column took: per owner their values as one text (packed_texts.py) and a hash of its sequence of keys; `keys` of each hash."""

    values: pa.StringArray
    shape: Any
    keys: dict[int, list[str]]

    def columns(self) -> dict[str, pa.Array]:
        """Keys and values as one text each."""
        shapes, inverse = np.unique(self.shape, return_inverse=True)
        lists = pa.array([self.keys[shape] for shape in shapes.tolist()], pa.list_(pa.string()))
        return {
            "attribute_keys": packed(lists).take(pa.array(inverse)),
            "attribute_values": self.values,
        }


def rest_of(grouped: Grouped, n: int, rules: Rules) -> Rest:
    """The attributes that no column took, per owner, as text, after privacy rules and limits."""
    keep = ~grouped.consumed
    repeats = grouped.duplicates()
    if repeats is not None:
        keep &= ~repeats
    keys = grouped.keys
    actions = np.array(
        [privacy.KEEP if rules.store_text else privacy.action(key) for key in keys] or [0],
        dtype=np.int64,
    )
    if rules.measure is not None:
        actions[[code for code, key in enumerate(keys) if is_prompt(key)]] = privacy.MEASURE
    if (actions == privacy.DROP).any():
        keep &= (actions != privacy.DROP)[grouped.codes] | grouped.is_number
    # A user id beside the one that became `user_hash`, or one of a sender whose vocabulary is not known, is hashed even if it is a number.
    users = np.array(
        [rules.hash_users and privacy.is_user(key) for key in keys] or [False], dtype=bool
    )
    actions[users] = privacy.KEEP
    long_keys = [code for code, key in enumerate(keys) if len(key) > MAX_KEY]
    if long_keys:
        over = keep & np.isin(grouped.codes, long_keys)
        rules.limits.count("key_length", int(over.sum()))
        keep &= ~over
    unknown = np.array([_is_unknown(key, rules) for key in keys] or [False], dtype=bool)
    look = np.where(users, 2, (actions != privacy.KEEP) | unknown).astype(np.uint8)
    may_be_long = np.array(
        [privacy.allows_words(key) or key in rules.keep_long for key in keys] or [False], dtype=bool
    )
    strings = packing.text_buffers(grouped.strings)
    longest = -1 if rules.store_text else privacy.MAX_UNKNOWN_TEXT
    how = packing.examine(
        keep,
        grouped.codes,
        grouped.kind,
        *strings,
        look,
        may_be_long,
        longest,
        privacy.LOOKED_AT_SPACES,
        rules.limits.value_length,
    )
    looked, fractions = np.flatnonzero(how == packing.TEXT), np.flatnonzero(how == packing.FRACTION)
    ready = pa.concat_arrays(
        [
            _looked_at(grouped, looked, users, actions, rules),
            pc.cast(pa.array(grouped.double_values[fractions]), pa.string()),
        ]
    )
    ready_at = np.zeros(len(grouped.codes), dtype=np.int32)
    ready_at[np.concatenate((looked, fractions))] = np.arange(len(ready), dtype=np.int32)
    hashes = np.array([text_hash(key) for key in keys] or [0], dtype=np.uint64)
    data, ends, shape, counts, cut = packing.pack(
        keep,
        grouped.owner,
        grouped.codes,
        grouped.kind,
        how,
        *strings,
        grouped.int_values,
        ready_at,
        *packing.text_buffers(ready),
        hashes,
        n,
        rules.limits.attributes,
    )
    if cut:
        rules.limits.count("attributes", cut)
    return Rest(
        packing.packed_text(data, ends, counts),
        shape,
        _keys_of_shapes(grouped, keep, shape, counts, rules),
    )


def _keys_of_shapes(
    grouped: Grouped, keep: BoolArray, shape: Any, counts: IntArray, rules: Rules
) -> dict[int, list[str]]:
    """The keys behind each hash, from the first owner that has it."""
    kept = np.flatnonzero(keep)
    shapes, first = np.unique(shape, return_index=True)
    begins = np.searchsorted(grouped.owner[kept], first)
    runs = zip(shapes.tolist(), begins.tolist(), counts[first].tolist(), strict=True)
    kept_keys = [kept_key(key, rules) for key in grouped.keys]
    names = np.array(kept_keys or [""], dtype=object)[grouped.codes[kept]].tolist()
    return {s: names[b : b + n] for s, b, n in runs}


def kept_key(key: str, rules: Rules) -> str:
    """An attribute's key as it may be stored: some senders put what somebody said there."""
    return key if rules.store_text else wording.name(key, rules.salt)


def _looked_at(
    grouped: Grouped, at: IntArray, users: BoolArray, actions: IntArray, rules: Rules
) -> pa.StringArray:
    """The text of these attributes as it may be stored."""
    values = grouped.text(at)
    named = np.flatnonzero(users[grouped.codes[at]])
    if len(named):
        values = _replaced(
            values,
            named,
            pa.array(
                [
                    t and privacy.user_hash(t, rules.salt)
                    for t in values.take(pa.array(named)).to_pylist()
                ],
                pa.string(),
            ),
        )
    if not rules.store_text:
        values = _redacted(grouped, at, values, actions, rules)
    return rules.limits.shorten(values)


def _redacted(
    grouped: Grouped, at: IntArray, values: pa.StringArray, actions: IntArray, rules: Rules
) -> pa.StringArray:
    """Replace text that may not be stored; numbers and booleans under a text-like key stay."""
    keep_long = rules.keep_long
    of = actions[grouped.codes[at]]
    prompts = np.flatnonzero(of == privacy.MEASURE)
    if len(prompts) and rules.measure is not None:
        # Lines of numbers: none of the rules below is for them.
        lines = _of_distinct(values.take(pa.array(prompts)), rules.measure)
        values = _replaced(values, prompts, pa.array([""] * len(prompts), pa.string()))
        return _replaced(
            _redacted(
                grouped,
                at,
                values,
                np.where(actions == privacy.MEASURE, privacy.KEEP, actions),
                rules,
            ),
            prompts,
            lines,
        )
    strip = np.flatnonzero(of == privacy.STRIP_QUERY)
    if len(strip):
        bare = without_query(values.take(pa.array(strip)))
        values = _replaced(values, strip, _suspects(bare, wording.address, True))
    long = pc.greater(pc.utf8_length(values), privacy.MAX_UNKNOWN_TEXT).to_numpy(
        zero_copy_only=False
    )
    if long.any():
        allowed = np.array(
            [privacy.allows_long(key) or key in keep_long for key in grouped.keys], dtype=bool
        )
        long[allowed[grouped.codes[at]]] = False
    said = _said(grouped, at, values, rules)
    replace = np.flatnonzero(long | said | (of == privacy.REDACT) | _holding_text(values))
    if len(replace):
        replace = replace[~grouped.is_number[at[replace]]]
        values = _replaced(
            values,
            replace,
            pa.array(
                [
                    wording.redacted(t, rules.salt)
                    for t in values.take(pa.array(replace)).to_pylist()
                ],
                pa.string(),
            ),
        )
    return values


def _said(grouped: Grouped, at: IntArray, values: pa.StringArray, rules: Rules) -> BoolArray:
    """Which of these attributes' values are something that somebody said, or private."""
    found = packing.suspects(values, False)
    some = np.flatnonzero(found)
    keys = [grouped.keys[code] for code in grouped.codes[at[some]].tolist()]
    texts = values.take(pa.array(some)).to_pylist()
    found[some] = [
        privacy.is_said(key, text, rules.keep_long) for key, text in zip(keys, texts, strict=True)
    ]
    return found | _many_valued(grouped, at, values, rules)


def _is_unknown(key: str, rules: Rules) -> bool:
    """Whether only numbers and words of an enumeration stay under this key."""
    return (
        rules.words is not None
        and not rules.store_text
        and key not in rules.keep_long
        and not is_known(key)
        and not (rules.hash_users and privacy.is_user(key))
    )


def _many_valued(grouped: Grouped, at: IntArray, values: pa.StringArray, rules: Rules) -> BoolArray:
    """Which of these attributes' values are no numbers and no words of an enumeration, under keys that no vocabulary knows."""
    words = rules.words
    found: BoolArray = np.zeros(len(values), dtype=bool)
    if words is None:
        return found
    codes = grouped.codes[at]
    for code in np.unique(codes).tolist():
        if not _is_unknown(key := grouped.keys[code], rules):
            continue
        rows = np.flatnonzero(codes == code)
        encoded = values.take(pa.array(rows)).dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        gone = [bool(text) and not words.keeps(key, text) for text in texts]
        found[rows] = np.array(gone, dtype=bool)[encoded.indices.to_numpy(zero_copy_only=False)]
    return found


def _suspects(
    texts: pa.StringArray, read: Callable[[str], str | None], name: bool = False
) -> pa.StringArray:
    """Texts, of which those that may be private or said (packing.suspects) become what `read` makes of them; the same object if there are none."""
    if texts.null_count == len(texts):
        return texts
    at = np.flatnonzero(packing.suspects(texts, name))
    return _replaced(texts, at, _of_distinct(texts.take(pa.array(at)), read)) if len(at) else texts


def _holding_text(values: pa.StringArray) -> BoolArray:
    """Which values are JSON (or printed dicts) with people's words under a key inside."""
    blob: BoolArray = functools.reduce(
        pc.or_, (pc.starts_with(values, start) for start in privacy.BLOB_STARTS)
    ).to_numpy(zero_copy_only=False)
    at = np.flatnonzero(blob)
    blob[at] = [privacy.holds_text(text) for text in values.take(pa.array(at)).to_pylist()]
    return blob


def _replaced(values: pa.StringArray, at: IntArray, new: pa.StringArray) -> pa.StringArray:
    mask = np.zeros(len(values), dtype=bool)
    mask[at] = True
    return pc.replace_with_mask(values, pa.array(mask), new)


def _paths(found: pa.StringArray) -> pa.StringArray:
    """The path of what is a path or a URL, without its query; "" for anything else and for a pattern that every path matches (`/**`)."""
    encoded = found.dictionary_encode()
    texts = encoded.dictionary
    paths = pc.replace_substring_regex(without_query(texts), r"^[A-Za-z][\w+.-]*://[^/]*", "")
    said = pc.and_(
        pc.match_substring_regex(texts, r"^(?:/|[A-Za-z][\w+.-]*://)"),
        pc.invert(pc.match_substring_regex(paths, r"^/\*+$")),
    )
    return pc.if_else(said, paths, "").take(encoded.indices)


def without_query(urls: pa.StringArray) -> pa.StringArray:
    """As privacy.without_query, for a column."""
    return pc.replace_substring_regex(
        pc.replace_substring_regex(urls, r"(?s)[?#].*$", ""), r"://[^/@]*@", "://"
    )


# --- ids and times ----------------------------------------------------------------------------------------------------------------


def normalize(raw: RawSpans, rules: Rules) -> Normalized:
    """The rows to store for a batch of decoded spans."""
    n = len(raw)
    ok = (raw.span_id != 0) & ((raw.trace_hi != 0) | (raw.trace_lo != 0))
    verdict = quarantine.verdicts(raw.start, raw.end)
    start, end = to_ns(raw.start), to_ns(raw.end)
    duration = np.clip(end - start, 0, MAX_DURATION_NS)
    raw = _with_dropped(_event_times(raw, start, end))
    kinds = raw.kind.astype(np.int64)
    kinds = np.where((kinds < 0) | (kinds > 5), 0, kinds)
    grouped = Grouped(raw.attributes, rules.limits)
    role, stage = classify(raw, grouped, kinds)
    columns = _canonical(grouped, kinds, start, duration, rules)
    _endpoints_into(columns, grouped, role)
    _count_apart(columns, raw)
    _without_nothing(columns, role)
    _milliseconds_as_seconds(columns, duration)
    columns["tenant"] = _tenants(columns["tenant"], raw, role)
    status = _failed(
        raw,
        grouped,
        np.where((raw.status >= 0) & (raw.status <= 2), raw.status, 0).astype(np.uint8),
    )
    event_attributes = Grouped(raw.events.attributes, rules.limits)
    _event_values_into(columns, raw, event_attributes, status)
    if not rules.store_text:
        columns |= {column: _named_after_nobody(columns, column, rules) for column in _NAMING}
    _events_into(columns, raw, start, duration, role, _lost_events(grouped, n))
    source_ids, source_rows = source_table(raw.sources, rules)
    table: dict[str, Any] = {
        "trace_hi": raw.trace_hi,
        "trace_lo": raw.trace_lo,
        "span_id": raw.span_id,
        "parent_id": raw.parent_id,
        "start_ns": start,
        "duration_ns": duration,
        "source_id": source_ids[raw.source],
        "name": _span_names(raw, rules),
        "kind": kinds.astype(np.uint8),
        "status": status,
        "flags": raw.flags.astype(np.uint32),
        "trace_state": _nonempty(
            _short(with_samplers(_states(raw.trace_state, rules), raw, grouped, _numbers), 512)
        ),
        "stage": stage.astype(np.uint8),
        "role": role.astype(np.uint8),
        "dialect": dialect_column(raw, grouped),
        **columns,
    }
    rest = rest_of(grouped, n, rules)
    spans = pa.table({**table, "shape": rest.shape, "attribute_values": rest.values})
    events = _event_rows(raw, event_attributes, ok, rules)
    early = quarantine.misdated(raw.events.time_ns)
    misdated = frozenset(raw.body[raw.events.owner[early]].tolist()) if early.any() else frozenset()
    links = _link_rows(raw, ok, rules)
    aside = quarantine.rows(spans, verdict, raw.start, raw.end, ok)
    warned: frozenset[int] = (
        frozenset(raw.body[ok & (verdict != 0)].tolist()) if aside is not None else frozenset()
    )
    rejected: dict[int, int] = {}
    if not ok.all():
        bodies, counts = np.unique(raw.body[~ok], return_counts=True)
        rejected = dict(zip(bodies.tolist(), counts.tolist(), strict=True))
    if rejected or aside is not None:
        spans = spans.filter(pa.array(ok & (verdict == 0)))
    return Normalized(
        spans, events, links, source_rows, rest.keys, rejected, aside, warned, misdated
    )


def _states(states: pa.StringArray, rules: Rules) -> pa.StringArray:
    """Tracestates without members that have words in them or are private: samplers' and vendors' have none."""
    if rules.store_text or not packing.longest(states):
        return states
    return _suspects(states, _state, True)


def _state(state: str) -> str:
    members = state.split(",")
    kept = [m for m in members if len(m.split()) < 2 and not wording.is_private(m)]
    return state if len(kept) == len(members) else ",".join(kept)


def _tenants(told: pa.Array, raw: RawSpans, role: IntArray) -> pa.Array:
    """The tenant of the spans: their own attribute, else their resource's `tenant.id`, else, where a request begins, its `service.namespace`.

    An engine's namespace is where it runs, not whose request it serves.
    """
    named = [_names(source) for source in raw.sources]
    for key, of in (
        ("tenant.id", None),
        ("service.namespace", (raw.parent_id == 0) & (role != stages.ROLE["engine"])),
    ):
        found = [names.get(key) for names in named]
        if any(found):
            index = pa.array(raw.source, mask=None if of is None else ~of)
            told = pc.coalesce(told, pa.array(found, pa.string()).take(index))
    return told


def _span_names(raw: RawSpans, rules: Rules) -> pa.StringArray:
    """Names of spans; old HTTP instrumentations put the whole URL there, and people's words travel in its query. Some take what is to be done for a name."""
    names = raw.name
    told = (
        []
        if rules.store_text
        else [i for i, source in enumerate(raw.sources) if stages.names_tasks(source.scope_name)]
    )
    if told and len(rows := np.flatnonzero(np.isin(raw.source, told))):
        names = _replaced(
            names,
            rows,
            _of_distinct(
                names.take(pa.array(rows)), lambda name: privacy.without_task(name, rules.salt)
            ),
        )
    ends, data = packing.text_buffers(names)
    used = data[ends[0] : ends[-1]]
    if not rules.store_text and ((used == ord("?")) | (used == ord("#"))).any():
        names = pc.replace_substring_regex(names, r"(?s)(/[^\s?#]*)[?#].*$", r"\1")
    return _program_names(names, rules)


def _short(text: pa.StringArray, limit: int = MAX_NAME) -> pa.StringArray:
    return text if packing.longest(text) <= limit else pc.utf8_slice_codeunits(text, 0, limit)


def _nonempty(text: pa.StringArray) -> pa.Array:
    if not packing.longest(text):
        return pa.nulls(len(text), pa.string())
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


# Columns that tell one thing from another, and columns of names.
_IDENTITIES = (
    "model",
    "response_id",
    "session",
    "tenant",
    "workload",
    "prefix_hash",
    "depends_on",
)
_NAMES = ("operation", "provider", "route", "finish_reason", "error_type")
_NAMING = (*_IDENTITIES, *_NAMES)


def _named_after_nobody(columns: dict[str, Any], column: str, rules: Rules) -> pa.Array:
    """A column without what somebody said: a template, or a hash (wording.py)."""
    texts = columns[column]
    if column in _IDENTITIES:
        return _suspects(texts, lambda text: wording.identity(text, rules.salt))
    return _suspects(texts, lambda text: wording.name(text, rules.salt), True)


def _program_names(names: pa.StringArray, rules: Rules) -> pa.StringArray:
    """Names of spans or events as they may be stored."""
    if rules.store_text or not len(names):
        return _short(names)
    encoded = names.dictionary_encode()
    texts = encoded.dictionary
    kept = _suspects(texts, lambda text: wording.name(text, rules.salt), True)
    return _short(names if kept is texts else kept.take(encoded.indices))


def _failed(raw: RawSpans, grouped: Grouped, status: Any) -> Any:
    """The status with an error wherever an attribute marks the span as failed (Langfuse's level), or an exception of a sender that cannot (LangSmith), and
    without the one that was put on what answered beside what failed (OpenInference's processor for the Vercel AI SDK)."""
    dialects = stages.dialects()
    telling = np.array(
        [
            (of := stages.dialect_of_scope(s.scope_name)) >= 0 and dialects[of].exceptions_fail
            for s in raw.sources
        ],
        dtype=bool,
    )
    if telling.any():
        raised = raw.events.owner[_named(raw.events.name, ["exception"])]
        status[raised[telling[raw.source[raised]]]] = _ERROR
    answered = [
        at
        for dialect in dialects
        for key in dialect.answers
        if (at := grouped.positions(key)) is not None
    ]
    if answered:
        rows = np.concatenate([grouped.owner[at] for at in answered])
        rows = rows[status[rows] == _ERROR]
        status[rows[~np.isin(rows, raw.events.owner[_named(raw.events.name, ["exception"])])]] = 0
    for dialect in dialects:
        for key, values in dialect.failures:
            at = grouped.positions(key)
            if at is not None:
                status[grouped.owner[at[_named(read_first(grouped, at), values)]]] = _ERROR
    return status


def _canonical(
    grouped: Grouped, kinds: IntArray, start: IntArray, duration: IntArray, rules: Rules
) -> dict[str, Any]:
    """The canonical columns, and TOTAL."""
    n = len(kinds)
    columns = Columns(grouped, kinds, start, duration)
    out: dict[str, Any] = {}
    for name in (*INT_COLUMNS, TOTAL):
        values, filled = columns.ints(name)
        out[name] = packing.masked(values, filled)
    numbers, filled = columns.floats("temperature")
    out["temperature"] = packing.masked(numbers, filled)
    flags, filled = columns.bools("streaming")
    out["streaming"] = pa.array(flags, mask=~filled) if filled.any() else pa.nulls(n, pa.bool_())
    for name in TEXT_COLUMNS:
        text = columns.text(name)
        if name == "user_hash" and rules.hash_users and text.null_count < n:
            text = _of_distinct(text, lambda user: privacy.user_hash(user, rules.salt))
        elif name == "response_id" and text.null_count < n:
            text = _short(_without_choice(text))
        elif name == "model" and text.null_count < n:
            text = _short(_without_publisher(text))
        elif text.null_count < n:
            text = _short(_of_distinct(text, _REWORD[name]) if name in _REWORD else text)
        out[name] = text
    return out


def _milliseconds_as_seconds(columns: dict[str, Any], duration: IntArray) -> None:
    """A first token that comes whole seconds after its span began and 20 times later than it ended was sent in milliseconds under a name that means
    seconds (AWS Strands). In place."""
    ttft = columns["ttft_ns"]
    if ttft.null_count == len(ttft):
        return
    values = ttft.fill_null(0).to_numpy(zero_copy_only=False)
    late = (values > 20 * duration) & (values // 1000 <= duration) & (values % 1_000_000_000 == 0)
    if late.any():
        columns["ttft_ns"] = pc.if_else(pa.array(late), pa.array(values // 1000), ttft)


def _without_choice(ids: pa.StringArray) -> pa.StringArray:
    """Ids of answers: vLLM numbers the prompts of one text completion (`cmpl-1f0a-0`), before 0.13 also the choices of one prompt (`1_chatcmpl-2e`), and its
    client knows none of the numbers."""
    ends, data = packing.text_buffers(ids)
    first = data[np.minimum(ends[:-1], len(data) - 1)]
    second = data[np.minimum(ends[:-1] + 1, len(data) - 1)]
    asked = np.flatnonzero(
        (ends[1:] > ends[:-1])
        & ((first >= ord("0")) & (first <= ord("9")) | (first == ord("c")) & (second == ord("m")))
    )
    if not len(asked):
        return ids
    own = pc.replace_substring_regex(
        ids.take(pa.array(asked)), r"^\d{1,3}_((?:chat)?cmpl-.+)$", r"\1"
    )
    return _replaced(ids, asked, pc.replace_substring_regex(own, r"^(cmpl-.+)-\d{1,3}$", r"\1"))


def _without_publisher(models: pa.StringArray) -> pa.StringArray:
    """Names of models without where Google keeps them: `projects/p/locations/l/publishers/google/models/gemini` (Vertex AI), `models/gemini`."""
    ends, data = packing.text_buffers(models)
    first, third = (data[np.minimum(ends[:-1] + i, len(data) - 1)] for i in (0, 2))
    asked = np.flatnonzero(
        (ends[1:] > ends[:-1])
        & ((first == ord("p")) & (third == ord("o")) | (first == ord("m")) & (third == ord("d")))
    )
    if not len(asked):
        return models
    return _replaced(
        models,
        asked,
        pc.replace_substring_regex(
            models.take(pa.array(asked)), r"^(?:pro.+/publishers/[^/]+/)?models/(.+)$", r"\1"
        ),
    )


_REWORD: dict[str, Callable[[str], str]] = {
    "finish_reason": readers.finish_reason,
    "provider": readers.provider,
    "error_type": readers.error_type,
}


def _count_apart(columns: dict[str, Any], raw: RawSpans) -> None:
    """Make input tokens hold the cached ones and output tokens the thoughts, where the sender counts them apart. In place; takes TOTAL away."""
    total = columns.pop(TOTAL)
    if all(
        column.null_count == len(column)
        for column in (total, columns["cached_tokens"], columns["cache_write_tokens"])
    ):
        return
    tokens, output, reasoning = (
        columns["input_tokens"],
        columns["output_tokens"],
        columns["reasoning_tokens"],
    )
    extra = pc.add(
        columns["cached_tokens"].fill_null(0), columns["cache_write_tokens"].fill_null(0)
    )
    rest = pc.subtract(pc.subtract(total, tokens), output)
    of_scope = np.array([_cached_apart(s.scope_name) for s in raw.sources], dtype=bool)
    told = (
        of_scope[raw.source] & pc.greater(extra, 0).to_numpy(zero_copy_only=False)
        if of_scope.any()
        else np.zeros(len(tokens), dtype=bool)
    )
    asked = np.flatnonzero(
        told
        | pc.fill_null(
            pc.or_kleene(pc.greater(extra, tokens), pc.greater(rest, 0)), False
        ).to_numpy(zero_copy_only=False)
    )
    inputs: dict[int, int] = {}
    outputs: dict[int, int] = {}
    thoughts: dict[int, int] = {}
    counts = (
        columns["provider"],
        tokens,
        output,
        reasoning,
        *(c.fill_null(0) for c in (columns["cached_tokens"], columns["cache_write_tokens"], rest)),
    )
    said = zip(
        asked.tolist(),
        *(column.take(pa.array(asked)).to_pylist() for column in counts),
        strict=True,
    )
    for row, provider, n, out, thought, cached, written, beside in said:
        if n is not None and (
            told[row]
            or 0 < beside == cached + written
            or readers.cached_apart(provider, n, cached, written)
        ):
            inputs[row] = n + cached + written
        elif beside > 0 and readers.thoughts_apart(provider, beside, thought):
            outputs[row], thoughts[row] = out + beside, beside
    for name, values in (
        ("input_tokens", inputs),
        ("output_tokens", outputs),
        ("reasoning_tokens", thoughts),
    ):
        if values:
            mask = np.zeros(len(tokens), dtype=bool)
            mask[list(values)] = True
            columns[name] = pc.replace_with_mask(
                columns[name],
                pa.array(mask),
                pa.array([values[row] for row in sorted(values)], pa.int64()),
            )


def _without_nothing(columns: dict[str, Any], role: IntArray) -> None:
    """Take the counts from model calls that report no token at all, sent or received: they were not counted (LiteLLM's streams without usage). In place."""
    tokens, output = columns["input_tokens"], columns["output_tokens"]
    if output.null_count == len(output) or pc.min(output).as_py():
        return
    nothing = pc.fill_null(pc.and_(pc.equal(tokens, 0), pc.equal(output, 0)), False).to_numpy(
        zero_copy_only=False
    ) & (role == stages.ROLE["llm"])
    if nothing.any():
        for name in (
            "input_tokens",
            "output_tokens",
            "cached_tokens",
            "cache_write_tokens",
            "reasoning_tokens",
        ):
            columns[name] = pc.if_else(
                pa.array(nothing), pa.scalar(None, pa.int64()), columns[name]
            )


@stages.derived
def _cached_apart(scope: str) -> bool:
    """Whether input tokens leave out the cached ones in spans of this scope."""
    return any(
        scope == s or scope.startswith(s + ".") for d in stages.dialects() for s in d.cached_apart
    )


# --- events, links, sources -------------------------------------------------------------------------------------------------------


# A name that marks its event as the first of its kind, even if others were dropped (`ai.stream.firstChunk`, `mlflow.chunk.item.0`).
_SAYS_FIRST = re.compile(r"(?i).*first.*|(?:.*[._])?0")


@stages.derived
def _event_kind(name: str) -> tuple[bool, bool, bool, bool]:
    """Whether an event of this name is a first token, whether it is a chunk, an attempt's start, and whether its name marks it as the first."""
    patterns = [pattern for d in stages.dialects() for pattern in d.chunk_events]
    chunk = any(name.startswith(p[:-1]) if p.endswith("*") else name == p for p in patterns)
    first = chunk or any(name in d.first_token_events for d in stages.dialects())
    return (
        first,
        chunk,
        any(name in d.attempt_events for d in stages.dialects()),
        _SAYS_FIRST.fullmatch(name) is not None,
    )


def _event_kinds(names: pa.StringArray) -> tuple[BoolArray, BoolArray, BoolArray, BoolArray]:
    """As `_event_kind`, for a column; each distinct name is looked at once."""
    encoded = names.dictionary_encode()
    kinds = np.array(
        [_event_kind(name) for name in encoded.dictionary.to_pylist()], dtype=bool
    ).reshape(-1, 4)
    found = kinds[encoded.indices.to_numpy(zero_copy_only=False)]
    return found[:, 0], found[:, 1], found[:, 2], found[:, 3]


# --- what limits of the sender took ------------------------------------------------------------------------------------------------


def _with_dropped(raw: RawSpans) -> RawSpans:
    """The same, with the counts of what the sender's limits took as attributes of the spans, events and links that lost something."""
    attributes = raw.attributes
    for key, numbers in zip(DROPPED_KEYS, raw.dropped, strict=True):
        attributes = _counted(attributes, key, numbers)
    events, links = (
        _counted(of.attributes, DROPPED_KEYS[0], of.dropped) for of in (raw.events, raw.links)
    )
    return replace(
        raw,
        attributes=attributes,
        events=replace(raw.events, attributes=events),
        links=replace(raw.links, attributes=links),
    )


def _counted(attributes: Attributes, key: str, numbers: IntArray) -> Attributes:
    """The attributes with this one, a whole number, behind those of each owner whose number is not 0."""
    owners = np.flatnonzero(numbers)
    if not len(owners):
        return attributes
    at = np.searchsorted(attributes.owner, owners, side="right")
    index = np.insert(np.arange(len(attributes)), at, -1)
    keys = attributes.keys if key in attributes.keys else [*attributes.keys, key]
    number = np.insert(attributes.number, at, numbers[owners])
    return Attributes(
        np.insert(attributes.owner, at, owners),
        keys,
        np.insert(attributes.code, at, keys.index(key)),
        np.insert(attributes.kind, at, wire.INT),
        attributes.text.take(pa.array(index, mask=index < 0)),
        number,
        np.insert(attributes.fraction, at, 0.0),
        attributes.other_at + np.searchsorted(at, attributes.other_at, side="right"),
        attributes.other_member,
        attributes.others,
    )


def _lost_events(grouped: Grouped, n: int) -> IntArray:
    """How many events each span lost to its sender's limits; as an attribute also of what was another format before (Jaeger, Zipkin)."""
    out = np.zeros(n, dtype=np.int64)
    at = grouped.positions(DROPPED_KEYS[1])
    if at is not None:
        values, ok = read_int(grouped, at)
        out[grouped.owner[at[ok]]] = values[ok]
    return out


def _event_times(raw: RawSpans, start: IntArray, end: IntArray) -> RawSpans:
    """The same, with times of events in nanoseconds where a sender counted them in µs or ms and they so lie within their span (MLflow 2)."""
    owner, times = raw.events.owner, raw.events.time_ns
    begin, last = start[owner], end[owner]
    early = (times < begin // 2) & (begin > _REAL_NS)
    if not early.any():
        return raw
    times = times.copy()
    for scale in (10**3, 10**6):
        use = early & (times >= begin // scale) & (times <= last // scale)
        times[use] = np.maximum(times[use] * scale, begin[use])
    return replace(raw, events=replace(raw.events, time_ns=times))


def _named(names: pa.StringArray, wanted: Iterable[str]) -> BoolArray:
    return np.asarray(
        pc.is_in(names, value_set=pa.array(sorted(wanted), pa.string())).to_numpy(
            zero_copy_only=False
        ),
        dtype=np.bool_,
    )


@stages.derived
def _event_fields() -> tuple[EventField, ...]:
    return tuple(f for d in stages.dialects() for f in d.event_fields)


def _event_values_into(
    columns: dict[str, Any], raw: RawSpans, grouped: Grouped, status: Any
) -> None:
    """Take values of span events' attributes (exception types, attempts) that no attribute of the span has. In place."""
    for f in _event_fields():
        at = grouped.positions(f.key)
        if at is None:
            continue
        at = np.sort(at[_named(raw.events.name, [f.event])[grouped.owner[at]]])
        rows = raw.events.owner[grouped.owner[at]]
        if f.failed:
            at, rows = at[status[rows] == _ERROR], rows[status[rows] == _ERROR]
        found = [readers.BY_NAME[f.reader](text) for text in grouped.text(at).to_pylist()]
        best: dict[int, Any] = {}
        for row, value in zip(rows.tolist(), found, strict=True):
            if value is not None:
                best[row] = (
                    value
                    if row not in best
                    else max(best[row], value)
                    if isinstance(value, int)
                    else best[row]
                )
        column = columns[f.column]
        new = [row for row in sorted(best) if not column[row].is_valid]
        if new:
            mask = np.zeros(len(column), dtype=bool)
            mask[new] = True
            word = _REWORD.get(f.column)
            values = [word(best[row]) if word else best[row] for row in new]
            columns[f.column] = pc.replace_with_mask(
                column, pa.array(mask), _short_values(values, column.type)
            )


def _short_values(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(
        [value[:MAX_NAME] if isinstance(value, str) else value for value in values], kind
    )


def _events_into(
    columns: dict[str, Any],
    raw: RawSpans,
    start: IntArray,
    duration: IntArray,
    role: IntArray,
    lost: IntArray,
) -> None:
    """Fold the per-chunk events of streams into chunks, chunk_span_ns, chunk_gap_max_ns; take the first token and the usable answer.

    Of a span that lost events to its sender's limits (`lost`), only one whose name says so is the first token, unless its SDK drops the newest for certain.
    """
    n = len(raw)
    columns["ttft_ns"] = ttft = _of_streams(columns, role)
    has_attribute = ttft.is_valid().to_numpy(zero_copy_only=False)
    source = np.where(
        has_attribute,
        np.where(role == stages.ROLE["engine"], TTFT_ENGINE, TTFT_ATTRIBUTE),
        TTFT_NONE,
    )
    nothing = pa.nulls(n, pa.int64())
    columns.update(
        chunks=nothing, chunk_span_ns=nothing, chunk_gap_max_ns=nothing, usable_ns=nothing
    )
    if len(raw.events.owner):
        is_first, is_chunk, is_attempt, says_first = _event_kinds(raw.events.name)
        cut = (lost > 0) & ~_drops_newest(raw)
        is_first &= says_first | ~cut[raw.events.owner]
        if is_attempt.any():
            columns["ttft_ns"] = ttft = _since_start(raw, is_attempt, start, duration, ttft)
        first_ns, has_first = _first_time(raw, is_first, start)
        use = has_first & ~has_attribute
        if use.any():
            values = ttft.fill_null(0).to_numpy(zero_copy_only=False).copy()
            values[use] = first_ns[use]
            columns["ttft_ns"] = pa.array(values, mask=~(has_attribute | use))
            source[use] = TTFT_EVENT
        chunks = _chunk_columns(raw, is_chunk, lost, duration)
        columns.update(chunks)
        if chunks and cut.any():
            source[
                cut
                & chunks["chunks"].is_valid().to_numpy(zero_copy_only=False)
                & ~(has_attribute | use)
            ] = TTFT_CUT
        usable, has_usable = _first_time(raw, _named(raw.events.name, [USABLE_EVENT]), start)
        if has_usable.any():
            columns["usable_ns"] = pa.array(usable, mask=~has_usable)
    columns["ttft_source"] = source.astype(np.uint8)


def _drops_newest(raw: RawSpans) -> BoolArray:
    """Which spans come from an SDK that keeps the events that were added first: it names itself in its resource."""
    of_source = np.array([_keeps_first(dict(source.resource)) for source in raw.sources], np.bool_)
    return of_source[raw.source] if len(of_source) else np.zeros(len(raw), np.bool_)


def _keeps_first(resource: Mapping[str, Any]) -> bool:
    language, version = (
        str(resource.get(f"telemetry.sdk.{key}", "")) for key in ("language", "version")
    )
    if language == "java" and version.startswith("0."):
        return False
    return language in KEEP_FIRST_EVENTS


def _of_streams(columns: dict[str, Any], role: IntArray) -> pa.Array:
    """Times to the first token, but for calls that their client marks as not streamed: what it calls so there (OpenLIT) is the whole answer's."""
    ttft, streaming = columns["ttft_ns"], columns["streaming"]
    if ttft.null_count == len(ttft) or streaming.null_count == len(streaming):
        return ttft
    whole = pc.and_(pc.equal(streaming, False), pa.array(role == stages.ROLE["llm"]))
    return pc.if_else(pc.fill_null(whole, False), pa.scalar(None, pa.int64()), ttft)


def _since_start(
    raw: RawSpans, is_attempt: BoolArray, start: IntArray, duration: IntArray, ttft: pa.Array
) -> pa.Array:
    """Times to the first token from their spans' starts on, which their senders count from the start of the last attempt, if they so lie in their spans."""
    began = np.zeros(len(start), dtype=np.int64)
    owner = raw.events.owner[is_attempt]
    np.maximum.at(began, owner, raw.events.time_ns[is_attempt] - start[owner])
    values = ttft.fill_null(0).to_numpy(zero_copy_only=False)
    values = values + np.where(
        (began > 0) & (began <= duration + readers.SLACK_NS - values), began, 0
    )
    return pa.array(values, mask=ttft.is_null().to_numpy(zero_copy_only=False))


def _first_time(raw: RawSpans, wanted: BoolArray, start: IntArray) -> tuple[IntArray, BoolArray]:
    """Per span, the time from its start to the first wanted event that does not lie before it, and whether there is one."""
    first = np.full(len(start), np.iinfo(np.int64).max, dtype=np.int64)
    owner, times = raw.events.owner[wanted], raw.events.time_ns[wanted]
    after = times >= start[owner] - readers.SLACK_NS
    np.minimum.at(first, owner[after], times[after])
    has = first != np.iinfo(np.int64).max
    return np.where(has, np.clip(first - start, 0, MAX_DURATION_NS), 0), has


def _chunk_columns(
    raw: RawSpans, is_chunk: BoolArray, lost: IntArray, duration: IntArray
) -> dict[str, Any]:
    """Chunks, and from the first to the last; of a span that lost events, all of them at the pace of those that are left, which follow one another."""
    n = len(lost)
    owner, time_ns = raw.events.owner[is_chunk], raw.events.time_ns[is_chunk]
    if not len(owner):
        return {}
    order = np.lexsort((time_ns, owner))
    owner, time_ns = owner[order], time_ns[order]
    gap = np.diff(time_ns, prepend=time_ns[:1])
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    gap[begins] = 0
    count = np.bincount(owner, minlength=n)
    total = np.zeros(n, dtype=np.int64)
    total[owner[begins]] = time_ns[np.append(begins[1:], len(owner)) - 1] - time_ns[begins]
    worst = np.zeros(n, dtype=np.int64)
    np.maximum.at(worst, owner, gap)
    cut = (lost > 0) & (count > 1)
    if cut.any():
        paced = total[cut] * ((count + lost)[cut] - 1.0) / (count[cut] - 1.0)
        total[cut] = np.minimum(np.rint(paced), duration[cut]).astype(np.int64)
        count = np.where(cut, count + lost, count)
    none = count == 0
    return {
        "chunks": pa.array(count, mask=none),
        "chunk_span_ns": pa.array(total, mask=none),
        "chunk_gap_max_ns": pa.array(worst, mask=none),
    }


_NONE = pa.table({})  # no rows of any table


def _event_rows(raw: RawSpans, grouped: Grouped, ok: BoolArray, rules: Rules) -> pa.Table:
    owner = raw.events.owner
    if not len(owner):
        return _NONE
    attributes = rest_of(grouped, len(owner), rules).columns()
    table = pa.table(
        {
            "trace_hi": raw.trace_hi[owner],
            "trace_lo": raw.trace_lo[owner],
            "span_id": raw.span_id[owner],
            "time_ns": raw.events.time_ns,
            "name": _program_names(raw.events.name, rules),
            **attributes,
        }
    )
    kept = ok[owner] & ~_event_kinds(raw.events.name)[1]
    return table.filter(pa.array(kept & ~quarantine.misdated(raw.events.time_ns)))


def _link_rows(raw: RawSpans, ok: BoolArray, rules: Rules) -> pa.Table:
    owner = raw.links.owner
    if not len(owner):
        return _NONE
    attributes = rest_of(Grouped(raw.links.attributes, rules.limits), len(owner), rules).columns()
    table = pa.table(
        {
            "trace_hi": raw.trace_hi[owner],
            "trace_lo": raw.trace_lo[owner],
            "span_id": raw.span_id[owner],
            "linked_trace_hi": raw.links.trace_hi,
            "linked_trace_lo": raw.links.trace_lo,
            "linked_span_id": raw.links.span_id,
            **attributes,
        }
    )
    return table.filter(pa.array(ok[owner] & raw.links.whole_ids))


def source_table(
    sources: list[Source], rules: Rules
) -> tuple[Any, list[tuple[int, dict[str, Any]]]]:
    """An id per source (stable across processes: a hash of its content) and the row of each distinct one."""
    ids = np.zeros(len(sources), dtype=np.uint64)
    rows: dict[int, dict[str, Any]] = {}
    for i, source in enumerate(sources):
        digest = hashlib.blake2b(
            repr(source).encode("utf-8", "surrogatepass"), digest_size=8
        ).digest()
        source_id = int.from_bytes(digest, "big")
        ids[i] = source_id
        if source_id not in rows:
            rows[source_id] = _source_row(source, rules)
    return ids, list(rows.items())


def _names(source: Source) -> dict[str, str]:
    """Attributes of a resource that are one word or number."""
    return {
        key: str(value)[:MAX_NAME]
        for key, value in dict(source.resource).items()
        if isinstance(value, str | int | float) and value != ""
    }


def _source_row(source: Source, rules: Rules) -> dict[str, Any]:
    named = _names(source)

    def kept(text: str | None) -> str | None:
        return text if rules.store_text or text is None else wording.name(text, rules.salt)

    instance = next((named[key] for key in _HOSTS if key in named), None)
    if instance is not None and not rules.store_text:
        instance = wording.identity(instance, rules.salt)
    environment = named.get("deployment.environment.name", named.get("deployment.environment"))
    return {
        "service": kept(named.get("service.name", "unknown_service")),
        "instance": instance,
        "version": kept(named.get("service.version")),
        "namespace": kept(named.get("service.namespace")),
        "environment": kept(environment),
        "scope_name": kept(source.scope_name[:MAX_NAME]),
        "scope_version": kept(source.scope_version[:MAX_NAME]),
        "resource_attributes": clean_attributes(source.resource, rules),
        "scope_attributes": clean_attributes(source.scope, rules),
        "resource_schema_url": kept(source.resource_schema_url[:MAX_NAME]),
        "scope_schema_url": kept(source.scope_schema_url[:MAX_NAME]),
    }


def clean_attributes(attributes: Iterable[tuple[str, Any]], rules: Rules) -> list[tuple[str, str]]:
    """Attributes of a resource or scope as a map's items: text, each key once, private text left out."""
    out: dict[str, str] = {}
    limits = rules.limits
    for key, value in attributes:
        if key in out:
            continue
        text = value if isinstance(value, str) else limits.printed(value)
        if (
            rules.words is not None
            and not isinstance(value, int | float)
            and _is_unknown(key, rules)
            and text
            and not rules.words.keeps(key, text)
        ):
            text = wording.redacted(text, rules.salt)
        kept = privacy.clean(
            key,
            text,
            store_text=rules.store_text,
            salt=rules.salt if rules.hash_users else None,
            keep_long=rules.keep_long,
            hash_key=rules.salt,
        )
        if kept is None:
            continue
        if len(out) >= limits.attributes or len(key) > MAX_KEY:
            limits.count("attributes" if len(key) <= MAX_KEY else "key_length", 1)
            continue
        out[kept_key(key, rules)] = limits.short(kept)
    return list(out.items())


def example_body() -> bytes:
    """An export request with the trace of a request that is served now and its model call, with attributes of every kind."""
    request = ExportTraceServiceRequest()
    now_ns = time.time_ns()
    spans = request.resource_spans.add().scope_spans.add().spans
    trace_id, times = b"\1" * 16, {"start_time_unix_nano": now_ns, "end_time_unix_nano": now_ns + 9}
    served = spans.add(
        trace_id=trace_id, span_id=b"\1" * 8, name="POST /chat", kind=Span.SPAN_KIND_SERVER, **times
    )
    call = spans.add(
        trace_id=trace_id, span_id=b"\2" * 8, parent_span_id=b"\1" * 8, name="chat", **times
    )
    values = [
        AnyValue(string_value="a"),
        AnyValue(int_value=1),
        AnyValue(double_value=0.5),
        AnyValue(bool_value=True),
        AnyValue(),
    ]
    for owner in (served, served.events.add(), served.links.add()):
        owner.attributes.extend(
            KeyValue(key=f"k{i}", value=value) for i, value in enumerate(values)
        )
    texts = {"gen_ai.operation.name": "chat", "gen_ai.response.id": "1"}
    call.attributes.extend(
        KeyValue(key=key, value=AnyValue(string_value=text)) for key, text in texts.items()
    )
    body: bytes = request.SerializeToString()
    return body


def warm() -> None:
    """Load what the first body would otherwise wait for, compiled if need be (seconds, once per machine and version)."""
    normalize(decode_spans([example_body()]), Rules())
