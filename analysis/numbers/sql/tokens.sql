-- How many tokens did the model calls of the window read and write, and at which price class? One row per model, most calls first.
-- `counted` calls say their input and output; a failed one that says nothing is counted as free. Cached tokens are part of the input, none where a call
-- tells of none (least() would pass over the null and take the whole input).
select model, count(*) as calls, count(*) filter (error or (input_tokens is not null and output_tokens is not null)) as counted,
    coalesce(sum(input_tokens), 0)::bigint as input_tokens, coalesce(sum(least(coalesce(cached_tokens, 0), input_tokens)), 0)::bigint as cached_tokens,
    coalesce(sum(output_tokens), 0)::bigint as output_tokens
from v_llm_calls
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
group by model
order by calls desc, model
