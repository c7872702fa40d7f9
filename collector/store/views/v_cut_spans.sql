-- Which spans lost a part to their sender's limits? One row per stored span that says how many attributes, events or links its SDK dropped (OTLP's counts, kept
-- as attributes under the names that OpenTelemetry has for them elsewhere). v_cut_shapes has the shapes of such spans: where there is none, no span need be looked at.
create or replace view v_cut_shapes as
select shape, keys, source_id, role from shapes
where list_has_any(keys, ['otel.dropped_attributes_count', 'otel.dropped_events_count', 'otel.dropped_links_count']);
create or replace view v_cut_spans as
select hash(trace_hi, trace_lo) as trace_key, start_ns, src.service, role_name(role) as role,
    try_cast(said['otel.dropped_attributes_count'] as bigint) as attributes, try_cast(said['otel.dropped_events_count'] as bigint) as events,
    try_cast(said['otel.dropped_links_count'] as bigint) as links
from (select *, map(keys, unpacked(attribute_values)) as said from spans join v_cut_shapes using (shape)) left join sources src using (source_id);
