-- How many model calls of the window, of one trace in $of, show signs of telemetry that misleads? One row. Milliseconds.
-- usual = medians of a model's calls, of those in every $every-th trace. An early chunk is a client TTFT below the engine's, or far below the usual with the time missing behind it.
with calls as materialized (
    select trace_key, model, provider, ttft_client_ms, ttft_engine_ms, e2e_ms, engine_e2e_ms, tpot_ms, input_tokens, output_tokens, cached_tokens, reasoning_tokens, attempts, error,
        tpot_reason, engine_alone, http_status = 429 or case when error_type is null then false else regexp_matches(lower(error_type), 'rate.?limit|too.?many') end as limited
    from v_llm_calls
    where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
        and ($of = 1 or trace_key % $of::ubigint = 0)),
usual as (
    select model, median(ttft_client_ms) as ttft_ms, median(tpot_ms) as tpot_ms
    from calls
    where not error and ttft_client_ms is not null and trace_key % $every::ubigint = 0
    group by model having count(*) >= 4),
-- Joined for calls whose time is short against the usual of some model: a join for every call takes longer than all the rest.
sudden as (
    select count(*) as n
    from calls c join usual u on u.model is not distinct from c.model
    where not error and ttft_engine_ms is null and ttft_client_ms < 0.25 * (select max(ttft_ms) from usual) and ttft_client_ms < 0.25 * u.ttft_ms
        and e2e_ms - ttft_client_ms - greatest(output_tokens - 1, 0) * u.tpot_ms > 0.5 * u.ttft_ms)
select
    count(*) filter (not error and ttft_client_ms is not null) as timed, count(*) filter (not error and ttft_client_ms > e2e_ms + 1.0) as beyond,
    count(*) filter (not error and ttft_client_ms < 0.5 * ttft_engine_ms) + (select n from sudden) as early,
    count(*) filter (ttft_client_ms is not null and ttft_engine_ms is not null) as joined,
    count(*) filter (attempts is null and ttft_client_ms - ttft_engine_ms > greatest(100.0, 0.5 * ttft_client_ms)
        and not coalesce(e2e_ms - engine_e2e_ms < 0.5 * (ttft_client_ms - ttft_engine_ms), false)) as late, -- a stream that is held back ends in time
    count(*) filter (error and attempts is null) as failed, count(*) filter (engine_alone) as unclaimed,
    count(*) as calls, count(*) filter (attempts is null) as uncounted, count(*) filter (limited and attempts is null) as limited,
    count(*) filter (reasoning_tokens > 0) as reasoning, count(*) filter (tpot_reason = 'hidden_reasoning') as hidden,
    count(*) filter (cached_tokens is not null) as cached, count(*) filter (cached_tokens > input_tokens) as cached_over
from calls
