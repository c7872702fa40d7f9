-- How many spans of each service lost attributes, events or links to their SDK's limits in the window, and how many at most? One row per service.
select service, count(*) filter (attributes > 0) as attributes, count(*) filter (events > 0) as events, count(*) filter (links > 0) as links,
    coalesce(max(attributes), 0) as most_attributes, coalesce(max(events), 0) as most_events, coalesce(max(links), 0) as most_links
from v_cut_spans
where starts_within(start_ns, $start, $end) and ($service::varchar is null or service = $service::varchar)
group by service
order by events desc, attributes desc, service
