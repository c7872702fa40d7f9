-- What Overrun keeps in the PostgreSQL database of a lake, beside DuckLake's own tables. May run again over what an earlier build made.
-- Bodies that were stored in the last day, by their BLAKE2b-128 hash. The primary key is what makes a body count once, whichever collector gets it.
create table if not exists overrun_bodies (hash bytea primary key, stored timestamptz not null default now());
create index if not exists overrun_bodies_stored_idx on overrun_bodies (stored);

-- Numbers of commits: they are unique, and do not come in the order of the commits.
create sequence if not exists overrun_commits;
-- `shapes`: the last number of a shape. `swept`: how often shapes and sources have been deleted, after which no collector knows which ones are stored.
create table if not exists overrun_counters (name text primary key, value bigint not null);
insert into overrun_counters values ('shapes', 0), ('swept', 0) on conflict do nothing;

-- Who may assemble, who maintains, and who sends alerts: the process that holds the newest epoch. Of the assembler, `through` is the snapshot up to which every trace is assembled,
-- `round` the number of the last commit of the holder.
create table if not exists overrun_leases (
    name text primary key, holder text not null, epoch bigint not null, until timestamptz not null, through bigint not null, round bigint not null);
insert into overrun_leases select name, '', 0, '-infinity', coalesce(max(snapshot_id), 0), 0
from ducklake_snapshot, (values ('assembler'), ('maintainer'), ('alerts')) n(name) group by name on conflict do nothing;

-- Erasings that are not complete: the traces whose rows were deleted up to a snapshot. `rewritten` is the snapshot from which on no file has them, `expired` when
-- the earlier ones went.
create table if not exists overrun_erasings (
    id bigint generated always as identity primary key, asked timestamptz not null default now(), snapshot bigint not null, rewritten bigint, expired timestamptz);
create table if not exists overrun_erased (id bigint not null references overrun_erasings on delete cascade, trace_hi numeric(20) not null, trace_lo numeric(20) not null);

-- What the process that sends alerts has to know after a restart: open incidents, and messages to be sent.
create table if not exists overrun_notes (key text primary key, value text not null);

-- Parts of files that were moved into the lake (overrun migrate).
create table if not exists overrun_moved (part text primary key, stored timestamptz not null default now());

-- Runs in the transaction in which DuckLake makes a snapshot visible: a snapshot with a body or a part that is stored already, that relies on shapes which were deleted, or of an
-- assembler that has lost its lease, is not made. DuckLake repeats a commit whose error reads like a conflict of snapshots, so these messages avoid its words.
create or replace function overrun_checked() returns trigger language plpgsql as $$
begin
    if new.author = 'overrun collector' then
        -- A shared lock: counting a sweep waits for this commit, and this commit sees it counted.
        if split_part(new.commit_extra_info, ';', 1)::bigint <> (select value from overrun_counters where name = 'swept' for share) then
            raise exception 'overrun: shapes were deleted meanwhile' using errcode = 'OV003';
        end if;
        begin
            insert into overrun_bodies (hash) select decode(h, 'hex') from unnest(string_to_array(split_part(new.commit_extra_info, ';', 2), ',')) h;
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
    elsif new.author = 'overrun migration' then
        begin
            insert into overrun_moved (part) values (new.commit_extra_info);
        exception when unique_violation then
            raise exception 'overrun: this part is stored already' using errcode = 'OV004';
        end;
    end if;
    return new;
end $$;
drop trigger if exists overrun_checked on ducklake_snapshot_changes;
create trigger overrun_checked before insert on ducklake_snapshot_changes for each row execute function overrun_checked();
