-- When were how many successful requests how slow? One row per occupied cell: step since $origin_us, log bucket (0 begins at $base_ms),
-- count, and the number of requests that those stand for.
-- A value outside the buckets $first..$last counts in the nearest one.
select
    ((epoch_us(start) - $origin_us) // $step_us)::integer as step,
    least(greatest(floor(log10(greatest(judged_ms, 1e-6) / $base_ms) * $per_decade), $first), $last)::integer as bucket,
    count(*) as n, sum(sample_weight) as weight
from (select *, case $metric when 'ttft' then ttft_ms when 'itl' then itl_ms when 'tpot' then tpot_ms else e2e_ms end as judged_ms from v_requests)
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
    and complete and status = 'ok' and judged_ms is not null
group by step, bucket
order by step, bucket
