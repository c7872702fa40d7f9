-- Which spans of a stretch of time are stored, where none is of a request? One row per service, most spans first: its spans, and the roots among them by kind.
select service, count(*) as spans, count(*) filter (parent_span_id is null) as roots,
    count(*) filter (parent_span_id is null and kind in ('server', 'consumer')) as served,
    any_value(name) filter (parent_span_id is null and kind in ('server', 'consumer')) as served_name
from v_spans
where ($start::timestamptz is null or start >= $start::timestamptz) and ($end::timestamptz is null or start < $end::timestamptz)
group by service
order by spans desc, service
