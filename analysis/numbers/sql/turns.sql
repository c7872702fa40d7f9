-- Which turns of sessions began in [$start, $end) or up to an hour before? One row per turn: the keys of its trace and of the span at its top, its own, and when
-- it began, in s after $start: before the span at its top where a person had stopped speaking by then.
select trace_key as of_trace, span_key, request_key as trace_key, start_ns // 1000 / 1e6 - epoch($start::timestamptz) as begin_s from v_turns
where start_ns >= epoch_ns($start::timestamptz - interval 1 hour) and start_ns < epoch_ns($end::timestamptz)
