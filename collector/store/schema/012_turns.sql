-- The span at the top of the turn that a request is, or that a call is of, where its trace holds several; null where the trace is the request.
alter table requests add column turn_span_id ubigint;
alter table llm_calls add column turn_span_id ubigint;
