-- title = "requests and dependencies of Application Insights"
-- source = "learn.microsoft.com, Application Insights data model and query API, and the workspace's AppRequests and AppDependencies; ms, attributes in customDimensions"
-- rows = ["tables", "value"]
-- needs = ["timestamp | TimeGenerated", "id | Id", "operation_Id | OperationId", "name | Name", "duration | DurationMs"]
-- [expected]
-- spans = 3
-- failed = 0
-- attribute = ["gen_ai.usage.output_tokens", "120"]
with named as (
    select row, coalesce(row->>'$.operation_Id', row->>'$.OperationId') as trace, coalesce(row->>'$.operation_ParentId', row->>'$.ParentId') as parent,
        lower(coalesce(row->>'$.itemType', row->>'$.Type', '')) as item, lower(coalesce(row->>'$.type', row->>'$.DependencyType', '')) as kind,
        try_cast(coalesce(row->>'$.resultCode', row->>'$.ResultCode') as int) as code, lower(coalesce(row->>'$.success', row->>'$.Success', 'true')) as success
    from f where coalesce(row->>'$.duration', row->>'$.DurationMs') is not null
)
select
    trace as trace_id, coalesce(row->>'$.id', row->>'$.Id') as span_id, case when parent <> trace then parent end as parent_id, coalesce(row->>'$.name', row->>'$.Name') as name,
    case when contains(item, 'request') then 'server' when contains(kind, 'inproc') then 'internal' else 'client' end as kind,
    coalesce(row->>'$.timestamp', row->>'$.TimeGenerated') as "start", coalesce(row->>'$.duration', row->>'$.DurationMs') as duration_ms,
    success not in ('true', 'none') as error, 'app-insights' as scope, coalesce(row->>'$.cloud_RoleName', row->>'$.AppRoleName') as service,
    json_object('service.instance.id', coalesce(row->>'$.cloud_RoleInstance', row->>'$.AppRoleInstance')) as resource,
    json_merge_patch(json_object('http.response.status_code', case when code >= 100 then code end, 'url.full', coalesce(row->>'$.url', row->>'$.Url'),
        'server.address', coalesce(row->>'$.target', row->>'$.Target')),
        coalesce(try_cast(nullif(coalesce(row->>'$.customDimensions', row->>'$.Properties'), '') as json), '{}')) as attributes
from named
