-- title = "traces of Jaeger (its interface's download, or an answer of its API)"
-- source = "Jaeger's UI model (opiproject/otel#154) and the Collector's translation of its tags; times in us, references CHILD_OF before FOLLOWS_FROM"
-- rows = ["data"]
-- needs = ["spans.operationName", "spans.spanID", "spans.traceID"]
-- [expected]
-- spans = 3
-- failed = 1
-- attribute = ["gen_ai.usage.output_tokens", "40"]
with spans as (
    select row->'$.processes' as processes, unnest(json_extract(row, '$.spans[*]')) as s from f
), parts as (
    select s, coalesce(processes->('$."' || regexp_replace(s->>'$.processID', '[^\w.-]', '', 'g') || '"'), s->'$.process') as process,
        s->>'$.traceID' as trace, json_extract(s, '$.references[*]') as refs from spans
), inside as (
    select *, list_filter(refs, lambda r: coalesce(r->>'$.traceID', trace) = trace) as own from parts
), parents as (
    select *, coalesce(list_filter(own, lambda r: r->>'$.refType' = 'CHILD_OF')[1], own[1]) as parent from inside
)
select
    trace as trace_id, s->>'$.spanID' as span_id, coalesce(parent->>'$.spanID', s->>'$.parentSpanID') as parent_id, s->>'$.operationName' as name,
    s->>'$.startTime' as "start", try_cast(s->>'$.duration' as double) / 1e3 as duration_ms,
    -- A status of OpenTelemetry stands among the tags, and says more.
    case when len(list_filter(json_extract(s, '$.tags[*]'), lambda t: t->>'$.key' = 'otel.status_code')) = 0
        and len(list_filter(json_extract(s, '$.tags[*]'), lambda t: t->>'$.key' = 'error' and lower(t->>'$.value') = 'true')) > 0 then 'error' end as error,
    s->'$.tags' as attributes, '' as scope, coalesce(process->>'$.serviceName', 'unknown_service') as service, process->'$.tags' as resource,
    list_transform(json_extract(s, '$.logs[*]'), lambda l: json_object('time', l->'$.timestamp', 'attributes', l->'$.fields'))::json as events,
    list_transform(list_filter(refs, lambda r: parent is null or r <> parent),
        lambda r: json_object('trace_id', coalesce(r->>'$.traceID', trace), 'span_id', r->>'$.spanID'))::json as links
from parents
