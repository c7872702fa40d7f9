-- Which further traces do workers' spans (kind CONSUMER) of the traces in `fresh` link to, or are such spans linked to them in? One row per trace that is not in
-- `wanted` yet: what a worker does for a message stands in a trace of its own where its sender's is only linked. Links that came in the hour before the last one
-- are looked at. A span that more than 8 traces link to sent to many at once, and none of them is its way. $floor bounds the scan (nanoseconds).
with lone as materialized (
    select trace_hi, trace_lo, span_id, linked_trace_hi, linked_trace_lo from span_links
    where (trace_hi <> linked_trace_hi or trace_lo <> linked_trace_lo)
        and batch >= (select coalesce(min(batch), 0) from batches where received_ns >= (select max(received_ns) from batches) - 3_600_000_000_000)
    qualify count(*) over (partition by linked_trace_hi, linked_trace_lo, linked_span_id) <= 8),
near as materialized (
    from lone semi join fresh using (trace_hi, trace_lo)
    union
    select l.* from lone l join fresh f on l.linked_trace_hi = f.trace_hi and l.linked_trace_lo = f.trace_lo),
workers as materialized (
    select n.* from spans s join near n using (trace_hi, trace_lo, span_id) join shapes h using (shape) where s.start_ns >= $floor and h.kind = 5)
select distinct trace_hi, trace_lo from (
    select trace_hi, trace_lo from workers union all select linked_trace_hi as trace_hi, linked_trace_lo as trace_lo from workers)
anti join wanted using (trace_hi, trace_lo);
