-- title = "GuideLLM's report of before 0.2"
-- source = "vllm-project/guidellm, src/guidellm/core/result.py of 0.1: results and errors per mode and rate; those that failed have neither a time nor a count"
-- needs = ["benchmarks.results", "benchmarks.mode"]
-- tool = "guidellm"
-- whole = true
-- [expected]
-- requests = 4
-- runs = 1
-- run = "4 requests/s"
-- failed = 1
-- e2e_ms = 912.089
-- ttft_ms = 50.0
with listed as (
    select unnest(json_extract(row, '$.benchmarks[*]')) as b, generate_subscripts(json_extract(row, '$.benchmarks[*]'), 1) as place from f
), runs as (
    select *, case when b->>'$.rate' is not null then format('{:g} requests/s', try_cast(b->>'$.rate' as double)) else coalesce(b->>'$.mode', 'benchmark') end as run,
        case when b->>'$.mode' = 'synchronous' then 1 end as in_flight from listed
), results as (
    select *, unnest(json_extract(b, '$.results[*]')) as r from runs
), timed as (
    select *, try_cast(r->>'$.start_time' as double) as start, try_cast(r->>'$.end_time' as double) as "end", try_cast(r->>'$.first_token_time' as double) as first from results
), errors as (
    select *, unnest(json_extract(b, '$.errors[*]')) as e from runs
)
select place as run_key, run, b->>'$.rate' as rate_rps, in_flight, run as route, case when "end" >= start then start end as start_s, "end" - start as e2e_s,
    case when first > 1e8 then first - start else first end as ttft_s, r->>'$.prompt_token_count' as input_tokens, r->>'$.output_token_count' as output_tokens, null as error,
    list_avg(list_transform(json_extract(r, '$.decode_times.data[*]'), lambda g: try_cast(g->>'$' as double))) as itl_s
from timed
union all
select place, run, b->>'$.rate', in_flight, run, (select max("end") from timed where timed.place = errors.place), null, null, null, null,
    coalesce(e->>'$.message', e->>'$.error', case when json_type(e) = 'VARCHAR' then e->>'$' end, 'True'), null
from errors
order by run_key
