-- title = "k6's results (a value a line, JSON or CSV)"
-- source = "grafana.com/docs/k6, real-time JSON and CSV: a request ends where its duration is recorded; a script's own metrics have the times of a stream, k6 itself has none"
-- needs = ["type ~ Metric|Point | metric_name", "metric | metric_value"]
-- tool = "k6"
-- [expected]
-- requests = 4
-- runs = 1
-- run = "default"
-- failed = 0
-- e2e_ms = 912.089
with points as (
    select coalesce(row->>'$.metric', row->>'$.metric_name') as name, coalesce(row->>'$.data.time', row->>'$.timestamp') as time,
        try_cast(coalesce(row->>'$.data.value', row->>'$.metric_value') as double) as ms, coalesce(row->'$.data.tags', row) as tags from f where coalesce(row->>'$.type', 'Point') = 'Point'
), known as (
    select *, coalesce(tags->>'$.status', '') as status, case when name = 'http_req_duration' then null when regexp_matches(name, '(?i)ttft|first_?token|first_?chunk') then 'ttft'
        when regexp_matches(name, '(?i)\bitl\b|_itl|itl_|inter_?token') then 'itl' when regexp_matches(name, '(?i)tpot|per_?output_?token') then 'tpot' else '' end as metric from points where ms is not null
)
select metric, ms, coalesce(nullif(tags->>'$.scenario', ''), 'test') as run, time as "end", ms as e2e_ms,
    case when tags->>'$.expected_response' = 'false' or status in ('0', '') or coalesce(tags->>'$.error_code', '') not in ('', '0') or status >= '400'
        then case when status in ('0', '') then 'unanswered' else status end end as error,
    regexp_replace(coalesce(tags->>'$.name', tags->>'$.url'), '[?#].*', '') as route,
    'k6 measures no first token of its own: `http_req_waiting` ends at the first byte of the headers' as unstreamed
from known where metric is null or metric <> ''
