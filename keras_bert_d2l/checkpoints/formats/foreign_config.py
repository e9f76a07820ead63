"""Convert other programs' configuration files to and from `BERTConfig`."""

import dataclasses
import re
import warnings
from collections.abc import Collection, Iterable, Mapping

from keras_bert_d2l.checks import shown
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.types import ConfigDict

# Fields that affect only training, not the outputs of trained weights.
_TRAINING_FIELDS = """
    dropout attention_dropout embedding_dropout ffn_dropout block_dropout zero_padding
""".split()

# Parts of the names of fields that change what relatives of BERT compute.
_OF_RELATIVES = re.compile(
    r"""
    activation_f|adapter|alibi|auto_map|attention_(bias|type|window)|bottleneck|causal
    |classifier_(act|pool)|conv_|cross_att|decoder|(?<!sentence_)embedding_size|emb_pool|encoder_width|expert|ffn_type
    |feed_forward_type|fusion|glu(?!e)|^num_.*group|^[kqv]_groups|inner_group|head_(dim|ratio)
    |hidden_activation|key_value|layer_types|local_att|logits_scal|lora|moe|multiplier|norm_before
    |normalize_(before|embed)|(embed|hidden|qk|final)_norm|norm_(bias|eps|first|type)
    |normalization|pooler_hidden_act|pos_att|pre_attn|pre_?norm|prun|quant|relative|rel_pos|rms
    |^size_per_head|(query|key|value)_act
    |(^|_)rope_|rotary|scale_(att|emb)|sliding|softcap|spars|token_dropout
    |_2d_|position|projection_dim|qkv|share_|task_(id|type_)|trigram|true_hidden|use_bias
    |(?<!re)vision_|visual|per_layer|output_range
    """,
    re.VERBOSE,
)

# Maps a field of the other program to our field and to the default for files that omit it.
FieldTable = Mapping[str, tuple[str, object]]

NO_HEADS: ConfigDict = {
    **dict.fromkeys(("pooler", "next_sentence", "tie_embeddings"), True),
    "mlm_head": "mlp",
    "mlm_activation": None,
    "mlm_layer_norm_epsilon": None,
    "zero_padding": False,
    "replaced_tokens": False,
}
_NOT_STORED = ("initializer", "num_tokens", "use_one_hot_embeddings")

# Google's names and defaults, which Hugging Face has adopted.
GOOGLE_FIELDS: FieldTable = {
    "hidden_size": ("num_hiddens", 768),
    "intermediate_size": ("ffn_num_hiddens", 3072),
    "num_attention_heads": ("num_heads", 12),
    "num_hidden_layers": ("num_blks", 12),
    "hidden_dropout_prob": ("dropout", 0.1),
    "attention_probs_dropout_prob": ("attention_dropout", 0.1),
    "max_position_embeddings": ("max_len", 512),
    "initializer_range": ("initializer_range", 0.02),
}


def check_others(fields: ConfigDict, known: Collection[str]) -> None:
    """Raise a `ValueError` if a field asks for what a relative of BERT computes.

    Other programs ignore all other fields that they do not know, and so does this package.

    Args:
        fields: The fields of another program's configuration file. An option of BERT's relatives
            that is false or zero asks for BERT.
        known: Names of fields that are read, or that are known to have no effect on outputs.
    """
    for field in sorted(fields):
        if fields[field] and field not in known and _OF_RELATIVES.search(field):
            raise ValueError(
                f"`{field:.80}` is not supported and may change the outputs of the model. "
                f"Received: {shown(fields[field])}. If it does not affect the outputs, remove it "
                "from the file."
            )


def our_fields(fields: ConfigDict, table: FieldTable) -> ConfigDict:
    """Convert the fields of another program's file to the fields of a `BERTConfig`."""
    ours = {ours: fields.get(theirs, default) for theirs, (ours, default) in table.items()}
    dropout = ours.get("dropout", 0.0)
    if ours["attention_dropout"] == dropout:
        ours["attention_dropout"] = None  # `None` means the same in a BERTConfig
    return {"embedding_dropout": dropout, **ours}


def their_fields(config: BERTConfig, table: FieldTable) -> ConfigDict:
    """Convert the fields of a `BERTConfig` to the fields of another program's file."""
    ours = dataclasses.asdict(config)
    if config.attention_dropout is None:
        ours["attention_dropout"] = config.dropout
    return {theirs: ours[name] for theirs, (name, _) in table.items()}


def without_heads(config: BERTConfig) -> BERTConfig:
    """Return the configuration of a model without pretraining heads, whose options do not matter.

    They become those that other programs can express.
    """
    return dataclasses.replace(config, **NO_HEADS)


def check_kept(config: BERTConfig, read_back: BERTConfig, program: str) -> None:
    """Compare a configuration with the one that is read back from another program's file.

    The `initializer` and `use_one_hot_embeddings` are not compared, because trained weights and
    outputs do not depend on them, and neither is `num_tokens`, the size of the stored vocabulary.

    Args:
        config: The configuration.
        read_back: The configuration that is read from the file.
        program: The name of the other program, for messages.

    Raises:
        ValueError: The two differ in more than dropout and padding. If they differ only in these,
            which do not affect outputs, a warning is issued instead.
    """
    ours, theirs = map(dataclasses.asdict, (config, read_back))
    if config.attention_dropout == config.dropout:
        ours["attention_dropout"] = None
    if config.head_width * config.num_heads == config.num_hiddens:
        ours["size_per_head"] = None
    lost = [n for n in ours if ours[n] != theirs[n] and n not in _NOT_STORED]
    refused = [name for name in lost if name not in _TRAINING_FIELDS]
    if refused:
        raise ValueError(
            f"The format of {program} cannot express this model. It supports only "
            f"{_listed(refused, theirs)}. Received: {_listed(refused, ours)}. Choose another "
            "format, or build the model with these values."
        )
    if lost:
        warnings.warn(
            f"The format of {program} cannot store {_listed(lost, ours)}: the loaded model will "
            f"have {_listed(lost, theirs)}. This affects further training, but not the outputs.",
            stacklevel=4,
        )


def _listed(names: Iterable[str], values: ConfigDict) -> str:
    return ", ".join(f"{name}={values[name]!r}" for name in names)
