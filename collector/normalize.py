"""What do the sent spans mean? Flat OTLP columns in, the rows of `spans`, `span_events`, `span_links` and `sources` out, column by column.

Work is done per distinct key, name and value of a batch, never per span: attributes are grouped by key once, each canonical column takes
its values from the first source that is present and can be read, and what no column took stays in the `attributes` map.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector import privacy, stages
from collector.decode import Attributes, Bools, Ints, RawSpans, Source, nested, plain, to_ns
from collector.dialects import Field

MAX_ATTRIBUTES = 128  # per span, OpenTelemetry's own default limit; what is over it is counted and dropped
MAX_NAME = 256  # characters of a span or event name
MAX_TOKENS = 1 << 40  # a larger token count is no count
MAX_DURATION_NS = 10 * 365 * 86_400 * 10**9

TEXT_COLUMNS = ("operation", "model", "provider", "response_id", "finish_reason", "error_type", "route", "session", "tenant", "user_hash",
                "workload", "prefix_hash", "depends_on")
INT_COLUMNS = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens", "max_tokens", "ttft_ns",
               "queue_ns", "prefill_ns", "decode_ns", "engine_e2e_ns", "turn", "http_status")
USABLE_EVENT = "overrun.usable_answer"
TTFT_NONE, TTFT_ATTRIBUTE, TTFT_EVENT, TTFT_ENGINE = range(4)
MAP_TYPE = pa.map_(pa.string(), pa.string())


@dataclass(frozen=True, slots=True)
class Rules:
    """What the operator decided about text and users. `salt` keys the hash of user ids."""

    store_text: bool = False
    hash_users: bool = True
    salt: bytes = b""


@dataclass(slots=True)
class Normalized:
    """Rows ready for the store (all columns of the table but `batch`), and the spans refused per body index (broken ids)."""

    spans: pa.Table
    events: pa.Table
    links: pa.Table
    sources: list[tuple[int, dict[str, Any]]]
    rejected: dict[int, int] = field(default_factory=dict)


@functools.cache
def fields_by_column() -> dict[str, tuple[Field, ...]]:
    """Canonical column -> where its value may come from, best first."""
    out: dict[str, list[tuple[int, int, Field]]] = {}
    for order, dialect in enumerate(stages.dialects()):
        for f in dialect.fields:
            out.setdefault(f.column, []).append((f.rank, order, f))
    return {column: tuple(f for _, _, f in sorted(found, key=lambda x: x[:2])) for column, found in out.items()}


class Grouped:
    """The attributes of a batch, grouped by key: `positions(key)` in O(1) after one sort. `consumed` marks what a column took."""

    def __init__(self, attributes: Attributes) -> None:
        self.owner = attributes.owner
        self.value = attributes.value
        encoded = attributes.key.dictionary_encode()
        self.codes: Ints = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        self.keys: list[str] = encoded.dictionary.to_pylist()
        self.key_array = encoded.dictionary
        self.order: Ints = np.argsort(self.codes, kind="stable")
        self.bounds: Ints = np.searchsorted(self.codes[self.order], np.arange(len(self.keys) + 1))
        self.code_of = {key: code for code, key in enumerate(self.keys)}
        self.consumed: Bools = np.zeros(len(self.codes), dtype=bool)

    def positions(self, key: str) -> Ints | None:
        """Where the attributes with this key stand; None if the batch has none."""
        code = self.code_of.get(key)
        return None if code is None else self.order[self.bounds[code] : self.bounds[code + 1]]

    @functools.cached_property
    def text(self) -> pa.StringArray:
        """Every value as text: strings as they are, numbers and booleans printed, arrays and maps as JSON, bytes as hex."""
        v = self.value
        out = pc.coalesce(v.field("string_value"), *(pc.cast(v.field(m), pa.string()) for m in ("int_value", "double_value", "bool_value")))
        rest = np.flatnonzero(out.is_null().to_numpy(zero_copy_only=False))
        if len(rest):
            printed = pa.array([_printed(item) for item in v.take(pa.array(rest)).to_pylist()], pa.string())
            mask = np.zeros(len(out), dtype=bool)
            mask[rest] = True
            out = pc.replace_with_mask(out, pa.array(mask), printed)
        return out

    def duplicates(self) -> Bools:
        """Which attributes repeat a key that their owner already has (the first one stays)."""
        again = np.zeros(len(self.codes), dtype=bool)
        if len(self.codes) > 1:
            owner, code = self.owner[self.order], self.codes[self.order]
            again[self.order[1:]] = (owner[1:] == owner[:-1]) & (code[1:] == code[:-1])
        return again


def _printed(value: dict[str, Any] | None) -> str | None:
    found = plain(value)
    if found is None:
        return ""
    return found.hex() if isinstance(found, bytes) else json.dumps(found, ensure_ascii=False, default=_hex, separators=(",", ":"))


def _hex(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


# --- readers: positions in the batch -> values, and which of them could be read ---------------------------------------------------


def _numbers(grouped: Grouped, positions: Ints) -> tuple[np.ndarray[Any, np.dtype[np.float64]], Bools]:
    """Numbers, also where a sender put them into strings or quoted strings."""
    value = grouped.value.take(pa.array(positions))
    number = pc.coalesce(pc.cast(value.field("int_value"), pa.float64(), safe=False), value.field("double_value"))
    if number.null_count:
        text = value.field("string_value")
        if text.null_count < len(text):
            parsed = _per_distinct(text, _as_float)
            number = pc.coalesce(number, pa.array(parsed, pa.float64(), from_pandas=True))
    out = number.fill_null(np.nan).to_numpy(zero_copy_only=False)
    return out, np.isfinite(out)


def _as_float(text: str) -> float | None:
    try:
        number = float(text.strip().strip('"'))
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def _per_distinct(text: pa.StringArray, read: Callable[[str], Any]) -> list[Any]:
    """Read each distinct text once; null stays null."""
    encoded = text.dictionary_encode()
    values = [read(item) for item in encoded.dictionary.to_pylist()]
    return [None if code is None else values[code] for code in encoded.indices.to_pylist()]


def read_int(grouped: Grouped, positions: Ints) -> tuple[Ints, Bools]:
    """Counts: whole numbers from 0 to MAX_TOKENS."""
    number, ok = _numbers(grouped, positions)
    ok = ok & (number >= 0) & (number <= MAX_TOKENS)
    return np.where(ok, number, 0).astype(np.int64), ok


def read_ns(grouped: Grouped, positions: Ints, scale: float) -> tuple[Ints, Bools]:
    """Durations from 0 to ten years, in nanoseconds."""
    number, ok = _numbers(grouped, positions)
    scaled = np.where(ok, number, 0.0) * scale
    ok = ok & (scaled >= 0) & (scaled <= MAX_DURATION_NS)
    return np.rint(np.where(ok, scaled, 0.0)).astype(np.int64), ok


def read_bool(grouped: Grouped, positions: Ints) -> tuple[Bools, Bools]:
    """true/false, also as the strings "True" and "False"."""
    value = grouped.value.take(pa.array(positions))
    flag = value.field("bool_value")
    text = value.field("string_value")
    if text.null_count < len(text):
        known = {"true": True, "false": False, "1": True, "0": False}
        flag = pc.coalesce(flag, pa.array(_per_distinct(text, lambda t: known.get(t.strip().strip('"').lower())), pa.bool_()))
    ok = flag.is_valid().to_numpy(zero_copy_only=False)
    return flag.fill_null(False).to_numpy(zero_copy_only=False), ok


def read_first(grouped: Grouped, positions: Ints) -> list[str | None]:
    """The first item of an array (finish reasons), of a JSON array in a string, or the text itself."""
    value = grouped.value.take(pa.array(positions))
    text = _per_distinct(value.field("string_value"), _first_of_text)
    arrays = value.field("array_value")
    if arrays.null_count < len(arrays):
        lists = arrays.field("values")
        lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
        has = np.flatnonzero((lengths > 0) & arrays.is_valid().to_numpy(zero_copy_only=False))
        firsts = pc.list_element(lists.take(pa.array(has)), 0).dictionary_encode() if len(has) else None
        if firsts is not None:
            decoded = [_text_or_none(nested(raw)) for raw in firsts.dictionary.to_pylist()]
            for at, code in zip(has.tolist(), firsts.indices.to_pylist(), strict=True):
                text[at] = decoded[code]
    return text


def _first_of_text(text: str) -> str | None:
    if text.startswith("["):
        try:
            items = json.loads(text)
        except ValueError:
            return text
        return _text_or_none(items[0]) if items else None
    return text.strip('"') or None


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


# --- canonical columns ----------------------------------------------------------------------------------------------------------


class Columns:
    """Builds the canonical columns of one batch of n spans."""

    def __init__(self, grouped: Grouped, n: int) -> None:
        self.grouped = grouped
        self.n = n

    def ints(self, column: str) -> tuple[Ints, Bools]:
        """An integer column and where it has a value."""
        out = np.zeros(self.n, dtype=np.int64)
        filled = np.zeros(self.n, dtype=bool)
        for f in fields_by_column().get(column, ()):
            at = self.grouped.positions(f.key)
            if at is not None:
                if f.reader in ("seconds", "millis"):
                    values, ok = read_ns(self.grouped, at, 1e9 if f.reader == "seconds" else 1e6)
                else:
                    values, ok = read_int(self.grouped, at)
                self._put(out, filled, at, values, ok)
        return out, filled

    def floats(self, column: str) -> tuple[np.ndarray[Any, np.dtype[np.float64]], Bools]:
        """A float column and where it has a value."""
        out = np.zeros(self.n, dtype=np.float64)
        filled = np.zeros(self.n, dtype=bool)
        for f in fields_by_column().get(column, ()):
            at = self.grouped.positions(f.key)
            if at is not None:
                values, ok = _numbers(self.grouped, at)
                self._put(out, filled, at, values, ok)
        return out, filled

    def bools(self, column: str) -> tuple[Bools, Bools]:
        """A boolean column and where it has a value."""
        out = np.zeros(self.n, dtype=bool)
        filled = np.zeros(self.n, dtype=bool)
        for f in fields_by_column().get(column, ()):
            at = self.grouped.positions(f.key)
            if at is not None:
                values, ok = read_bool(self.grouped, at)
                self._put(out, filled, at, values, ok)
        return out, filled

    def text(self, column: str) -> pa.Array:
        """A text column; the empty string counts as absent."""
        take = np.full(self.n, -1, dtype=np.int64)
        filled = np.zeros(self.n, dtype=bool)
        extra: list[str | None] = []
        base = len(self.grouped.codes)
        for f in fields_by_column().get(column, ()):
            at = self.grouped.positions(f.key)
            if at is None:
                continue
            if f.reader in ("first", "path"):
                found = read_first(self.grouped, at) if f.reader == "first" else self._paths(at)
                ok = np.array([item is not None for item in found], dtype=bool)
                self._put(take, filled, at, np.arange(base + len(extra), base + len(extra) + len(found)), ok)
                extra.extend(found)
            else:
                ok = pc.fill_null(pc.greater(pc.utf8_length(self.grouped.text.take(pa.array(at))), 0), False).to_numpy(zero_copy_only=False)
                self._put(take, filled, at, at, ok)
        if not filled.any():
            return pa.nulls(self.n, pa.string())
        pool = pa.chunked_array([self.grouped.text, pa.array(extra, pa.string())]) if extra else self.grouped.text
        taken = pool.take(pa.array(take, mask=~filled))
        return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken

    def _paths(self, at: Ints) -> list[str | None]:
        return [None if t is None else privacy.without_query(t) or None for t in self.grouped.text.take(pa.array(at)).to_pylist()]

    def _put(self, out: Any, filled: Bools, at: Ints, values: Any, ok: Bools) -> None:
        rows = self.grouped.owner[at]
        use = ok & ~filled[rows]
        out[rows[use]] = values[use]
        filled[rows[use]] = True
        self.grouped.consumed[at[use]] = True


# --- role, stage, dialect -------------------------------------------------------------------------------------------------------


def classify(raw: RawSpans, grouped: Grouped, kinds: Ints) -> tuple[Ints, Ints]:
    """Role and stage codes per span (collector/stages.py says by which rules)."""
    n = len(raw)
    best = np.full(n, 10_000, dtype=np.int64)
    role = np.zeros(n, dtype=np.int64)
    stage = np.full(n, stages.STAGE["other"], dtype=np.int64)
    network = np.zeros(n, dtype=bool)

    def say(rows: Ints, verdict: stages.Verdict) -> None:
        use = rows[best[rows] > verdict.rank]
        best[use], role[use], stage[use] = verdict.rank, verdict.role, verdict.stage

    for key in grouped.keys:
        at = grouped.positions(key)
        if at is None:
            continue
        verdict = stages.of_key(key)
        if verdict is not None:
            say(grouped.owner[at], verdict)
        if key in stages.value_keys():
            encoded = grouped.text.take(pa.array(at)).dictionary_encode()
            codes = encoded.indices.to_numpy(zero_copy_only=False)
            for code, value in enumerate(encoded.dictionary.to_pylist()):
                verdict = stages.of_value(key, value)
                if verdict is not None:
                    say(grouped.owner[at[codes == code]], verdict)
        if stages.is_network_key(key):
            network[grouped.owner[at]] = True
    _classify_names(raw, say)
    server = (kinds == 2) | (kinds == 5)
    say(np.flatnonzero(server), stages.CONTAINER)
    say(np.flatnonzero((kinds == 3) & network), stages.NETWORK)
    return role, stage


def _classify_names(raw: RawSpans, say: Callable[[Ints, stages.Verdict], None]) -> None:
    names = raw.span.field("name").dictionary_encode()
    scopes = list(dict.fromkeys(s.scope_name for s in raw.sources))
    numbered = {name: i for i, name in enumerate(scopes)}
    scope_code = np.array([numbered[s.scope_name] for s in raw.sources], dtype=np.int64)
    texts = names.dictionary.to_pylist()
    pair = scope_code[raw.source] * max(len(texts), 1) + names.indices.to_numpy(zero_copy_only=False) if len(raw) else np.zeros(0, dtype=np.int64)
    distinct, inverse = np.unique(pair, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    bounds = np.searchsorted(inverse[order], np.arange(len(distinct) + 1))
    for i, code in enumerate(distinct.tolist()):
        verdict = stages.of_name(scopes[code // len(texts)], texts[code % len(texts)])
        if verdict is not None:
            say(order[bounds[i] : bounds[i + 1]], verdict)


def dialect_column(raw: RawSpans, grouped: Grouped) -> pa.Array:
    """The vocabulary that a span speaks: its scope's, else the most special one among its attribute keys; null if none is known."""
    of_source = np.array([stages.dialect_of_scope(s.scope_name) for s in raw.sources], dtype=np.int64)
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


