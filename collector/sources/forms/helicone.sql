-- title = "requests of Helicone"
-- source = "Helicone's API, HeliconeRequest: delay_ms, or the time between request_created_at and response_created_at; a negative status is no answer"
-- rows = ["data", "results"]
-- needs = ["request_id", "request_created_at", "response_status"]
-- [expected]
-- spans = 2
-- failed = 0
-- attribute = ["gen_ai.provider.name", "openai"]
with rows as (
    select row, try_cast(row->>'$.response_status' as int) as code from f
)
select
    'helicone ' || (row->>'$.request_id') as trace_id, 'call ' || (row->>'$.request_id') as span_id, row->>'$.request_created_at' as "start",
    case when row->>'$.delay_ms' is null then row->>'$.response_created_at' end as "end", row->>'$.delay_ms' as duration_ms, row->>'$.time_to_first_token' as first_ms,
    'client' as kind, code >= 400 or code < 0 as error, case when code > 0 then code end as status, lower(row->>'$.provider') as provider,
    coalesce(row->>'$.request_model', row->>'$.model_override') as model, row->>'$.prompt_tokens' as input_tokens, row->>'$.completion_tokens' as output_tokens,
    case when contains(lower(coalesce(row->>'$.request_model', row->>'$.model_override', '')), 'embed') then 'embeddings' else 'chat' end as operation,
    row->>'$.prompt_cache_read_tokens' as cached_tokens, row->>'$.request_properties."Helicone-Session-Id"' as session,
    json_object('gen_ai.response.model', row->>'$.response_model', 'user.id', row->>'$.request_user_id') as attributes
from rows
