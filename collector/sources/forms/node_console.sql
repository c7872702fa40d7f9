-- title = "spans of Node's ConsoleSpanExporter"
-- source = "@opentelemetry/sdk-trace-base, ConsoleSpanExporter: what console.dir prints; timestamp and duration in us; parentId before 2.0, parentSpanContext since"
-- read = "text"
-- needs = ['(?m)^  traceId: .[0-9a-f]{32}.', '(?m)^  kind: \d', '(?m)^  timestamp: \d+']
-- [expected]
-- spans = 2
-- failed = 1
-- first_ns = 1795168801101000000
-- attribute = ["gen_ai.usage.input_tokens", "801"]
with blocks as (
    select unnest(string_split(regexp_replace(text, '\r\n', E'\n', 'g'), E'\n}\n')) as b from f
), parts as (
    select b, split_part(split_part(b, E'\n  attributes: {\n', 2), E'\n  }', 1) as own, split_part(split_part(b, E'\n  resource: {\n', 2), E'\n  }', 1) as about
    from blocks where regexp_matches(b, '\n  traceId: ') and regexp_matches(b, '\n  timestamp: \d')
), pairs as (
    select b, regexp_extract_all(own, '(?m)^    (''[^''\n]+''|[A-Za-z_$][\w$]*): (.*?),?$', ['key', 'told']) as own,
        regexp_extract_all(about, '(?m)^      (''[^''\n]+''|[A-Za-z_$][\w$]*): (.*?),?$', ['key', 'told']) as about from parts
)
select
    regexp_extract(b, '\n  traceId: .(\w+)', 1) as trace_id, regexp_extract(b, '\n  id: .(\w+)', 1) as span_id,
    coalesce(nullif(regexp_extract(b, '\n  parentSpanContext: \{[^}]*spanId: .(\w+)', 1), ''), regexp_extract(b, '\n  parentId: .(\w+)', 1)) as parent_id,
    regexp_extract(b, '\n  name: [''"`](.*)[''"`],?(\n|$)', 1) as name, ['internal', 'server', 'client', 'producer', 'consumer'][regexp_extract(b, '\n  kind: (\d)', 1)::int + 1] as kind,
    regexp_extract(b, '\n  timestamp: (\d+)', 1)::bigint as "start", regexp_extract(b, '\n  duration: ([\d.]+)', 1)::double / 1000 as duration_ms,
    case regexp_extract(b, '\n  status: \{\s*code: (\d)', 1) when '2' then 'error' when '1' then 'ok' end as error,
    nullif(regexp_extract(b, '\n  instrumentation(?:Scope|Library): \{\s*name: .([^'']*)', 1), '') as scope,
    to_json(map_from_entries(list_transform(list_filter(own, lambda p: p.told not in ('undefined', 'null')),
        lambda p: (trim(p.key, ''''), regexp_replace(p.told, '^(?:''(.*)''|"(.*)"|`(.*)`)$', '\1\2\3'))))) as attributes,
    to_json(map_from_entries(list_transform(list_filter(about, lambda p: p.told not in ('undefined', 'null')),
        lambda p: (trim(p.key, ''''), regexp_replace(p.told, '^(?:''(.*)''|"(.*)"|`(.*)`)$', '\1\2\3'))))) as resource
from pairs
