-- title = "spans of the Python SDK's ConsoleSpanExporter"
-- source = "opentelemetry-sdk, ReadableSpan.to_json: an indented object a span, times in ISO, ids behind 0x"
-- needs = ["context.trace_id", "context.span_id", "start_time", "kind ~ SpanKind.*"]
-- [expected]
-- spans = 1
-- failed = 1
-- first_ns = 1795168800651000000
-- attribute = ["gen_ai.usage.input_tokens", "801"]
select
    row->>'$.context.trace_id' as trace_id, row->>'$.context.span_id' as span_id, row->>'$.parent_id' as parent_id, row->>'$.name' as name,
    row->>'$.kind' as kind, row->>'$.start_time' as "start", coalesce(row->>'$.end_time', row->>'$.start_time') as "end",
    row->>'$.status.status_code' as error, row->>'$.status.description' as message, row->'$.attributes' as attributes, row->'$.resource.attributes' as resource,
    list_transform(json_extract(row, '$.events[*]'), lambda e: json_object('name', e->>'$.name', 'time', e->>'$.timestamp', 'attributes', e->'$.attributes'))::json as events,
    list_transform(json_extract(row, '$.links[*]'), lambda l: json_object('trace_id', l->>'$.context.trace_id', 'span_id', l->>'$.context.span_id'))::json as links
from f
