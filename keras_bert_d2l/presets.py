"""The named architectures of `BERTConfig.preset`, as fields of `BERTConfig`."""

from keras_bert_d2l.types import ConfigDict

_HEAD_WIDTH = 64


def _size(num_blks: int, num_hiddens: int) -> dict[str, int]:
    """Return sizes in Google's proportions: heads of width 64, feed-forward layers of width 4 D."""
    return {
        "num_hiddens": num_hiddens,
        "ffn_num_hiddens": 4 * num_hiddens,
        "num_heads": num_hiddens // _HEAD_WIDTH,
        "num_blks": num_blks,
    }


# Names and the grid of "smaller BERTs" from the README of github.com/google-research/bert.
_SIZES = {
    "tiny": _size(2, 128),
    "mini": _size(4, 256),
    "small": _size(4, 512),
    "medium": _size(8, 512),
    "base": _size(12, 768),
    "large": _size(24, 1024),
} | {
    f"L-{blocks}_H-{width}": _size(blocks, width)
    for blocks in (2, 4, 6, 8, 10, 12)
    for width in (128, 256, 512, 768)
}

# modeling.py of google-research/bert. Its "gelu" is the tanh approximation.
_GOOGLE = {
    "vocab_size": 30522,
    "dropout": 0.1,
    "max_len": 512,
    "embedding_dropout": 0.1,
    "embedding_norm": True,
    "layer_norm_epsilon": 1e-12,
    "activation": "gelu_tanh",
    "tie_embeddings": True,
    "initializer": "truncated_normal",
}

# d2l.ai, section 15.10: the small BERT that the book pretrains on WikiText-2.
_D2L = {
    "vocab_size": 20256,
    "num_hiddens": 128,
    "ffn_num_hiddens": 256,
    "num_heads": 2,
    "num_blks": 2,
    "dropout": 0.2,
}

# For models that pad with token 0 and use the segments 1 and 2, with 0 for padding.
_PADDED_BY_ZERO: ConfigDict = {
    "num_segments": 3,
    "first_segment_id": 1,
    "mask_from": "tokens",
    "pooler": False,
    "mlm_head": "linear",
}

# The relatives of BERT, as in their files on the Hugging Face Hub. Only BERT
# and ALBERT have a head for pairs of sentences.
_RELATIVE: ConfigDict = {**_GOOGLE, **_SIZES["base"], "activation": "gelu", "next_sentence": False}
_DISTILBERT = {**_RELATIVE, "num_blks": 6, "num_segments": 0, "pooler_activation": "relu"}
_ELECTRA = {**_RELATIVE, "pooler_activation": "gelu"}
_OF_FAIRSEQ = {"pad_id": 1, "first_position_id": 2, "layer_norm_epsilon": 1e-5}
_ROBERTA = {**_RELATIVE, **_OF_FAIRSEQ, "vocab_size": 50265, "num_segments": 1}
_MPNET = {**_RELATIVE, **_OF_FAIRSEQ, "vocab_size": 30527, "num_segments": 0}
_ALBERT = {
    **_GOOGLE,
    **_SIZES["base"],
    "vocab_size": 30000,
    "dropout": 0.0,
    "embedding_dropout": 0.0,
    "embedding_width": 128,
    "shared_blocks": True,
}
_MODERNBERT = {
    **_RELATIVE,
    "vocab_size": 50368,
    "ffn_num_hiddens": 1152,
    "num_blks": 22,
    "dropout": 0.0,
    "embedding_dropout": 0.0,
    "max_len": 8192,
    "pad_id": 50283,
    "num_segments": 0,
    "positions": "rotary",
    "local_attention": 128,
    "global_attention_every": 3,
    "layer_norm_epsilon": 1e-5,
    "norm_first": True,
    "skip_first_norm": True,
    "final_norm": True,
    "gated_ffn": True,
    "bias_free": True,
    "pooler_activation": "gelu",
    "pooler_norm": True,
}
_ETTIN = {
    **_MODERNBERT,
    **_size(7, 256),
    "ffn_num_hiddens": 384,
    "max_len": 7999,
    "local_rope_theta": 160000.0,
}
_DISTANCES = {"positions": "none", "relative_embeddings": 512, "own_relative_keys": True}
_DEBERTA = {**_ELECTRA, **_DISTANCES, "num_segments": 0, "layer_norm_epsilon": 1e-7}
_DEBERTA["vocab_size"] = 50265
_OF_V3 = {"relative_embeddings": 256, "relative_max_distance": 512, "relative_norm": True}
_DEBERTA_V3 = {**_DEBERTA, **_OF_V3, "own_relative_keys": False, "vocab_size": 128100}

PRESETS: dict[str, ConfigDict] = {
    "d2l": _D2L,
    "d2l-torch": {**_D2L, "layer_norm_epsilon": 1e-5},
    # blog.iks-ran.com, 2023-07-26. It gives no sizes, so these are the sizes of BERT base.
    "iksran": {
        "vocab_size": 30522,
        **_SIZES["base"],
        "dropout": 0.1,
        "max_len": 512,
        **_PADDED_BY_ZERO,
        "layer_norm_epsilon": 1e-5,
        "activation": "gelu",
    },
    "google": {**_GOOGLE, **_SIZES["base"]},
    # github.com/codertimo/BERT-pytorch, with the sizes of the notebook.
    "codertimo": {
        "vocab_size": 30000,
        **_SIZES["base"],
        "dropout": 0.1,
        "max_len": 512,
        **_PADDED_BY_ZERO,
        "embedding_dropout": 0.1,
        "ffn_dropout": 0.1,
        "block_dropout": 0.1,
        "positions": "sinusoidal",
        "norm_first": True,
        "layer_norm_epsilon": 1e-6,
        "layer_norm": "unbiased",
        "activation": "gelu_tanh",
        "zero_padding": True,
    },
    "huggingface": {**_GOOGLE, **_SIZES["base"], "activation": "gelu"},
    **{name: {**_GOOGLE, **size} for name, size in _SIZES.items()},
    "distilbert": _DISTILBERT,
    "electra-small": {**_ELECTRA, **_size(12, 256), "embedding_width": 128},
    "electra-base": _ELECTRA,
    "roberta-base": _ROBERTA,
    "xlm-roberta-base": {**_ROBERTA, "vocab_size": 250002},
    "albert-base": _ALBERT,
    "mpnet-base": {**_MPNET, "relative_buckets": 32},
    "modernbert-base": _MODERNBERT,
    "ettin-17m": _ETTIN,
    "deberta-base": _DEBERTA,
    "deberta-v3-xsmall": {**_DEBERTA_V3, **_size(12, 384)},
    "deberta-v3-small": {**_DEBERTA_V3, "num_blks": 6},
    "deberta-v3-base": _DEBERTA_V3,
}
