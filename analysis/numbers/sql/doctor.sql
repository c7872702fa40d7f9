-- What does each service send, in whose words, and what do its model calls carry? One row per service and dialect (null: no vocabulary knows its spans).
-- `calls` are spans of model calls and engine requests, `streams` those that stream; every other column counts the calls that carry the field
-- (of the streams for ttft; of the failed spans for error_type). `agents` are runs of agents and workflows, as the vocabularies call them.
-- A pipeline's spans belong to no stage of a request.
select service, dialect, count(*) as spans, max(instance) as instance, max(version) as version,
    count(*) filter (role in ('llm', 'engine')) as calls,
    count(*) filter (role in ('llm', 'engine') and (streaming or ttft_ms is not null)) as streams,
    count(*) filter (role in ('llm', 'engine') and status = 'error') as failed,
    count(*) filter (role = 'engine') as engine_requests,
    count(*) filter (operation in ('invoke_agent', 'invoke_workflow', 'AGENT', 'agent', 'workflow')) as agents,
    count(*) filter (role in ('llm', 'engine') and status <> 'error') as answered,
    count(*) filter (role in ('llm', 'engine') and ttft_ms is not null) as ttft,
    count(*) filter (role in ('llm', 'engine') and status <> 'error' and output_tokens is not null) as output_tokens,
    count(*) filter (role in ('llm', 'engine') and status <> 'error' and input_tokens is not null) as input_tokens,
    count(*) filter (role in ('llm', 'engine') and cached_tokens is not null) as cached_tokens,
    count(*) filter (role in ('llm', 'engine') and model is not null) as model,
    count(*) filter (role in ('llm', 'engine') and status <> 'error' and response_id is not null) as response_id,
    count(*) filter (role in ('llm', 'engine') and status <> 'error' and finish_reason is not null) as finish_reason,
    count(*) filter (role in ('llm', 'engine') and status = 'error' and error_type is not null) as error_type,
    count(*) filter (queue_ms is not null) as queue, count(*) filter (stage = 'other' and role = 'plain' and kind is distinct from 'producer' and dialect is distinct from 'cicd') as unplaced
from v_spans
where ($start::timestamptz is null or start >= $start::timestamptz)
    and ($end::timestamptz is null or start < $end::timestamptz)
    and ($service::varchar is null or service = $service)
    and ($instance::varchar is null or instance = $instance)
group by service, dialect
order by service, spans desc
