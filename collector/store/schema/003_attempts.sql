-- How often a model call was tried, and what the tries cost that served nobody. `attempts` of a span is what its sender counted. Of a call:
-- attempts_source says who knows (span, event, http, engine, attribute; `hidden`: the client waited far longer than the engine worked, the number is not
-- known), wasted_ns is from the first try's start to the last one's, wasted_tokens is the output of tries that were thrown away (null: not
-- counted), retry_cause is `error` or `slow`.
alter table spans add column attempts bigint;
alter table quarantine add column attempts bigint;
alter table llm_calls add column attempts_source varchar;
alter table llm_calls add column wasted_ns bigint;
alter table llm_calls add column wasted_tokens bigint;
alter table llm_calls add column retry_cause varchar;
