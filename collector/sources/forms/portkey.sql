-- title = "a logs export of Portkey"
-- source = "portkey.ai/docs, logs export: times in ms; what is read and written is counted in units, which are tokens"
-- rows = ["data", "results"]
-- needs = ["created_at", "ai_model", "response_time"]
-- [expected]
-- spans = 2
-- failed = 0
-- attribute = ["gen_ai.usage.output_tokens", "100"]
with rows as (
    select row, try_cast(row->>'$.response_status_code' as int) as code, coalesce(row->>'$.id', concat_ws(' ', row->>'$.created_at', row->>'$.trace_id')) as key from f
)
select
    coalesce(nullif(row->>'$.trace_id', ''), 'portkey ' || key) as trace_id, 'call ' || key as span_id, row->>'$.created_at' as "start", row->>'$.response_time' as duration_ms,
    'client' as kind, coalesce(code >= 400, false) or coalesce(lower(row->>'$.is_success') in ('false', '0'), false) as error, code as status,
    row->>'$.ai_org' as provider, row->>'$.ai_model' as model, row->>'$.req_units' as input_tokens, row->>'$.res_units' as output_tokens,
    case when contains(lower(coalesce(row->>'$.ai_model', '') || coalesce(row->>'$.request_url', '')), 'embed') then 'embeddings' else 'chat' end as operation
from rows
