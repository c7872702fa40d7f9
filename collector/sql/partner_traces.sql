-- Which further traces share a model response id (or where engines meet) with the calls in `mine` (seq, response_id)? One row per trace that is not in `wanted` yet: an engine's
-- span of a client's call arrives in a trace of its own when the context was not passed on. $floor bounds the scan (nanoseconds): spans that started
-- before it are not looked at. Ids are compared first, in the narrow table; spans are only read for those that match, seldom any.
with same_id as materialized (
    select seq from span_values anti join mine using (seq) where start_ns >= $floor
        and (response_id in (select response_id from mine) or depends_on in (select response_id from mine)))
select distinct trace_hi, trace_lo
from spans semi join same_id using (seq) join shapes h using (shape) anti join wanted using (trace_hi, trace_lo)
where start_ns >= $floor and h.role in (2, 3);
