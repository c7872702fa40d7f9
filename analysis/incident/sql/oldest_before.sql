-- Is there a request before this time, and when did the first one start? One row, null without any.
select min(start) as oldest
from v_request_times
where starts_within(start_ns, null, $start)
