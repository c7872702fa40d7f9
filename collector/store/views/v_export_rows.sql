-- With which commit did each row of an export come? One row per row of a kind (`metrics`: per sample of a counter or gauge that is sent), by the start that decides
-- which hour it belongs to; nanoseconds. A row that is made anew has a later commit, so commits and starts show whether an hour has changed, and read no more than that.
-- `own` is false where a row only has an effect on a later hour: the last quarter of an hour decides the first rates of the next one (v_metric_points.sql).
create or replace view v_export_rows as
select 'requests' as kind, start_ns, coalesce(batch, 0) as batch, true as own from requests r
where llm_calls > 0 or (server_root and coalesce((r.service, coalesce(r.route, r.name)) in (from callers), false))
union all
select 'llm-calls', start_ns, coalesce(batch, 0), true from llm_calls
union all
select 'spans', start_ns, seq >> 24, true from spans
union all
select 'prompts', start_ns, seq >> 24, true from spans
union all
select 'metrics', time_ns, batch, true from points where kind in (1, 2) and indicator is not null and value is not null
union all
select 'metrics', (time_ns // 3_600_000_000_000 + 1) * 3_600_000_000_000, batch, false from points
where kind in (1, 2) and indicator is not null and value is not null and time_ns % 3_600_000_000_000 >= 2_700_000_000_000;
-- Which store is this, and from which commit on does it hold what it was sent? One row. `store` is made of the random key that the file was created with, which
-- it does not show, and goes with the file.
create or replace view v_store as
select sha256('overrun store ' || value)[:12] as store, coalesce((select min(batch) from batches), 0) as first_batch from meta where key = 'salt';
