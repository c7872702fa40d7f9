"""Where in OTLP trace bytes stands what? Compiled loops over protobuf's wire format that put every span, attribute, event and link into columns.

They read what every sender writes. Whatever is unusual (broken bytes, text that is not UTF-8, a field of another type, one value set twice, groups)
is only recognised here and left to protobuf's own decoder (otlp_spans.py), which then reads or refuses it: no judgement of theirs has to be repeated.
"""

from __future__ import annotations

import numpy as np

from overrun.collector.process.compiled import inlined, lean, njit

GOOD, UNUSUAL, FULL = range(3)
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
NOTHING, STRING, INT, DOUBLE, BOOL, OTHER = range(
    6
)  # which member of an AnyValue is set; OTHER: an array, a map or bytes
_PROBES = 64  # places looked at for a key; more only happens to keys that were made to collide
_NONE = np.uint64(0)
# Rows of the tables that the loops fill, one column per item: plain two-dimensional arrays, because tuples of arrays cost ten times as much to hand on.
# Times, ids and fractions are the same 64 bits as sent; FIRST and END say where a text (or array, map, bytes) stands in the input.
OWNER, CODE, KIND, NUMBER, FIRST, END, MEMBER = range(7)  # of attributes
(
    TRACE_HI,
    TRACE_LO,
    SPAN,
    PARENT,
    START,
    STOP,
    SPAN_KIND,
    STATUS,
    FLAGS,
    NAME,
    NAME_END,
    STATE,
    STATE_END,
) = range(13)  # of spans
# How many attributes, events and links a span lost to its sender's limits; of events and links, how many attributes (DROPPED).
DROPPED_ATTRIBUTES, DROPPED_EVENTS, DROPPED_LINKS = range(13, 16)
TIME, DROPPED = 1, 6  # of events, beside OWNER, FIRST and END of the name
LINKED_HI, LINKED_LO, LINKED_SPAN, WHOLE = range(1, 5)  # of links, beside OWNER
SLOT, KEY, KEY_END, GUESS = range(
    4
)  # of keys: a hash table of their numbers; where each stands; which came last time after it
ITEMS, KEYS, BEFORE = range(3)  # how many attributes and keys there are, and which key was the last


@inlined()
def varint(data, at, end):
    """A number and where the next byte stands; -1 if it is broken."""
    if at < end and data[at] < 128:
        return np.uint64(data[at]), at + 1
    value, shift = np.uint64(0), np.uint64(0)
    for i in range(10):
        if at >= end:
            return value, -1
        byte = np.uint64(data[at])
        at += 1
        value |= (byte & np.uint64(127)) << shift
        if byte < np.uint64(128):
            return value, -1 if i == 9 and byte > np.uint64(1) else at
        shift += np.uint64(7)
    return value, -1


@inlined()
def tag(data, at, end):
    """Field number, wire type and where its content begins; -1 if it is broken."""
    value, at = varint(data, at, end)
    if at < 0 or value > np.uint64(0xFFFFFFFF) or value < np.uint64(8):
        return np.int64(0), np.int64(0), -1
    return np.int64(value >> np.uint64(3)), np.int64(value & np.uint64(7)), at


@inlined()
def block(data, at, end):
    """Where a length-delimited field begins and ends; -1 if it is broken."""
    size, at = varint(data, at, end)
    if at < 0 or size > np.uint64(end - at):
        return at, -1
    return at, at + np.int64(size)


@inlined()
def skip(data, at, end, wire):
    """Where the next field begins; -1 if this one is broken or a group."""
    if wire == BYTES:
        return block(data, at, end)[1]
    if wire == VARINT:
        return varint(data, at, end)[1]
    if wire == FIXED64:
        return at + 8 if at + 8 <= end else -1
    if wire == FIXED32:
        return at + 4 if at + 4 <= end else -1
    return -1


@inlined()
def counted(data, at, end, wire):
    """A uint32 and where the next field begins; -1 if it is broken or of another type."""
    if wire != VARINT:
        return np.int64(0), -1
    number, at = varint(data, at, end)
    return np.int64(number & np.uint64(0xFFFFFFFF)), at


