-- How much is there that a question can use? One row: requests, model calls (failed, with a first token, with tokens), points, notes.
select (select count(*) from v_requests), count(*), count(*) filter (error), count(*) filter (ttft_ms is not null),
    count(*) filter (input_tokens is not null or output_tokens is not null), (select count(*) from points), (select count(*) from span_notes)
from v_llm_calls
