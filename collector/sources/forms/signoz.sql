-- title = "rows of SigNoz's table of spans (signoz_index_v3)"
-- source = "SigNoz's ClickHouse migrations: a map of attributes a type, durations in ns, each event a JSON text, the links of a span one JSON text of a list"
-- rows = ["data"]
-- needs = ["trace_id", "span_id", "duration_nano", "resources_string"]
-- [expected]
-- spans = 1
-- failed = 1
-- attribute = ["gen_ai.usage.output_tokens", "120"]
select
    row->>'$.trace_id' as trace_id, row->>'$.span_id' as span_id, row->>'$.parent_span_id' as parent_id, row->>'$.trace_state' as trace_state,
    row->>'$.name' as name, row->>'$.kind_string' as kind, coalesce(row->>'$.start_ns', row->>'$.timestamp') as "start",
    try_cast(row->>'$.duration_nano' as double) / 1e6 as duration_ms, lower(row->>'$.status_code_string') as error, row->>'$.status_message' as message,
    nullif(row->>'$.scope_name', '') as scope, json_merge_patch('{"service.name": "unknown_service"}', row->'$.resources_string') as resource,
    json_merge_patch(coalesce(row->'$.attributes_string', '{}'), coalesce(regexp_replace((row->'$.attributes_number')::varchar, '(\d)\.0(\s*[,}])', '\1\2', 'g')::json, '{}'), coalesce(row->'$.attributes_bool', '{}')) as attributes,
    list_transform(json_extract(row, '$.events[*]'), lambda e: json_object('time', try_cast(e->>'$' as json)->>'$.timeUnixNano', 'name', try_cast(e->>'$' as json)->>'$.name',
        'attributes', try_cast(e->>'$' as json)->'$.attributeMap'))::json as events,
    -- The reference to the parent stands among the links.
    list_transform(list_filter(json_extract(try_cast(row->>'$.links' as json), '$[*]'), lambda l: coalesce(l->>'$.refType', '') <> 'CHILD_OF'),
        lambda l: json_object('trace_id', l->>'$.traceId', 'span_id', l->>'$.spanId'))::json as links
from f
