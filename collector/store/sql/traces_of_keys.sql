-- Which traces, and turns of traces, have these keys (v_requests.trace_key)? One row per request with the start of the first span of its trace in [$since, $until),
-- nanoseconds; `turn` is the id of the span at a turn's top, 0 for a whole trace.
with turns as materialized (
    select trace_hi, trace_lo, turn_span_id as turn, request_key(trace_hi, trace_lo, turn_span_id) as trace_key
    from requests
    where turn_span_id is not null and request_key(trace_hi, trace_lo, turn_span_id) in (select trace_key from wanted))
select trace_hi, trace_lo, min(start_ns) as start_ns, hash(trace_hi, trace_lo) as trace_key, 0::ubigint as turn
from spans
where starts_within(start_ns, $since::timestamptz, $until::timestamptz) and hash(trace_hi, trace_lo) in (select trace_key from wanted)
group by all
union all
select trace_hi, trace_lo, min(start_ns), trace_key, turn
from spans join turns using (trace_hi, trace_lo)
where starts_within(start_ns, $since::timestamptz, $until::timestamptz)
group by all;
