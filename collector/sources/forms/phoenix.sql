-- title = "spans of Phoenix (get_spans_dataframe, or its REST API)"
-- source = "Arize-ai/phoenix#11224, #10753: a column for every attribute of any span, times as dates or in ms; its API's /v1/projects/ID/spans"
-- rows = ["data"]
-- needs = ["span_kind", "context.trace_id", "context.span_id", "start_time"]
-- [expected]
-- spans = 2
-- failed = 0
-- attribute = ["llm.token_count.completion", "50"]
select
    coalesce(row->>'$."context.trace_id"', row->>'$.context.trace_id') as trace_id, coalesce(row->>'$."context.span_id"', row->>'$.context.span_id') as span_id,
    row->>'$.parent_id' as parent_id, row->>'$.name' as name, 'internal' as kind, row->>'$.start_time' as "start", coalesce(row->>'$.end_time', row->>'$.start_time') as "end",
    row->>'$.status_code' = 'ERROR' as error, json_object('openinference.span.kind', row->>'$.span_kind') as attributes, row as dotted,
    'openinference.instrumentation' as scope,
    list_transform(json_extract(try_cast(row->>'$.events' as json), '$[*]'), lambda e: json_object('time', e->>'$.timestamp', 'name', e->>'$.name'))::json as events
from f