# --- what stays in the map --------------------------------------------------------------------------------------------------------


def rest_map(grouped: Grouped, n: int, rules: Rules) -> pa.MapArray:
    """The attributes that no column took, per owner, as text, after privacy rules and limits."""
    keep = ~grouped.consumed & ~grouped.duplicates()
    text = grouped.text
    if not rules.store_text:
        actions = np.array([privacy.action(key) for key in grouped.keys], dtype=np.int64)
        text, dropped = _redact(grouped, text, actions)
        keep &= ~dropped
    at = np.flatnonzero(keep)
    counts = np.bincount(grouped.owner[at], minlength=n)
    if len(counts) and counts.max() > MAX_ATTRIBUTES:
        first = np.cumsum(counts) - counts
        place = np.arange(len(at)) - first[grouped.owner[at]]
        at = at[place < MAX_ATTRIBUTES]
        counts = np.minimum(counts, MAX_ATTRIBUTES)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    keys = grouped.key_array.take(pa.array(grouped.codes[at]))
    return pa.MapArray.from_arrays(pa.array(offsets), keys, text.take(pa.array(at)))


def _redact(grouped: Grouped, text: pa.StringArray, actions: Ints) -> tuple[pa.StringArray, Bools]:
    """Replace text that may not be stored; numbers and booleans under a text-like key stay."""
    if not len(grouped.codes):
        return text, np.zeros(0, dtype=bool)
    of = actions[grouped.codes]
    # Only text is anybody's words: strings, and arrays or maps that may hold them.
    number = pc.or_(pc.or_(grouped.value.field("int_value").is_valid(), grouped.value.field("double_value").is_valid()),
                    grouped.value.field("bool_value").is_valid()).to_numpy(zero_copy_only=False)
    long = pc.greater(pc.utf8_length(text), privacy.MAX_UNKNOWN_TEXT).to_numpy(zero_copy_only=False)
    if long.any():
        allowed = np.array([privacy.allows_long(key) for key in grouped.keys], dtype=bool)
        long = long & ~allowed[grouped.codes]
    dropped = (of == privacy.DROP) & ~number
    strip = of == privacy.STRIP_QUERY
    replace = ((of == privacy.REDACT) | (long & ~strip)) & ~number & ~dropped & ~grouped.consumed
    at = np.flatnonzero(replace | (strip & ~number & ~grouped.consumed))
    if len(at):
        strips = strip[at].tolist()
        values = text.take(pa.array(at)).to_pylist()
        shorter = [_stripped(t) if s else privacy.redacted(t) for t, s in zip(values, strips, strict=True)]
        mask = np.zeros(len(text), dtype=bool)
        mask[at] = True
        text = pc.replace_with_mask(text, pa.array(mask), pa.array(shorter, pa.string()))
    return text, dropped


