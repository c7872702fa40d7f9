-- title = "figures of AIPerf or GenAI-Perf as CSV"
-- source = "ai-dynamo/aiperf, docs/tutorials/working-with-profile-exports.md: a table of distributions, an empty line, and a table of single values below the same columns"
-- needs = ["Metric | metric", "avg | Avg"]
-- tool = "aiperf"
-- whole = true
-- [expected]
-- requests = 0
-- runs = 1
-- run = "profile"
-- failed = 27
-- percentile = ["e2e", 50.0, 837.87]
with named as (
    select row, regexp_extract(coalesce(row->>'$.Metric', row->>'$.metric'), '^\s*([^()]+?)\s*(?:\(([^()]*)\))?\s*$', ['name', 'unit']) as n from f
), metrics as (
    select row, replace(lower(n.name), ' ', '_') as name, map {'ns': 1e-6, 'us': 1e-3, 'ms': 1.0, 's': 1e3, 'sec': 1e3}[coalesce(nullif(n.unit, ''), 'ms')] as x from named
), singles as (
    select map_from_entries(list((name, try_cast(replace(coalesce(row->>'$.avg', row->>'$.Avg'), ',', '') as double)))) as v
    from (select name, any_value(row) as row from metrics where name in ('request_count', 'error_request_count', 'request_throughput', 'benchmark_duration', 'input_sequence_length', 'output_sequence_length') group by 1)
), figures as (
    select case name when 'time_to_first_token' then 'ttft' when 'ttft' then 'ttft' when 'inter_token_latency' then 'tpot' when 'request_latency' then 'e2e' when 'inter_chunk_latency' then 'itl' end as metric,
        x, unnest(entries(row)) as e from metrics
)
select true as summary, metric, lower(e.key) as at, x * try_cast(replace(e.value->>'$', ',', '') as double) as ms, 'profile' as run, v['request_count'] as succeeded,
    v['error_request_count'] as failed, v['request_throughput'] as answered_rps, v['benchmark_duration'] as duration_s, v['input_sequence_length'] as input_tokens, v['output_sequence_length'] as output_tokens
from figures cross join singles where metric is not null
