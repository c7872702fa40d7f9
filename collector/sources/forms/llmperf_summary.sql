-- title = "LLMPerf's summary"
-- source = "ray-project/llmperf, token_benchmark_ray.py: seconds, results_METRIC_mean and results_METRIC_quantiles_pNN"
-- needs = ["results_end_to_end_latency_s_mean"]
-- tool = "llmperf"
-- [expected]
-- requests = 0
-- runs = 1
-- run = "8 in flight"
-- failed = 2
-- percentile = ["e2e", 50.0, 1990.0]
with runs as (
    select number, row, unnest(entries(row)) as e, try_cast(row->>'$.num_concurrent_requests' as int) as bound, try_cast(row->>'$.results_num_completed_requests' as double) as done,
        try_cast(row->>'$.results_num_completed_requests_per_min' as double) as a_minute from f
), figures as (
    select *, regexp_extract(e.key, '^results_(ttft_s|end_to_end_latency_s)_(?:quantiles_)?(mean|p\d+)$', ['metric', 'at']) as n from runs
)
select true as summary, case n.metric when 'ttft_s' then 'ttft' else 'e2e' end as metric, n.at as at, 1e3 * try_cast(e.value->>'$' as double) as ms, number as run_key,
    coalesce(format('{:,} in flight', bound), row->>'$.name', 'run') as run, bound as in_flight, bound as bounded, 'num_concurrent_requests' as bounded_by,
    case when done > 0 and a_minute > 0 then done * 60 / a_minute end as duration_s, row->>'$.model' as model, done as succeeded, row->>'$.results_number_errors' as failed,
    a_minute / 60 as answered_rps
from figures where n.at <> ''
