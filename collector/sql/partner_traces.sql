-- Which further traces tell of the same model calls as the traces in `fresh`? One row per trace that is not in `wanted` yet and
-- either shares a model response id with one of them (an engine's span of a client's call, when the context was not passed on), or holds a call that
-- another instrumentation of the same process reported as well: another scope, equal token counts, begun within a second, and at least 95 % of the
-- shorter one's time in common. $floor bounds the scan (nanoseconds): spans that started before it are not looked at.
with mine as materialized (
    select s.seq, s.trace_hi, s.trace_lo, h.role, h.source_id, v.response_id
    from (select seq, trace_hi, trace_lo, shape from spans semi join fresh using (trace_hi, trace_lo) where start_ns >= $floor) s
    join shapes h using (shape) join span_values v using (seq)
    where h.role in (2, 3) and v.start_ns >= $floor),
same_id as materialized (
    select seq from span_values anti join mine using (seq)
    where start_ns >= $floor and response_id in (select response_id from mine where response_id is not null)),
by_id as (
    select trace_hi, trace_lo from spans s semi join same_id using (seq) join shapes h using (shape)
    where start_ns >= $floor and h.role in (2, 3)),
-- Processes whose model calls come from more than one instrumentation: seldom any.
doubled as materialized (
    select source_id, service, coalesce(instance, '') as place, scope_name,
        count(distinct scope_name) over (partition by service, coalesce(instance, '')) as scopes
    from sources where source_id in (select source_id from shapes where role = 2)
    qualify scopes > 1),
calls as materialized (
    select s.seq, s.trace_hi, s.trace_lo, s.start_ns, s.duration_ns, v.input_tokens, v.output_tokens, d.service, d.place, d.scope_name,
        s.start_ns // 1000000000 as second
    from spans s join (select shape, d.* from shapes join doubled d using (source_id) where role = 2) d using (shape) join span_values v using (seq)
    where s.start_ns >= $floor and v.start_ns >= $floor and v.output_tokens is not null),
twins as (
    select b.trace_hi, b.trace_lo
    from (select *, unnest([second - 1, second, second + 1]) as about from calls semi join fresh using (trace_hi, trace_lo)) a
    join calls b on a.about = b.second and a.service = b.service and a.place = b.place and a.scope_name <> b.scope_name
        and a.output_tokens = b.output_tokens and a.input_tokens is not distinct from b.input_tokens
    where abs(a.start_ns - b.start_ns) < 1000000000
        and least(a.start_ns + a.duration_ns, b.start_ns + b.duration_ns) - greatest(a.start_ns, b.start_ns) >= 0.95 * least(a.duration_ns, b.duration_ns))
select trace_hi, trace_lo from (select * from by_id union select * from twins) anti join wanted using (trace_hi, trace_lo);
