-- What Overrun keeps in the PostgreSQL database of a lake, beside DuckLake's own tables.
-- Bodies that were stored in the last day, by their BLAKE2b-128 hash. The primary key is what makes a body count once, whichever collector gets it.
create table overrun_bodies (hash bytea primary key, stored timestamptz not null default now());
create index on overrun_bodies (stored);

-- Numbers of commits: they are unique, and do not come in the order of the commits.
create sequence overrun_commits;
create table overrun_counters (name text primary key, value bigint not null);
insert into overrun_counters values ('shapes', 0);

-- Who may assemble, and who maintains: the process that holds the newest epoch. Of the assembler, `through` is the snapshot up to which every trace is assembled, `round` the number of the last
-- commit of the holder.
create table overrun_leases (
    name text primary key, holder text not null, epoch bigint not null, until timestamptz not null, through bigint not null, round bigint not null);
insert into overrun_leases select name, '', 0, '-infinity', coalesce(max(snapshot_id), 0), 0 from ducklake_snapshot, (values ('assembler'), ('maintainer')) n(name)
group by name;

-- Runs in the transaction in which DuckLake makes a snapshot visible: a snapshot with a body that is stored already, or of an assembler that has lost its lease,
-- is not made. DuckLake repeats a commit whose error reads like a conflict of snapshots, so these messages avoid its words.
create function overrun_checked() returns trigger language plpgsql as $$
begin
    if new.author = 'overrun collector' then
        begin
            insert into overrun_bodies (hash) select decode(h, 'hex') from unnest(string_to_array(new.commit_extra_info, ',')) h;
        exception when unique_violation then
            raise exception 'overrun: a body is stored already' using errcode = 'OV001';
        end;
        new.commit_extra_info = null;
    elsif new.author = 'overrun assembler' then
        update overrun_leases set through = split_part(new.commit_extra_info, ':', 2)::bigint, round = split_part(new.commit_extra_info, ':', 3)::bigint
        where name = 'assembler' and epoch = split_part(new.commit_extra_info, ':', 1)::bigint;
        if not found then
            raise exception 'overrun: the lease is lost' using errcode = 'OV002';
        end if;
    end if;
    return new;
end $$;
create trigger overrun_checked before insert on ducklake_snapshot_changes for each row execute function overrun_checked();
