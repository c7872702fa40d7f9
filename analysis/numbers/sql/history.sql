-- How many successful requests of each step fall into each latency bucket, and for how many do they stand (weights, squared weights)? One row per step and
-- bucket; `step` is the step's start in seconds since 1970. Milliseconds. Rollups before $split, the requests themselves (in the same buckets) from there on.
-- Counted by bucket, whose value is worked out once.
with folded as (
    select epoch_us(minute) // 1000000 // $step_s::bigint * $step_s::bigint as step, bucket, n, weight, weight_squared
    from v_rollups
    where metric = $metric and minute < $split::timestamptz
        and asked_for(minute_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)),
fresh as (
    select epoch_us(start) // 1000000 // $step_s::bigint * $step_s::bigint as step, ceil(ln(judged_ms * 1e6) / ln(1.01 / 0.99))::integer as bucket, 1 as n,
        sample_weight as weight, sample_weight * sample_weight as weight_squared
    from (select *, case $metric when 'ttft' then ttft_ms when 'itl' then itl_ms when 'tpot' then tpot_ms else e2e_ms end as judged_ms from v_requests)
    where complete and status = 'ok' and llm_calls > 0 and judged_ms > 0.0 and start >= $split::timestamptz
        and asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)),
counted as (
    select step, bucket, sum(n)::bigint as n, sum(weight) as weight, sum(weight_squared) as weight_squared
    from (from folded union all from fresh)
    group by step, bucket)
select step, 2.0 * (1.01 / 0.99) ** bucket / (1.01 / 0.99 + 1.0) / 1e6 as value_ms, n, weight, weight_squared
from counted
order by step, bucket
