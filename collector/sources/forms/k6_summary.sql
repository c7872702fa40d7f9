-- title = "k6's summary of a test"
-- source = "grafana.com/docs/k6, end of test: a metric's figures stand in values, or beside its name in an exported summary (--summary-export)"
-- needs = ["metrics.http_reqs | metrics.http_req_duration | metrics.iterations | metrics.iteration_duration | metrics.vus"]
-- tool = "k6"
-- [expected]
-- requests = 0
-- runs = 1
-- run = "test"
-- failed = 27
-- percentile = ["e2e", 50.0, 837.873]
with runs as (
    select number, row, coalesce(row->'$.metrics.http_reqs.values', row->'$.metrics.http_reqs') as made,
        coalesce(row->'$.metrics.http_req_failed.values', row->'$.metrics.http_req_failed') as missed, unnest(entries(row->'$.metrics')) as m from f
), figures as (
    select *, unnest(entries(coalesce(m.value->'$.values', m.value))) as e, try_cast(made->>'$.count' as double) as total,
        case when contains(m.key, '{') then null when m.key = 'http_req_duration' then 'e2e' when regexp_matches(m.key, '(?i)ttft|first_?token|first_?chunk') then 'ttft'
            when regexp_matches(m.key, '(?i)\bitl\b|_itl|itl_|inter_?token') then 'itl' when regexp_matches(m.key, '(?i)tpot|per_?output_?token') then 'tpot' end as metric from runs
), counted as (
    select *, coalesce(round_even(try_cast(coalesce(missed->>'$.rate', missed->>'$.value') as double) * total, 0), 0) as failed from figures
)
select true as summary, metric, e.key as at, try_cast(e.value->>'$' as double) as ms, number as run_key, 'test' as run, total - failed as succeeded, failed,
    made->>'$.rate' as answered_rps, try_cast(row->>'$.state.testRunDurationMs' as double) / 1e3 as duration_s,
    'k6 measures no first token of its own: `http_req_waiting` ends at the first byte of the headers' as note
from counted
