-- title = "Locust's statistics (NAME_stats.csv)"
-- source = "locustio/locust, locust/stats.py: a row an endpoint. Rows named after first tokens are times, no requests, and spoil the total: then the largest endpoint stands for the run"
-- needs = ["Request Count", "Failure Count", "Name"]
-- tool = "locust"
-- whole = true
-- [expected]
-- requests = 0
-- runs = 1
-- run = "test"
-- failed = 27
-- percentile = ["e2e", 50.0, 838.0]
with endpoints as (
    select row, regexp_matches(concat_ws(' ', row->>'$.Type', row->>'$.Name'), '(?i)ttft|first.?token|first.?chunk') as timed, try_cast(row->>'$."Request Count"' as double) as asked, number from f
), chosen as (
    select *, bool_or(timed) over () as spoiled, row->>'$.Name' = 'Aggregated' as total from endpoints
), runs as (
    select * from chosen where not timed and asked > 0 and not (total and spoiled) order by total desc, asked desc, number limit 1
), figures as (
    select row as own, unnest(entries(row)) as e, case when timed then 'ttft' else 'e2e' end as metric
    from chosen where number = (select number from runs) or number = (select min(number) from chosen where timed)
)
select true as summary, metric, case when e.key = 'Average Response Time' then 'mean' when e.key like '%\%' escape '\' then e.key end as at, try_cast(e.value->>'$' as double) as ms, 'test' as run,
    asked - coalesce(try_cast(row->>'$."Failure Count"' as double), 0) as succeeded, row->>'$."Failure Count"' as failed,
    coalesce(try_cast(row->>'$."Requests/s"' as double), 0) - coalesce(try_cast(row->>'$."Failures/s"' as double), 0) as answered_rps,
    'Locust rounds times above 100 ms to two digits' as note
from figures cross join runs where metric = 'e2e' or e.key <> 'Average Response Time'
