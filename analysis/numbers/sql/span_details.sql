-- What else is known of the spans of these traces? One row per span: its host, its error, and its further attributes, all as their senders wrote them.
select trace_id, span_id, service, coalesce(resource_attributes['host.name'], resource_attributes['k8s.node.name']) as host, error_type, http_status, attributes
from sampled_spans(1::ubigint, $start::timestamptz, $end::timestamptz, $traces::ubigint[])
