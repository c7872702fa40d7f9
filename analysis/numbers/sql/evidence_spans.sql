-- What did the spans of a stretch of time look like? One row per stored copy of a span of every $every-th trace (0: none) and of the $traces given (null: no
-- others), all among every $of-th.
-- Times in seconds after $start, durations in milliseconds. Texts that somebody wrote are only there as length and hash, which is enough to tell repeats.
-- Where a span's attributes stand is looked up once per shape; most have none of these, and their texts need not be unpacked. `seq` is the order of arrival.
with places as (
    select shape, list_position(keys, 'gen_ai.tool.name') as tool,
        coalesce(list_position(keys, 'gen_ai.tool.call.arguments'), list_position(keys, 'input.value')) as arguments,
        list_position(keys, 'http.conn.reused') as reused, list_position(keys, 'cloud.region') as region,
        coalesce(list_position(keys, 'server.region'), list_position(keys, 'peer.region'), list_position(keys, 'net.peer.region')) as peer_region,
        coalesce(list_position(keys, 'server.address'), list_position(keys, 'net.peer.name'), list_position(keys, 'http.host'),
            list_position(keys, 'peer.hostname'), list_position(keys, 'peer.service'), list_position(keys, 'client.name')) as host,
        coalesce(list_position(keys, 'url.template'), list_position(keys, 'url.full'), list_position(keys, 'http.url'), list_position(keys, 'url.path'),
            list_position(keys, 'http.target'), list_position(keys, 'http.path'), list_position(keys, 'uri')) as url,
        coalesce(list_position(keys, 'http.request.method'), list_position(keys, 'http.method'),
            case when list_contains(keys, 'outcome') then list_position(keys, 'method') end) as method,
        coalesce(list_position(keys, 'db.collection.name'), list_position(keys, 'db.sql.table'), list_position(keys, 'db.mongodb.collection'),
            list_position(keys, 'db.cassandra.table'), list_position(keys, 'db.qdrant.collection_name')) as collection,
        coalesce(list_position(keys, 'db.system.name'), list_position(keys, 'db.system')) as store
    from v_shapes),
spans as (
    select s.*, p.* exclude (shape),
        case when coalesce(tool, arguments, reused, region, peer_region, host, url, method, collection, store) is not null
            then unpacked(attribute_values) end as said
    from stored_rows($every::ubigint, $of::ubigint, $start::timestamptz, $end::timestamptz, $traces::ubigint[]) s left join places p using (shape))
select
    trace_key, span_key, parent_key, parent_key is null as root, start_us / 1e6 - epoch($start::timestamptz) as start_s, duration_ms,
    name, shape, seq, input_tokens, output_tokens, depends_on, ttft_ms, said[host] as host, said[url] as url, said[method] as method, said[collection] as collection,
    said[store] as store, said[tool] as tool, said[arguments] as arguments, said[reused] as reused, said[region] as region, said[peer_region] as peer_region
from spans
