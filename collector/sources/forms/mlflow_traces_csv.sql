-- title = "MLflow's traces as a table (mlflow.search_traces)"
-- source = "mlflow.org, search_traces: a trace a row, its spans in the cell `trace`; ids in base64, attributes as JSON texts"
-- needs = ["trace_id", "trace ~ (?s)\\{.*\"spans\".*", "execution_duration | execution_time_ms | request_time"]
-- [expected]
-- spans = 3
-- failed = 0
-- first_ns = 1795168950004000000
with spans as (select unnest(coalesce(try_cast(row->>'$.trace' as json), row->'$.trace')->'$.data.spans[*]') as s from f)
select
    s->>'$.trace_id' as trace_id, s->>'$.span_id' as span_id, s->>'$.parent_span_id' as parent_id, s->>'$.name' as name, 'internal' as kind,
    s->>'$.start_time_unix_nano' as "start", s->>'$.end_time_unix_nano' as "end", (s->>'$.status.code') like '%ERROR' as error,
    s->>'$.status.message' as message, s->'$.attributes' as attributes,
    list_transform(json_extract(s, '$.events[*]'), lambda e: json_object('name', e->>'$.name', 'time', e->>'$.time_unix_nano'))::json as events
from spans
