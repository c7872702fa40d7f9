-- title = "a result of `vllm bench serve` or SGLang's bench_serving"
-- source = "vllm-project/vllm, vllm/benchmarks/serve.py; sgl-project/sglang, python/sglang/bench_serving.py: a list per quantity in seconds, start_times of a clock without a date, date in local time at the end"
-- needs = ["ttfts | request_throughput ~ [\\d.e+-]+"]
-- tool = "vllm-bench"
-- whole = true
-- columns = "ttfts"
-- [expected]
-- requests = 6
-- runs = 1
-- run = "2 requests/s"
-- failed = 1
-- e2e_ms = 1000.0
-- ttft_ms = 100.0
with given as (
    select (row->>'$.up')::int as number, row->'$.own' as row from f where json_exists(row, '$.own')
), elements as (
    select number as place, (row->>'$.up')::int as up, row->'$.each' as e from f where json_exists(row, '$.each')
), known as (
    select up, count(*) as listed, bool_or(json_exists(e, '$.start_times')) as timed, min(try_cast(e->>'$.start_times' as double)) as first_sent from elements group by up
), loads as (
    select given.number, row, count(*) over () as n, try_cast(row->>'$.request_rate' as double) as asked, try_cast(row->>'$.max_concurrency' as int) as bound, row->>'$.model_id' as model,
        case when bool_or(json_exists(row, '$.total_output_tokens_retokenized') or contains(row->>'$.backend', 'sglang')) over () then 'sglang-bench' end as tool,
        coalesce(epoch_ns(try_strptime(row->>'$.date', '%Y%m%d-%H%M%S')) - utc_offset_s * 1000000000, written_ns) as ended_ns, coalesce(try_cast(row->>'$.duration' as double), 0) as lasted,
        listed, coalesce(timed, false) as timed, first_sent from given cross join file left join known on up = given.number
), runs as (
    select *, case when isfinite(asked) then asked end as rate, coalesce(isfinite(asked), false) = false and bound is null as at_once, case when isfinite(asked) then format('{:g} requests/s', asked)
        when bound is not null then format('{:,} in flight', bound) when n = 1 then 'all at once' else 'all at once, run ' || number end as run from loads
), requests as (
    select number, n, tool, run, rate, bound, at_once, ended_ns, lasted, model, timed, place, e, try_cast(e->>'$.ttfts' as double) as first, try_cast(e->>'$.latencies' as double) as took,
        try_cast(e->'$.itls' as double[]) as between, try_cast(e->>'$.start_times' as double) - first_sent as since, e->>'$.errors' as said,
        case when rate is not null and json_exists(e, '$.queue_times') then greatest(coalesce(try_cast(e->>'$.queue_times' as double), 0), 0) end as late from runs join elements on up = number
), measured as (
    select *, coalesce(took, coalesce(first, 0) + coalesce(list_sum(between), 0)) as whole from requests
), figures as (
    select *, unnest(list_concat([null], entries(row))) as e, try_cast(row->>'$.completed' as int) as done from runs where listed is null
)
select tool, number as run_key, run, rate as rate_rps, case when at_once then count(*) over (partition by number) else bound end as in_flight, nullif(lasted, 0) as duration_s, model,
    timed, case when not timed then 'the file has no send times: its requests are treated as sent at once, so there are no figures of arrivals' end as note,
    bound as bounded, '--max-concurrency' as bounded_by, false as summary, null as metric, null as at, null as ms, null as succeeded, null as failed, null as answered_rps,
    greatest(ended_ns - (1e9 * lasted)::bigint, 0) + (1e9 * coalesce(since, 0))::bigint as start_ns, case when whole > 0 or coalesce(said, '') <> '' then whole end as e2e_s, nullif(first, 0) as ttft_s,
    late as late_s, list_avg(between) as itl_s, said as error, e->>'$.input_lens' as input_tokens, e->>'$.output_lens' as output_tokens, case when n > 1 then 'run ' || number end as route, place
from measured
union all by name
select tool, number as run_key, run, rate as rate_rps, case when at_once then try_cast(row->>'$.num_prompts' as int) else bound end as in_flight, nullif(lasted, 0) as duration_s, model,
    true as summary, case when regexp_matches(e.key, '^(mean|median|p\d+(\.\d+)?)_(ttft|tpot|itl|e2el|e2e_latency)_ms$') then regexp_extract(e.key, '_(ttft|tpot|itl|e2e)', 1) end as metric,
    split_part(e.key, '_', 1) as at, try_cast(e.value->>'$' as double) as ms, done as succeeded,
    coalesce(try_cast(row->>'$.failed' as int), greatest(try_cast(row->>'$.num_prompts' as int) - done, 0)) as failed, row->>'$.request_throughput' as answered_rps,
    try_cast(row->>'$.total_input_tokens' as double) / greatest(coalesce(done, 0), 1) as input_tokens, try_cast(row->>'$.total_output_tokens' as double) / greatest(coalesce(done, 0), 1) as output_tokens, 0 as place
from figures
order by run_key, place
