-- How many spans of each service came more than once, and how many with another end, in every $every-th trace of the window? One row per service.
select service, spans, repeated, unfinished
from repeated_spans($every::ubigint, $start::timestamptz, $end::timestamptz)
where repeated > 0 and ($service::varchar is null or service = $service::varchar)
order by unfinished desc, repeated desc, service
