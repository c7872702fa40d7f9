-- Which service and operation spent a stage's time in a few traces? One row per (service, span name), most time first. Milliseconds.
select service, name, count(*) as n, sum(duration_ms) as total_ms
from sampled_spans(
    1::ubigint, null::timestamptz, null::timestamptz,
    list_transform($trace_ids::varchar[], lambda id: hash(('0x' || id[1:16])::ubigint, ('0x' || id[17:32])::ubigint)))
where stage = $stage
group by service, name
order by total_ms desc, service, name
