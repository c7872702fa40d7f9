-- title = "data frames of Grafana (a query's answer, or a panel's JSON from the inspector)"
-- source = "grafana.com, data frames: schema.fields with labels and data.values by column, or fields that hold their values"
-- needs = ["results.*.frames.schema.fields.type | series.schema.fields.type | frames.schema.fields.type | schema.fields.type | series.fields.type | fields.values", "results.*.frames.data.values | series.data.values | frames.data.values | data.values | series.fields.values | fields.values"]
-- whole = true
-- [expected]
-- points = 6
-- metrics = ["vllm:num_requests_running", "vllm:num_requests_waiting"]
-- last_value = 42.0
with frames as (
    select unnest(list_concat(json_extract(row, '$.results.*.frames[*]'), json_extract(row, '$.series[*]'), json_extract(row, '$.frames[*]'), [row])) as frame from f
), numbered as (
    select row_number() over () as n, frame from frames
), fields as (
    select n, coalesce(frame->>'$.schema.meta.executedQueryString', '') as asked, coalesce(frame->>'$.schema.name', '') as named,
        unnest(frame->'$.schema.fields[*]') as field, unnest(frame->'$.data.values[*]') as vals from numbered
    union all
    select n, '', coalesce(frame->>'$.name', ''), field, field->'$.values' from (select n, frame, unnest(frame->'$.fields[*]') as field from numbered)
), times as (
    select n, vals from fields where field->>'$.type' = 'time'
), values as (
    select field, asked, named, unnest((t.vals)::bigint[]) as time, unnest(list_transform(json_extract(v.vals, '$[*]'), lambda x: try_cast(x->>'$' as double))) as value
    from fields v join times t using (n) where v.field->>'$.type' = 'number'
)
select
    -- An expression has no metric's name; of a selector it is the beginning.
    coalesce(field->>'$.labels.__name__', nullif(regexp_extract(asked, '^(?:Expr: )?([A-Za-z_:][\w:]*)(?:\{[^}]*\})?\s*(?:\n|$)', 1), ''),
        nullif(regexp_extract(named, '^([A-Za-z_]+[:_][\w:]*)(?:\{.*\})?$', 1), ''), nullif(regexp_extract(field->>'$.name', '^([A-Za-z_]+[:_][\w:]*)(?:\{.*\})?$', 1), '')) as metric,
    json_merge_patch(coalesce(field->'$.labels', '{}'), '{"__name__": null}') as labels, time, value
from values where value is not null
