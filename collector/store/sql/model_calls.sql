-- Which spans of the traces in `fresh` are model calls with a response id, or name what they share with another (where engines meet, a gateway's call)?
-- One row per span and id.
-- The scan is bounded: spans that started before $floor (nanoseconds) or are numbered outside [$since, $until) are not looked at.
select seq, unnest([response_id, depends_on]) as response_id
from (select seq, shape from spans semi join fresh using (trace_hi, trace_lo) where start_ns >= $floor and seq >= $since and seq < $until) s
join shapes h using (shape) join span_values v using (seq)
where h.role in (2, 3) and v.start_ns >= $floor and v.seq >= $since and v.seq < $until and (response_id is not null or depends_on is not null);
