-- Which further traces tell of the same model calls as the traces in `fresh`? One row per trace that is not in `wanted` yet and
-- either shares a model response id with one of them (an engine's span of a client's call, when the context was not passed on), or holds a call that
-- another instrumentation of the same process reported as well: another scope, equal token counts, begun within a second, and at least 95 % of the
-- shorter one's time in common. $floor bounds the scan (nanoseconds): spans that started before it are not looked at.
with near as materialized (
    select trace_hi, trace_lo, response_id, role, source_id, start_ns, duration_ns, input_tokens, output_tokens from stored_spans
    where start_ns >= $floor and role in (2, 3)),
mine as materialized (select * from near semi join fresh using (trace_hi, trace_lo)),
by_id as (
    select trace_hi, trace_lo from near
    where response_id in (select response_id from mine where response_id is not null)),
-- Processes whose model calls come from more than one instrumentation: seldom any.
doubled as materialized (
    select source_id, service, coalesce(instance, '') as place, scope_name,
        count(distinct scope_name) over (partition by service, coalesce(instance, '')) as scopes
    from sources where source_id in (select source_id from shapes where role = 2)
    qualify scopes > 1),
calls as materialized (
    select n.*, d.service, d.place, d.scope_name, n.start_ns // 1000000000 as second from near n join doubled d using (source_id)
    where n.role = 2 and n.output_tokens is not null),
twins as (
    select b.trace_hi, b.trace_lo
    from (select *, unnest([second - 1, second, second + 1]) as about from calls semi join fresh using (trace_hi, trace_lo)) a
    join calls b on a.about = b.second and a.service = b.service and a.place = b.place and a.scope_name <> b.scope_name
        and a.output_tokens = b.output_tokens and a.input_tokens is not distinct from b.input_tokens
    where abs(a.start_ns - b.start_ns) < 1000000000
        and least(a.start_ns + a.duration_ns, b.start_ns + b.duration_ns) - greatest(a.start_ns, b.start_ns) >= 0.95 * least(a.duration_ns, b.duration_ns))
select trace_hi, trace_lo from (select * from by_id union select * from twins) anti join wanted using (trace_hi, trace_lo);
