-- title = "Bedrock's model invocation log"
-- source = "docs.aws.amazon.com, model invocation logging: how long a call took stands in Converse's metrics, or in the last event of a stream"
-- rows = ["data", "results"]
-- needs = ["timestamp", "modelId", "operation", "output"]
-- [expected]
-- spans = 2
-- failed = 0
-- attribute = ["gen_ai.usage.output_tokens", "120"]
with logged as (
    select row, case json_type(row->'$.output.outputBodyJson') when 'ARRAY' then json_extract(row, '$.output.outputBodyJson[*]') else [row->'$.output.outputBodyJson'] end as events from f
), timed as (
    select row, json_merge_patch('{}', list_reduce(list_transform(events, lambda e: json_merge_patch(coalesce(e->'$.metrics', '{}'), coalesce(e->'$.metadata.metrics', '{}'),
        coalesce(e->'$."amazon-bedrock-invocationMetrics"', '{}'))), lambda a, b: json_merge_patch(a, b), '{}'::json)) as metrics from logged
)
select
    'bedrock ' || coalesce(row->>'$.requestId', row->>'$.timestamp') as trace_id, 'call ' || coalesce(row->>'$.requestId', row->>'$.timestamp') as span_id,
    row->>'$.timestamp' as "start", coalesce(metrics->>'$.invocationLatency', metrics->>'$.latencyMs') as duration_ms, metrics->>'$.firstByteLatency' as first_ms,
    'client' as kind, json_exists(row, '$.errorCode') as error, 'aws.bedrock' as provider, row->>'$.modelId' as model, row->>'$.requestId' as request_id,
    case when contains(lower(row->>'$.modelId'), 'embed') then 'embeddings' else 'chat' end as operation,
    row->>'$.input.inputTokenCount' as input_tokens, row->>'$.output.outputTokenCount' as output_tokens, row->>'$.input.cacheReadInputTokenCount' as cached_tokens,
    json_object('error.type', row->>'$.errorCode') as attributes
from timed
