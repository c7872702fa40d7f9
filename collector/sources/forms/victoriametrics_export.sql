-- title = "VictoriaMetrics' export (/api/v1/export)"
-- source = "docs.victoriametrics.com, How to export data in JSON line format: a line a series, times in ms"
-- needs = ["metric.__name__", "values", "timestamps"]
-- whole = true
-- [expected]
-- points = 6
-- metrics = ["vllm:num_requests_running", "vllm:num_requests_waiting"]
-- last_value = 42.0
select row->>'$.metric.__name__' as metric, json_merge_patch(row->'$.metric', '{"__name__": null}') as labels,
    unnest((row->'$.timestamps')::bigint[]) as time, unnest(list_transform(json_extract(row, '$.values[*]'), lambda v: try_cast(v->>'$' as double))) as value
from f where row->>'$.metric.__name__' is not null
