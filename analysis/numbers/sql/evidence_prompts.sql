-- Which model calls carry a hash of their prompt? One row per such span of every $every-th trace, in order of start. Times in seconds after $start, durations in
-- milliseconds.
with places as (
    select shape, coalesce(list_position(keys, 'overrun.prompt_hash'), list_position(keys, 'gen_ai.prompt.hash')) as place
    from v_shapes)
select trace_key, epoch_us(start) / 1e6 - epoch($start::timestamptz) as start_s, duration_ms, unpacked(attribute_values)[place] as prompt_hash
from sampled_spans($every::ubigint, $start::timestamptz, $end::timestamptz, null::ubigint[]) join places using (shape)
where place is not null and role = 'llm'
order by start_s, trace_key, span_key
