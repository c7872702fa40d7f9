-- title = "JMeter's results"
-- source = "jmeter.apache.org, CSV Log format: timeStamp in ms since 1970, elapsed in ms; its Latency is the first byte of the answer, which is no token"
-- needs = ["timeStamp", "elapsed", "success"]
-- tool = "jmeter"
-- whole = true
-- [expected]
-- requests = 3
-- runs = 1
-- run = "8 in flight"
-- failed = 0
-- e2e_ms = 1000.0
with samples as (
    select row, max(try_cast(row->>'$.allThreads' as int)) over () as users, case when regexp_matches(row->>'$.responseCode', '^[45]\d\d$') then row->>'$.responseCode' end as code from f
)
select row->>'$.timeStamp' as start_ms, row->>'$.elapsed' as e2e_ms, code as status, case when lower(row->>'$.success') = 'false' then coalesce(code, 'failed') end as error,
    row->>'$.label' as route, coalesce(format('{:,} in flight', nullif(users, 0)), 'run 1') as run, nullif(users, 0) as in_flight, nullif(users, 0) as bounded, 'allThreads' as bounded_by
from samples
