-- How many successful requests of each step fall into each latency bucket? One row per step and bucket; `step` is the step's start in seconds since 1970.
-- Rollups before $split, the requests themselves (in the same buckets) from there on. Milliseconds.
with folded as (
    select epoch_us(minute) // 1000000 // $step_s::bigint * $step_s::bigint as step, value_ms, n
    from v_rollups
    where metric = $metric and minute < $split::timestamptz and
        ($start::timestamptz is null or minute >= $start::timestamptz)
        and ($end::timestamptz is null or minute < $end::timestamptz)
        and ($service::varchar is null or service = $service)
        and ($model::varchar is null or model = $model)
        and ($route::varchar is null or route = $route)
        and ($tenant::varchar is null or tenant = $tenant)
        and ($workload::varchar is null or workload = $workload)
        and not list_contains($without::varchar[], workload)),
fresh as (
    select epoch_us(start) // 1000000 // $step_s::bigint * $step_s::bigint as step, 1 as n,
        2.0 * (1.01 / 0.99) ** ceil(ln(judged_ms * 1e6) / ln(1.01 / 0.99))::integer / (1.01 / 0.99 + 1.0) / 1e6 as value_ms
    from (select *, case $metric when 'ttft' then ttft_ms when 'itl' then itl_ms when 'tpot' then tpot_ms else e2e_ms end as judged_ms from v_requests)
    where complete and status = 'ok' and llm_calls > 0 and judged_ms > 0.0 and start >= $split::timestamptz and
        ($start::timestamptz is null or start >= $start::timestamptz)
        and ($end::timestamptz is null or start < $end::timestamptz)
        and ($service::varchar is null or service = $service)
        and ($model::varchar is null or model = $model)
        and ($route::varchar is null or route = $route)
        and ($tenant::varchar is null or tenant = $tenant)
        and ($workload::varchar is null or workload = $workload)
        and not list_contains($without::varchar[], workload))
select step, value_ms, sum(n)::bigint as n
from (select step, value_ms, n from folded union all select step, value_ms, n from fresh)
group by step, value_ms
order by step, value_ms
