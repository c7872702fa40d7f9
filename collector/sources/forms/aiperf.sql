-- title = "AIPerf's requests (profile_export.jsonl)"
-- source = "ai-dynamo/aiperf, docs/tutorials/working-with-profile-exports.md: ns since 1970, each metric with its unit; judged from credit_issued_ns. Its warm-up is left out"
-- needs = ["metadata.request_start_ns", "metrics"]
-- tool = "aiperf"
-- [expected]
-- requests = 6
-- runs = 1
-- run = "profile"
-- failed = 1
-- e2e_ms = 1000.0
-- ttft_ms = 100.0
with given as (
    select row, row->'$.metadata' as about, row->'$.metrics' as m, (row->>'$.metadata.request_start_ns')::bigint as start,
        map {'ns': 1, 'us': 1e3, 'ms': 1e6, 's': 1e9, 'sec': 1e9} as units from f where coalesce(row->>'$.metadata.benchmark_phase', '') <> 'warmup'
), requests as (
    select *, coalesce(units[coalesce(m->>'$.request_latency.unit', 'ms')], error('request_latency is in ' || (m->>'$.request_latency.unit')[:20] || ', wanted one of ns, us, ms, s')) as e2e_unit,
        coalesce(units[coalesce(m->>'$.time_to_first_token.unit', 'ms')], error('time_to_first_token is in ' || (m->>'$.time_to_first_token.unit')[:20] || ', wanted one of ns, us, ms, s')) as ttft_unit
    from given
)
select start as start_ns, coalesce(try_cast(m->>'$.request_latency.value' as double) * e2e_unit, greatest((about->>'$.request_end_ns')::bigint - start, 0)) as e2e_ns,
    try_cast(m->>'$.time_to_first_token.value' as double) * ttft_unit as ttft_ns, greatest(start - coalesce(nullif(try_cast(about->>'$.credit_issued_ns' as bigint), 0), start), 0) as late_ns,
    coalesce(m->>'$.input_sequence_length.value', m->>'$.error_isl.value') as input_tokens, coalesce(m->>'$.output_sequence_length.value', m->>'$.output_token_count.value') as output_tokens,
    m->>'$.usage_prompt_cache_read_tokens.value' as cached_tokens, 'profile' as run,
    coalesce(case json_type(row->'$.error') when 'OBJECT' then coalesce(row->>'$.error.type', row->>'$.error.code', 'failed') else row->>'$.error' end,
        case when about->>'$.was_cancelled' = 'true' then 'cancelled' end) as error, coalesce(row->>'$.error.code', case when json_type(row->'$.error') = 'OBJECT' then '' end) as status,
    list_avg(list_transform(json_extract(m, '$.inter_chunk_latency.value[*]'), lambda g: try_cast(g->>'$' as double))) * units[m->>'$.inter_chunk_latency.unit'] as itl_ns
from requests
