-- How often did spans come again, and how often as something else? One row per service: spans of every every-th trace that starts in [since, until), how many of
-- them came more than once, and how many with another end (an unfinished copy), of which only the last one counts.
create or replace macro repeated_spans(every, since, until) as table
select service, count(*) as spans, count(*) filter (copies > 1) as repeated, count(*) filter (first_end < last_end) as unfinished
from (
    select service, count(*) as copies, min(start_ns + duration_ns) as first_end, max(start_ns + duration_ns) as last_end
    from spans join shapes using (shape) left join sources using (source_id)
    where starts_within(start_ns, since, until) and (every = 1 or hash(trace_hi, trace_lo) % every = 0)
    group by trace_hi, trace_lo, span_id, kind, service)
group by service;
