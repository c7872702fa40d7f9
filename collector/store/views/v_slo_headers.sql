-- Which requests came with limits of their own? One row per span that carries an x-slo header (Gateway API Inference Extension: x-slo-ttft-ms, x-slo-tpot-ms), as
-- HTTP instrumentation records headers (http.request.header.x-slo-ttft-ms, often as a list) or as an attribute of that name. Milliseconds, null where not limited.
-- v_slo_shapes has the shapes of such spans: where there is none, no span need be looked at.
create or replace view v_slo_shapes as
select shape, keys from shapes where list_has_any(list_transform(keys, lambda k: slo_header(k)), ['ttft', 'itl', 'tpot', 'e2e']);
create or replace view v_slo_headers as
with told as (
    select trace_hi, trace_lo, start_ns, map(keys, unpacked(attribute_values)) as said
    from spans join v_slo_shapes using (shape)),
read as (
    select trace_hi, trace_lo, start_ns, slo_header(entry.key) as metric, try_cast(trim(entry.value, '[]" ') as double) as limit_ms
    from (select trace_hi, trace_lo, start_ns, unnest(map_entries(said)) as entry from told))
select hash(trace_hi, trace_lo) as trace_key, make_timestamptz(min(start_ns) // 1000) as start, min(limit_ms) filter (metric = 'ttft') as ttft_ms,
    min(limit_ms) filter (metric = 'itl') as itl_ms, min(limit_ms) filter (metric = 'tpot') as tpot_ms, min(limit_ms) filter (metric = 'e2e') as e2e_ms
from read
where metric is not null and limit_ms > 0.0 and limit_ms < 1e9
group by trace_hi, trace_lo;
