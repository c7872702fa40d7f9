-- title = "hey's table of requests"
-- source = "rakyll/hey, requester/print.go (-o csv): seconds, offset counts from the start of the run; a request without an answer is in none"
-- needs = ["response-time", "status-code", "offset"]
-- whole = true
-- tool = "hey"
-- [expected]
-- requests = 3
-- runs = 1
-- run = "run 1"
-- failed = 0
-- e2e_ms = 2300.0
with requests as (
    select round(1e9 * try_cast(row->>'$."offset"' as double)) as began, round(1e9 * try_cast(row->>'$."response-time"' as double)) as took, row->>'$."status-code"' as code from f
)
select (began + (select written_ns from file) - max(began + took) over ())::bigint as start_ns, took as e2e_ns, code as status, case when code >= '400' then code end as error,
    'run 1' as run, 'times count from the start of the run: its end is dated by the file' as note
from requests
