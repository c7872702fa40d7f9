-- Which attributes do the spans of the traces in `wanted` carry? One row per stored span that starts at $floor (nanoseconds) or later: its shape, which has the keys,
-- and the values of these, packed (macro `unpacked`).
select trace_hi, trace_lo, span_id, start_ns, shape, attribute_values
from spans semi join wanted using (trace_hi, trace_lo)
where start_ns >= $floor;
