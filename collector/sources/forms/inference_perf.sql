-- title = "inference-perf's requests (per_request_lifecycle_metrics.json)"
-- source = "kubernetes-sigs/inference-perf, inference_perf/apis/base.py: seconds of a clock without a date; judged from scheduled_time where the file records it"
-- needs = ["start_time", "end_time", "info", "error"]
-- tool = "inference-perf"
-- whole = true
-- [expected]
-- requests = 3
-- runs = 1
-- run = "all stages"
-- failed = 0
-- e2e_ms = 912.089
-- ttft_ms = 50.0
with requests as (
    select row, try_cast(row->>'$.start_time' as double) as start, try_cast(row->>'$.end_time' as double) as "end",
        coalesce(row->'$.info.response_metrics', row->'$.info') as answer from f
), timed as (
    select *, list_filter(list_transform(json_extract(answer, '$.output_token_times[*]'), lambda t: try_cast(t->>'$' as double)), lambda t: t is not null) as times,
        try_cast(row->>'$.scheduled_time' as double) as due from requests
)
select start as start_s, case when "end" >= start then "end" - start end as e2e_s, case when len(times) > 1 then times[1] - start end as ttft_s, 'all stages' as run,
    case when due <> 0 then greatest(start - due, 0) end as late_s, case when len(times) > 1 then (times[-1] - times[1]) / (len(times) - 1) end as itl_s,
    coalesce(row->>'$.info.request_metrics.text.input_tokens', row->>'$.info.input_tokens') as input_tokens, answer->>'$.output_tokens' as output_tokens,
    case json_type(row->'$.error') when 'OBJECT' then coalesce(row->>'$.error.error_type', 'failed') else row->>'$.error' end as error
from timed order by start - coalesce(greatest(start - due, 0), 0)