def _stripped(url: str) -> str:
    bare = privacy.without_query(url)
    return bare if len(bare) <= 4 * privacy.MAX_UNKNOWN_TEXT else privacy.redacted(bare)


# --- ids and times ----------------------------------------------------------------------------------------------------------------


def fixed(column: pa.BinaryArray, width: int) -> tuple[np.ndarray[Any, np.dtype[np.uint64]], Bools]:
    """Binary ids of `width` bytes (8 or 16) as big-endian 64-bit words of shape (n, width / 8), and which ids have that width."""
    lengths = pc.binary_length(column).to_numpy(zero_copy_only=False)
    ok = lengths == width
    if not ok.all():
        column = pc.if_else(pa.array(ok), column, pa.scalar(b"\0" * width, pa.binary()))
    joined = b"".join(column.to_pylist()) if column.offset else _bytes(column, width)
    return np.frombuffer(joined, dtype=">u8").reshape(len(column), width // 8).astype(np.uint64), ok


def _bytes(column: pa.BinaryArray, width: int) -> Any:
    if not len(column):
        return b""
    first = np.frombuffer(column.buffers()[1], dtype=np.int32, count=1)[0]
    return column.buffers()[2].slice(int(first), len(column) * width)


def normalize(raw: RawSpans, rules: Rules) -> Normalized:
    """The rows to store for a batch of decoded spans."""
    n = len(raw)
    trace, trace_ok = fixed(raw.span.field("trace_id"), 16)
    span_id, span_ok = fixed(raw.span.field("span_id"), 8)
    parent, _ = fixed(raw.span.field("parent_span_id"), 8)
    ok = trace_ok & span_ok & (span_id[:, 0] != 0) & ((trace[:, 0] != 0) | (trace[:, 1] != 0))
    start, end = to_ns(raw.span.field("start_time_unix_nano")), to_ns(raw.span.field("end_time_unix_nano"))
    duration = np.clip(end - start, 0, MAX_DURATION_NS)
    kinds = raw.span.field("kind").to_numpy(zero_copy_only=False).astype(np.int64)
    kinds = np.where((kinds < 0) | (kinds > 5), 0, kinds)
    grouped = Grouped(raw.attributes)
    role, stage = classify(raw, grouped, kinds)
    columns = _canonical(grouped, n, rules)
    _events_into(columns, raw, start, role)
    source_ids, source_rows = source_table(raw.sources, rules)
    status = raw.span.field("status")
    table: dict[str, Any] = {
        "trace_hi": trace[:, 0], "trace_lo": trace[:, 1], "span_id": span_id[:, 0], "parent_id": parent[:, 0],
        "start_ns": start, "duration_ns": duration, "source_id": source_ids[raw.source],
        "name": _short(raw.span.field("name")), "kind": kinds.astype(np.uint8), "status": _status(status), "flags": raw.span.field("flags"),
        "trace_state": _nonempty(_short(raw.span.field("trace_state"), 512)), "stage": stage.astype(np.uint8), "role": role.astype(np.uint8),
        "dialect": dialect_column(raw, grouped), **columns,
    }
    spans = pa.table({**table, "attributes": rest_map(grouped, n, rules)})
    events = _event_rows(raw, trace, span_id[:, 0], ok, rules)
    links = _link_rows(raw, trace, span_id[:, 0], ok, rules)
    rejected: dict[int, int] = {}
    if not ok.all():
        spans = spans.filter(pa.array(ok))
        bodies, counts = np.unique(raw.body[~ok], return_counts=True)
        rejected = dict(zip(bodies.tolist(), counts.tolist(), strict=True))
    return Normalized(spans, events, links, source_rows, rejected)


def _status(status: pa.StructArray) -> Any:
    code = status.field("code").to_numpy(zero_copy_only=False).astype(np.int64)
    valid = status.is_valid().to_numpy(zero_copy_only=False)
    return np.where(valid & (code >= 0) & (code <= 2), code, 0).astype(np.uint8)


def _short(text: pa.StringArray, limit: int = MAX_NAME) -> pa.StringArray:
    return pc.utf8_slice_codeunits(text, 0, limit) if pc.max(pc.utf8_length(text)).as_py() or limit < 0 else text


def _nonempty(text: pa.StringArray) -> pa.Array:
    if not len(text) or not pc.max(pc.binary_length(text)).as_py():
        return pa.nulls(len(text), pa.string())
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


def _canonical(grouped: Grouped, n: int, rules: Rules) -> dict[str, Any]:
    columns = Columns(grouped, n)
    out: dict[str, Any] = {}
    for name in INT_COLUMNS:
        values, filled = columns.ints(name)
        if name == "http_status":
            filled = filled & (values >= 100) & (values < 1000)
        out[name] = pa.array(values, mask=~filled) if filled.any() else pa.nulls(n, pa.int64())
    values, filled = columns.floats("temperature")
    out["temperature"] = pa.array(values, mask=~filled) if filled.any() else pa.nulls(n, pa.float64())
    flags, filled = columns.bools("streaming")
    out["streaming"] = pa.array(flags, mask=~filled) if filled.any() else pa.nulls(n, pa.bool_())
    for name in TEXT_COLUMNS:
        text = columns.text(name)
        if name == "user_hash" and rules.hash_users and text.null_count < n:
            text = pa.array(_per_distinct(text, lambda user: privacy.user_hash(user, rules.salt)), pa.string())
        elif text.null_count < n:
            text = _short(text)
        out[name] = text
    return out


# --- events, links, sources -------------------------------------------------------------------------------------------------------


@functools.cache
def _event_names() -> tuple[frozenset[str], frozenset[str]]:
    first = frozenset(name for d in stages.dialects() for name in d.first_token_events)
    chunk = frozenset(name for d in stages.dialects() for name in d.chunk_events)
    return first, chunk


def _named(names: pa.StringArray, wanted: Iterable[str]) -> Bools:
    return pc.is_in(names, value_set=pa.array(sorted(wanted), pa.string())).to_numpy(zero_copy_only=False)


def _events_into(columns: dict[str, Any], raw: RawSpans, start: Ints, role: Ints) -> None:
    """Fold the per-chunk events of streams into chunks, chunk_span_ns, chunk_gap_max_ns; take the first token and the usable answer."""
    n = len(raw)
    ttft = columns["ttft_ns"]
    has_attribute = ttft.is_valid().to_numpy(zero_copy_only=False)
    source = np.where(has_attribute, np.where(role == stages.ROLE["engine"], TTFT_ENGINE, TTFT_ATTRIBUTE), TTFT_NONE)
    nothing = pa.nulls(n, pa.int64())
    columns.update(chunks=nothing, chunk_span_ns=nothing, chunk_gap_max_ns=nothing, usable_ns=nothing)
    if len(raw.events.owner):
        first_names, chunk_names = _event_names()
        is_chunk = _named(raw.events.name, chunk_names)
        first_ns, has_first = _first_time(raw, is_chunk | _named(raw.events.name, first_names), start)
        use = has_first & ~has_attribute
        if use.any():
            values = ttft.fill_null(0).to_numpy(zero_copy_only=False).copy()
            values[use] = first_ns[use]
            columns["ttft_ns"] = pa.array(values, mask=~(has_attribute | use))
            source[use] = TTFT_EVENT
        columns.update(_chunk_columns(raw, is_chunk, n))
        usable, has_usable = _first_time(raw, _named(raw.events.name, [USABLE_EVENT]), start)
        if has_usable.any():
            columns["usable_ns"] = pa.array(usable, mask=~has_usable)
    columns["ttft_source"] = source.astype(np.uint8)


def _first_time(raw: RawSpans, wanted: Bools, start: Ints) -> tuple[Ints, Bools]:
    """Per span, the time from its start to the first wanted event, and whether there is one."""
    first = np.full(len(start), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(first, raw.events.owner[wanted], raw.events.time_ns[wanted])
    has = first != np.iinfo(np.int64).max
    return np.where(has, np.clip(first - start, 0, MAX_DURATION_NS), 0), has


def _chunk_columns(raw: RawSpans, is_chunk: Bools, n: int) -> dict[str, Any]:
    owner, time_ns = raw.events.owner[is_chunk], raw.events.time_ns[is_chunk]
    if not len(owner):
        return {}
    order = np.lexsort((time_ns, owner))
    owner, time_ns = owner[order], time_ns[order]
    gap = np.diff(time_ns, prepend=time_ns[:1])
    gap[np.diff(owner, prepend=-1) != 0] = 0
    count = np.bincount(owner, minlength=n)
    total = np.bincount(owner, weights=gap, minlength=n).astype(np.int64)
    worst = np.zeros(n, dtype=np.int64)
    np.maximum.at(worst, owner, gap)
    none = count == 0
    return {"chunks": pa.array(count, mask=none), "chunk_span_ns": pa.array(total, mask=none), "chunk_gap_max_ns": pa.array(worst, mask=none)}


def _event_rows(raw: RawSpans, trace: Any, span_id: Any, ok: Bools, rules: Rules) -> pa.Table:
    owner = raw.events.owner
    _, chunk_names = _event_names()
    grouped = Grouped(raw.events.attributes)
    attributes = rest_map(grouped, len(owner), rules)
    table = pa.table({
        "trace_hi": trace[owner, 0], "trace_lo": trace[owner, 1], "span_id": span_id[owner], "time_ns": raw.events.time_ns,
        "name": _short(raw.events.name), "attributes": attributes})
    return table.filter(pa.array(ok[owner] & ~_named(raw.events.name, chunk_names)))


def _link_rows(raw: RawSpans, trace: Any, span_id: Any, ok: Bools, rules: Rules) -> pa.Table:
    owner = raw.links.owner
    linked, trace_ok = fixed(raw.links.trace_id, 16)
    linked_span, span_ok = fixed(raw.links.span_id, 8)
    attributes = rest_map(Grouped(raw.links.attributes), len(owner), rules)
    table = pa.table({
        "trace_hi": trace[owner, 0], "trace_lo": trace[owner, 1], "span_id": span_id[owner],
        "linked_trace_hi": linked[:, 0], "linked_trace_lo": linked[:, 1], "linked_span_id": linked_span[:, 0], "attributes": attributes})
    return table.filter(pa.array(ok[owner] & trace_ok & span_ok))


def source_table(sources: list[Source], rules: Rules) -> tuple[Any, list[tuple[int, dict[str, Any]]]]:
    """An id per source (stable across processes: a hash of its content) and the row of each distinct one."""
    ids = np.zeros(len(sources), dtype=np.uint64)
    rows: dict[int, dict[str, Any]] = {}
    for i, source in enumerate(sources):
        digest = hashlib.blake2b(repr(source).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        source_id = int.from_bytes(digest, "big")
        ids[i] = source_id
        if source_id not in rows:
            rows[source_id] = _source_row(source, rules)
    return ids, list(rows.items())


def _source_row(source: Source, rules: Rules) -> dict[str, Any]:
    resource = dict(source.resource)
    named = {key: str(value)[:MAX_NAME] for key, value in resource.items() if isinstance(value, str | int | float) and value != ""}
    return {
        "service": named.get("service.name", "unknown_service"), "instance": named.get("service.instance.id", named.get("host.name")),
        "version": named.get("service.version"), "namespace": named.get("service.namespace"),
        "environment": named.get("deployment.environment.name", named.get("deployment.environment")),
        "scope_name": source.scope_name[:MAX_NAME], "scope_version": source.scope_version[:MAX_NAME],
        "resource_attributes": clean_attributes(source.resource, rules), "scope_attributes": clean_attributes(source.scope, rules),
        "resource_schema_url": source.resource_schema_url[:MAX_NAME], "scope_schema_url": source.scope_schema_url[:MAX_NAME],
    }


def clean_attributes(attributes: Iterable[tuple[str, Any]], rules: Rules) -> list[tuple[str, str]]:
    """Attributes of a resource or scope as a map's items: text, each key once, private text left out."""
    out: dict[str, str] = {}
    for key, value in attributes:
        text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False, default=_hex)
        kept = privacy.clean(key, text, store_text=rules.store_text)
        if kept is not None and key not in out and len(out) < MAX_ATTRIBUTES:
            out[key] = kept
    return list(out.items())
