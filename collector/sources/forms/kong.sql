-- title = "a log of Kong's AI proxy"
-- source = "developer.konghq.com, AI Gateway audit log and file-log: latencies.request is the whole, kong its own part; figures below ai.proxy, before 3.x below the plugin's name"
-- rows = ["data", "results"]
-- needs = ["started_at", "latencies", "ai.*.meta"]
-- [expected]
-- spans = 6
-- failed = 0
-- attribute = ["gen_ai.provider.name", "openai"]
with logged as (
    select row, coalesce(case when json_exists(row, '$.ai.proxy.meta') then row->'$.ai.proxy' end, json_extract(row, '$.ai.*')[1]) as p from f
), calls as (
    select row, p, coalesce(try_cast(p->>'$.meta.llm_latency' as double), try_cast(row->>'$.latencies.proxy' as double)) as took,
        coalesce(try_cast(row->>'$.latencies.request' as double), try_cast(p->>'$.meta.llm_latency' as double), try_cast(row->>'$.latencies.proxy' as double)) as whole,
        try_cast(row->>'$.response.status' as int) as code,
        coalesce(row->>'$.request.id', concat_ws(' ', row->>'$.started_at', row->>'$.client_ip', row->>'$.response.size')) as key
    from logged
)
select
    'kong ' || key as trace_id, 'call ' || key as span_id, row->>'$.started_at' as "start", case when json_exists(p, '$.meta') then took end as duration_ms, whole as whole_ms,
    least(coalesce(try_cast(row->>'$.latencies.kong' as double), 0), greatest(whole - took, 0)) as before_ms, p->>'$.usage.time_to_first_token' as first_ms,
    'client' as kind, code >= 400 as error, code as status, p->>'$.meta.provider_name' as provider, p->>'$.meta.request_model' as model,
    p->>'$.usage.prompt_tokens' as input_tokens, p->>'$.usage.completion_tokens' as output_tokens,
    case when contains(lower(coalesce(p->>'$.meta.request_model', '') || coalesce(row->>'$.route.paths[0]', row->>'$.request.uri', '')), 'embed') then 'embeddings' else 'chat' end as operation,
    json_object('gen_ai.response.model', p->>'$.meta.response_model', 'gen_ai.request.stream', (p->>'$.meta.request_mode') = 'stream') as attributes,
    json_object('http.request.method', row->>'$.request.method', 'http.route', coalesce(row->>'$.route.paths[0]', row->>'$.request.uri'),
        'http.response.status_code', code, 'tenant.id', row->>'$.consumer.username') as around
from calls
