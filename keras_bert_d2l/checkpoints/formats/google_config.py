"""google-research/bert: its `bert_config.json` to a `BERTConfig` and back.

Source: modeling.py of github.com/google-research/bert, `BertConfig`.
"""

import json
import os
import warnings
from collections.abc import Mapping
from typing import Any

from keras_bert_d2l.checkpoints.formats.lost_fields import check_kept
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import read_json_object, write_text

CONFIG_FILE = "bert_config.json"

# Fields of bert_config.json, those of BERTConfig, and what google's code takes for a missing one.
_FIELDS = (
    ("vocab_size", "vocab_size", None),
    ("hidden_size", "num_hiddens", 768),
    ("intermediate_size", "ffn_num_hiddens", 3072),
    ("num_attention_heads", "num_heads", 12),
    ("num_hidden_layers", "num_blks", 12),
    ("hidden_dropout_prob", "dropout", 0.1),
    ("attention_probs_dropout_prob", "attention_dropout", 0.1),
    ("max_position_embeddings", "max_len", 512),
    ("type_vocab_size", "num_segments", 16),
)
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu_tanh"}  # modeling.py, `gelu`
_INITIALIZER_RANGE = 0.02
# In the multilingual and Chinese models; modeling.py reads none of them.
_IGNORED = (
    "directionality",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
)


def config_from_json(path: str | os.PathLike[str]) -> BERTConfig:
    """Reads a `bert_config.json`.

    A missing field has the value that google's code gives it. The activation `"gelu"` is the tanh
    approximation there.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is no JSON object, or a field is unknown, unsupported or out of its
            range.
    """
    fields = read_json_object(path)
    try:
        return _from_fields(fields)
    except ValueError as error:
        names = [f"{o} is {t!r} there" for t, o, _ in _FIELDS if f"`{o}`" in str(error) and t != o]
        note = f" ({', '.join(names)})" if names else ""
        raise ValueError(
            f"{os.fspath(path)!r} is no configuration of google's: {error}{note}"
        ) from error


def config_to_json(config: BERTConfig, path: str | os.PathLike[str]) -> None:
    """Writes a `bert_config.json`, whole or not at all.

    Warns of a dropout that is not kept, which does not change the outputs.

    Raises:
        ValueError: The format cannot express the architecture; the message names the field.
    """
    fields = {theirs: getattr(config, name) for theirs, name, _ in _FIELDS}
    if config.attention_dropout is None:
        fields["attention_probs_dropout_prob"] = config.dropout
    fields["hidden_act"] = "relu" if config.activation == "relu" else "gelu"
    fields["initializer_range"] = _INITIALIZER_RANGE
    check_kept(config, _from_fields(fields), "google-research/bert")
    write_text(path, json.dumps(fields, indent=2, sort_keys=True) + "\n")


def _from_fields(fields: Mapping[str, Any]) -> BERTConfig:
    known = {*(theirs for theirs, _, _ in _FIELDS), "hidden_act", "initializer_range", *_IGNORED}
    unknown = sorted(fields.keys() - known)
    if unknown:
        raise ValueError(f"the field {unknown[0]!r} is unknown; it has {sorted(known)}.")
    if "vocab_size" not in fields:
        raise ValueError(f"the field 'vocab_size' is missing. Received: {sorted(fields)}.")
    activation = fields.get("hidden_act", "gelu")
    if str(activation).lower() not in _ACTIVATIONS:
        raise ValueError(
            f"`hidden_act` must be one of {tuple(_ACTIVATIONS)}. Received: {activation!r}."
        )
    spread = fields.get("initializer_range", _INITIALIZER_RANGE)
    if spread != _INITIALIZER_RANGE:
        warnings.warn(
            f"initializer_range={spread!r} of {CONFIG_FILE} is not kept: weights that the "
            f"checkpoint does not have start with {_INITIALIZER_RANGE}. Outputs are the same.",
            stacklevel=3,
        )
    ours = {name: fields.get(theirs, default) for theirs, name, default in _FIELDS}
    if ours["attention_dropout"] == ours["dropout"]:
        ours["attention_dropout"] = None  # BERTConfig's word for it
    return BERTConfig.preset(
        "google",
        **ours,
        embedding_dropout=ours["dropout"],
        activation=_ACTIVATIONS[activation.lower()],
    )
