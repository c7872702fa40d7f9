-- Which hours of [$start, $end) (whole hours, either side open if null) hold rows of $kind, and do they hold the same as at an earlier time? One row per hour with
-- rows, the newest $most. `mark` differs when rows came, went or were made anew; `first_batch` is the oldest commit that the rows depend on.
-- `hours` is how many have rows, also beyond $most.
with held as (
    select start_ns // 3_600_000_000_000 as number, count(*) filter (own) as n, min(batch) as first_batch, sum(hash(start_ns, batch)) as content
    from v_export_rows
    where kind = $kind and starts_within(start_ns, $start, $end)
    group by number
    having n > 0)
select strftime(make_timestamp(number * 3_600_000_000), '%Y-%m-%dT%H') as hour, n as rows, first_batch, format('{}-{}', n, content % 18446744073709551616) as mark,
    count(*) over () as hours
from held
order by number desc
limit $most;
