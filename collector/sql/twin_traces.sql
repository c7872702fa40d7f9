-- Which further traces hold a call of the traces in `fresh` that another instrumentation of the same process may have reported as well? One row per trace
-- that is not in `wanted` yet: the candidates, among which analysis/doubles.py decides. Twins have other scopes, or one is a wrapper of a client (`wrapped`)
-- and one is not; they begin within a second and have half of the shorter one's time in common. Their token counts are equal (or equal without what was
-- cached; or both failed without any); or one does not count, one stands alone in its trace, and they begin and end within 100 ms of each other, or within
-- 5 % of the longer one. `doubled` are the sources to look at; $floor bounds the scan (nanoseconds).
with calls as materialized (
    select s.trace_hi, s.trace_lo, s.parent_id, s.start_ns, s.duration_ns, s.start_ns + s.duration_ns as end_ns, s.output_tokens, s.input_tokens, s.status = 2 as failed,
        case when s.cached_tokens between 1 and s.input_tokens then s.input_tokens - s.cached_tokens else s.input_tokens end as uncached,
        d.service, d.place, d.scope_name, (d.scope_name, s.name) in (select (scope_name, span_name) from wrapped) as wraps, s.start_ns // 1000000000 as second
    from stored_spans s join doubled d using (source_id)
    where s.start_ns >= $floor and s.role = 2),
mine as (select *, unnest([second - 1, second, second + 1]) as about from calls semi join fresh using (trace_hi, trace_lo))
select distinct b.trace_hi, b.trace_lo
from mine a join calls b on a.about = b.second and a.service = b.service and a.place = b.place and (a.scope_name <> b.scope_name or a.wraps <> b.wraps)
where abs(a.start_ns - b.start_ns) < 1000000000
    and least(a.end_ns, b.end_ns) - greatest(a.start_ns, b.start_ns) >= 0.5 * least(a.duration_ns, b.duration_ns)
    and case when a.output_tokens is not null and b.output_tokens is not null then
            a.output_tokens = b.output_tokens and (a.input_tokens is not distinct from b.input_tokens or a.uncached = b.uncached)
        when a.failed and b.failed then a.output_tokens is not distinct from b.output_tokens and a.input_tokens is not distinct from b.input_tokens
        else (a.parent_id = 0 or b.parent_id = 0)
            and greatest(abs(a.start_ns - b.start_ns), abs(a.end_ns - b.end_ns)) <= greatest(100000000, 0.05 * greatest(a.duration_ns, b.duration_ns)) end
    and not exists (select 1 from wanted w where w.trace_hi = b.trace_hi and w.trace_lo = b.trace_lo);
