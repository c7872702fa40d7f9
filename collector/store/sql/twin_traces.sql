-- Which further traces hold a call of the traces in `fresh` that another instrumentation of the same process may have reported as well? One row per trace
-- that is not in `wanted` yet: the candidates, among which analysis/assembly/duplicate_spans.py decides. Twins have other scopes, or one is a wrapper of a client (`wrapped`)
-- and one is not; they begin within a second and have half of the shorter one's time in common. Their token counts are equal (or equal without what was
-- cached; or both failed without any); or one does not count, one stands alone in its trace, and they begin and end within 100 ms of each other, or within
-- 5 % of the longer one. `doubled` are the sources to look at; $floor bounds the scan (nanoseconds). Each kind of twin has a join of its own on what must be
-- equal, and calls of up to two seconds meet by the fifth of a second: by the second alone, work grows with the square of what a process calls.
with calls as materialized (
    select s.trace_hi, s.trace_lo, s.parent_id, s.start_ns, s.duration_ns, s.start_ns + s.duration_ns as end_ns, s.output_tokens, s.input_tokens, s.status = 2 as failed,
        s.output_tokens is not null as counted,
        case when s.cached_tokens between 1 and s.input_tokens then s.input_tokens - s.cached_tokens else s.input_tokens end as uncached,
        d.service, d.place, d.scope_name, (d.scope_name, s.name) in (select (scope_name, span_name) from wrapped) as wraps,
        s.start_ns // 1000000000 as second, s.start_ns // 200000000 as fifth
    from stored_spans s join doubled d using (source_id)
    where s.start_ns >= $floor and s.role = 2),
mine as materialized (select * from calls semi join fresh using (trace_hi, trace_lo)),
equal as (select *, unnest([second - 1, second, second + 1]) as about from mine),
-- One that counts meets those that do not.
beside as (select *, unnest(if(counted, [false], [false, true])) as meets from mine),
short as (select *, unnest([fifth - 1, fifth, fifth + 1]) as about from beside where duration_ns <= 2000000000),
long as (select *, unnest([second - 1, second, second + 1]) as about from beside where duration_ns > 2000000000),
pairs as (
    select a, b from equal a join calls b on a.about = b.second and a.service = b.service and a.place = b.place and a.output_tokens = b.output_tokens
    where a.input_tokens is not distinct from b.input_tokens or a.uncached = b.uncached
    union all
    select a, b from equal a join calls b
        on a.about = b.second and a.service = b.service and a.place = b.place and a.input_tokens is not distinct from b.input_tokens and a.failed = b.failed
    where a.failed and not a.counted and not b.counted
    union all
    select a, b from short a join calls b on a.about = b.fifth and a.service = b.service and a.place = b.place and a.meets = b.counted
    where not (a.failed and b.failed) and (a.parent_id = 0 or b.parent_id = 0)
        and greatest(abs(a.start_ns - b.start_ns), abs(a.end_ns - b.end_ns)) <= greatest(100000000, 0.05 * greatest(a.duration_ns, b.duration_ns))
    union all
    select a, b from long a join calls b on a.about = b.second and a.service = b.service and a.place = b.place and a.meets = b.counted
    where not (a.failed and b.failed) and (a.parent_id = 0 or b.parent_id = 0)
        and greatest(abs(a.start_ns - b.start_ns), abs(a.end_ns - b.end_ns)) <= greatest(100000000, 0.05 * greatest(a.duration_ns, b.duration_ns)))
select distinct b.trace_hi, b.trace_lo
from pairs
where (a.scope_name <> b.scope_name or a.wraps <> b.wraps) and abs(a.start_ns - b.start_ns) < 1000000000
    and least(a.end_ns, b.end_ns) - greatest(a.start_ns, b.start_ns) >= 0.5 * least(a.duration_ns, b.duration_ns)
    and not exists (select 1 from wanted w where w.trace_hi = b.trace_hi and w.trace_lo = b.trace_lo);
