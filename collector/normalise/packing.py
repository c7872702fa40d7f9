"""How do a batch's attributes become one packed text per span? Compiled loops over the flat columns of `Grouped` (grouped.py).

Strings, whole numbers and flags are written straight from where they stand; what has to be looked at as text first (redaction, nested values,
fractions) is handed in, written by Python. One pass costs about 0.3 us a span of 10 attributes; takes, casts and joins of Arrow cost 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from overrun.collector.arrays import BoolArray, IntArray
from overrun.collector.decode.wire import BOOL, DOUBLE, INT, NOTHING, OTHER, STRING
from overrun.collector.process.compiled import njit, read_only

PLAIN, TEXT, FRACTION = range(
    3
)  # how an attribute is written: from its column, from text handed in, from a printed fraction
_SEPARATOR, _ESCAPE = 0x1F, 0x1B  # as in packed_texts.py


def _odd_powers(n: int) -> Any:
    powers = np.empty(n, dtype=np.uint64)
    value = 1
    for i in range(n):
        powers[i] = value
        value = value * 6364136223846793005 % 2**64  # the odd multiplier of Knuth's MMIX generator
    return powers


MOST_OF_AN_OWNER = 1_024  # attributes of one owner
_ODD_POWERS = _odd_powers(MOST_OF_AN_OWNER)


def text_buffers(column: pa.StringArray) -> tuple[Any, Any]:
    """Offsets (n + 1) and bytes of a text column, as they lie in memory."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(
        bytes(4 * (len(column) + 1)) if offsets is None else offsets, dtype=np.int32
    )
    text = np.frombuffer(data if data is not None and data.size else b"\0", dtype=np.uint8)
    return read_only(ends[column.offset : column.offset + len(column) + 1]), read_only(text)


def longest(column: pa.StringArray) -> int:
    """Bytes of the longest text of a column; 0 without any."""
    return int(np.diff(text_buffers(column)[0]).max(initial=0))


@njit(cache=True, nogil=True)
def group(codes, n):
    """The rows ordered by their code, as they come within one, and where each of n codes begins (n + 1)."""
    bounds = np.zeros(n + 1, dtype=np.int64)
    for code in codes:
        bounds[code + 1] += 1
    for code in range(n):
        bounds[code + 1] += bounds[code]
    order = np.empty(len(codes), dtype=np.int64)
    next_at = bounds[:n].copy()
    for i in range(len(codes)):
        order[next_at[codes[i]]] = i
        next_at[codes[i]] += 1
    return order, bounds


@njit(cache=True, nogil=True)
def repeats(order, owner, codes):
    """Which attributes have an owner and a code that one before them has, too, given their `order` by code; and how many have."""
    again = np.zeros(len(codes), dtype=np.bool_)
    found = 0
    for i in range(1, len(order)):
        here, before = order[i], order[i - 1]
        if owner[here] == owner[before] and codes[here] == codes[before]:
            again[here] = True
            found += 1
    return again, found


@njit(cache=True, nogil=True)
def _gather(take, offsets, data, more_offsets, more_data):
    ends = np.zeros(len(take) + 1, dtype=np.int32)
    size = len(offsets) - 1
    for i in range(len(take)):
        at = take[i]
        length = 0
        if at >= size:
            length = more_offsets[at - size + 1] - more_offsets[at - size]
        elif at >= 0:
            length = offsets[at + 1] - offsets[at]
        ends[i + 1] = ends[i] + length
    out = np.empty(ends[-1], dtype=np.uint8)
    for i in range(len(take)):
        at = take[i]
        if at >= size:
            source, first = more_data, more_offsets[at - size]
        else:
            source, first = data, offsets[max(at, 0)]
        for b in range(ends[i + 1] - ends[i]):
            out[ends[i] + b] = source[first + b]
    return ends, out


def gathered(
    take: IntArray, filled: BoolArray, column: pa.StringArray, more: pa.StringArray
) -> pa.StringArray:
    """The texts at `take` of `column`, numbered on in `more`; null where it is not `filled` (and negative)."""
    ends, data = _gather(take, *text_buffers(column), *text_buffers(more))
    return pa.StringArray.from_buffers(
        len(take), pa.py_buffer(ends), pa.py_buffer(data), *_validity(filled)
    )


def masked(values: Any, filled: BoolArray) -> pa.Array:
    """Numbers as an Arrow column that shares their memory; null where it is not filled."""
    valid, nulls = _validity(filled)
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [valid, pa.py_buffer(values)], nulls
    )


def _validity(filled: BoolArray) -> tuple[Any, int]:
    nulls = len(filled) - int(np.count_nonzero(filled))
    return pa.py_buffer(np.packbits(filled, bitorder="little")) if nulls else None, nulls


@njit(cache=True, nogil=True)
def _is_alnum(byte):
    return (
        (byte >= 0x30 and byte <= 0x39)
        or (byte >= 0x41 and byte <= 0x5A)
        or (byte >= 0x61 and byte <= 0x7A)
        or byte >= 0x80
    )


