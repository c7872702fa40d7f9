-- What was measured of opted-in prompts in [$start, $end), either side open if null? One row per model call's span and attribute that held a prompt.
-- `line` is what collector/normalise/prompt_features.py wrote in place of the text.
select trace_id, span_id, entry.key as key, entry.value as line
from (
    select trace_id, span_id, unnest(map_entries(attributes)) as entry from v_spans
    where ($start::timestamptz is null or start >= $start::timestamptz) and ($end::timestamptz is null or start < $end::timestamptz)
)
where starts_with(entry.value, '[prompt: ');
