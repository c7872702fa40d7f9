-- How many complete requests did each step hold, how many failed, for how many do they stand, and how many were chosen by what happened? One row per step;
-- `step` is its start in seconds since 1970.
select step, sum(requests)::bigint as requests, sum(errors)::bigint as errors, sum(weight) as weight, sum(error_weight) as error_weight, sum(biased)::bigint as biased
from (
    select epoch_us(minute) // 1000000 // $step_s::bigint * $step_s::bigint as step, requests, errors, weight, error_weight, biased
    from v_rollup_counts
    where minute < $split::timestamptz
        and asked_for(minute_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
    union all
    select epoch_us(start) // 1000000 // $step_s::bigint * $step_s::bigint as step, 1, (status = 'error')::integer,
        sample_weight, case when status = 'error' then sample_weight else 0.0 end, coalesce(not starts_with(sampling, 'th:'), false)::integer
    from v_requests
    where complete and llm_calls > 0 and start >= $split::timestamptz
        and asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without))
group by step
order by step
