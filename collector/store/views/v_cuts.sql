-- What limits left out or put together: one row per kind, since the file was made.
create or replace view v_cuts as
select what, items, make_timestamptz(last_ns // 1000) as last from cuts;
