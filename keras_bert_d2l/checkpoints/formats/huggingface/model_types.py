"""BERT and its relatives in transformers: their classes, fields of `config.json` and weights.

Source: github.com/huggingface/transformers, in `models/` the configuration and the modeling file
of each `model_type`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from keras_bert_d2l.checkpoints.formats.foreign_config import GOOGLE_FIELDS, FieldTable
from keras_bert_d2l.checkpoints.weights import (
    BLOCK,
    POSITIONS,
    SWAPPED,
    SWAPPED_TRANSPOSED,
    TRANSPOSED,
    Names,
)
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.presets import PRESETS
from keras_bert_d2l.types import ConfigDict


class ModelType(NamedTuple):
    """A `model_type` of transformers.

    Attributes:
        title: The beginning of the names of its classes.
        base: The name of the encoder in its classes with a head.
        fields: Its fields in `config.json`, with ours and the defaults for files that omit them.
        names: Its names of our layers and weights.
        values: The fields of a `BERTConfig` that all its models share.
        fixed: The supported values of fields that change outputs, the default first.
        ignored: Fields without effect on outputs whose names are like those of other relatives.
        aliases: Other names of its fields, which take precedence.
        heads: Its layers for `hidden` and `head`, by the end of the class's name. Other classes
            have the layer of `names` and the head of the task.
        dropout: The field for the dropout before a head, and its default. `None`: the dropout of
            the encoder.
        dropouts: The same for classes with another field, by the end of the class's name.
        has_pooling: Whether its heads have a choice of pooling, in `classifier_pooling`.
        has_pooler: Whether its class without a head has the layer `hidden`.
        unread: A head that no model of this package has.
        lacks: Heads for which transformers has no class, by the end of the class's name.
    """

    title: str
    base: str
    fields: FieldTable
    names: Names
    values: ConfigDict
    fixed: Mapping[str, tuple[object, ...]] = {}
    ignored: str = ""
    aliases: Mapping[str, str] = {}
    heads: Mapping[str, tuple[str, str]] = {}
    dropout: tuple[str, float | None] = ("classifier_dropout", None)
    dropouts: Mapping[str, tuple[str, float | None]] = {}
    has_pooling: bool = False
    has_pooler: bool = True
    unread: str | None = None
    lacks: tuple[str, ...] = ()

    @property
    def their_names(self) -> list[str]:
        """The names in `names` without ours."""
        return [entry if isinstance(entry, str) else entry[0] for entry in self.names.values()]

    @property
    def token_embedding(self) -> str:
        """The name of the token embedding."""
        return f"{self.names['encoder/token_embedding']}.weight"

    @property
    def decoder(self) -> str:
        """The name of the output kernel of the MLM head, which is tied to the token embedding."""
        return self.names["mlm/mlp/logits/kernel"][0]

    @property
    def decoder_bias(self) -> str:
        """The name of the bias of the same layer, which is not that of the head in all types."""
        return f"{self.decoder.rpartition('.')[0]}.bias"

    @property
    def mlm_bias(self) -> str:
        """The name of the bias of the MLM head."""
        return str(self.names["mlm/bias"])


def _mlm(dense: str, norm: str, decoder: str, bias: str = "") -> Names:
    """Return the names of an MLM head, whose bias is that of the decoder unless it has a name."""
    bias = bias or f"{decoder}.bias"
    return {
        "mlm/mlp/dense": dense,
        "mlm/mlp/ln": norm,
        "mlm/mlp/logits/kernel": (f"{decoder}.weight", TRANSPOSED),
        "mlm/mlp/logits/bias": bias,
        "mlm/bias": bias,
    }


def _encoder(base: str, block: str, layers: str) -> Names:
    """Return the names of an encoder with the embeddings of BERT.

    Args:
        base: The name of the encoder.
        block: The name of a block, with `{}` for its index.
        layers: The names of the layers inside a block, in the order of `BLOCK`.
    """
    embeddings, names = f"{base}.embeddings", zip(BLOCK, layers.split(), strict=True)
    return {
        "encoder/token_embedding": f"{embeddings}.word_embeddings",
        "encoder/segment_embedding": f"{embeddings}.token_type_embeddings",
        "encoder/pos_embedding": (f"{embeddings}.position_embeddings.weight", POSITIONS),
        "encoder/embedding_ln": f"{embeddings}.LayerNorm",
        **{f"encoder/blk_{{}}/{ours}": f"{base}.{block}.{name}" for ours, name in names},
    }


def _of_bert(base: str) -> Names:
    """Return the names of an encoder that has the same layers as BERT."""
    layers = """
        attention.self.query attention.self.key attention.self.value attention.output.dense
        attention.output.LayerNorm intermediate.dense output.dense output.LayerNorm
    """
    return {**_encoder(base, "encoder.layer.{}", layers), "hidden": f"{base}.pooler.dense"}


_TIED = {"tie_word_embeddings": ("tie_embeddings", True)}
_ABSOLUTE: Mapping[str, tuple[object, ...]] = {"position_embedding_type": ("absolute", None)}


def _fields(**defaults: object) -> FieldTable:
    """Return the fields of BERT with other `defaults`, which may be of fields that BERT lacks."""
    fields: FieldTable = {
        "vocab_size": ("vocab_size", 30522),
        **GOOGLE_FIELDS,
        "type_vocab_size": ("num_segments", 2),
        "layer_norm_eps": ("layer_norm_epsilon", 1e-12),
        "hidden_act": ("activation", "gelu"),
        **_TIED,
    }
    ours = {"embedding_size": "embedding_width", "pad_token_id": "pad_id"}
    ours |= {theirs: name for theirs, (name, _) in fields.items()}
    return {**fields, **{theirs: (ours[theirs], value) for theirs, value in defaults.items()}}


_BERT = ModelType(
    title="Bert",
    base="bert",
    fields=_fields(),
    names={
        **_of_bert("bert"),
        **_mlm(
            *("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
            *("cls.predictions.decoder", "cls.predictions.bias"),
        ),
        "nsp/dense/kernel": ("cls.seq_relationship.weight", SWAPPED_TRANSPOSED),
        "nsp/dense/bias": ("cls.seq_relationship.bias", SWAPPED),
    },
    values={},
    fixed=_ABSOLUTE,
)

_LM_HEAD = _mlm("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias")
_OUT_PROJ = ("classifier.dense", "classifier.out_proj")
_ROBERTA = ModelType(
    title="Roberta",
    base="roberta",
    fields=_fields(vocab_size=50265, pad_token_id=1),
    names={**_of_bert("roberta"), **_LM_HEAD},
    values={"mlm_activation": "gelu"},
    fixed=_ABSOLUTE,
    heads={"ForSequenceClassification": _OUT_PROJ},
)
_CAMEMBERT = _ROBERTA._replace(title="Camembert", fields=_fields(pad_token_id=1))

_DISTILBERT = ModelType(
    title="DistilBert",
    base="distilbert",
    fields={
        "vocab_size": ("vocab_size", 30522),
        "dim": ("num_hiddens", 768),
        "hidden_dim": ("ffn_num_hiddens", 3072),
        "n_heads": ("num_heads", 12),
        "n_layers": ("num_blks", 6),
        "dropout": ("dropout", 0.1),
        "attention_dropout": ("attention_dropout", 0.1),
        "max_position_embeddings": ("max_len", 512),
        "initializer_range": ("initializer_range", 0.02),
        "activation": ("activation", "gelu"),
        **_TIED,
        "pad_token_id": ("pad_id", 0),
    },
    names={
        **_encoder(
            "distilbert",
            "transformer.layer.{}",
            """
            attention.q_lin attention.k_lin attention.v_lin attention.out_lin sa_layer_norm
            ffn.lin1 ffn.lin2 output_layer_norm
            """,
        ),
        "hidden": "pre_classifier",
        **_mlm("vocab_transform", "vocab_layer_norm", "vocab_projector"),
    },
    values={"num_segments": 0, "layer_norm_epsilon": 1e-12, "pooler_activation": "relu"},
    fixed=_ABSOLUTE,
    aliases={
        "hidden_size": "dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
    },
    dropout=("seq_classif_dropout", 0.2),
    # In transformers, it is that of the encoder. This package reads the field that it writes.
    dropouts={"ForTokenClassification": ("classifier_dropout", None)},
    has_pooler=False,
)

_ELECTRA = ModelType(
    title="Electra",
    base="electra",
    fields=_fields(
        embedding_size=128,
        hidden_size=256,
        num_attention_heads=4,
        intermediate_size=1024,
        pad_token_id=0,
    ),
    names={
        **_of_bert("electra"),
        "encoder/embedding_projection": "electra.embeddings_project",
        "hidden": "classifier.dense",
        **_mlm(
            *("generator_predictions.dense", "generator_predictions.LayerNorm"), "generator_lm_head"
        ),
        "rtd/dense": "discriminator_predictions.dense",
        "rtd/logits": "discriminator_predictions.dense_prediction",
    },
    values={"mlm_activation": "gelu", "pooler_activation": "gelu"},
    fixed={
        **_ABSOLUTE,
        "summary_type": ("first",),
        "summary_use_proj": (True,),
        "summary_activation": ("gelu",),
    },
    heads={
        "ForSequenceClassification": _OUT_PROJ,
        "ForMultipleChoice": ("sequence_summary.summary", "classifier"),
    },
    dropouts={"ForMultipleChoice": ("summary_last_dropout", 0.1)},
    has_pooler=False,
)

_MPNET = ModelType(
    title="MPNet",
    base="mpnet",
    fields={name: x for name, x in _fields(vocab_size=30527).items() if name != "type_vocab_size"},
    names={
        **_encoder(
            "mpnet",
            "encoder.layer.{}",
            """
            attention.attn.q attention.attn.k attention.attn.v attention.attn.o attention.LayerNorm
            intermediate.dense output.dense output.LayerNorm
            """,
        ),
        "encoder/relative_bias": "mpnet.encoder.relative_attention_bias",
        "hidden": "mpnet.pooler.dense",
        **_LM_HEAD,
    },
    # transformers uses these values whatever the file says.
    values={"num_segments": 0, "mlm_activation": "gelu", "pad_id": 1, "relative_buckets": 32},
    fixed={**_ABSOLUTE, "pad_token_id": (1,), "relative_attention_num_buckets": (32,)},
    heads={"ForSequenceClassification": _OUT_PROJ},
)

_ALBERT = ModelType(
    title="Albert",
    base="albert",
    fields=_fields(
        vocab_size=30000,
        embedding_size=128,
        hidden_size=4096,
        num_attention_heads=64,
        intermediate_size=16384,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        hidden_act="gelu_new",
        pad_token_id=0,
    ),
    names={
        **_encoder(
            "albert",
            "encoder.albert_layer_groups.0.albert_layers.{}",
            """
            attention.query attention.key attention.value attention.dense attention.LayerNorm
            ffn ffn_output full_layer_layer_norm
            """,
        ),
        "encoder/embedding_projection": "albert.encoder.embedding_hidden_mapping_in",
        "hidden": "albert.pooler",
        **_mlm(
            *("predictions.dense", "predictions.LayerNorm"),
            *("predictions.decoder", "predictions.bias"),
        ),
        "nsp/dense/kernel": ("sop_classifier.classifier.weight", SWAPPED_TRANSPOSED),
        "nsp/dense/bias": ("sop_classifier.classifier.bias", SWAPPED),
    },
    values={"shared_blocks": True},
    fixed={**_ABSOLUTE, "num_hidden_groups": (1,), "inner_group_num": (1,)},
    dropout=("classifier_dropout_prob", 0.1),
)

_QKV = "model.layers.{}.attn.Wqkv.weight"
_OF_ALL_MODERNBERTS = """
    positions num_segments dropout norm_first skip_first_norm final_norm gated_ffn bias_free
    pooler_norm
