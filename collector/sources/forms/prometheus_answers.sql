-- title = "an answer of Prometheus's query API"
-- source = "prometheus.io, HTTP API: range vectors and instant vectors; what an expression gave has no metric's name"
-- needs = ["status", "data.resultType ~ matrix|vector", "data"]
-- whole = true
-- empty = "ask for the metric itself, `vllm:num_requests_waiting[1h]`, or save a page, `curl http://HOST:9090/federate?match[]=... > page.prom`"
-- [expected]
-- points = 3
-- metrics = ["vllm:num_requests_running", "vllm:num_requests_waiting"]
-- last_value = 42.0
with series as (
    select unnest(json_extract(row, '$.data.result[*]')) as s from f
), points as (
    select s, unnest(case when (s->'$.values') is not null then json_extract(s, '$.values[*]') else [s->'$.value'] end) as point from series
)
select s->>'$.metric.__name__' as metric, json_merge_patch(s->'$.metric', '{"__name__": null}') as labels, point->>'$[0]' as time, try_cast(point->>'$[1]' as double) as value from points
