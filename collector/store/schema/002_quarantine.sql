-- Spans whose times cannot be: kept whole and apart, so that they spoil no number and are still there to look at. Columns of `spans`, the reason,
-- and the times as they were sent (start_ns and duration_ns hold what could be made of them).
create table quarantine as
    select *, ''::varchar as reason, 0::ubigint as sent_start_ns, 0::ubigint as sent_end_ns from spans limit 0;
