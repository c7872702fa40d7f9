-- Which spans of the traces in `wanted` have a finish reason that only a log record told? One row per span; of several answers the first.
select n.trace_hi, n.trace_lo, n.span_id, arg_min(n.finish_reason, n.time_ns) as finish_reason
from span_notes n semi join wanted using (trace_hi, trace_lo)
group by n.trace_hi, n.trace_lo, n.span_id;
