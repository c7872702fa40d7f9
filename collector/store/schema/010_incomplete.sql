-- Which commits do not hold what was acknowledged? Until 0.1.0, rows of a commit that had failed (DuckDB 2.0.0 out of memory) could be stored in the place of
-- later ones. One row per such commit: spans that were acknowledged and are missing, and rows that stood in their place.
create table incomplete_commits (batch bigint not null, received_ns bigint not null, missing bigint not null, misplaced bigint not null);

create temp table held as
select seq >> 24 as batch, count(*) as n, count(distinct seq) filter (where seq & 16777215 < b.spans) as right_n
from spans left join batches b on b.batch = seq >> 24 group by all;

insert into incomplete_commits
select b.batch, b.received_ns, b.spans - coalesce(right_n, 0), coalesce(n, 0) - coalesce(right_n, 0)
from batches b left join held h using (batch)
where b.spans > 0 and (coalesce(right_n, 0) <> b.spans or n <> b.spans)
    -- A file without a row out of place lacks what was erased, and nothing else.
    and exists (select 1 from held join batches using (batch) where n > right_n);

-- A second row of one number is a copy. Rows beyond a commit's number came with a body that was refused; a span of theirs that came again counts once.
delete from spans where rowid in (select rowid from (select rowid, row_number() over (partition by seq order by rowid) as nth from spans) where nth > 1);
delete from span_values where rowid in (select rowid from (select rowid, row_number() over (partition by seq order by rowid) as nth from span_values) where nth > 1);

-- A body of such a commit may come again: it is no repeat, and of its spans those that are there count once.
delete from bodies where received_ns in (select received_ns from incomplete_commits);

-- From here on a commit's number of spans is what the file holds of it, also after erasing: `overrun doctor` compares the two.
create temp table held_now as select seq >> 24 as batch, count(*) as n from spans group by all;
create temp table batches_now as
select batch, received_ns, coalesce(n, 0)::bigint as spans, points from batches left join held_now using (batch) order by batch;
delete from batches;
insert into batches from batches_now;
drop table held;
drop table held_now;
drop table batches_now;
