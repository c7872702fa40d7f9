-- Which traces are these requests? One row per request with one of the given starts (microseconds since 1970). Milliseconds.
select trace_id, epoch_us(start) as start_us, e2e_ms
from v_requests
where start between make_timestamptz(list_min($starts::bigint[])) and make_timestamptz(list_max($starts::bigint[]))
    and list_contains($starts::bigint[], epoch_us(start))
