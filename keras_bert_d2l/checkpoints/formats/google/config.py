"""Read and write google-research/bert's `bert_config.json`.

Source: github.com/google-research/bert, modeling.py, `BertConfig`.
"""

import pathlib
import warnings

from keras_bert_d2l.checkpoints.formats import foreign_config
from keras_bert_d2l.checks import shown
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import write_json
from keras_bert_d2l.types import ConfigDict

CONFIG_FILE = "bert_config.json"

_FIELDS: foreign_config.FieldTable = {
    "vocab_size": ("vocab_size", None),
    **foreign_config.GOOGLE_FIELDS,
    "type_vocab_size": ("num_segments", 16),
}
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu_tanh"}  # modeling.py, `gelu`
_INITIALIZER_RANGE = 0.02
# Fields of the multilingual and Chinese models that modeling.py does not read.
_IGNORED = """
    directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
    pooler_size_per_head pooler_type
""".split()


def config_from_json(path: pathlib.Path) -> BERTConfig:
    """Read a `bert_config.json`.

    A missing field gets the default of Google's code. Google's activation `"gelu"` is the tanh
    approximation.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file is not a JSON object, or a field is unknown, unsupported or out of
            range.
    """
    return foreign_config.read_config(path, _FIELDS, _from_fields)


def config_to_json(config: BERTConfig, path: pathlib.Path) -> None:
    """Write a `bert_config.json`.

    A warning is issued if a dropout rate cannot be stored. The outputs do not depend on it.

    Raises:
        ValueError: The format cannot express the architecture. The message names the field.
    """
    fields = {
        **foreign_config.their_fields(config, _FIELDS),
        "hidden_act": "relu" if config.activation == "relu" else "gelu",
        "initializer_range": _INITIALIZER_RANGE,
    }
    foreign_config.check_kept(config, _from_fields(fields), "google-research/bert")
    write_json(path, fields, sort_keys=True)


def _from_fields(fields: ConfigDict) -> BERTConfig:
    known = {*_FIELDS, "hidden_act", "initializer_range", *_IGNORED}
    unknown = sorted(fields.keys() - known)
    if unknown:
        raise ValueError(
            f"the field {shown(unknown[0])} is unknown. Known fields: {sorted(known)}."
        )
    if "vocab_size" not in fields:
        raise ValueError(f"the field 'vocab_size' is missing. Received: {shown(sorted(fields))}.")
    activation = fields.get("hidden_act", "gelu")
    if str(activation).lower() not in _ACTIVATIONS:
        raise ValueError(
            f"`hidden_act` must be one of {tuple(_ACTIVATIONS)}. Received: {shown(activation)}."
        )
    spread = fields.get("initializer_range", _INITIALIZER_RANGE)
    if spread != _INITIALIZER_RANGE:
        warnings.warn(
            f"initializer_range={shown(spread)} in {CONFIG_FILE} is ignored: weights missing from "
            f"the checkpoint are initialized with {_INITIALIZER_RANGE}. Loaded weights are "
            "unaffected.",
            stacklevel=4,
        )
    return BERTConfig.preset(
        "google",
        **foreign_config.our_fields(fields, _FIELDS),
        activation=_ACTIVATIONS[activation.lower()],
    )
