-- How long is the client's side of each call between two services longer than the server's? One row per edge and period (now, or the baseline).
-- An edge is a caller and a callee, by service and instance; spans of every $every-th trace, and model calls joined to their engine, whose spans are
-- therefore left out of the first half. A server's client is its parent, or has its id (B3, Zipkin's shared spans). Milliseconds.
with spans as materialized (
    select trace_key, span_id, parent_span_id, service || coalesce(' ' || instance, '') as place, kind, role, duration_ms, start
    from sampled_spans($every::ubigint, $start::timestamptz, $end::timestamptz, null::ubigint[])
    where kind in ('client', 'server')),
gaps as (
    select p.place as caller, c.place as callee, p.start, p.duration_ms - c.duration_ms as gap_ms
    from (select *, unnest([parent_span_id, span_id]) as client_id from spans where kind = 'server' and role <> 'engine') c
        join spans p on p.trace_key = c.trace_key and p.span_id = c.client_id
    where p.kind = 'client'
    union all
    select service || coalesce(' ' || instance, ''), engine_instance, start, e2e_ms - engine_e2e_ms
    from v_llm_calls
    where start >= $start::timestamptz and start < $end::timestamptz and engine_e2e_ms is not null and engine_instance is not null
        and not engine_alone and not error)
select caller, callee, start >= $onset::timestamptz as now, count(*) as n, median(gap_ms) as gap_ms
from gaps
where gap_ms >= 0.0
group by caller, callee, now
order by caller, callee, now
