-- title = "traces of the OpenAI Agents SDK"
-- source = "openai/openai-agents-python, src/agents/tracing (span_data.py, traces.py): trace and trace.span objects, one by one, listed, or posted as data"
-- rows = ["data"]
-- needs = ["object ~ trace|trace.span", "id"]
-- whole = true
-- [expected]
-- spans = 5
-- failed = 0
-- attribute = ["gen_ai.usage.output_tokens", "40"]
with traces as (
    select row->>'$.id' as id, any_value(row->>'$.workflow_name') as workflow, any_value(row->>'$.group_id') as session from f where row->>'$.object' = 'trace' group by 1
), spans as (
    select row, row->>'$.trace_id' as trace, row->'$.span_data' as data, coalesce(row->>'$.span_data.type', 'custom') as kind, row->'$.span_data.usage' as usage
    from f where row->>'$.object' = 'trace.span'
)
select
    regexp_replace(trace, '^trace_', '') as trace_id, trace || ' ' || (row->>'$.id') as span_id, trace || ' ' || (row->>'$.parent_id') as parent_id,
    trim(kind || ' ' || coalesce(data->>'$.name', data->>'$.server', '')) as name, 'internal' as kind, 'openai-agents' as scope, coalesce(workflow, 'openai-agents') as service,
    row->>'$.started_at' as "start", coalesce(row->>'$.ended_at', row->>'$.started_at') as "end",
    case when json_type(row->'$.error') not in ('NULL') then 'error' end as error, session,
    data->>'$.model' as model, data->>'$.response_id' as request_id,
    coalesce(usage->>'$.input_tokens', usage->>'$.prompt_tokens') as input_tokens, coalesce(usage->>'$.output_tokens', usage->>'$.completion_tokens') as output_tokens,
    usage->>'$.input_tokens_details.cached_tokens' as cached_tokens, usage->>'$.output_tokens_details.reasoning_tokens' as reasoning_tokens,
    json_object('openinference.span.kind', case kind when 'generation' then 'LLM' when 'response' then 'LLM' when 'function' then 'TOOL' when 'mcp_tools' then 'TOOL'
            when 'guardrail' then 'GUARDRAIL' when 'agent' then 'AGENT' when 'handoff' then 'AGENT' else 'CHAIN' end,
        'gen_ai.tool.name', case kind when 'function' then data->>'$.name' end, 'mcp.method.name', case kind when 'mcp_tools' then 'tools/list' end,
        'gen_ai.agent.name', case kind when 'agent' then data->>'$.name' end) as attributes
from spans left join traces on traces.id = trace