@inlined()
def little(data, at, width):
    """A number of `width` bytes, the lowest first."""
    value = np.uint64(0)
    for i in range(width):
        value |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return value


@inlined()
def identity(data, at):
    """A number of eight bytes, the highest first."""
    value = np.uint64(0)
    for i in range(8):
        value = value << np.uint64(8) | np.uint64(data[at + i])
    return value


@inlined()
def is_utf8(data, at, end):
    """Whether these bytes are UTF-8 (Unicode 15, table 3-7)."""
    high = np.uint8(0)
    for i in range(at, end):
        high |= data[i]
    if high < 128:
        return True
    while at < end:
        first = data[at]
        if first < 0x80:
            at += 1
            continue
        low, top = 0x80, 0xBF
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
            if first == 0xE0:
                low = 0xA0
            elif first == 0xED:
                top = 0x9F
        elif 0xF0 <= first <= 0xF4:
            more = 3
            if first == 0xF0:
                low = 0x90
            elif first == 0xF4:
                top = 0x8F
        else:
            return False
        if at + more >= end:
            return False
        if data[at + 1] < low or data[at + 1] > top:
            return False
        for i in range(2, more + 1):
            if data[at + i] & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


@njit(cache=True, nogil=True)
def gather(data, first, end, wanted):
    """The wanted texts one behind the other: where each begins (n + 1), and their bytes. An unwanted one is empty."""
    ends = np.empty(len(first) + 1, dtype=np.int32)
    ends[0] = 0
    for i in range(len(first)):
        ends[i + 1] = ends[i] + (end[i] - first[i] if wanted[i] else 0)
    out = np.empty(ends[-1], dtype=np.uint8)
    for i in range(len(first)):
        place, begin = ends[i], first[i]
        for b in range(ends[i + 1] - place):
            out[place + b] = data[begin + b]
    return ends, out


@inlined()
def same(data, a, a_end, b, b_end):
    """Whether two stretches hold the same bytes."""
    if a_end - a != b_end - b:
        return False
    for i in range(a_end - a):  # noqa: SIM110 - compiled as it stands
        if data[a + i] != data[b + i]:
            return False
    return True


@inlined()
def key_code(data, at, end, keys, count):
    """The number of a key; -UNUSUAL or -FULL if it has none."""
    before = count[BEFORE]
    code = keys[GUESS, before]
    if code < count[KEYS] and same(data, at, end, keys[KEY, code], keys[KEY_END, code]):
        count[BEFORE] = code + 1
        return code
    spot = np.uint64(1469598103934665603)  # FNV-1a
    for i in range(at, end):
        spot = (spot ^ np.uint64(data[i])) * np.uint64(1099511628211)
    places = keys.shape[1] - 1
    spot ^= spot >> np.uint64(32)
    for _ in range(_PROBES):
        place = np.int64(spot & np.uint64(places - 1))
        code = keys[SLOT, place]
        if code < 0:
            if not is_utf8(data, at, end):
                return -UNUSUAL
            if count[KEYS] * 2 >= places:
                return -FULL
            code = count[KEYS]
            keys[SLOT, place], keys[KEY, code], keys[KEY_END, code] = code, at, end
            count[KEYS] += 1
        elif not same(data, at, end, keys[KEY, code], keys[KEY_END, code]):
            spot += np.uint64(1)
            continue
        keys[GUESS, before] = code
        count[BEFORE] = code + 1
        return code
    return -UNUSUAL


