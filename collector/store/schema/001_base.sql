-- Base tables, private to `collector`. Everyone else reads the v_* views. Times are integer nanoseconds; 0 as parent_id means "no parent".

create table meta (key varchar primary key, value varchar not null);

-- One row per request body that was stored: a re-sent body is recognised by its BLAKE2b-128 hash.
create table bodies (hash blob not null, signal utinyint not null, received_ns bigint not null);

-- One row per commit, so that age by receipt (retention, late spans) needs no column on every span.
create table batches (batch bigint not null, received_ns bigint not null, spans bigint not null, points bigint not null);

-- One row per distinct (resource, scope): what every span and point of that source has in common.
create table sources (
    source_id ubigint not null,
    service varchar not null, instance varchar, version varchar, namespace varchar, environment varchar,
    scope_name varchar not null, scope_version varchar not null,
    resource_attributes map(varchar, varchar) not null, scope_attributes map(varchar, varchar) not null,
    resource_schema_url varchar not null, scope_schema_url varchar not null);

create table spans (
    batch bigint not null,
    trace_hi ubigint not null, trace_lo ubigint not null, span_id ubigint not null, parent_id ubigint not null,
    start_ns bigint not null, duration_ns bigint not null,
    source_id ubigint not null, name varchar not null, kind utinyint not null, status utinyint not null, flags uinteger not null,
    trace_state varchar, stage utinyint not null, role utinyint not null, dialect varchar,
    operation varchar, model varchar, provider varchar, response_id varchar,
    input_tokens bigint, output_tokens bigint, cached_tokens bigint, cache_write_tokens bigint, reasoning_tokens bigint,
    max_tokens bigint, temperature double, streaming boolean,
    ttft_ns bigint, ttft_source utinyint,
    queue_ns bigint, prefill_ns bigint, decode_ns bigint, engine_e2e_ns bigint,
    chunks bigint, chunk_span_ns bigint, chunk_gap_max_ns bigint, usable_ns bigint,
    finish_reason varchar, error_type varchar, http_status usmallint,
    route varchar, session varchar, tenant varchar, user_hash varchar, workload varchar, turn bigint, prefix_hash varchar, depends_on varchar,
    shape integer not null, attribute_values varchar[] not null);

-- The attribute keys of `spans.attribute_values`: spans of one kind share them.
create table shapes (shape integer not null, keys varchar[] not null);

-- Span events and links, except the per-chunk events of streams, which are folded into chunks, chunk_span_ns and chunk_gap_max_ns.
create table span_events (
    batch bigint not null, trace_hi ubigint not null, trace_lo ubigint not null, span_id ubigint not null,
    time_ns bigint not null, name varchar not null, attributes map(varchar, varchar) not null);

create table span_links (
    batch bigint not null, trace_hi ubigint not null, trace_lo ubigint not null, span_id ubigint not null,
    linked_trace_hi ubigint not null, linked_trace_lo ubigint not null, linked_span_id ubigint not null, attributes map(varchar, varchar) not null);

-- One metric data point. kind: 1 gauge, 2 sum, 3 histogram, 4 exponential histogram, 5 summary. temporality as in OTLP: 0 none, 1 delta, 2 cumulative.
-- indicator is null for a metric that no table names. `bounds`/`counts` are the explicit buckets (exponential ones are converted, exactly, to explicit bounds).
create table points (
    batch bigint not null, source_id ubigint not null, time_ns bigint not null, start_ns bigint not null,
    name varchar not null, unit varchar not null, kind utinyint not null, temporality utinyint not null, monotonic boolean not null,
    series ubigint not null, instance varchar, model varchar, indicator varchar, scale double,
    value double, bounds double[], counts double[], sum double, count double,
    attributes map(varchar, varchar) not null);

-- Assembled by `analysis`: one row per trace that holds a model call or whose root is a SERVER span.
create table requests (
    trace_hi ubigint not null, trace_lo ubigint not null, root_span_id ubigint not null,
    start_ns bigint not null, e2e_ns bigint not null,
    service varchar not null, instance varchar, version varchar, route varchar, name varchar not null, model varchar, provider varchar,
    workload varchar, tenant varchar, session varchar, user_hash varchar,
    error boolean not null, error_type varchar, http_status usmallint, complete boolean not null, server_root boolean not null, engine_only boolean not null,
    ttft_ns bigint, ttft_source utinyint not null, first_model_token_ns bigint, first_answer_ns bigint, usable_ns bigint,
    itl_ns double, itl_max_ns double, tpot_ns double,
    input_tokens bigint, output_tokens bigint, cached_tokens bigint, reasoning_tokens bigint, max_tokens bigint,
    llm_calls integer not null, tool_calls integer not null, attempts integer, truncated boolean,
    sampling varchar, sample_weight double, spans integer not null, inferred_ns bigint not null, clipped_spans integer not null, skewed_spans integer not null,
    network_ns bigint not null, gateway_ns bigint not null, retrieval_ns bigint not null, prompt_ns bigint not null, guardrail_ns bigint not null,
    queue_ns bigint not null, kv_transfer_ns bigint not null, prefill_ns bigint not null, decode_ns bigint not null, tool_ns bigint not null,
    post_ns bigint not null, wait_user_ns bigint not null, other_ns bigint not null, first_token_ns bigint not null, generation_ns bigint not null,
    ttft_network_ns bigint, ttft_gateway_ns bigint, ttft_retrieval_ns bigint, ttft_prompt_ns bigint, ttft_guardrail_ns bigint,
    ttft_queue_ns bigint, ttft_kv_transfer_ns bigint, ttft_prefill_ns bigint, ttft_decode_ns bigint, ttft_tool_ns bigint,
    ttft_post_ns bigint, ttft_wait_user_ns bigint, ttft_other_ns bigint, ttft_first_token_ns bigint, ttft_generation_ns bigint);

-- Assembled by `analysis`: one row per generation call, reported once however many spans tell of it.
create table llm_calls (
    trace_hi ubigint not null, trace_lo ubigint not null, span_id ubigint not null, engine_span_id ubigint, on_path boolean not null,
    response_id varchar, start_ns bigint not null, duration_ns bigint not null,
    service varchar not null, instance varchar, engine_instance varchar, route varchar, model varchar, provider varchar,
    workload varchar, session varchar, tenant varchar, user_hash varchar, turn bigint, prefix_hash varchar, streaming boolean,
    input_tokens bigint, output_tokens bigint, cached_tokens bigint, reasoning_tokens bigint, max_tokens bigint, temperature double,
    ttft_ns bigint, ttft_source utinyint not null, ttft_client_ns bigint, ttft_engine_ns bigint, engine_e2e_ns bigint,
    tpot_ns double, itl_ns double, itl_max_ns double, itl_source varchar, tpot_reason varchar,
    queue_ns bigint, prefill_ns bigint, decode_ns bigint,
    finish_reason varchar, error boolean not null, error_type varchar, http_status usmallint, attempts integer);
