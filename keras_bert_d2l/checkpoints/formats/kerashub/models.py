"""BERT and its relatives in KerasHub: their classes, arguments and weights.

The normalization in each MLM head has the epsilon 1e-5. The encoders differ from transformers:

- BERT and ELECTRA have the tanh approximation of GELU, and BERT's MLM head has the exact one.
- RoBERTa and XLM-R have no rows of positions before the first one, and no segments. Here, they have
  such rows and a segment of zeros, as in transformers. Written positions include the segment.
- DeBERTa-v3 has buckets up to the maximum length.
- ELECTRA has a pooler that no task uses. It is not read, and written as zeros.

Source: github.com/keras-team/keras-hub, `models/` and `layers/modeling/masked_lm_head.py`.
"""

import dataclasses
import re
from typing import NamedTuple

import numpy as np

from keras_bert_d2l.checkpoints import weights
from keras_bert_d2l.checkpoints.formats import checkpoint
from keras_bert_d2l.checkpoints.formats.foreign_config import FieldTable
from keras_bert_d2l.checkpoints.formats.tensorflow_hub import split_heads
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.types import ConfigDict

ROOT = "layers/backbone/"  # in the file of a whole task, where it has the name of the class
_LAYERS, _NOWHERE = f"{ROOT}layers/", "no layer of KerasHub/"
_BLOCK = f"{_LAYERS}transformer_encoder_{{}}"
_JOINT = f"{_LAYERS}token_and_position_embedding/"
_HEAD = "layers/masked_lm_head"
_MLM_EPSILON = 1e-5
_OF_BLOCK = """
    self_attention_layer/query_dense self_attention_layer/key_dense self_attention_layer/value_dense
    self_attention_layer/output_dense self_attention_layer_norm
    feedforward_intermediate_dense feedforward_output_dense feedforward_layer_norm
""".split()
_ENDINGS: weights.Endings = {
    **dict.fromkeys(("kernel", "gamma", "embeddings"), ("/vars/0", weights.SAME)),
    **dict.fromkeys(("bias", "beta"), ("/vars/1", weights.SAME)),
}
_NAMES: weights.Names = {
    "encoder/token_embedding": f"{_LAYERS}reversible_embedding",
    "encoder/embedding_ln": f"{_LAYERS}layer_normalization",
    "encoder/embedding_projection": f"{_LAYERS}dense",
    **{
        f"encoder/blk_{{}}/{ours}": f"{_BLOCK}/_{theirs}"
        for ours, theirs in zip(weights.BLOCK, _OF_BLOCK, strict=True)
    },
    "encoder/relative_embeddings": f"{_LAYERS}relative_embedding",
    "encoder/relative_embeddings/ln": f"{_LAYERS}relative_embedding/layer_norm",
    "mlm/mlp/dense": f"{_HEAD}/_intermediate_dense",
    "mlm/mlp/ln": f"{_HEAD}/_intermediate_layer_norm",
    "mlm/bias": f"{_HEAD}/vars/0",
    "mlm/mlp/logits": f"{_NOWHERE}logits",
    "nsp/dense": f"{_NOWHERE}nsp",
}


