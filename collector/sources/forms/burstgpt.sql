-- title = "BurstGPT's workload"
-- source = "github.com/HPMLL/BurstGPT: Timestamp in seconds since the trace's begin, Elapsed time in seconds, no response tokens where the call failed"
-- needs = ["Timestamp ~ [\\d.]+", "Elapsed time", "Model", "Request tokens", "Response tokens", "Log Type"]
-- whole = true
-- note = "times count from the begin of the workload: the last call is dated by the file, durations and order are as published"
-- [expected]
-- spans = 2
-- failed = 1
-- undated = true
-- attribute = ["gen_ai.usage.input_tokens", "801"]
with calls as (
    select number, row, round((row->>'$.Timestamp')::double * 1e9)::bigint as began, round((row->>'$."Elapsed time"')::double * 1e9)::bigint as took from f
), dated as (
    select *, (select written_ns from file) - max(began + took) over () as since from calls where took is not null
)
select
    'call ' || number as span_id, since + began as "start", since + began + took as "end", 'client' as kind, 'burstgpt' as service,
    'chat' as operation, row->>'$.Model' as model, row->>'$."Request tokens"' as input_tokens, row->>'$."Response tokens"' as output_tokens,
    (row->>'$."Response tokens"')::double = 0 as error, nullif(row->>'$."Session ID"', '') as session,
    json_object('overrun.workload', case row->>'$."Log Type"' when 'API log' then 'api' else 'conversation' end) as attributes
from dated
