-- Which stored traces have an id that begins with these digits, or differs from them in the fewest? One row per trace, nearest first; `digits_off` is 0 for a beginning.
select distinct trace_id, case when starts_with(trace_id, $digits::varchar) then 0 when len($digits::varchar) = 32 then hamming(trace_id, $digits::varchar) else 32 end as digits_off
from (
    select trace_id from v_requests
    union all select trace_id from v_spans where span_id = $digits::varchar or ends_with(trace_id, $digits::varchar))
order by digits_off, trace_id
limit 4
