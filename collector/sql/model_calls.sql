-- Which spans of the traces in `fresh` are model calls with a response id, or engine requests that name where they meet another's? One row per span and id.
-- $floor bounds the scan (nanoseconds): spans that started before it are not looked at.
select seq, unnest(case when h.role = 3 then [response_id, depends_on] else [response_id] end) as response_id
from (select seq, shape from spans semi join fresh using (trace_hi, trace_lo) where start_ns >= $floor) s
join shapes h using (shape) join span_values v using (seq)
where h.role in (2, 3) and v.start_ns >= $floor and (response_id is not null or depends_on is not null);
