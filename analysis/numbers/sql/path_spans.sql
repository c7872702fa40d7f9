-- What are the span trees of some requests? One row per span of every $every-th trace that starts in [$start, $end]. Microseconds since 1970, milliseconds.
select trace_key, span_id, parent_span_id, epoch_us(start) as start_us, duration_ms, ttft_ms, stage, role
from sampled_spans($every::ubigint, $start::timestamptz, $end::timestamptz + to_microseconds(1), null::ubigint[])
order by trace_key, start, span_id
