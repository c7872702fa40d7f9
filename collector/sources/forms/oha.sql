-- title = "oha's table of requests"
-- source = "hatoo/oha, src/printer.rs (--output-format csv): seconds, request-start counts from the start of the run"
-- needs = ["request-start", "request-duration", "status"]
-- whole = true
-- tool = "oha"
-- [expected]
-- requests = 3
-- runs = 1
-- run = "run 1"
-- failed = 0
-- e2e_ms = 2300.0
with requests as (
    select round(1e9 * try_cast(row->>'$."request-start"' as double)) as began, round(1e9 * try_cast(row->>'$."request-duration"' as double)) as took, row->>'$."status"' as code from f
)
select (began + (select written_ns from file) - max(began + took) over ())::bigint as start_ns, took as e2e_ns, code as status, case when code >= '400' then code end as error,
    'run 1' as run, 'times count from the start of the run: its end is dated by the file' as note
from requests
