-- What did limits of the collector leave out or put together, since the file was made? One row per kind, the most first.
select what, items, strftime(last at time zone 'UTC', '%Y-%m-%d %H:%M UTC') as last
from v_cuts
order by items desc, what
