-- title = "spans of Zipkin (v2)"
-- source = "Zipkin's API v2 (envoyproxy/envoy#31045): times in us, kinds in capitals, tags are text; a server's span may share its client's id"
-- needs = ["traceId", "id", "localEndpoint | timestamp ~ \\d+ | kind"]
-- [expected]
-- spans = 4
-- failed = 0
-- attribute = ["gen_ai.usage.output_tokens", "40"]
select
    row->>'$.traceId' as trace_id, row->>'$.id' as span_id, row->>'$.parentId' as parent_id, row->>'$.name' as name, row->>'$.kind' as kind,
    row->>'$.timestamp' as "start", coalesce(try_cast(row->>'$.duration' as double), 0) / 1e3 as duration_ms,
    case when json_exists(row, '$.tags.error') then 'error' end as error,
    json_merge_patch(json_object('peer.service', row->>'$.remoteEndpoint.serviceName'), row->'$.tags') as attributes, '' as scope,
    coalesce(row->>'$.localEndpoint.serviceName', 'unknown_service') as service,
    json_object('host.name', coalesce(row->>'$.localEndpoint.ipv4', row->>'$.localEndpoint.ipv6')) as resource,
    list_transform(json_extract(row, '$.annotations[*]'), lambda a: json_object('time', a->'$.timestamp', 'name', a->>'$.value'))::json as events
from f
