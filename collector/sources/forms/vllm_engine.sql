-- title = "the moments that vLLM's engine keeps of each request"
-- source = "vllm-project/vllm, vllm/v1/metrics/stats.py (RequestStateStats), a line a request: arrival_time since 1970, *_ts of a clock that the quickest way sets beside it"
-- needs = ["arrival_time", "queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts"]
-- tool = "vllm"
-- whole = true
-- [expected]
-- requests = 2
-- runs = 1
-- run = "engine"
-- failed = 0
-- e2e_ms = 1750.0
-- ttft_ms = 750.0
with given as (
    select row, try_cast(row->>'$.arrival_time' as double) as arrived, try_cast(row->>'$.queued_ts' as double) as queued, try_cast(row->>'$.scheduled_ts' as double) as scheduled,
        try_cast(row->>'$.first_token_ts' as double) as first, try_cast(row->>'$.last_token_ts' as double) as last from f
), clocks as (
    select *, arrived + coalesce(min(queued - arrived) over (), 0) as since from given
)
select arrived as start_s, case when queued <= scheduled and scheduled <= first and first <= last then last - since end as e2e_s, first - since as ttft_s, scheduled - since as queue_s,
    row->>'$.input_toks' as input_tokens, row->>'$.output_toks' as output_tokens, row->>'$.model' as model, 'engine' as run
from clocks
