"""Names and layouts of Google's weights in TF1 checkpoints.

Source: github.com/google-research/bert, modeling.py and run_pretraining.py.
"""

from keras_bert_d2l.checkpoints.weights import tables
from keras_bert_d2l.config import BERTConfig

# Dense kernels have the shape (in, out), as in Keras, except the kernel of the next-sentence head.
# Column 0 of its logits means "is next".
_NAMES: tables.Names = {
    "encoder/token_embedding": "bert/embeddings/word_embeddings",
    "encoder/segment_embedding": "bert/embeddings/token_type_embeddings",
    "encoder/pos_embedding": ("bert/embeddings/position_embeddings", tables.POSITIONS),
    "encoder/embedding_ln": "bert/embeddings/LayerNorm",
    "encoder/blk_{}/attention/W_q": "bert/encoder/layer_{}/attention/self/query",
    "encoder/blk_{}/attention/W_k": "bert/encoder/layer_{}/attention/self/key",
    "encoder/blk_{}/attention/W_v": "bert/encoder/layer_{}/attention/self/value",
    "encoder/blk_{}/attention/W_o": "bert/encoder/layer_{}/attention/output/dense",
    "encoder/blk_{}/addnorm1/ln": "bert/encoder/layer_{}/attention/output/LayerNorm",
    "encoder/blk_{}/ffn/dense1": "bert/encoder/layer_{}/intermediate/dense",
    "encoder/blk_{}/ffn/dense2": "bert/encoder/layer_{}/output/dense",
    "encoder/blk_{}/addnorm2/ln": "bert/encoder/layer_{}/output/LayerNorm",
    "hidden": "bert/pooler/dense",
    "mlm/mlp/dense": "cls/predictions/transform/dense",
    "mlm/mlp/ln": "cls/predictions/transform/LayerNorm",
    "mlm/bias": "cls/predictions/output_bias",
    "nsp/dense/kernel": ("cls/seq_relationship/output_weights", tables.SWAPPED_TRANSPOSED),
    "nsp/dense/bias": ("cls/seq_relationship/output_bias", tables.SWAPPED),
}

# The optimizer state: two slots for every variable, keyed by their names in `BERTAdamW`, and the
# number of steps.
SLOTS = {"first_moment": "adam_m", "second_moment": "adam_v"}
STEP = "global_step"


def table(config: BERTConfig) -> list[tables.Row]:
    """Return a row with Google's name and layout for every weight."""
    return tables.expand(config, _NAMES, tables.TENSORFLOW_ENDINGS)
