-- What did model calls that did not serve their request cost? One row over the calls of the window. Milliseconds, tokens.
-- A failed call is a wasted attempt when a later call of the same model in its trace took its place; waited = it ended by a time limit or a cancel.
with passed as not materialized (
    select trace_key, model, start, e2e_ms, input_tokens, output_tokens, error, error_type, http_status
    from v_llm_calls
    where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)),
ranked as (
    select *, start < max(start) over (partition by trace_key, model) as replaced
    from passed
    where trace_key in (select trace_key from passed where error)),
wasted as (
    select e2e_ms, coalesce(input_tokens, 0) + coalesce(output_tokens, 0) as tokens, input_tokens is null and output_tokens is null as unknown_tokens,
        regexp_matches(lower(coalesce(error_type, '')), 'time.?out|deadline|cancel|abort|disconnect') or coalesce(http_status, 0) in (408, 499, 504) as waited
    from ranked
    where error and replaced)
select count(*) as wasted, coalesce(sum(e2e_ms), 0.0)::double as wasted_ms, coalesce(sum(tokens), 0)::bigint as wasted_tokens,
    count(*) filter (unknown_tokens) as tokens_unknown, count(*) filter (waited) as on_slow, count(*) filter (not waited) as on_error
from wasted
