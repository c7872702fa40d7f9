-- title = "traces of AWS X-Ray (`aws xray batch-get-traces`, or segments alone)"
-- source = "docs.aws.amazon.com, segment documents and BatchGetTraces: times in seconds; the Collector's exporter puts attributes into metadata.default"
-- rows = ["Traces", "Segments"]
-- needs = ["Document | trace_id ~ 1-.*", "Id | id"]
-- [expected]
-- spans = 4
-- failed = 0
-- attribute = ["gen_ai.usage.output_tokens", "120"]
with recursive segments as (
    select coalesce(try_cast(row->>'$.Document' as json), row) as s from f
), spans as (
    select s->>'$.trace_id' as trace, s->>'$.name' as service, s->>'$.origin' as origin, s, s->>'$.parent_id' as parent, 0 as depth
    from segments where not coalesce((s->>'$.inferred') = 'true', false) -- such a segment repeats its caller's subsegment
    union all
    select trace, service, origin, unnest(s->'$.subsegments[*]'), s->>'$.id', depth + 1 from spans where depth < 64
), named as (
    select *, lower(s->>'$.name') as named, coalesce(s->>'$.aws.operation', '') as operation from spans
)
select
    regexp_replace(trace, '^1-', '') as trace_id, s->>'$.id' as span_id, parent as parent_id, s->>'$.name' as name,
    case when s->>'$.namespace' in ('aws', 'remote') then 'client' when depth > 0 then 'internal' else 'server' end as kind,
    s->>'$.start_time' as "start", coalesce(s->>'$.end_time', s->>'$.start_time') as "end",
    'true' in (s->>'$.fault', s->>'$.error') as error, 'aws-xray' as scope, service, json_object('cloud.platform', origin) as resource,
    json_merge_patch(json_object(
        'http.request.method', s->>'$.http.request.method', 'url.full', s->>'$.http.request.url', 'http.response.status_code', s->'$.http.response.status',
        'error.type', case when s->>'$.throttle' = 'true' then 'throttle' end,
        'db.system', case when named like '%dynamodb%' then 'dynamodb' when named like '%opensearch%' then 'opensearch' when named like '%elasticache%' then 'redis' end,
        'db.operation', case when json_exists(s, '$.aws.table_name') then operation end, 'db.collection.name', s->>'$.aws.table_name',
        'db.query.text', s->>'$.sql.sanitized_query', 'aws.operation', nullif(operation, ''), 'cloud.region', s->>'$.aws.region', 'aws.table_name', s->>'$.aws.table_name'),
        case when named like '%bedrock%' and operation in ('Converse', 'ConverseStream', 'InvokeModel', 'InvokeModelWithResponseStream')
            then json_object('gen_ai.operation.name', 'chat', 'gen_ai.provider.name', 'aws.bedrock',
                'gen_ai.request.model', coalesce(s->>'$.aws.remote_resource_identifier', s->>'$.aws.model_id')) else '{}' end,
        coalesce(s->'$.annotations', '{}'), coalesce(s->'$.metadata.default', '{}')) as attributes
from named
