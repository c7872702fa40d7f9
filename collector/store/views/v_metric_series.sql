-- What did each series of metrics say, known or not? One row per series of an instance, its samples as lists in order of time: counters and histograms as they stand,
-- not as rates. At most `most` series are returned, those with an indicator first. A sample that came twice (a federated page, a sender that came again) is one.
-- `first`, `until` (null: open), `every`: as in metric_points.
create or replace macro metric_series(first, until, every, most) as table
with asked as (
    select source_id, series, instance, name, kind, temporality, monotonic, indicator, coalesce(scale, 1.0) as scale, model, time_ns,
        any_value(attributes) as attributes, any_value(start_ns) as start_ns, any_value(value) as value, any_value(sum) as sum,
        any_value(coalesce(count, list_sum(counts))) as count
    from points
    where (first::timestamptz is null or time_ns >= epoch_ns(first::timestamptz))
        and (until::timestamptz is null or time_ns < epoch_ns(until::timestamptz) + 1000) and is_read(time_ns, first, until, every)
    group by all)
select instance, name, kind, temporality, monotonic, indicator, scale, model, any_value(service) as service, any_value(version) as version,
    any_value(attributes) as attributes, any_value(resource_attributes) as resource_attributes,
    list(time_ns order by time_ns) as time_ns, list(start_ns order by time_ns) as start_ns, list(value order by time_ns) as value,
    list(sum order by time_ns) as sum, list(count order by time_ns) as count
from asked left join (select source_id, service, version, resource_attributes from sources) using (source_id)
group by series, instance, name, kind, temporality, monotonic, indicator, scale, model
order by indicator is null, instance, name, series
limit (select most);