""".split()
_TASKS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice")
_MODERNBERT = ModelType(
    title="ModernBert",
    base="model",
    fields={
        "vocab_size": ("vocab_size", 50368),
        "hidden_size": ("num_hiddens", 768),
        "intermediate_size": ("ffn_num_hiddens", 1152),
        "num_attention_heads": ("num_heads", 12),
        "num_hidden_layers": ("num_blks", 22),
        "attention_dropout": ("attention_dropout", 0.0),
        "embedding_dropout": ("embedding_dropout", 0.0),
        "mlp_dropout": ("ffn_dropout", 0.0),
        "max_position_embeddings": ("max_len", 8192),
        "initializer_range": ("initializer_range", 0.02),
        "norm_eps": ("layer_norm_epsilon", 1e-5),
        "hidden_activation": ("activation", "gelu"),
        "classifier_activation": ("pooler_activation", "gelu"),
        "local_attention": ("local_attention", 128),
        "global_attn_every_n_layers": ("global_attention_every", 3),
        "global_rope_theta": ("rope_theta", 160000.0),
        "local_rope_theta": ("local_rope_theta", 10000.0),
        **_TIED,
        "pad_token_id": ("pad_id", 50283),
    },
    names={
        "encoder/token_embedding": "model.embeddings.tok_embeddings",
        "encoder/embedding_ln": "model.embeddings.norm",
        **{
            f"encoder/blk_{{}}/attention/W_{letter}/kernel": (f"{_QKV}[{part}]", TRANSPOSED)
            for part, letter in enumerate("qkv")
        },
        "encoder/blk_{}/attention/W_o": "model.layers.{}.attn.Wo",
        "encoder/blk_{}/addnorm1/ln": "model.layers.{}.attn_norm",
        "encoder/blk_{}/ffn/dense1": "model.layers.{}.mlp.Wi",
        "encoder/blk_{}/ffn/dense2": "model.layers.{}.mlp.Wo",
        "encoder/blk_{}/addnorm2/ln": "model.layers.{}.mlp_norm",
        "encoder/final_ln": "model.final_norm",
        "hidden": "hidden.dense",  # of a task model, it is `head.dense`, as in the MLM head
        "hidden/ln": "hidden.norm",
        **_mlm("head.dense", "head.norm", "decoder"),
    },
    values={name: PRESETS["modernbert-base"][name] for name in _OF_ALL_MODERNBERTS},
    fixed={
        **{f"{layer}_bias": (False, None) for layer in ("attention", "classifier", "mlp", "norm")},
        "decoder_bias": (True,),
    },
    ignored="""
        classifier_pooling layer_norm_eps layer_types position_embedding_type rope_parameters
        sparse_pred_ignore_index sparse_prediction
    """,
    heads=dict.fromkeys(map("For{}".format, _TASKS), ("head.dense", "classifier")),
    dropout=("classifier_dropout", 0.0),
    has_pooling=True,
    has_pooler=False,
)

_POOLED = ("pooler.dense", "classifier")
_XLARGE = {"hidden_size": 1536, "num_attention_heads": 24, "num_hidden_layers": 24}
_OF_DEBERTA = {"type_vocab_size": 0, "layer_norm_eps": 1e-7, "pad_token_id": 0}
_POOLER_ACT: FieldTable = {"pooler_hidden_act": ("pooler_activation", "gelu")}
_DEBERTA_V2 = ModelType(
    title="DebertaV2",
    base="deberta",
    fields={
        **_fields(vocab_size=128100, **_XLARGE, intermediate_size=6144, **_OF_DEBERTA),
        **_POOLER_ACT,
        "conv_kernel_size": ("conv_kernel_size", 0),
    },
    names={
        **_encoder(
            "deberta",
            "encoder.layer.{}",
            """
            attention.self.query_proj attention.self.key_proj attention.self.value_proj
            attention.output.dense attention.output.LayerNorm
            intermediate.dense output.dense output.LayerNorm
            """,
        ),
        "encoder/relative_embeddings": "deberta.encoder.rel_embeddings",
        "encoder/relative_embeddings/ln": "deberta.encoder.LayerNorm",
        "encoder/conv/conv": "deberta.encoder.conv.conv",  # whose kernel's axes are reversed
        "encoder/conv/addnorm/ln": "deberta.encoder.conv.LayerNorm",
        "hidden": "pooler.dense",
        **{name: x for name, x in _BERT.names.items() if name.startswith("mlm/")},
    },
    values={},
    fixed={"conv_groups": (1,)},
    ignored="""
        attention_head_size conv_act embedding_size max_relative_positions norm_rel_ebd pos_att_type
        position_biased_input position_buckets relative_attention share_att_key
    """,
    heads={"ForSequenceClassification": _POOLED, "ForMultipleChoice": _POOLED},
    dropout=("cls_dropout", None),
    dropouts=_DISTILBERT.dropouts,
    has_pooler=False,
    unread="mask_predictions",
)
_BLOCK, _SELF = "encoder/blk_{}/attention", "deberta.encoder.layer.{}.attention.self"
_DEBERTA = _DEBERTA_V2._replace(
    title="Deberta",
    fields={**_fields(vocab_size=50265, **_OF_DEBERTA), **_POOLER_ACT},
    names={
        **{k: x for k, x in _DEBERTA_V2.names.items() if not k.endswith(("W_q", "W_k", "W_v"))},
        **{
            f"{_BLOCK}/W_{letter}/kernel": (f"{_SELF}.in_proj.weight[{part}]", TRANSPOSED)
            for part, letter in enumerate("qkv")
        },
        **{f"{_BLOCK}/W_{letter}/bias": f"{_SELF}.{letter}_bias" for letter in "qv"},
        f"{_BLOCK}/W_rel_k": f"{_SELF}.pos_proj",
        f"{_BLOCK}/W_rel_q": f"{_SELF}.pos_q_proj",
    },
    values={"own_relative_keys": True},
    fixed={"talking_head": (False,)},
    lacks=("ForMultipleChoice",),
)

MODEL_TYPES = {
    "bert": _BERT,
    "distilbert": _DISTILBERT,
    "electra": _ELECTRA,
    "roberta": _ROBERTA,
    "camembert": _CAMEMBERT,
    "xlm-roberta": _CAMEMBERT._replace(title="XLMRoberta"),
    "mpnet": _MPNET,
    "albert": _ALBERT,
    "modernbert": _MODERNBERT,
    "deberta": _DEBERTA,
    "deberta-v2": _DEBERTA_V2,
}


def model_type_of(config: BERTConfig) -> str:
    """Return the `model_type` of an architecture, or the one that comes closest to it."""
    signs = {
        "modernbert": config.positions == "rotary",
        "deberta": config.own_relative_keys,
        "deberta-v2": config.relative_embeddings > 0,
        "albert": config.shared_blocks,
        "mpnet": config.relative_buckets > 0,
        "roberta": config.first_position_id > 0,
        "distilbert": config.num_segments == 0,
        "electra": config.pooler_activation == "gelu" or config.replaced_tokens,
    }
    return next((name for name, has_sign in signs.items() if has_sign), "bert")
