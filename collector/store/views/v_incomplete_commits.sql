-- Which commits lack spans that were acknowledged? One row per commit, as found when the file was migrated: spans that are missing, rows that stood in their place.
create or replace view v_incomplete_commits as
select batch, make_timestamptz(received_ns // 1000) as received, missing, misplaced from incomplete_commits;
