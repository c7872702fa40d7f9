-- What did the model calls of a stretch of time ask for beside their prompt? One row per call of every $every-th trace and attribute whose key matches $pattern:
-- trace, start in seconds after $start, key and value. Where the attributes stand is looked up once per shape; spans without any need not be unpacked.
with places as (
    select shape, key, place from (
        select shape, unnest(keys) as key, unnest(range(1, len(keys) + 1)) as place from v_shapes)
    where regexp_matches(key, $pattern)),
calls as (
    select trace_key, start, shape, unpacked(attribute_values) as said
    from sampled_spans($every::ubigint, $start::timestamptz, $end::timestamptz, null::ubigint[])
    where role = 'llm' and shape in (select shape from places))
select trace_key, epoch_us(start) / 1e6 - epoch($start::timestamptz) as start_s, key, said[place]::varchar as value
from calls join places using (shape)
where said[place] is not null
order by trace_key, start_s, key
