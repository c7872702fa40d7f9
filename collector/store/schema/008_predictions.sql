-- How long was a call's answer expected to be? Tokens of the length predictor `predictor` (its version), beside `output_tokens`; null where none watched.
alter table llm_calls add column predicted_p50 double;
alter table llm_calls add column predicted_p90 double;
alter table llm_calls add column predictor varchar;
