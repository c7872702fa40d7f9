-- title = "figures of AIPerf or GenAI-Perf (profile_export_aiperf.json, profile_export_genai_perf.json)"
-- source = "ai-dynamo/aiperf, docs/tutorials/working-with-profile-exports.md; their inter-token latency is (E2E - TTFT) / (n - 1), which is TPOT here"
-- needs = ["request_latency.avg | records.request_latency.avg"]
-- tool = "aiperf"
-- [expected]
-- requests = 0
-- runs = 1
-- run = "4 requests/s"
-- failed = 27
-- percentile = ["e2e", 50.0, 837.873]
with runs as (
    select number, row, case when json_exists(row, '$.request_latency.avg') then row else row->'$.records' end as m, row->'$.input_config' as c from f
), loads as (
    select *, try_cast(coalesce(c->>'$.loadgen.request_rate', c->>'$.perf_analyzer.stimulus.request_rate', c->>'$.request_rate') as double) as rate,
        try_cast(coalesce(c->>'$.loadgen.concurrency', c->>'$.perf_analyzer.stimulus.concurrency', c->>'$.concurrency') as int) as bound from runs
), metrics as (
    select *, unnest([{'n': 'ttft', 'f': coalesce(m->'$.time_to_first_token', m->'$.ttft')}, {'n': 'tpot', 'f': m->'$.inter_token_latency'}, {'n': 'e2e', 'f': m->'$.request_latency'},
        {'n': 'itl', 'f': m->'$.inter_chunk_latency'}]) as k from loads
), figures as (
    select *, unnest(entries(k.f)) as e, map {'ns': 1e-6, 'us': 1e-3, 'ms': 1.0, 's': 1e3, 'sec': 1e3}[coalesce(nullif(k.f->>'$.unit', ''), 'ms')] as x from metrics
)
select true as summary, k.n as metric, e.key as at, x * try_cast(e.value->>'$' as double) as ms, number as run_key, rate as rate_rps, case when rate is null then bound end as in_flight,
    case when rate is not null then format('{:g} requests/s', rate) else coalesce(format('{:,} in flight', bound), 'profile') end as run,
    coalesce(c->>'$.endpoint.model_names[0]', c->>'$.model_names[0]', c->>'$.model[0]') as model, m->>'$.request_count.avg' as succeeded, m->>'$.error_request_count.avg' as failed,
    m->>'$.request_throughput.avg' as answered_rps, m->>'$.benchmark_duration.avg' as duration_s, m->>'$.input_sequence_length.avg' as input_tokens, m->>'$.output_sequence_length.avg' as output_tokens
from figures
