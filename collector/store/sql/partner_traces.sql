-- Which further traces share a model response id (or where engines meet) with the calls in `mine` (seq, response_id)? One row per trace that is not in `wanted` yet: an engine's
-- span of a client's call arrives in a trace of its own when the context was not passed on. $floor bounds the scan (nanoseconds): spans that started
-- before it are not looked at. Ids are compared first, in the narrow table; spans are only read for those that match, seldom any. A call is told of in a
-- handful of traces (client, gateway, engines): an id of more than 8, or of more than 64 spans elsewhere (choices of one answer), is that of a stored answer
-- or of a mock provider, and names none.
with same_id as materialized (
    select seq, id from (
        select seq, unnest([response_id, depends_on]) as id from span_values anti join mine using (seq) where start_ns >= $floor
            and (response_id in (select response_id from mine) or depends_on in (select response_id from mine)))
    where id in (select response_id from mine) qualify count(*) over (partition by id) <= 64),
found as materialized (
    select distinct trace_hi, trace_lo, id from spans join same_id using (seq) join shapes h using (shape) where start_ns >= $floor and h.role in (2, 3))
select distinct trace_hi, trace_lo from found anti join wanted using (trace_hi, trace_lo)
where id in (select id from found group by id having count(*) <= 8);
