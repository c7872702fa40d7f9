-- title = "inference-perf's report of a stage, or of all"
-- source = "kubernetes-sigs/inference-perf, inference_perf/reportgen/base.py: seconds; before stages the latencies stood beside the count"
-- needs = ["load_summary", "successes", "failures"]
-- tool = "inference-perf"
-- [expected]
-- requests = 0
-- runs = 1
-- run = "4 requests/s"
-- failed = 27
-- percentile = ["e2e", 50.0, 837.873]
with runs as (
    select number, row, row->'$.successes' as done, coalesce(row->'$.successes.latency', row->'$.successes') as latency,
        try_cast(row->>'$.load_summary.requested_rate' as double) as rate, try_cast(row->>'$.load_summary.concurrency' as int) as bound from f
), metrics as (
    select *, unnest(list_concat([null], entries(latency))) as m from runs
), figures as (
    select *, unnest(case when m.key in ('time_to_first_token', 'inter_token_latency', 'time_per_output_token', 'request_latency') then entries(m.value) else [null] end) as e from metrics
)
select true as summary, case m.key when 'time_to_first_token' then 'ttft' when 'inter_token_latency' then 'itl' when 'time_per_output_token' then 'tpot' when 'request_latency' then 'e2e' end as metric,
    e.key as at, 1e3 * try_cast(e.value->>'$' as double) as ms, number as run_key, case when bound is null then rate end as rate_rps, bound as in_flight,
    case when bound is not null then format('{:,} in flight', bound) when rate is not null then format('{:g} requests/s', rate) else 'all stages' end as run,
    row->>'$.load_summary.send_duration' as duration_s, done->>'$.count' as succeeded, row->>'$.failures.count' as failed, done->>'$.throughput.requests_per_sec' as answered_rps,
    coalesce(done->>'$.prompt_tokens.mean', done->>'$.prompt_len.mean') as input_tokens, coalesce(done->>'$.output_tokens.mean', done->>'$.output_len.mean') as output_tokens
from figures
