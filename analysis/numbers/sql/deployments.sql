-- What did pipelines and deployment tools report as deployed from $start to $end, at most the last 10,000 spans? One row per span of theirs: its trace, service and version, its name, when it ended, and its attributes.
-- The condition is that of dialects/cicd.py: builds, tests and spans that carry a deployment's name count for nothing, however many they are.
with reporting as (select shape, service, version, keys from v_shapes where dialect = 'cicd'
    and list_has_any(keys, ['cicd.pipeline.task.type', 'deployment.status', 'cicd.pipeline.result', 'deployment.name', 'deployment.id'])),
sent as (
    select trace_key, service, version, name, start_us, duration_ms, map(keys, unpacked(attribute_values)) as attributes
    from stored_rows(1::ubigint, 1::ubigint, $start::timestamptz, $end::timestamptz, null::ubigint[]) join reporting using (shape))
select distinct trace_key, service, version, name, make_timestamptz(start_us + (1000 * duration_ms)::bigint) as ended, attributes
from sent
where case
    when attributes['cicd.pipeline.task.type'] is not null then lower(attributes['cicd.pipeline.task.type']) = 'deploy'
    when attributes['deployment.status'] is not null then true
    when attributes['cicd.pipeline.result'] is not null then contains(lower(coalesce(attributes['cicd.pipeline.name'], name)), 'deploy')
    else contains(lower(name), 'deploy') and coalesce(attributes['deployment.name'], attributes['deployment.id']) is not null end
order by ended desc, service, name
limit 10000
