-- title = "traces of MLflow (Trace.to_json, its API, or traces.json of an artifact)"
-- source = "mlflow/entities/span.py of 2.x (context, start_time in ns, ids in hex) and 3.x (start_time_unix_nano, ids in base64); attributes are JSON in strings"
-- rows = ["traces", "data"]
-- needs = ["spans.start_time_unix_nano | spans.start_time ~ \\d+", "spans.span_id | spans.context.span_id"]
-- [expected]
-- spans = 2
-- failed = 0
-- attribute = ["mlflow.spanType", "\"CHAIN\""]
with spans as (
    select unnest(json_extract(row, '$.spans[*]')) as s from f
)
select
    coalesce(s->>'$.context.trace_id', s->>'$.trace_id') as trace_id, coalesce(s->>'$.context.span_id', s->>'$.span_id') as span_id,
    coalesce(s->>'$.parent_id', s->>'$.parent_span_id') as parent_id, s->>'$.name' as name, 'internal' as kind,
    coalesce(s->>'$.start_time_unix_nano', s->>'$.start_time') as "start",
    coalesce(s->>'$.end_time_unix_nano', s->>'$.end_time', s->>'$.start_time_unix_nano', s->>'$.start_time') as "end",
    contains(coalesce(s->>'$.status_code', s->>'$.status.code', ''), 'ERROR') as error, s->'$.attributes' as attributes,
    list_transform(json_extract(s, '$.events[*]'), lambda e: json_object('time', coalesce(e->>'$.time_unix_nano', e->>'$.timestamp'), 'name', e->>'$.name'))::json as events
from spans
