-- title = "Locust's history (NAME_stats_history.csv)"
-- source = "locustio/locust, locust/stats.py: a row a second, of the last 10 s: those of the first 10 s at a level of users still hold the level before; five rows make a level"
-- needs = ["Timestamp", "User Count", "Name", "Total Request Count"]
-- tool = "locust"
-- whole = true
-- [expected]
-- requests = 0
-- runs = 1
-- run = "2 users"
-- failed = 0
-- percentile = ["e2e", 50.0, 750.0]
with seconds as (
    select number, row, try_cast(row->>'$.Timestamp' as double) as clock, try_cast(row->>'$."User Count"' as int) as users from f where row->>'$.Name' = 'Aggregated'
), changes as (
    select *, users is distinct from lag(users) over (order by number) as changed from seconds
), levels as (
    select *, sum(changed::int) over (order by number) as level from changes
), settled as (
    select *, min(clock) over (partition by level) as began from levels qualify clock >= began + 10
), counted as (
    select level, any_value(users) as users, count(*) as rows, max_by(row, number) as last, min_by(row, number) as first, max(clock) - min(clock) as lasted from settled group by 1
), cells as (
    select level, unnest(entries(row)) as e from settled
), figures as (
    select level, e.key as percent, median(try_cast(e.value->>'$' as double)) as ms from cells where regexp_matches(e.key, '^[\d.]+%$') group by all having count(try_cast(e.value->>'$' as double)) >= 5
), runs as (
    select *, (last->>'$."Total Request Count"')::double - (first->>'$."Total Request Count"')::double as asked,
        (last->>'$."Total Failure Count"')::double - (first->>'$."Total Failure Count"')::double as failed from counted where rows >= 5 and users > 0
)
select true as summary, 'e2e' as metric, percent as at, ms, level as run_key, format('{:,} users', users) as run, users as in_flight, lasted as duration_s,
    greatest(asked - failed, 0) as succeeded, greatest(failed, 0) as failed, case when lasted > 0 then greatest(asked - failed, 0) / lasted end as answered_rps,
    unnest(['Locust rounds times above 100 ms to two digits', 'a level''s percentiles are the median of those of its 10 s windows']) as note
from runs left join figures using (level) order by level
