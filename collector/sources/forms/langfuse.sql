-- title = "observations of Langfuse"
-- source = "langfuse#5658, #15337 and Langfuse's API: a trace with its observations, lists of them, or a table; usage under old and new names. Inputs and outputs are not looked at"
-- rows = ["data", "json", "result", "generations"]
-- needs = ["observations.traceId | traceId", "observations.startTime | startTime", "observations.type | type", "id | trace.id"]
-- whole = true
-- [expected]
-- spans = 3
-- failed = 0
-- attribute = ["langfuse.observation.model.name", "gpt-4o"]
with given as (
    select json_type(row->'$.observations') = 'ARRAY' as several, row from f
), listed as (
    select case when several then coalesce(row->'$.trace', row) end as t, unnest(case when several then row->'$.observations[*]' else [row] end) as o from given
), observations as (
    select o, t->>'$.id' as whole, t->>'$.name' as named, t->>'$.sessionId' as session, t->>'$.userId' as person, t->>'$.environment' as environment,
        coalesce(t->>'$.version', t->>'$.release') as version, o->>'$.traceId' as trace, nullif(o->>'$.parentObservationId', '') as parent,
        try_cast(o->>'$.metadata' as json)->>'$.resourceAttributes."service.name"' as service, try_cast(o->>'$.usageDetails' as json) as details,
        try_cast(o->>'$.usage' as json) as usage, o->>'$.startTime' as begin, coalesce(nullif(o->>'$.endTime', ''), o->>'$.startTime') as "end"
    from listed
), known as (
    select *, json_object('langfuse.trace.name', named, 'session.id', session, 'user.id', person) as about,
        json_object('service.version', version, 'deployment.environment', environment) as resource,
        -- Where several observations of a trace have no parent, the trace itself is around them.
        whole is not null and count(*) filter (parent is null and whole is not null) over (partition by trace) > 1 as rooted
    from observations
)
select
    trace as trace_id, o->>'$.id' as span_id, coalesce(parent, case when rooted then 'trace ' || trace end) as parent_id, o->>'$.name' as name, 'internal' as kind,
    begin as "start", "end", 'langfuse-sdk' as scope, coalesce(service, 'langfuse') as service, resource,
    json_merge_patch(about, json_object('langfuse.observation.type', lower(o->>'$.type'),
        'langfuse.observation.model.name', coalesce(o->>'$.model', o->>'$.providedModelName'),
        'langfuse.observation.usage_details', nullif(case when details <> '{}' then details::varchar else json_merge_patch('{}', json_object(
            'input', coalesce(try_cast(usage->>'$.input' as bigint), try_cast(usage->>'$.promptTokens' as bigint), try_cast(usage->>'$.inputUsage' as bigint),
                try_cast(usage->>'$.prompt_tokens' as bigint), try_cast(o->>'$.promptTokens' as bigint), try_cast(o->>'$.inputUsage' as bigint)),
            'output', coalesce(try_cast(usage->>'$.output' as bigint), try_cast(usage->>'$.completionTokens' as bigint), try_cast(usage->>'$.outputUsage' as bigint),
                try_cast(usage->>'$.completion_tokens' as bigint), try_cast(o->>'$.completionTokens' as bigint), try_cast(o->>'$.outputUsage' as bigint))))::varchar end, '{}'),
        'langfuse.observation.completion_start_time', nullif(o->>'$.completionStartTime', ''), 'langfuse.observation.level', o->>'$.level',
        'langfuse.observation.model.parameters', case when json_type(o->'$.modelParameters') = 'OBJECT' then o->>'$.modelParameters' end)) as attributes
from known
union all
select trace, 'trace ' || trace, null, coalesce(any_value(named), 'trace'), 'server', min(begin), max("end"), 'langfuse-sdk', 'langfuse', any_value(resource), any_value(about)
from known where rooted group by trace
