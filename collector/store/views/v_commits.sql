-- Does the file hold what each commit wrote? One row per commit with spans: spans as recorded, rows there are, and rows that are no copy of another.
create or replace view v_commits as
select batch, make_timestamptz(received_ns // 1000) as received, b.spans, coalesce(n, 0) as stored, coalesce(n_distinct, 0) as distinct_stored
from batches b left join (select seq >> 24 as batch, count(*) as n, count(distinct seq) as n_distinct from spans group by all) using (batch)
where b.spans > 0 or n > 0;
