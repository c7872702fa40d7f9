-- Which model calls beside the requests of a what-if carry a hash of their prompt? One row per such span that started in [$start, $end).
with places as (
    select shape, coalesce(list_position(keys, 'overrun.prompt_hash'), list_position(keys, 'gen_ai.prompt.hash')) as place
    from v_shapes)
select printf('%016x', trace_key) as trace_id, span_id, unpacked(attribute_values)[place] as prompt_hash
from sampled_spans(1::ubigint, $start::timestamptz, $end::timestamptz, null::ubigint[]) join places using (shape)
where place is not null and role = 'llm'
order by trace_key, span_id