@inlined()
def value(data, at, end, row, items):
    """One AnyValue into row `row`."""
    items[KIND, row] = NOTHING
    members = 0
    while at < end:
        field, wire, at = tag(data, at, end)
        if at < 0:
            return UNUSUAL
        if field > 8:
            at = skip(data, at, end, wire)
            if at < 0:
                return UNUSUAL
            continue
        members += 1
        if members > 1:
            return UNUSUAL
        if wire == BYTES and (field == 1 or 5 <= field <= 7):
            first, at = block(data, at, end)
            if at < 0 or (field == 1 and not is_utf8(data, first, at)):
                return UNUSUAL
            items[KIND, row] = STRING if field == 1 else OTHER
            items[FIRST, row], items[END, row], items[MEMBER, row] = first, at, field
        elif wire == VARINT and (field == 2 or field == 3 or field == 8):
            number, at = varint(data, at, end)
            if at < 0:
                return UNUSUAL
            if field == 3:
                items[KIND, row], items[NUMBER, row] = INT, np.int64(number)
            elif field == 2:
                items[KIND, row], items[NUMBER, row] = BOOL, np.int64(number != _NONE)
        elif wire == FIXED64 and field == 4 and at + 8 <= end:
            items[KIND, row], items[NUMBER, row] = DOUBLE, np.int64(little(data, at, 8))
            at += 8
        else:
            return UNUSUAL
    return GOOD


@inlined()
def attribute(data, at, end, owner, items, keys, count):
    """One KeyValue."""
    row = count[ITEMS]
    if row >= items.shape[1]:
        return FULL
    key, key_end, inner, inner_end = at, at, at, at
    seen = 0
    while at < end:
        field, wire, at = tag(data, at, end)
        if at < 0:
            return UNUSUAL
        if field <= 2:
            if wire != BYTES or seen & field:  # 1 and 2: each is a bit of its own
                return UNUSUAL
            seen |= field
            first, at = block(data, at, end)
            if at < 0:
                return UNUSUAL
            if field == 1:
                key, key_end = first, at
            else:
                inner, inner_end = first, at
        else:
            at = skip(data, at, end, wire)
            if at < 0:
                return UNUSUAL
    code = key_code(data, key, key_end, keys, count)
    if code < 0:
        return -code
    items[OWNER, row], items[CODE, row] = owner, code
    count[ITEMS] = row + 1
    return value(data, inner, inner_end, row, items)


@lean()
def status_code(data, at, end):
    """The code of a Status and whether it is as usual."""
    code = np.int32(0)
    while at < end:
        field, wire, at = tag(data, at, end)
        if at < 0:
            return code, UNUSUAL
        if field == 3:
            if wire != VARINT:
                return code, UNUSUAL
            number, at = varint(data, at, end)
            code = np.int32(number)
        else:
            first = at
            if field == 2:
                if wire != BYTES:
                    return code, UNUSUAL
                first, at = block(data, at, end)
                if at < 0 or not is_utf8(data, first, at):
                    return code, UNUSUAL
            else:
                at = skip(data, at, end, wire)
        if at < 0:
            return code, UNUSUAL
    return code, GOOD


@lean()
def event(data, at, end, owner, events, items, keys, count, seen):
    """One Event."""
    row = seen[0]
    if row >= events.shape[1]:
        return FULL
    name, name_end = at, at
    events[TIME, row], events[DROPPED, row] = 0, 0
    while at < end:
        field, wire, at = tag(data, at, end)
        if at < 0:
            return UNUSUAL
        if field == 1:
            if wire != FIXED64 or at + 8 > end:
                return UNUSUAL
            events[TIME, row] = np.int64(little(data, at, 8))
            at += 8
        elif field in (2, 3):
            if wire != BYTES:
                return UNUSUAL
            first, at = block(data, at, end)
            if at < 0:
                return UNUSUAL
            if field == 3:
                found = attribute(data, first, at, row, items, keys, count)
                if found != GOOD:
                    return found
            elif is_utf8(data, first, at):
                name, name_end = first, at
            else:
                return UNUSUAL
        elif field == 4:
            events[DROPPED, row], at = counted(data, at, end, wire)
            if at < 0:
                return UNUSUAL
        else:
            at = skip(data, at, end, wire)
            if at < 0:
                return UNUSUAL
    events[OWNER, row], events[FIRST, row], events[END, row] = owner, name, name_end
    seen[0] = row + 1
    return GOOD


