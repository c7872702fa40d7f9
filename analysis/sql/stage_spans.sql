-- Which service and operation spent a stage's time in a few traces? One row per (service, span name), most time first. Milliseconds.
select service, name, count(*) as n, sum(duration_ms) as total_ms
from v_spans
where list_contains($trace_ids::varchar[], trace_id) and stage = $stage
group by service, name
order by total_ms desc, service, name
