-- Which ids have some requests that began in a stretch of time (either side open if null), whatever else is asked for? One row per request, as many as
-- tell how ids were chosen.
select trace_id
from v_request_times
where ($start::timestamptz is null or start >= $start::timestamptz) and ($end::timestamptz is null or start < $end::timestamptz) and complete
limit $most::bigint
