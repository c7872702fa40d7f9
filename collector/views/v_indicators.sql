-- Which of the engines' indicators does the store hold, and when did they come? One row per indicator, from its first to its last sample.
create or replace view v_indicators as
select indicator, make_timestamptz(min(time_ns) // 1000) as oldest, make_timestamptz(max(time_ns) // 1000) as newest, count(*) as samples
from points where indicator is not null
group by indicator;