# The first three letters of tokens and of credentials (wording.SUSPECT_PRIVATE), as numbers.
_STARTS = np.array(
    sorted(
        start[0] << 16 | start[1] << 8 | start[2]
        for start in (
            *(b"sk-", b"pk-", b"rk-", b"sk_", b"pk_", b"rk_", b"ghp", b"gho", b"ghu", b"ghs"),
            *(b"ghr", b"git", b"glp", b"xox", b"AKI", b"ASI", b"AIz", b"hf_", b"npm", b"eyJ"),
            *(b"bea", b"Bea", b"BEA", b"bas", b"Bas", b"pas", b"Pas", b"pwd", b"sec", b"Sec"),
            *(b"api", b"Api", b"API", b"acc", b"---"),
        )
    ),
    dtype=np.int64,
)


@njit(cache=True, nogil=True)
def _is_suspect(first, end, data):
    """Whether a text may be private (wording.is_private): an @, a URL, digits in groups or of a card, the start of a token or an account's number."""
    digits, groups, leading, plus = 0, 0, 0, False
    before = np.uint8(0)
    for at in range(first, end):
        byte = data[at]
        left = end - at
        if byte == 0x40:  # @
            return True
        if byte >= 0x30 and byte <= 0x39:
            if digits == 0:
                leading, plus = byte, before == 0x2B
                if _is_alnum(before):
                    digits = -1_000  # digits of a hash or a version
            digits += 1
        elif byte == 0x20 or (byte >= 0x28 and byte <= 0x2F and byte != 0x2B):  # ( ) - . /
            if digits > 0:
                groups += 1
            else:
                digits = 0
        else:
            apart = not _is_alnum(byte) or not (before >= 0x30 and before <= 0x39)
            if _many(digits, groups, leading, plus) and apart:
                return True
            digits, groups = 0, 0
            if byte == 0x3A and left > 2 and data[at + 1] == 0x2F and data[at + 2] == 0x2F:
                return True
            if byte == 0x25 and left > 2 and _is_alnum(data[at + 1]):
                return True
            if left > 7 and not _is_alnum(before) and _begins_secret(at, left, data):
                return True
        before = byte
    return _many(digits, groups, leading, plus)


@njit(cache=True, nogil=True)
def _begins_secret(at, left, data):
    first, second, third = data[at], data[at + 1], data[at + 2]
    start = np.int64(first) << 16 | np.int64(second) << 8 | np.int64(third)
    spot = np.searchsorted(_STARTS, start)
    if spot < len(_STARTS) and _STARTS[spot] == start:
        return True
    capitals = first >= 0x41 and first <= 0x5A and second >= 0x41 and second <= 0x5A
    return (
        capitals
        and left > 11
        and third >= 0x30
        and third <= 0x39
        and data[at + 3] >= 0x30
        and data[at + 3] <= 0x39
    )


@njit(cache=True, nogil=True)
def _many(digits, groups, leading, plus):
    """Whether a run of digits may be of a telephone or a card."""
    return (digits >= 6 and (groups > 0 or plus)) or (
        digits >= 13 and leading >= 0x32 and leading <= 0x36
    )


@njit(cache=True, nogil=True)
def _may_change(first, end, data, name):
    """Whether a text is one that wording.identity, or (of a `name`) wording.name or wording.address may change."""
    if _is_suspect(first, end, data):
        return True
    spaces, joints, run, numbers = 0, 0, 0, 0
    for at in range(first, end):
        byte = data[at]
        if byte < 0x20 or byte >= 0x80 or byte == 0x2B or byte == 0x25:  # + %
            return True
        spaces += byte == 0x20
        if (byte == 0x7B or byte == 0x5B or byte == 0x22) and (at == first or spaces):  # { [ "
            return True
        if name:
            if byte in (0x3B, 0x23, 0x27, 0x22, 0x3F):  # ; # ' " ?
                return True
            joints += byte == 0x2D or byte == 0x5F
            is_number = byte >= 0x30 and byte <= 0x39
            is_hex = is_number or (byte >= 0x61 and byte <= 0x66) or (byte >= 0x41 and byte <= 0x46)
            run = run + 1 if is_hex else 0
            numbers = numbers + is_number if is_hex else 0
            if run >= 6 and numbers:
                return True
    question = end > first and data[end - 1] == 0x3F
    return spaces >= 2 or (spaces > 0 and question) or joints >= 5


@njit(cache=True, nogil=True)
def _changing(offsets, data, name):
    found = np.zeros(len(offsets) - 1, dtype=np.bool_)
    for i in range(len(found)):
        first, end = offsets[i], offsets[i + 1]
        found[i] = end > first and _may_change(first, end, data, name)
    return found


def suspects(column: pa.StringArray, name: bool) -> BoolArray:
    """Which texts may hold what is private or was said (wording.py): all that `wording.identity` or, of names, `wording.name` would change, and some more.

    Reading each of them with regular expressions, Arrow's or Python's, would cost as much as all else that is done with a span.
    """
    found: BoolArray = _changing(*text_buffers(column), name)
    return found


