-- Whose model calls are reported by more than one instrumentation? One row per such source of a process, seldom any: its process has other scopes as well,
-- or wrappers of a client use its own (`wrapped`).
select source_id, service, place, scope_name from (
    select source_id, service, coalesce(instance, '') as place, scope_name,
        count(distinct scope_name) over (partition by service, coalesce(instance, '')) as scopes
    from sources where source_id in (select source_id from shapes where role = 2))
where scopes > 1 or scope_name in (select scope_name from wrapped);
