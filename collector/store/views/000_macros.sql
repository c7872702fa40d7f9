-- Formulas used by more than one view. Each has a reference test in tests/collector/store/test_schema.py.

create or replace macro trace_hex(hi, lo) as printf('%016x%016x', hi, lo);
create or replace macro span_hex(id) as printf('%016x', id);
-- What joins a request and its calls: a trace, or one turn of it. The spans of a trace have the key of the trace.
create or replace macro request_key(hi, lo, turn_span_id) as hash(hi, xor(lo, coalesce(turn_span_id, 0::ubigint)));
-- Texts packed into one, separated by U+001F; U+001B 1 and U+001B 0 inside them stand for that and for U+001B (collector/normalise/packed_texts.py).
create or replace macro unpacked(texts) as case when texts is null then []::varchar[]
    when contains(texts, chr(27)) then list_transform(string_split(texts, chr(31)), lambda t: replace(replace(t, chr(27) || '1', chr(31)), chr(27) || '0', chr(27)))
    else string_split(texts, chr(31)) end;

-- Codes: collector/normalise/stages.py (stage, role), OTLP (kind), collector/dialects (ttft_source).
create or replace macro stage_name(code) as ['network', 'gateway', 'retrieval', 'prompt', 'guardrail', 'queue', 'kv_transfer', 'prefill', 'decode', 'tool', 'post',
    'wait_user', 'other', 'first_token', 'generation'][code + 1];
create or replace macro role_name(code) as ['plain', 'container', 'llm', 'engine', 'phase', 'folded', 'write', 'model_request', 'turn'][code + 1];
create or replace macro span_kind_name(code) as ['unspecified', 'internal', 'server', 'client', 'producer', 'consumer'][code + 1];
create or replace macro ttft_source_name(code) as ['none', 'attribute', 'event', 'engine', 'events_dropped'][code + 1];
create or replace macro indicator_unit(indicator) as case
    when indicator in ('kv_cache_usage', 'host_kv_cache_usage', 'prefix_cache_hit_rate', 'external_prefix_cache_hit_rate', 'response_cache_hit_rate',
                       'kv_block_reuse_ratio', 'spec_accept_rate', 'cached_prompt_ratio', 'gpu_util', 'mem_bw_util', 'tensor_util', 'saturation', 'up',
                       'predictor_p90_coverage', 'predictor_error_reduction') then 'ratio'
    when indicator in ('queue_depth', 'running', 'swapped', 'paused', 'retracted', 'gateway_running', 'remaining_requests', 'running_limit', 'embedding_queue_depth',
                       'embedding_running', 'kv_transfer_queue_depth') then 'requests'
    when indicator in ('preemptions', 'rejections', 'aborts', 'finished', 'slo_violations', 'gateway_requests', 'gateway_failures', 'gateway_calls',
                       'gateway_call_failures', 'gateway_streams', 'fallbacks', 'failed_fallbacks', 'cooldowns', 'response_cache_hits', 'response_cache_misses',
                       'spec_drafts',
                       'embedding_finished', 'embedding_aborts')
        then '1/s'
    when indicator in ('prompt_tokens', 'output_tokens', 'prefix_cache_hits', 'prefix_cache_queries', 'external_prefix_cache_hits',
                       'external_prefix_cache_queries', 'cached_prompt_tokens', 'reused_prompt_tokens', 'spec_draft_tokens', 'spec_accepted_tokens', 'throughput',
                       'processed_tokens',
                       'client_input_tokens', 'client_output_tokens', 'embedding_tokens', 'gateway_input_tokens', 'gateway_output_tokens', 'gateway_cached_tokens',
                       'gateway_reasoning_tokens') then 'tokens/s'
    when indicator in ('kv_capacity', 'kv_block_tokens', 'batch_tokens', 'input_length', 'output_length', 'cached_length', 'uncached_length', 'max_tokens',
                       'spec_accept_length', 'spec_accepted_length', 'client_input_length', 'client_output_length', 'embedding_length', 'remaining_tokens') then 'tokens'
    when indicator in ('kv_blocks', 'kv_blocks_used') then 'blocks'
    when indicator in ('kv_blocks_reused', 'kv_blocks_missed') then 'blocks/s'
    when indicator in ('gpu_mem_used', 'gpu_mem_free') then 'bytes'
    when indicator = 'memory_traffic' then 'bytes/s'
    when indicator = 'flops' then 'FLOP/s'
    when indicator = 'ready_replicas' then 'replicas'
    when indicator = 'gpu_clock' then 'Hz'
    when indicator = 'gpu_power' then 'W'
    when indicator = 'gpu_temperature' then 'Cel'
    when indicator in ('gpu_xid', 'deployment_state') then 'code'
    when indicator in ('e2e_total', 'queue_total', 'inference_total', 'prefill_total', 'decode_total', 'gateway_call_e2e_total', 'gateway_call_ttft_total') then 's/s'
    when indicator in ('ttft', 'itl', 'tpot', 'normalized_tpot', 'e2e', 'client_e2e', 'client_ttft', 'client_chunk_gap', 'gateway_e2e', 'gateway_call_e2e',
                       'gateway_call_ttft', 'gateway_call_tpot', 'gateway_call_e2e_mean', 'gateway_call_ttft_mean', 'gateway_overhead', 'gateway_queue', 'guardrail', 'queue', 'prefill', 'decode', 'inference', 'kv_transfer',
                       'e2e_mean', 'queue_mean', 'inference_mean', 'iteration', 'model_execute', 'model_forward', 'validation', 'tokenize', 'detokenize_token',
                       'template', 'preprocess', 'routing', 'routing_block_hashing', 'routing_indexer_find_matches', 'routing_seq_hashing',
                       'routing_scheduling', 'network', 'postprocess', 'tpot_mean', 'model_load', 'scrape_duration', 'embedding_e2e', 'embedding_queue',
                       'embedding_inference') then 's'
    else '1' end;

