-- Which one span of another trace does each span of the traces in `wanted` link to? One row per span with exactly one such link.
select l.trace_hi, l.trace_lo, l.span_id, any_value(linked_trace_hi) as link_hi, any_value(linked_trace_lo) as link_lo, any_value(linked_span_id) as link_span
from span_links l semi join wanted using (trace_hi, trace_lo)
where l.trace_hi <> linked_trace_hi or l.trace_lo <> linked_trace_lo
group by l.trace_hi, l.trace_lo, l.span_id
having count(distinct (linked_trace_hi, linked_trace_lo, linked_span_id)) = 1;
