-- What did pipelines and deployment tools report from $start to $end, at most the last 10,000 spans? One row per span of theirs: its trace, service and version, its name, when it ended, and its attributes.
with told as (select shape, service, version, keys from v_shapes where dialect = 'cicd')
select distinct trace_key, service, version, name, make_timestamptz(start_us + (1000 * duration_ms)::bigint) as ended, map(keys, unpacked(attribute_values)) as attributes
from stored_rows(1::ubigint, 1::ubigint, $start::timestamptz, $end::timestamptz, null::ubigint[]) join told using (shape)
order by ended desc, service, name
limit 10000
