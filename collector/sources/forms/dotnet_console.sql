-- title = "spans of .NET's console exporter"
-- source = "OpenTelemetry.Exporter.Console, ConsoleActivityExporter: Activity.* lines and their tags below them; Duration is a TimeSpan, [d.]hh:mm:ss[.fffffff]"
-- read = "text"
-- needs = ['(?m)^Activity\.TraceId: +[0-9a-f]{32}', '(?m)^Activity\.(?:SpanId|Id): ', '(?m)^Activity\.StartTime: ', '(?m)^Activity\.Duration: ']
-- [expected]
-- spans = 2
-- failed = 1
-- first_ns = 1795168801101000000
-- attribute = ["gen_ai.usage.input_tokens", "801"]
with blocks as (
    select unnest(string_split(regexp_replace(text, '\r\n', E'\n', 'g'), E'Activity.TraceId:')) as b from f
), parts as (
    select b, regexp_extract(b, 'Activity\.Tags:\n((?:    .*\n?)*)', 1) as own, regexp_extract(b, 'Resource associated with Activity:\n((?:    .*\n?)*)', 1) as about,
        regexp_extract(b, 'Activity\.Duration: +(\S+)', 1) as took
    from blocks where regexp_matches(b, 'Activity\.StartTime: ')
), pairs as (
    select b, took, regexp_extract_all(own, '(?m)^    ([^\s:]+): (.*)$', ['key', 'told']) as own, regexp_extract_all(about, '(?m)^    ([^\s:]+): (.*)$', ['key', 'told']) as about from parts
)
select
    regexp_extract(b, '^ *(\w+)', 1) as trace_id, regexp_extract(b, '\nActivity\.SpanId: +(\w+)', 1) as span_id, regexp_extract(b, '\nActivity\.ParentSpanId: +(\w+)', 1) as parent_id,
    regexp_extract(b, '\nActivity\.DisplayName: +(.*)', 1) as name, regexp_extract(b, '\nActivity\.Kind: +(\w+)', 1) as kind,
    regexp_extract(b, '\nActivity\.StartTime: +(\S+)', 1) as "start",
    86400000.0 * coalesce(try_cast(regexp_extract(took, '^(\d+)\.\d+:', 1) as double), 0) + 3600000.0 * regexp_extract(took, '(\d+):\d+:[\d.]+$', 1)::double
        + 60000.0 * regexp_extract(took, '(\d+):[\d.]+$', 1)::double + 1000.0 * regexp_extract(took, '([\d.]+)$', 1)::double as duration_ms,
    case lower(regexp_extract(b, '\n(?:Activity\.)?StatusCode ?: +(\w+)', 1)) when 'error' then 'error' when 'ok' then 'ok' end as error,
    coalesce(nullif(regexp_extract(b, '\nActivity\.ActivitySourceName: +(.*)', 1), ''), regexp_extract(b, 'Instrumentation scope \(ActivitySource\):\n +Name: +(.*)', 1)) as scope,
    to_json(map_from_entries(list_transform(own, lambda p: (p.key, p.told)))) as attributes, to_json(map_from_entries(list_transform(about, lambda p: (p.key, p.told)))) as resource
from pairs
