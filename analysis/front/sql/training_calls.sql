-- Which model calls can a length predictor learn from, the newest $most of a window? One row per call that succeeded and whose lengths are known, in order of time.
-- Columns are what `overrun length train --trace` reads.
select start, trace_id, span_id, route, model, input_tokens, output_tokens, max_tokens, temperature, streaming, turn, session, tenant, prefix_hash, finish_reason, e2e_ms
from (
    select * from v_llm_calls
    where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
        and not coalesce(error, false) and input_tokens is not null and output_tokens is not null
    order by start desc, trace_id desc, span_id desc
    limit $most) newest
order by start, trace_id, span_id
