-- title = "GuideLLM's report (benchmarks.json)"
-- source = "vllm-project/guidellm, src/guidellm/schemas: seconds since 1970, latency in s, TTFT in ms; a rate that could not be kept is judged from targeted_start"
-- needs = ["requests | metrics", "config.strategy | scheduler.strategy | args.strategy"]
-- tool = "guidellm"
-- whole = true
-- rows = ["benchmarks"]
-- each = ["requests.successful", "requests.errored", "requests.incomplete"]
-- [expected]
-- requests = 6
-- runs = 1
-- run = "constant 2.0"
-- failed = 1
-- e2e_ms = 1000.0
-- ttft_ms = 100.0
with listed as (
    select row->'$.own' as b, count(*) over () as n, (row->>'$.up')::int as place from f where json_exists(row, '$.own')
), elements as (
    select number as nth, (row->>'$.up')::int as up, row->>'$.of' as how, row->'$.each' as r from f where json_exists(row, '$.each')
), counted as (
    select up, count(*) as n_listed, any_value(try_cast(r->>'$.request_args' as json)->>'$.body.model') filter (how = 'successful') as model from elements group by up
), strategies as (
    select *, coalesce(b->'$.config.strategy', b->'$.scheduler.strategy', b->'$.args.strategy', '{}') as s from listed
), loads as (
    select *, coalesce(s->>'$.type_', s->>'$.kind', 'benchmark ' || place) as kind, coalesce(s->>'$.rate', s->>'$.streams', place::varchar) as level,
        try_cast(b->>'$.metrics.request_totals.total' as int) as made, coalesce(counted.n_listed, 0) as held from strategies left join counted on up = place
), runs as (
    select *, kind || ' ' || level as run, kind in ('constant', 'poisson', 'async', 'trace') as is_open, held = 0 or coalesce(held < made, false) as partial,
        case kind when 'synchronous' then 1 when 'throughput' then coalesce(try_cast(coalesce(s->>'$.streams', s->>'$.max_concurrency') as int), held)
            when 'concurrent' then try_cast(coalesce(s->>'$.streams', s->>'$.max_concurrency') as int) end as in_flight,
        case when kind = 'synchronous' then 1 when kind in ('concurrent', 'throughput') then try_cast(coalesce(s->>'$.rate', s->>'$.streams', s->>'$.max_concurrency') as int) end as bounded
    from loads
), metrics as (
    select *, unnest([null, {'m': 'e2e', 'f': b->'$.metrics.request_latency.successful', 'x': 1e3}, {'m': 'ttft', 'f': b->'$.metrics.time_to_first_token_ms.successful', 'x': 1.0},
        {'m': 'tpot', 'f': b->'$.metrics.inter_token_latency_ms.successful', 'x': 1.0}]) as m from runs where partial
), figures as (
    select *, unnest(case when m is null then [null] else list_concat(entries(m.f), entries(m.f->'$.percentiles')) end) as e from metrics
), requests as (
    select place, run, is_open, s, kind, in_flight, bounded, n, model, nth, how, r, try_cast(coalesce(r->>'$.request_start_time', r->>'$.start_time', r->>'$.info.timings.request_start') as double) as start,
        try_cast(coalesce(r->>'$.request_end_time', r->>'$.end_time', r->>'$.info.timings.request_end') as double) as "end" from (select * exclude (up) from runs where not partial) join elements on up = place
)
select place as run_key, run, case when is_open then s->>'$.rate' end as rate_rps, in_flight, bounded, 'strategy ' || kind as bounded_by, false as summary, null as metric, null as at, null as ms,
    null as why, null as succeeded, null as failed, null as answered_rps, how = 'incomplete' as cut, start as start_s, coalesce(try_cast(r->>'$.request_latency' as double), "end" - start) as e2e_s,
    r->>'$.time_to_first_token_ms' as ttft_ms, case when is_open then greatest(start - try_cast(r->>'$.info.timings.targeted_start' as double), 0) end as late_s,
    case how when 'errored' then coalesce(r->>'$.info.error', r->>'$.error', 'True') end as error, r->>'$.prompt_tokens' as input_tokens, r->>'$.output_tokens' as output_tokens,
    r->>'$.cached_tokens' as cached_tokens, case when n > 1 then run end as route, model, nth as place
from requests
union all by name
select true as summary, place as run_key, run, case when is_open then s->>'$.rate' end as rate_rps, in_flight, bounded, 'strategy ' || kind as bounded_by, m.m as metric, e.key as at,
    m.x * try_cast(e.value->>'$' as double) as ms, b->>'$.metrics.request_totals.successful' as succeeded, b->>'$.metrics.request_totals.errored' as failed,
    b->>'$.metrics.requests_per_second.successful.mean' as answered_rps, b->>'$.metrics.prompt_token_count.successful.mean' as input_tokens,
    b->>'$.metrics.output_token_count.successful.mean' as output_tokens,
    format('it holds {:,} of the {:,} requests of a benchmark: write all of them, because samples per outcome cannot be judged', held, coalesce(made, 0)) as why
from figures
order by run_key, place
