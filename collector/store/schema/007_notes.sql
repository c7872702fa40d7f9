-- What do log records tell of spans? Some senders say only there why a streamed answer ended. No text of theirs is stored.
create table span_notes (
    batch bigint not null, trace_hi ubigint not null, trace_lo ubigint not null, span_id ubigint not null, time_ns bigint not null,
    finish_reason varchar not null);
