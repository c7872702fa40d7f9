-- Every stored request with its `kind`: 'calls' is of a (service, route) that makes model calls, or of any where none makes one; 'side' is of another route of a
-- service that makes some; 'other' of a service that makes none. What asks for health or metrics is none of these. One row per request.
-- A row in a set, not a correlated `exists`: that one hides the columns and bounds that a query asks for from the scan (390 ms of CPU per question at 1 M rows, now 40).
create or replace view kinds_of_requests as
select *, rowid as row_key, case
    when llm_calls > 0 or coalesce((service, coalesce(route, name)) in (from callers), false) or not exists (select 1 from requests where llm_calls > 0) then 'calls'
    when service in (select service from requests where llm_calls > 0 and exists (select 1 from requests where llm_calls = 0 and server_root)) then 'side'
    else 'other' end as kind
from requests
where llm_calls > 0 or (server_root and (not is_probe(coalesce(route, name)) or coalesce((service, coalesce(route, name)) in (from callers), false)));
