-- title = "Influx line protocol (Telegraf's Prometheus input: a measurement a metric)"
-- source = "docs.influxdata.com, line protocol; Telegraf's inputs.prometheus with metric_version = 1: fields gauge, counter, value, count, sum, one a bucket's edge or quantile"
-- read = "lines"
-- needs = ['(?m)^(?:[^\s,\\]|\\.)+(?:,(?:[^\s,=\\]|\\.)+=(?:[^\s,\\]|\\.)+)* [^\s=,]+=[-+\w."]\S*(?: \d{10,19})?\s*$']
-- whole = true
-- [expected]
-- points = 11
-- metrics = ["vllm:num_requests_waiting", "vllm:time_to_first_token_seconds_bucket", "vllm:time_to_first_token_seconds_count", "vllm:time_to_first_token_seconds_sum"]
-- last_value = 42.0
with parts as (
    select regexp_extract(line, '^((?:[^\s,\\]|\\.)+)((?:,(?:[^\s,=\\]|\\.)+=(?:[^\s,\\]|\\.)+)*) (\S+) (\d{10,19})\s*$', ['name', 'tags', 'fields', 'at']) as p from f
), tagged as (
    select regexp_replace(p.name, '\\(.)', '\1', 'g') as name, p.at::bigint as time, unnest(string_split(p.fields, ',')) as pair,
        map_from_entries(list_transform(regexp_extract_all(p.tags, ',((?:[^\s,=\\]|\\.)+=(?:[^\s,\\]|\\.)+)', 1),
            lambda t: (regexp_replace(split_part(t, '=', 1), '\\(.)', '\1', 'g'), regexp_replace(substr(t, instr(t, '=') + 1), '\\(.)', '\1', 'g')))) as tags
    from parts where p.at <> ''
), fields as (
    select name, time, tags, split_part(pair, '=', 1) as field, try_cast(regexp_replace(split_part(pair, '=', 2), '[iu]$', '') as double) as value from tagged
)
select
    case when field in ('gauge', 'counter', 'value') then name when field in ('sum', 'count') then name || '_' || field
        when try_cast(field as double) is not null then name || '_bucket' else name || '_' || field end as metric,
    to_json(case when field not in ('gauge', 'counter', 'value', 'sum', 'count') and try_cast(field as double) is not null then map_concat(tags, map {'le': field}) else tags end) as labels,
    time, value
from fields where value is not null
