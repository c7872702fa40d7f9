-- What spans lie in the store, each as often as it arrived? One row per stored span; nanoseconds and codes. Private to `collector`: v_spans is for everyone.
create or replace view stored_spans as
select seq, trace_hi, trace_lo, span_id, parent_id, start_ns, duration_ns, name, session, tenant, user_hash, attribute_values, shapes.* exclude (shape),
    v.* exclude (seq, start_ns)
from spans s left join shapes using (shape) left join span_values v using (seq, start_ns);