-- Is the whole of an instance the sum of its parts (ranks, GPUs, reasons)? Of a ratio, a temperature or a block's size it is not.
create or replace macro is_summed(indicator) as indicator in ('queue_depth', 'running', 'swapped', 'paused', 'retracted', 'preemptions', 'rejections', 'aborts',
    'finished', 'slo_violations', 'prompt_tokens', 'output_tokens', 'prefix_cache_hits', 'prefix_cache_queries', 'external_prefix_cache_hits',
    'external_prefix_cache_queries', 'cached_prompt_tokens', 'reused_prompt_tokens', 'spec_drafts', 'spec_draft_tokens', 'spec_accepted_tokens', 'throughput', 'processed_tokens',
    'kv_capacity', 'kv_blocks_reused', 'kv_blocks_missed', 'gpu_mem_used', 'gpu_mem_free', 'memory_traffic', 'flops', 'e2e_total', 'queue_total', 'inference_total',
    'prefill_total', 'decode_total', 'running_limit', 'kv_transfer_queue_depth', 'embedding_queue_depth', 'embedding_running', 'embedding_finished', 'embedding_aborts',
    'client_input_tokens', 'client_output_tokens', 'embedding_tokens', 'gateway_running', 'gateway_requests', 'gateway_failures', 'gateway_calls', 'gateway_call_failures', 'gateway_streams', 'gateway_call_e2e_total',
    'gateway_call_ttft_total', 'fallbacks',
    'failed_fallbacks', 'cooldowns', 'response_cache_hits', 'response_cache_misses', 'gateway_input_tokens', 'gateway_output_tokens', 'gateway_cached_tokens',
    'gateway_reasoning_tokens');

-- Does a row start in [first, until)? A side that is null is open. The start is the stored number of nanoseconds: bounds on a time made of it would not reach the
-- scan, which then reads every row group (at 1 M requests 5 ms for a window of 20,000).
create or replace macro starts_within(start_ns, first, until) as
    (first::timestamptz is null or start_ns >= epoch_ns(first::timestamptz)) and (until::timestamptz is null or start_ns < epoch_ns(until::timestamptz));
-- Does a row belong to the window and filters of a question? Null asks for everything; what is in `without` stays out.
create or replace macro asked_for(start_ns, service, instance, model, route, tenant, workload, first, until, a_service, a_instance, a_model, a_route, a_tenant,
    a_workload, without) as
    starts_within(start_ns, first, until) and (a_service::varchar is null or service = a_service::varchar) and (a_model::varchar is null or model = a_model::varchar)
    and (a_instance::varchar is null or coalesce(instance = a_instance::varchar, false)) and (a_route::varchar is null or route = a_route::varchar) and (a_tenant::varchar is null or tenant = a_tenant::varchar)
    and (a_workload::varchar is null or workload = a_workload::varchar) and not list_contains(without::varchar[], workload);

-- Which latency does an attribute limit for its own request? ttft, itl, tpot or e2e; null for any other key. Older HTTP conventions write underscores.
create or replace macro slo_header(key) as nullif(regexp_extract(replace(lower(key), '_', '-'), '^(?:http\.request\.header\.)?x-slo-(ttft|itl|tpot|e2e)-ms$', 1), '');

-- Is an engine's sample read where a window holds too many? Those of the minutes whose hash falls on 0 of `every` (no scrape interval keeps step with that), and those
-- within five minutes of the window's ends, so that counts since the begin stay whole. All of them with 1.
create or replace macro is_read(time_ns, first, until, every) as every = 1 or hash(time_ns // 60_000_000_000) % every = 0
    or coalesce(time_ns < epoch_ns(first::timestamptz) + 300_000_000_000, false) or coalesce(time_ns > epoch_ns(until::timestamptz) - 300_000_000_000, false);

-- Does a platform ask here whether the service lives, and is nobody waiting? By the last part of the path, or the method of gRPC: Kubernetes' and Spring Boot's
-- health, Prometheus' metrics, what browsers ask for by themselves.
create or replace macro is_probe(place) as regexp_matches(lower(place),
    '(?:^|[/ ])(?:health(?:z|_?-?checks?)?|livez?|liveness|liveliness|alive|readyz?|readiness|startupz?|heartbeat|ping|metrics|prometheus|favicon\.ico|robots\.txt)/?$'
    '|/actuator/(?:health|prometheus|info)(?:/[a-z]+)?$|(?:^|/)grpc\.health\.v1\.health/');
