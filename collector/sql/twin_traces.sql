-- Which further traces hold a call of the traces in `fresh` that another instrumentation of the same process reported as well? One row per trace
-- that is not in `wanted` yet. Twins have other scopes, equal token counts (or both failed without any), begin within a second, and have at least
-- 95 % of the shorter one's time in common. `doubled` are the sources to look at; $floor bounds the scan (nanoseconds).
with calls as materialized (
    select s.trace_hi, s.trace_lo, s.start_ns, s.duration_ns, s.input_tokens, s.output_tokens, d.service, d.place, d.scope_name,
        s.start_ns // 1000000000 as second
    from stored_spans s join doubled d using (source_id)
    where s.start_ns >= $floor and s.role = 2 and (s.output_tokens is not null or s.status = 2)),
mine as (select *, unnest([second - 1, second, second + 1]) as about from calls semi join fresh using (trace_hi, trace_lo))
select distinct b.trace_hi, b.trace_lo
from mine a join calls b on a.about = b.second and a.service = b.service and a.place = b.place and a.scope_name <> b.scope_name
    and a.output_tokens is not distinct from b.output_tokens and a.input_tokens is not distinct from b.input_tokens
where abs(a.start_ns - b.start_ns) < 1000000000
    and least(a.start_ns + a.duration_ns, b.start_ns + b.duration_ns) - greatest(a.start_ns, b.start_ns) >= 0.95 * least(a.duration_ns, b.duration_ns)
    and not exists (select 1 from wanted w where w.trace_hi = b.trace_hi and w.trace_lo = b.trace_lo);
