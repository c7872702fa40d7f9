-- title = "LiteLLM's standard logging payloads (S3, GCS and file loggers)"
-- source = "docs.litellm.ai, StandardLoggingPayload: times in seconds since 1970; completionStartTime is the end where nothing was streamed"
-- needs = ["call_type", "startTime", "endTime", "custom_llm_provider", "model_parameters | hidden_params"]
-- [expected]
-- spans = 2
-- failed = 1
-- first_ns = 1795168800651000000
-- attribute = ["gen_ai.response.time_to_first_chunk", "0.332383"]
select
    row->>'$.id' as span_id, row->>'$.trace_id' as trace_id, row->>'$.call_type' as name, 'client' as kind, 'litellm' as service,
    row->>'$.startTime' as "start", row->>'$.endTime' as "end",
    case when (row->>'$.completionStartTime') <> (row->>'$.endTime') then row->>'$.completionStartTime' end as first,
    (row->>'$.status') = 'failure' as error,
    case when regexp_matches(row->>'$.call_type', 'embedding') then 'embeddings' when regexp_matches(row->>'$.call_type', 'rerank') then 'rerank'
        when regexp_matches(row->>'$.call_type', 'moderation') then 'moderation' else 'chat' end as operation,
    coalesce(row->>'$.model_group', row->>'$.model') as model, row->>'$.custom_llm_provider' as provider,
    row->>'$.prompt_tokens' as input_tokens, row->>'$.completion_tokens' as output_tokens, row->>'$.metadata.usage_object.prompt_tokens_details.cached_tokens' as cached_tokens,
    coalesce(row->>'$.error_information.error_code', row->>'$.error_information.status_code') as status,
    row->>'$.metadata.user_api_key_team_id' as tenant,
    json_object('litellm.end_user.id', row->>'$.end_user', 'error.type', row->>'$.error_information.error_class') as attributes
from f
