-- title = "runs of LangSmith"
-- source = "LangSmith's run format (client.list_runs, its API, its exports): run_type, parent_run_id, first_token_time; inputs and outputs are not looked at"
-- rows = ["runs"]
-- needs = ["id", "run_type", "start_time"]
-- [expected]
-- spans = 2
-- failed = 0
-- attribute = ["gen_ai.usage.output_tokens", "50"]
with runs as (
    select row, try_cast(row->>'$.extra' as json) as extra, row->>'$.run_type' = 'llm' as called from f
)
select
    coalesce(row->>'$.trace_id', row->>'$.id') as trace_id, row->>'$.id' as span_id, row->>'$.parent_run_id' as parent_id, row->>'$.name' as name, 'internal' as kind,
    row->>'$.start_time' as "start", coalesce(row->>'$.end_time', row->>'$.start_time') as "end", row->>'$.first_token_time' as first,
    coalesce(nullif(row->>'$.error', ''), '') <> '' or coalesce(row->>'$.status', '') = 'error' as error, coalesce(nullif(row->>'$.session_name', ''), 'langsmith') as service,
    coalesce(extra->>'$.metadata.ls_model_name', extra->>'$.invocation_params.model', extra->>'$.invocation_params.model_name') as model,
    case when called then nullif(row->>'$.prompt_tokens', '0') end as input_tokens, case when called then nullif(row->>'$.completion_tokens', '0') end as output_tokens,
    coalesce(extra->>'$.metadata.session_id', extra->>'$.metadata.thread_id', extra->>'$.metadata.conversation_id') as session,
    json_object('langsmith.span.kind', row->>'$.run_type', 'langsmith.metadata.ls_provider', extra->>'$.metadata.ls_provider',
        'langsmith.metadata.ls_max_tokens', extra->'$.metadata.ls_max_tokens', 'langsmith.metadata.ls_temperature', extra->'$.metadata.ls_temperature',
        'gen_ai.usage.input_token_details', row->>'$.prompt_token_details', 'gen_ai.usage.output_token_details', row->>'$.completion_token_details') as attributes
from runs
