"""Write a tiny Llama with random weights for llama.cpp: `python tiny_gguf.py FILE`.

One word w0 to w8191 is one token, as in `tiny_model.py`. Bytes and special tokens are next to never sampled, so that each
token reaches the client as a chunk of its own. The width sets the pace: nothing else slows llama.cpp down.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np

WORDS = 8192
TEMPLATE = "{% for m in messages %}{{ m['content'] + ' ' }}{% endfor %}"


def vocabulary() -> tuple[list[bytes], list[float], list[int]]:
    """Tokens, scores and kinds. A word grows from its left: all its beginnings are tokens too."""
    kinds = gguf.TokenType
    special = [(b"<unk>", kinds.UNKNOWN), (b"<s>", kinds.CONTROL), (b"</s>", kinds.CONTROL)]
    tokens = special + [(f"<0x{byte:02X}>".encode(), kinds.BYTE) for byte in range(256)]
    pieces = ["▁", "w", *"0123456789", "▁w", *(f"▁w{number}" for number in range(WORDS))]
    tokens += [(piece.encode(), kinds.NORMAL) for piece in pieces]
    names = [name for name, _ in tokens]
    return names, [-float(i) for i in range(len(names))], [int(kind) for _, kind in tokens]


def write(path: Path, width: int = 384, layers: int = 6, heads: int = 6, seed: int = 0) -> None:
    """The model file: `width` wide, `layers` deep, float32."""
    rng = np.random.default_rng(seed)
    hidden = width * 8 // 3 // 32 * 32
    names, scores, kinds = vocabulary()
    out = gguf.GGUFWriter(path, "llama")
    out.add_name("tiny-llama")
    out.add_context_length(8192)
    out.add_embedding_length(width)
    out.add_block_count(layers)
    out.add_feed_forward_length(hidden)
    out.add_head_count(heads)
    out.add_head_count_kv(heads)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(width // heads)
    out.add_vocab_size(len(names))
    out.add_tokenizer_model("llama")
    out.add_token_list(names)
    out.add_token_scores(scores)
    out.add_token_types(kinds)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_unk_token_id(0)
    out.add_add_bos_token(True)
    out.add_chat_template(TEMPLATE)

    def add(name: str, *shape: int, ones: bool = False) -> None:
        values = np.ones(shape) if ones else rng.normal(0.0, 0.02, shape)
        out.add_tensor(f"{name}.weight", values.astype(np.float32))

    # The first feature is large in every state and parts words from all other tokens in the last layer.
    embedding, head = rng.normal(0.0, 0.3, (2, len(names), width))
    embedding[:, 0] = 5.0
    head[:, 0] = [
        2.0 if name.startswith("▁w".encode()) and len(name) > 4 else -2.0 for name in names
    ]
    out.add_tensor("token_embd.weight", embedding.astype(np.float32))
    out.add_tensor("output.weight", head.astype(np.float32))
    add("output_norm", width, ones=True)
    for layer in range(layers):
        add(f"blk.{layer}.attn_norm", width, ones=True)
        add(f"blk.{layer}.ffn_norm", width, ones=True)
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{part}", width, width)
        add(f"blk.{layer}.ffn_gate", hidden, width)
        add(f"blk.{layer}.ffn_up", hidden, width)
        add(f"blk.{layer}.ffn_down", width, hidden)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
