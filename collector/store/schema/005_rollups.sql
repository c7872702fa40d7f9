-- Latencies per minute, kept when their requests are gone. One row of `rollups` per minute, values of the filters, metric and bucket: n successful requests whose
-- metric lies in (g^(bucket-1), g^bucket] nanoseconds with g = 1.01/0.99, so that the middle of a bucket is within 1 % of every value in it (DDSketch, Masson
-- et al., VLDB 2019). Buckets add up over minutes and values. `rollup_counts` has the requests and errors of the same keys.
create table rollups (
    minute_ns bigint not null, service varchar not null, route varchar, model varchar, tenant varchar, workload varchar not null,
    metric varchar not null, bucket integer not null, n bigint not null);

create table rollup_counts (
    minute_ns bigint not null, service varchar not null, route varchar, model varchar, tenant varchar, workload varchar not null,
    requests bigint not null, errors bigint not null);
