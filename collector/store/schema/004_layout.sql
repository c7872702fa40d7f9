-- How spans lie in the store. A column costs about as much in the log and at a checkpoint when it is empty as when it is full (0.12 us a span
-- and column, against 2.5 us for all that every span has), so what few spans have stands in `span_values`, and what takes few values
-- together, the attribute keys among them, in `shapes`.
-- `seq` is commit * 2**24 + row: it joins the two span tables, and sorts by arrival. Attribute values are text separated by U+001F (escaped
-- inside them: macro `unpacked`), in the order of the keys of their shape; null if there are none.
alter table spans rename to spans_1;
alter table shapes rename to shapes_1;
alter table span_events rename to span_events_1;
alter table span_links rename to span_links_1;

create table spans (
    seq bigint not null,
    trace_hi ubigint not null, trace_lo ubigint not null, span_id ubigint not null, parent_id ubigint not null,
    start_ns bigint not null, duration_ns bigint not null, name varchar not null,
    session varchar, tenant varchar, user_hash varchar,
    shape integer not null, attribute_values varchar);

create table shapes (
    shape integer not null,
    source_id ubigint not null, kind utinyint not null, status utinyint not null, flags uinteger not null, stage utinyint not null, role utinyint not null,
    http_status usmallint, dialect varchar, operation varchar, model varchar, provider varchar, route varchar, workload varchar, error_type varchar,
    keys varchar[] not null);

create table span_values (
    seq bigint not null, start_ns bigint not null,
    response_id varchar, finish_reason varchar, prefix_hash varchar, depends_on varchar, trace_state varchar,
    input_tokens bigint, output_tokens bigint, cached_tokens bigint, cache_write_tokens bigint, reasoning_tokens bigint,
    max_tokens bigint, temperature double, streaming boolean, turn bigint, attempts bigint,
    ttft_ns bigint, ttft_source utinyint, queue_ns bigint, prefill_ns bigint, decode_ns bigint, engine_e2e_ns bigint,
    chunks bigint, chunk_span_ns bigint, chunk_gap_max_ns bigint, usable_ns bigint);

create table span_events (
    batch bigint not null, trace_hi ubigint not null, trace_lo ubigint not null, span_id ubigint not null,
    time_ns bigint not null, name varchar not null, attribute_keys varchar, attribute_values varchar);

create table span_links (
    batch bigint not null, trace_hi ubigint not null, trace_lo ubigint not null, span_id ubigint not null,
    linked_trace_hi ubigint not null, linked_trace_lo ubigint not null, linked_span_id ubigint not null, attribute_keys varchar, attribute_values varchar);

create or replace macro packed(items) as case when len(items) > 0 then
    array_to_string(list_transform(items, lambda t: replace(replace(t, chr(27), chr(27) || '0'), chr(31), chr(27) || '1')), chr(31)) end;

-- What is set aside stays as flat as it was.
create table quarantine_2 as select q.* exclude (shape), coalesce(keys, []) as keys from quarantine q left join shapes_1 using (shape);
drop table quarantine;
alter table quarantine_2 rename to quarantine;

create temp table numbered as
select s.*, batch * 16777216 + row_number() over (partition by batch) - 1 as seq, keys from spans_1 s left join shapes_1 using (shape);

insert into shapes by name
select row_number() over () as shape, * from (
    select distinct source_id, kind, status, flags, stage, role, http_status, dialect, operation, model, provider, route, workload, error_type, coalesce(keys, []) as keys
    from numbered);

insert into spans by name
select n.* exclude (batch, source_id, kind, status, flags, trace_state, stage, role, dialect, operation, model, provider, response_id, input_tokens, output_tokens,
        cached_tokens, cache_write_tokens, reasoning_tokens, max_tokens, temperature, streaming, ttft_ns, ttft_source, queue_ns, prefill_ns, decode_ns,
        engine_e2e_ns, chunks, chunk_span_ns, chunk_gap_max_ns, usable_ns, finish_reason, error_type, http_status, route, workload, turn, prefix_hash,
        depends_on, attempts, shape, attribute_values, keys),
    s.shape, packed(n.attribute_values) as attribute_values
from numbered n join shapes s on s.source_id = n.source_id and s.kind = n.kind and s.status = n.status and s.flags = n.flags and s.stage = n.stage
    and s.role = n.role and s.http_status is not distinct from n.http_status and s.dialect is not distinct from n.dialect
    and s.operation is not distinct from n.operation and s.model is not distinct from n.model and s.provider is not distinct from n.provider
    and s.route is not distinct from n.route and s.workload is not distinct from n.workload and s.error_type is not distinct from n.error_type
    and s.keys = coalesce(n.keys, [])
order by seq;

insert into span_values
select seq, start_ns, response_id, finish_reason, prefix_hash, depends_on, trace_state, input_tokens, output_tokens, cached_tokens, cache_write_tokens,
    reasoning_tokens, max_tokens, temperature, streaming, turn, attempts, ttft_ns, nullif(ttft_source, 0), queue_ns, prefill_ns, decode_ns, engine_e2e_ns,
    chunks, chunk_span_ns, chunk_gap_max_ns, usable_ns
from numbered
where coalesce(response_id, finish_reason, prefix_hash, depends_on, trace_state) is not null
    or coalesce(input_tokens, output_tokens, cached_tokens, cache_write_tokens, reasoning_tokens, max_tokens, temperature, turn, attempts, ttft_ns, queue_ns,
                prefill_ns, decode_ns, engine_e2e_ns, chunks, usable_ns) is not null
    or streaming is not null
order by seq;

insert into span_events select * exclude (attributes), packed(map_keys(attributes)), packed(map_values(attributes)) from span_events_1;
insert into span_links select * exclude (attributes), packed(map_keys(attributes)), packed(map_values(attributes)) from span_links_1;

drop table numbered;
drop table spans_1;
drop table shapes_1;
drop table span_events_1;
drop table span_links_1;
drop macro packed;
