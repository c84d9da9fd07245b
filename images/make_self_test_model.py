"""Make the model of `helm test`: a random Llama of some kilobytes with a tokenizer of bytes.

python images/make_self_test_model.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

SIZES = {
    "vocab_size": 258,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 128,
    "bos_token_id": 256,
    "eos_token_id": 257,
}


def make_model(folder: Path) -> None:
    """Writes config, weights and tokenizer; the same each time, and readable for every user of the image."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(folder)
    _make_tokenizer(folder)
    for file in folder.iterdir():
        file.chmod(0o644)


def _make_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder)


if __name__ == "__main__":
    make_model(Path(sys.argv[1]))