@lean()
def link(data, at, end, owner, links, items, keys, count, seen):
    """One Link."""
    row = seen[1]
    if row >= links.shape[1]:
        return FULL
    trace, trace_end, span, span_end = at, at, at, at
    links[DROPPED, row] = 0
    while at < end:
        field, wire, at = tag(data, at, end)
        if at < 0:
            return UNUSUAL
        if field == 5:
            links[DROPPED, row], at = counted(data, at, end, wire)
            if at < 0:
                return UNUSUAL
        elif field <= 4:
            if wire != BYTES:
                return UNUSUAL
            first, at = block(data, at, end)
            if at < 0:
                return UNUSUAL
            if field == 1:
                trace, trace_end = first, at
            elif field == 2:
                span, span_end = first, at
            elif field == 3:
                if not is_utf8(data, first, at):
                    return UNUSUAL
            else:
                found = attribute(data, first, at, row, items, keys, count)
                if found != GOOD:
                    return found
        else:
            at = skip(data, at, end, wire)
            if at < 0:
                return UNUSUAL
    whole = trace_end - trace == 16 and span_end - span == 8
    links[OWNER, row], links[WHOLE, row] = owner, whole
    links[LINKED_HI, row] = np.int64(identity(data, trace)) if whole else 0
    links[LINKED_LO, row] = np.int64(identity(data, trace + 8)) if whole else 0
    links[LINKED_SPAN, row] = np.int64(identity(data, span)) if whole else 0
    seen[1] = row + 1
    return GOOD


