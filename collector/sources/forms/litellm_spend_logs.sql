-- title = "LiteLLM's spend logs"
-- source = "BerriAI/litellm, schema.prisma, LiteLLM_SpendLogs: a row a call of its proxy; completionStartTime is the end of a call that was not streamed"
-- needs = ["request_id", "call_type", "startTime", "endTime"]
-- [expected]
-- spans = 2
-- failed = 1
-- first_ns = 1795168800651000000
-- attribute = ["gen_ai.response.time_to_first_chunk", "0.332"]
select
    row->>'$.request_id' as span_id, row->>'$.call_type' as name, 'client' as kind, 'litellm' as service,
    row->>'$.startTime' as "start", coalesce(row->>'$.endTime', row->>'$.startTime') as "end", (row->>'$.status') = 'failure' as error,
    -- An answer of the cache: no model worked.
    case when cached then json_object('overrun.stage', 'gateway')
        else json_object('gen_ai.response.model', row->>'$.model', 'litellm.team.id', row->>'$.team_id', 'litellm.end_user.id', row->>'$.end_user') end as attributes,
    case when not cached then case when contains(row->>'$.call_type', 'embedding') then 'embeddings' when contains(row->>'$.call_type', 'rerank') then 'rerank'
        when contains(row->>'$.call_type', 'moderation') then 'moderation' else 'chat' end end as operation,
    case when not cached then coalesce(row->>'$.model_group', row->>'$.model') end as model, case when not cached then row->>'$.custom_llm_provider' end as provider,
    case when not cached then row->>'$.request_id' end as request_id,
    case when not cached then row->>'$.prompt_tokens' end as input_tokens, case when not cached then row->>'$.completion_tokens' end as output_tokens,
    case when not cached and (row->>'$.completionStartTime') <> (row->>'$.endTime') then row->>'$.completionStartTime' end as first
from (select row, lower(coalesce(row->>'$.cache_hit', '')) = 'true' as cached from f)
