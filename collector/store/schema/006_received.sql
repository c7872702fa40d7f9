-- With which commit was a request assembled? What was received longest ago expires first, requests and calls with their spans. Rows of before
-- count from the last commit that the file has.
alter table requests add column batch bigint;
alter table llm_calls add column batch bigint;
update requests set batch = (select coalesce(max(batch), 0) from batches);
update llm_calls set batch = (select coalesce(max(batch), 0) from batches);
