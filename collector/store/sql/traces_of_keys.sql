-- Which traces have these keys (hashes of their ids)? One row per trace with the start of its first span in [$since, $until), nanoseconds.
select trace_hi, trace_lo, min(start_ns) as start_ns, hash(trace_hi, trace_lo) as trace_key
from spans
where starts_within(start_ns, $since::timestamptz, $until::timestamptz) and hash(trace_hi, trace_lo) in (select trace_key from wanted)
group by all;
