"""Write a tiny Llama with random weights and a word-level tokenizer: `python tiny_model.py FOLDER`.

One word is one token, so that prompt lengths are exact, and every generated token is printable text, so that every
token reaches the client as a chunk of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

VOCABULARY = 8192
SPECIAL = ("<unk>", "<s>", "</s>", "<sys>", "<user>", "<asst>")
TEMPLATE = (
    "{{ '<s>' }}{% for m in messages %}"
    "{% if m['role'] == 'system' %}{{ ' <sys> ' + m['content'] }}"
    "{% elif m['role'] == 'user' %}{{ ' <user> ' + m['content'] }}"
    "{% else %}{{ ' <asst> ' + m['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ ' <asst>' }}{% endif %}"
)


def write_tokenizer(folder: Path) -> None:
    """Save a tokenizer of the words w6 to w8191 with a chat template."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(SPECIAL)}
    words |= {f"w{number}": number for number in range(len(SPECIAL), VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)


def write_model(folder: Path, hidden: int = 128, layers: int = 2) -> None:
    """Save random weights of a Llama: `hidden` wide, `layers` deep, float32."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=hidden * 5 // 2,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=max(1, hidden // 128),
        head_dim=64,
        max_position_embeddings=8192,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).to(torch.float32)
    with torch.no_grad():
        model.lm_head.weight[: len(SPECIAL)] *= (
            0.0  # a special token is as likely as any other, no more
        )
    model.save_pretrained(folder)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    write_tokenizer(target)
    write_model(target)
