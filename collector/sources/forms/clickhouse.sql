-- title = "rows of the Collector's ClickHouse table (otel_traces)"
-- source = "opentelemetry-collector-contrib, exporter/clickhouseexporter: durations in ns as numbers or text, one list a field of events and links"
-- rows = ["data"]
-- needs = ["TraceId", "SpanId", "SpanName", "Duration"]
-- [expected]
-- spans = 2
-- failed = 0
-- attribute = ["gen_ai.usage.output_tokens", "50"]
select
    row->>'$.TraceId' as trace_id, row->>'$.SpanId' as span_id, row->>'$.ParentSpanId' as parent_id, row->>'$.TraceState' as trace_state,
    row->>'$.SpanName' as name, row->>'$.SpanKind' as kind, coalesce(row->>'$.StartNs', row->>'$.Timestamp') as "start",
    try_cast(row->>'$.Duration' as double) / 1e6 as duration_ms, lower(regexp_replace(row->>'$.StatusCode', '(?i)^status_code_', '')) as error,
    row->>'$.StatusMessage' as message, coalesce(nullif(row->>'$.ServiceName', ''), 'unknown_service') as service, coalesce(row->>'$.ScopeName', '') as scope,
    -- The table's map has texts: numbers and truth values are those that were sent.
    regexp_replace((row->'$.SpanAttributes')::varchar, ':\s*"(true|false|-?(?:0|[1-9]\d{0,14})(?:\.\d{1,17}(?:e[+-]?\d{1,3})?)?)"(\s*[,}])', ':\1\2', 'g')::json as attributes,
    row->'$.ResourceAttributes' as resource,
    list_transform(list_zip(list_concat(json_extract(row, '$.EventNs[*]'), json_extract(row, '$."Events.Timestamp"[*]')), list_concat(json_extract(row, '$.EventNames[*]'), json_extract(row, '$."Events.Name"[*]')), list_concat(json_extract(row, '$.EventAttributes[*]'), json_extract(row, '$."Events.Attributes"[*]'))),
        lambda e: json_object('time', e[1]->>'$', 'name', e[2]->>'$', 'attributes', e[3]))::json as events,
    list_transform(list_zip(json_extract(row, '$."Links.TraceId"[*]'), json_extract(row, '$."Links.SpanId"[*]')),
        lambda l: json_object('trace_id', l[1]->>'$', 'span_id', l[2]->>'$'))::json as links
from f
