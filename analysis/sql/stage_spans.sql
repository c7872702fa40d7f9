-- Which service and operation spent a stage's time in a few traces? One row per (service, span name), most time first. Milliseconds.
with wanted as (
    select hash(('0x' || id[1:16])::ubigint, ('0x' || id[17:32])::ubigint) as trace_key
    from (select unnest($trace_ids::varchar[]) as id))
select service, name, count(*) as n, sum(duration_ms) as total_ms
from v_spans
where trace_key in (select trace_key from wanted) and stage = $stage
group by service, name
order by total_ms desc, service, name
