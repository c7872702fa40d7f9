-- What spans arrived, in canonical fields? One row per span (a span that arrived in two bodies is one row; a client and a server that share an id are two).
-- Milliseconds.
-- Copies of a span are alike but for unfinished ones, which requests and calls leave out; here none is preferred: with an ORDER BY no filter would reach the
-- stored rows, and a look at one trace would sort all.
-- sampled_spans has those of every every-th trace that start in [since, until), of the traces whose keys are given (each null for all): no such filter on the
-- view of all reaches below its `distinct on`, and all of 10 M would be sorted out first. Its `shape` and `attribute_values` are for v_shapes.
create or replace macro sampled_spans(every, since, until, traces) as table
select
    trace_hex(trace_hi, trace_lo) as trace_id, hash(trace_hi, trace_lo) as trace_key, span_hex(span_id) as span_id,
    case when parent_id <> 0 then span_hex(parent_id) end as parent_span_id, hash(span_id) as span_key,
    case when parent_id <> 0 then hash(parent_id) end as parent_key, service, instance, s.name, span_kind_name(kind) as kind, make_timestamptz(s.start_ns // 1000) as start, duration_ns / 1e6 as duration_ms,
    case status when 2 then 'error' when 1 then 'ok' else 'unset' end as status, stage_name(stage) as stage, role_name(role) as role, dialect,
    version, scope_name, operation, model, provider, response_id, input_tokens, output_tokens, cached_tokens, cache_write_tokens, reasoning_tokens,
    max_tokens, temperature, streaming, ttft_ns / 1e6 as ttft_ms, ttft_source_name(coalesce(ttft_source, 0)) as ttft_source,
    queue_ns / 1e6 as queue_ms, prefill_ns / 1e6 as prefill_ms, decode_ns / 1e6 as decode_ms, engine_e2e_ns / 1e6 as engine_e2e_ms,
    chunks, chunk_gap_max_ns / 1e6 as chunk_gap_max_ms, finish_reason, error_type, http_status, route, session, tenant, user_hash, workload, turn,
    prefix_hash, depends_on, trace_state, map(keys, unpacked(attribute_values)) as attributes, resource_attributes, shape, attribute_values
from (
    select distinct on (trace_hi, trace_lo, span_id, kind, service) *
    from spans left join shapes using (shape) left join sources using (source_id)
    where starts_within(start_ns, since, until) and (every = 1 or hash(trace_hi, trace_lo) % every = 0)
        and (traces is null or hash(trace_hi, trace_lo) in (select unnest(traces)))) s
    left join (from span_values where starts_within(start_ns, since, until)) v using (seq, start_ns);
create or replace view v_spans as
select * exclude (span_key, parent_key, shape, attribute_values) from sampled_spans(1::ubigint, null::timestamptz, null::timestamptz, null::ubigint[]);
-- What takes few values in spans? One row per shape, a combination of these, and the attribute keys; a span's packed attribute_values are in the order of its keys.
create or replace view v_shapes as
select shape, keys, service, instance, version, scope_name, span_kind_name(kind) as kind, stage_name(stage) as stage, role_name(role) as role, dialect, operation, model,
    provider, route, workload, http_status, coalesce(error_type, case when status = 2 then 'error' end) as error_type, resource_attributes
from shapes left join sources using (source_id);
-- Which spans start in [since, until), of every every-th trace (0: of none) and of the traces whose keys are given (null: of no others), all of them among every of-th?
-- One row per stored copy, each with `seq`, the order of arrival, and no column that v_shapes has: to look texts up once per shape and to leave copies to the reader
-- costs a tenth of sampled_spans. Where one trace in `of` is wanted at most, only these are looked for among the keys.
create or replace macro stored_rows(every, of, since, until, traces) as table
select hash(trace_hi, trace_lo) as trace_key, hash(span_id) as span_key, case when parent_id <> 0 then hash(parent_id) end as parent_key, s.start_ns // 1000 as start_us,
    duration_ns / 1e6 as duration_ms, name, s.seq, shape, attribute_values, input_tokens, output_tokens, depends_on, ttft_ns / 1e6 as ttft_ms
from (
    from spans where starts_within(start_ns, since, until)
        and (of = 1 or hash(trace_hi, trace_lo) % of = 0)
        and (every = of or (every > 0 and hash(trace_hi, trace_lo) % greatest(every, 1) = 0) or (traces is not null and hash(trace_hi, trace_lo) in (select unnest(traces))))) s
    left join (from span_values where starts_within(start_ns, since, until)) v using (seq, start_ns);
