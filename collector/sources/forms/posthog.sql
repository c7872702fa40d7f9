-- title = "AI generations of PostHog"
-- source = "PostHog's documentation of $ai_generation: an event comes at the end of its call, latencies are seconds"
-- rows = ["data", "results"]
-- needs = ["event", "properties", "timestamp", "event ~ \\$ai_.* | properties.$ai_latency"]
-- note = "events other than generations are left out"
-- [expected]
-- spans = 2
-- failed = 0
-- attribute = ["gen_ai.usage.output_tokens", "90"]
with rows as (
    select row, case when json_type(row->'$.properties') = 'VARCHAR' then try_cast(row->>'$.properties' as json) else row->'$.properties' end as p from f where row->>'$.event' = '$ai_generation'
), calls as (
    select row, p, try_cast(p->>'$."$ai_latency"' as double) as took,
        coalesce(p->>'$."$ai_span_id"', p->>'$."$ai_generation_id"', row->>'$.uuid', row->>'$.id') as key from rows
)
select
    coalesce(nullif(p->>'$."$ai_trace_id"', ''), 'posthog ' || key) as trace_id, 'call ' || key as span_id, row->>'$.timestamp' as "end", took * 1e3 as duration_ms,
    try_cast(p->>'$."$ai_time_to_first_token"' as double) * 1e3 as first_ms, 'client' as kind, (p->>'$."$ai_is_error"') = 'true' as error,
    p->>'$."$ai_http_status"' as status, p->>'$."$ai_provider"' as provider, p->>'$."$ai_model"' as model, p->>'$."$ai_input_tokens"' as input_tokens,
    p->>'$."$ai_output_tokens"' as output_tokens, p->>'$."$ai_cache_read_input_tokens"' as cached_tokens, p->>'$."$ai_reasoning_tokens"' as reasoning_tokens,
    case when contains(lower(p->>'$."$ai_model"'), 'embed') then 'embeddings' else 'chat' end as operation, p->>'$."$ai_session_id"' as session,
    json_object('user.id', row->>'$.distinct_id') as attributes
from calls
