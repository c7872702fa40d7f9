-- What took longest in these traces ($traces, by key), and on which host? One row per trace: the longest span that has no child.
with spans as (
    select trace_key, span_key, parent_key, duration_ms, name, shape
    from stored_rows(0::ubigint, 1::ubigint, $start::timestamptz, $end::timestamptz, $traces::ubigint[])),
longest as (
    select trace_key, arg_max(name, duration_ms) as operation, arg_max(shape, duration_ms) as shape
    from spans one
    where not exists (select 1 from spans child where child.trace_key = one.trace_key and child.parent_key = one.span_key)
    group by trace_key)
select trace_key, longest.operation,
    coalesce(resource_attributes['host.name'], resource_attributes['k8s.node.name'], resource_attributes['host.id']) as host
from longest left join v_shapes using (shape)
