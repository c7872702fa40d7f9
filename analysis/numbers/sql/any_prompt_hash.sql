-- Does any span carry a hash of its prompt? One row per shape of such spans, one at most.
select shape
from v_shapes
where list_has_any(keys, ['overrun.prompt_hash', 'gen_ai.prompt.hash'])
limit 1
