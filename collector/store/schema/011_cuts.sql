-- How much of what came was left out or put together because there was too much of it, since the file was made? One row per kind (`sources`, `shapes`, `attributes` ...),
-- and when the last of it came.
create table cuts (what varchar not null, items bigint not null, last_ns bigint not null);