@njit(cache=True, nogil=True)
def examine(keep, codes, kind, offsets, data, look, may_be_long, max_text, sentence, max_bytes):
    """PLAIN, TEXT or FRACTION per attribute. `look` of a key says that its strings are always looked at, 2 that its numbers are, too.

    A string that may be a sentence, a document or private, that is longer than `max_text` characters (unless its key `may_be_long`) or has more than `max_bytes`
    bytes, is looked at as well.
    """
    how = np.zeros(len(codes), dtype=np.uint8)
    for i in range(len(codes)):
        if not keep[i]:
            continue
        code = codes[i]
        if kind[i] == STRING:
            first, end = offsets[i], offsets[i + 1]
            if look[code]:
                how[i] = TEXT
            elif end > first and max_text >= 0:
                byte = data[first]
                if (
                    byte == 0x7B or byte == 0x5B or byte == 0x22 or byte <= 0x20
                ):  # { [ " or white space before one
                    how[i] = TEXT
                elif end - first > 5 and _is_suspect(first, end, data):
                    how[i] = TEXT
                elif end - first > 8:
                    characters, spaces, beyond = 0, 0, 0
                    for at in range(first, end):
                        characters += (data[at] & 0xC0) != 0x80
                        spaces += data[at] <= 0x20
                        beyond += (
                            data[at] >= 0xE0
                        )  # the first byte of a letter beyond the European and Semitic scripts
                    if (
                        (characters > max_text and not may_be_long[code])
                        or spaces >= sentence
                        or beyond >= 12
                        or (spaces and data[end - 1] == 0x3F)
                    ):
                        how[i] = TEXT
            if end - first > max_bytes:
                how[i] = TEXT
        elif look[code] == 2 or kind[i] == OTHER or (look[code] and kind[i] == NOTHING):
            how[i] = TEXT
        elif kind[i] == DOUBLE:
            how[i] = FRACTION
    return how


@njit(cache=True, nogil=True)
def pack(
    keep,
    owner,
    codes,
    kind,
    how,
    offsets,
    data,
    numbers,
    ready_at,
    ready_offsets,
    ready,
    hashes,
    n,
    limit,
):
    """Packed values of each of n owners (bytes, offsets), a hash of each one's sequence of keys, how many values each has, how many were cut.

    `ready_at` of an attribute that is not PLAIN is the index of its text in `ready`. Owners ascend. Only the first `limit` values are written.
    """
    size = 2 * len(data) + 2 * len(ready) + 22 * len(codes) + 8
    out = np.empty(size, dtype=np.uint8)
    ends = np.zeros(n + 1, dtype=np.int32)
    counts = np.zeros(n, dtype=np.int32)
    shape = np.zeros(n, dtype=np.uint64)
    digits = np.empty(20, dtype=np.uint8)
    at, cut, last = 0, 0, 0
    for i in range(len(codes)):
        if not keep[i]:
            continue
        o = owner[i]
        while last < o:
            last += 1
            ends[last] = at
        if counts[o] >= limit:
            cut += 1
            continue
        if counts[o]:
            out[at] = _SEPARATOR
            at += 1
        shape[o] += hashes[codes[i]] * _ODD_POWERS[counts[o]]
        counts[o] += 1
        if how[i] != PLAIN or kind[i] == STRING:
            if how[i] != PLAIN:
                source, first, end = (
                    ready,
                    ready_offsets[ready_at[i]],
                    ready_offsets[ready_at[i] + 1],
                )
            else:
                source, first, end = data, offsets[i], offsets[i + 1]
            for b in range(first, end):
                byte = source[b]
                if byte in (_SEPARATOR, _ESCAPE):
                    out[at] = _ESCAPE
                    at += 1
                    byte = np.uint8(0x31 if byte == _SEPARATOR else 0x30)
                out[at] = byte
                at += 1
        elif kind[i] == INT:
            value = numbers[i]
            rest = np.uint64(value)
            if value < 0:
                out[at] = 0x2D  # -
                at += 1
                rest = np.uint64(~rest + np.uint64(1))
            places = 0
            while True:
                digits[places] = np.uint8(np.uint64(48) + rest % np.uint64(10))
                places += 1
                rest = rest // np.uint64(10)
                if rest == np.uint64(0):
                    break
            for place in range(places - 1, -1, -1):
                out[at] = digits[place]
                at += 1
        elif kind[i] == BOOL:
            word = b"true" if numbers[i] else b"false"
            for place in range(len(word)):
                out[at] = word[place]
                at += 1
    while last < n:
        last += 1
        ends[last] = at
    return out[:at], ends, shape, counts, cut


def packed_text(data: Any, ends: Any, counts: Any) -> pa.StringArray:
    """What `pack` wrote as an Arrow column; null where an owner has no attribute."""
    return pa.StringArray.from_buffers(
        len(counts), pa.py_buffer(ends), pa.py_buffer(data), *_validity(counts > 0)
    )
