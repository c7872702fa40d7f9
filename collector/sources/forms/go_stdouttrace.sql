-- title = "spans of Go's stdouttrace exporter"
-- source = "go.opentelemetry.io/otel/exporters/stdout/stdouttrace: SpanStub as JSON"
-- needs = ["SpanContext.TraceID", "SpanContext.SpanID", "StartTime", "SpanKind"]
-- [expected]
-- spans = 3
-- failed = 1
-- first_ns = 1795168800701000000
-- attribute = ["gen_ai.usage.input_tokens", "801"]
select
    row->>'$.SpanContext.TraceID' as trace_id, row->>'$.SpanContext.SpanID' as span_id, row->>'$.Parent.SpanID' as parent_id,
    row->>'$.SpanContext.TraceState' as trace_state, row->>'$.Name' as name, (row->>'$.SpanKind')::int as kind,
    row->>'$.StartTime' as "start", row->>'$.EndTime' as "end",
    lower(row->>'$.Status.Code') as error, row->>'$.Status.Description' as message,
    row->'$.Attributes' as attributes, row->'$.Resource' as resource,
    coalesce(row->>'$.InstrumentationScope.Name', row->>'$.InstrumentationLibrary.Name') as scope,
    list_transform(json_extract(row, '$.Events[*]'), lambda e: json_object('name', e->>'$.Name', 'time', e->>'$.Time', 'attributes', e->'$.Attributes'))::json as events,
    list_transform(json_extract(row, '$.Links[*]'), lambda l: json_object('trace_id', l->>'$.SpanContext.TraceID', 'span_id', l->>'$.SpanContext.SpanID'))::json as links
from f