@inlined()
def one_span(
    data,
    at,
    end,
    row,
    spans,
    items,
    keys,
    count,
    events,
    of_events,
    event_keys,
    event_count,
    links,
    of_links,
    link_keys,
    link_count,
    seen,
):
    """One Span into row `row`. An id of another width than its own is 0, as no id is."""
    for column in range(spans.shape[0]):
        spans[column, row] = 0
    statuses = 0
    while at < end:
        field, wire, at = tag(data, at, end)
        if at < 0:
            return UNUSUAL
        if wire == BYTES:
            first, at = block(data, at, end)
            if at < 0:
                return UNUSUAL
            found = GOOD
            if field == 9:
                found = attribute(data, first, at, row, items, keys, count)
            elif field == 1:
                whole = at - first == 16
                spans[TRACE_HI, row] = np.int64(identity(data, first)) if whole else 0
                spans[TRACE_LO, row] = np.int64(identity(data, first + 8)) if whole else 0
            elif field == 2 or field == 4:
                spans[SPAN if field == 2 else PARENT, row] = (
                    np.int64(identity(data, first)) if at - first == 8 else 0
                )
            elif field == 3 or field == 5:
                if not is_utf8(data, first, at):
                    return UNUSUAL
                place = NAME if field == 5 else STATE
                spans[place, row], spans[place + 1, row] = first, at
            elif field == 11:
                found = event(
                    data, first, at, row, events, of_events, event_keys, event_count, seen
                )
            elif field == 13:
                found = link(data, first, at, row, links, of_links, link_keys, link_count, seen)
            elif field == 15:
                statuses += 1
                spans[STATUS, row], found = status_code(data, first, at)
                if statuses > 1:
                    return UNUSUAL
            elif field <= 16:
                return UNUSUAL
            if found != GOOD:
                return found
        elif field == 7 or field == 8:
            if wire != FIXED64 or at + 8 > end:
                return UNUSUAL
            spans[START if field == 7 else STOP, row] = np.int64(little(data, at, 8))
            at += 8
        elif field == 16:
            if wire != FIXED32 or at + 4 > end:
                return UNUSUAL
            spans[FLAGS, row] = np.int64(little(data, at, 4))
            at += 4
        elif field == 6:
            if wire != VARINT:
                return UNUSUAL
            number, at = varint(data, at, end)
            if at < 0:
                return UNUSUAL
            spans[SPAN_KIND, row] = np.int32(number)
        elif field == 10 or field == 12 or field == 14:
            spans[DROPPED_ATTRIBUTES + (field - 10) // 2, row], at = counted(data, at, end, wire)
            if at < 0:
                return UNUSUAL
        else:
            if field < 16:
                return UNUSUAL
            at = skip(data, at, end, wire)
            if at < 0:
                return UNUSUAL
    return GOOD


@lean()
def fill(
    data,
    extents,
    spans,
    items,
    keys,
    count,
    events,
    of_events,
    event_keys,
    event_count,
    links,
    of_links,
    link_keys,
    link_count,
    seen,
):
    """All spans that stand at `extents` (first, end), with their attributes (`items`), events and links; `seen` counts the last two."""
    for row in range(len(extents)):
        count[BEFORE] = 0
        found = one_span(
            data,
            extents[row, 0],
            extents[row, 1],
            row,
            spans,
            items,
            keys,
            count,
            events,
            of_events,
            event_keys,
            event_count,
            links,
            of_links,
            link_keys,
            link_count,
            seen,
        )
        if found != GOOD:
            return found
    return GOOD


@inlined()
def next_block(data, at, end, known):
    """The next field whose number is `known` at most, and where its content begins and ends. Number 0 at the end, -1 where something is unusual."""
    while at < end:
        field, wire, at = tag(data, at, end)
        if at < 0:
            return -1, at, at
        if field <= known:
            if wire != BYTES:
                return -1, at, at
            first, at = block(data, at, end)
            return (field if at >= 0 else -1), first, at
        at = skip(data, at, end, wire)
        if at < 0:
            return -1, at, at
    return 0, at, at


@inlined()
def one_scope(data, first, end, of_body, spans_seen, sources_seen, extents, body, source, places):
    """Note a scope and its spans, if there is room; how many spans there are by now, -1 if something is unusual."""
    room = len(extents) > 0
    scope, scope_end, url, url_end = -1, -1, -1, -1
    at = first
    while True:
        field, begin, at = next_block(data, at, end, 3)
        if field <= 0:
            break
        if field == 2:
            if room:
                extents[spans_seen, 0], extents[spans_seen, 1] = begin, at
                body[spans_seen], source[spans_seen] = of_body, sources_seen
            spans_seen += 1
        elif (url if field == 3 else scope) >= 0:
            return -1  # set twice: the first may be broken
        elif field == 3:
            url, url_end = begin, at
        else:
            scope, scope_end = begin, at
    if room:
        (
            places[sources_seen, 4],
            places[sources_seen, 5],
            places[sources_seen, 6],
            places[sources_seen, 7],
        ) = scope, scope_end, url, url_end
    return spans_seen if field == 0 else -1


@lean()
def index(data, bounds, extents, body, source, places, counts):
    """Where the spans and the sources (resource, its schema, scope, its schema: first and end of each, -1 if absent) of all bodies stand.

    Counts spans, sources and resources without a scope (they stand last: nothing refers to them, but they may be broken). With no room (`extents` is
    empty) it only counts.
    """
    room = len(extents) > 0
    spans_seen, sources_seen, lone, all_sources = 0, 0, 0, counts[1]
    for b in range(len(bounds) - 1):
        at, end = bounds[b], bounds[b + 1]
        while True:
            field, first, at = next_block(data, at, end, 1)
            if field <= 0:
                break
            resource, resource_end, url, url_end = -1, -1, -1, -1
            first_source, inner = sources_seen, first
            while True:
                field, first, inner = next_block(data, inner, at, 3)
                if field <= 0:
                    break
                if field == 2:
                    spans_seen = one_scope(
                        data,
                        first,
                        inner,
                        b,
                        spans_seen,
                        sources_seen,
                        extents,
                        body,
                        source,
                        places,
                    )
                    if spans_seen < 0:
                        return UNUSUAL
                    sources_seen += 1
                elif (url if field == 3 else resource) >= 0:
                    return UNUSUAL
                elif field == 3:
                    url, url_end = first, inner
                else:
                    resource, resource_end = first, inner
            if field < 0:
                return UNUSUAL
            begin, after = first_source, sources_seen
            if sources_seen == first_source:
                begin, after = all_sources + lone, all_sources + lone + 1
                lone += 1
                if room:
                    places[begin, 4:] = -1
            if room:
                for s in range(begin, after):
                    places[s, 0], places[s, 1], places[s, 2], places[s, 3] = (
                        resource,
                        resource_end,
                        url,
                        url_end,
                    )
        if field < 0:
            return UNUSUAL
    counts[0], counts[1], counts[2] = spans_seen, sources_seen, lone
    return GOOD
