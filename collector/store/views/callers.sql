-- Which (service, route) make model calls? Their roots are requests also where a trace holds no call (cache hits, refusals). One row each.
-- Asked only where a trace without a call is stored: telling all apart by name costs 15-30 ms of CPU per question at 1 M rows.
create or replace view callers as
select distinct service, coalesce(route, name) as place from requests
where llm_calls > 0 and server_root and exists (select 1 from requests where llm_calls = 0 and server_root);
