-- Which spans were set aside because their times cannot be? One row per span as it arrived; times are nanoseconds as they were sent.
create or replace view v_quarantine as
select
    trace_hex(trace_hi, trace_lo) as trace_id, span_hex(span_id) as span_id, case when parent_id <> 0 then span_hex(parent_id) end as parent_span_id,
    src.service, src.instance, q.name, q.reason, q.sent_start_ns, q.sent_end_ns, make_timestamptz(b.received_ns // 1000) as received,
    stage_name(stage) as stage, model, map(keys, attribute_values) as attributes
from quarantine q left join batches b using (batch) left join sources src using (source_id);