class Kind(NamedTuple):
    """A model of KerasHub.

    Attributes:
        title: The beginning of the names of its classes.
        preset: The preset of `BERTConfig` with its options.
        fields: The arguments of its backbone, with our fields and the defaults.
        tokenizer: `"wordpiece"`, `"bpe"`, or a `model_type` of `sentencepiece_fields`.
        ends: The ends of the names of its classes.
    """

    title: str
    preset: str
    fields: FieldTable
    tokenizer: str
    ends: tuple[str, ...] = ("Backbone", "MaskedLM", "TextClassifier")

    @property
    def has_pooler(self) -> bool:
        """Whether the pooler is in the backbone. Otherwise, it is in the classifier."""
        return "num_segments" in self.fields

    @property
    def reads_pooler(self) -> bool:
        """Whether the pooler of the backbone is the layer `hidden`."""
        return self.has_pooler and "TextClassifier" in self.ends

    @property
    def positions(self) -> str:
        """The name of the position embedding."""
        return f"{_LAYERS if self.has_pooler else _JOINT}position_embedding/vars/0"

    def pooler(self, config: BERTConfig) -> str:
        """Return the name of the pooler of the backbone."""
        return f"{_LAYERS}dense{'_1' if config.embedding_width else ''}"

    def config(self, fields: ConfigDict, end: str) -> BERTConfig:
        """Return the architecture of a backbone, with the heads of a class."""
        values = {ours: fields.get(name, default) for name, (ours, default) in self.fields.items()}
        values["embedding_dropout"] = values["dropout"]
        if self.title == "Electra":
            values["activation"] = "gelu_tanh"
            if values["embedding_width"] == values["num_hiddens"]:
                values["embedding_width"] = None  # there is no projection, unlike in ALBERT
        if self.title == "DebertaV3":
            values["relative_max_distance"] = values["max_len"]
        if end == "TextEmbedder":
            values |= {"pooler": False, "next_sentence": False}
        config = BERTConfig.preset(self.preset, **values)
        return self.with_mlm(config) if end == "MaskedLM" else config

    def with_mlm(self, config: BERTConfig) -> BERTConfig:
        """Return the architecture with the options of KerasHub's MLM head."""
        epsilon = None if config.layer_norm_epsilon == _MLM_EPSILON else _MLM_EPSILON
        options: ConfigDict = {"mlm_activation": "gelu" if self.title == "Bert" else None}
        return dataclasses.replace(config, mlm_layer_norm_epsilon=epsilon, **options)

    def table(self, config: BERTConfig, task: ConfigDict | None) -> list[weights.Row]:
        """Return a row for every weight, with its name in the file of a task."""
        first, size = config.first_position_id, (config.max_len, config.num_hiddens)
        rows_of = weights.Layout(
            lambda x: np.pad(x, ((first, 0), (0, 0)))[None],
            lambda x: x[0, first:],
            lambda shape: (shape[1] - first, shape[2]),
        )
        no_segments = weights.Layout(lambda x: np.zeros_like(x[:1]), np.asarray, lambda _: size)
        names = dict(_NAMES)
        if self.has_pooler:
            names["encoder/segment_embedding"] = f"{_LAYERS}embedding"
            names["hidden"] = self.pooler(config) if self.reads_pooler else f"{_NOWHERE}hidden"
            names["head"] = "layers/dense"
        else:
            names["encoder/token_embedding"] = f"{_JOINT}token_embedding"
            names["encoder/segment_embedding/embeddings"] = (self.positions, no_segments)
            names |= {"hidden": "layers/dense", "head": "layers/dense_1"}
        names["encoder/pos_embedding"] = (self.positions, rows_of)
        if self.title == "DebertaV3":
            names |= {"encoder/token_embedding": _NAMES["encoder/token_embedding"]}
        rows = weights.expand(config, names, _ENDINGS, checkpoint.parts_of(task))
        rows = split_heads(rows, config.num_heads)
        if self.title == "DebertaV3":
            rows = [_of_deberta(row) for row in rows]
        # Keras numbers layers of the same class from the second one.
        return [row._replace(theirs=row.theirs.replace("encoder_0/", "encoder/")) for row in rows]


def _of_deberta(row: weights.Row) -> weights.Row:
    """Return a row of a block with the names of DeBERTa's attention, whose output has no heads."""
    theirs = row.theirs.replace("/transformer_encoder_", "/disentangled_attention_encoder_")
    theirs = re.sub(r"(?<=_self_attention_layer/)(?=\w+_dense)", "_", theirs)
    is_output = row.ours.endswith("attention/W_o/kernel")
    return row._replace(theirs=theirs, layout=weights.SAME if is_output else row.layout)


_OF_ALL: FieldTable = {
    "num_layers": ("num_blks", None),
    "num_heads": ("num_heads", None),
    "hidden_dim": ("num_hiddens", None),
    "intermediate_dim": ("ffn_num_hiddens", None),
    "dropout": ("dropout", 0.1),
    "max_sequence_length": ("max_len", 512),
}
_SIZES: FieldTable = {"vocabulary_size": ("vocab_size", None), **_OF_ALL}
_SEGMENTS: FieldTable = {"num_segments": ("num_segments", 2)}
_NARROW: FieldTable = {**_SEGMENTS, "embedding_dim": ("embedding_width", None)}
_OF_ELECTRA: FieldTable = {"vocab_size": ("vocab_size", None), **_OF_ALL, **_NARROW}
_OF_DEBERTA: FieldTable = {**_SIZES, "bucket_size": ("relative_embeddings", 256)}
_ENDS = ("Backbone", "MaskedLM", "TextClassifier", "TextEmbedder")
KINDS = {  # by their `model_type` in transformers
    "bert": Kind("Bert", "google", {**_SIZES, **_SEGMENTS}, "wordpiece", _ENDS),
    "distilbert": Kind("DistilBert", "distilbert", _SIZES, "wordpiece"),
    "roberta": Kind("Roberta", "roberta-base", _SIZES, "bpe"),
    "xlm-roberta": Kind("XLMRoberta", "xlm-roberta-base", _SIZES, "xlm-roberta", _ENDS),
    "deberta-v2": Kind("DebertaV3", "deberta-v3-base", _OF_DEBERTA, "deberta-v2"),
    "albert": Kind("Albert", "albert-base", {**_SIZES, **_NARROW}, "plain"),
    "electra": Kind("Electra", "electra-base", _OF_ELECTRA, "wordpiece", _ENDS[:1]),
}
CLASSES = {f"{kind.title}{end}": (kind, end) for kind in KINDS.values() for end in kind.ends}
CLASSES["BertClassifier"] = (KINDS["bert"], "TextClassifier")  # in KerasNLP
