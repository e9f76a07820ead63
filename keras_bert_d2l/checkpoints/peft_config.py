"""The configuration of a LoRA adapter of PEFT, `adapter_config.json`.

Source: github.com/huggingface/peft, `tuners/lora/config.py`, `tuners/tuners_utils.py`.
"""

import math
import os
import pathlib
import re

from keras_bert_d2l.checkpoints.weights import first_few
from keras_bert_d2l.checks import check_integer, check_positive, check_that, shown
from keras_bert_d2l.reading import errors_naming, read_json_object
from keras_bert_d2l.types import ConfigDict

CONFIG_FILE = "adapter_config.json"
# Entries of PEFT's configuration that are read, that the weights repeat, or that do not change the
# outputs.
_SUPPORTED = frozenset(
    """
    alpha_pattern auto_mapping base_model_name_or_path bias corda_config ensure_weight_tying
    eva_config exclude_modules fan_in_fan_out inference_mode layers_pattern layers_to_transform
    loftq_config lora_alpha lora_dropout lora_ga_config megatron_core modules_to_save peft_type
    peft_version qalora_group_size r rank_pattern revision runtime_config target_modules task_type
    use_rslora velora_config
    """.split()
)
# Ways to initialize the matrices that leave the other weights of the model as they are.
_NEUTRAL = [("init_lora_weights", x) for x in (True, "gaussian", "eva", "orthogonal", "mica")]
# A name in `alpha_pattern`, in which PEFT also allows regular expressions.
_LAYER = re.compile(r"[\w.]+(\[\d\])?")
REMEDY = "Merge the adapter with PEFT, and load the merged model."


def read_config(file: pathlib.Path) -> ConfigDict:
    """Read PEFT's configuration, with the keys `r` and `lora_alpha`.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file is damaged, or an option is not supported.
    """
    fields = read_json_object(file)
    with errors_naming(file):
        kind = fields.get("peft_type")
        check_that(kind == "LORA", "peft_type", "'LORA'", kind)
        check_integer("r", fields.get("r"), 1)
        check_positive("lora_alpha", fields.get("lora_alpha"))
        alphas = fields.get("alpha_pattern") or {}
        expected = "an object of numbers by names of layers, which are not regular expressions"
        are_names = isinstance(alphas, dict) and all(map(_LAYER.fullmatch, alphas))
        check_that(are_names, "alpha_pattern", expected, alphas, REMEDY)
        for alpha in alphas.values():
            check_positive("alpha_pattern", alpha)
    further = [
        f"{name}={shown(value)}"
        for name, value in fields.items()
        if value and name not in _SUPPORTED and (name, value) not in _NEUTRAL
    ]
    if further:
        raise ValueError(
            f"{os.fspath(file)!r} uses options of PEFT that are not supported: "
            f"{first_few(further)}. {REMEDY}"
        )
    return fields


def alpha_of(fields: ConfigDict, layer: str, rank: int) -> float:
    """Return the `lora_alpha` of a layer: its update is scaled by this number divided by `rank`."""
    names = f".{layer}", f".{layer.partition('[')[0]}"
    own = [
        alpha
        for name, alpha in (fields.get("alpha_pattern") or {}).items()
        if any(one.endswith(f".{name}") for one in names)
    ]
    alpha = float([*own, fields["lora_alpha"]][0])
    return alpha * math.sqrt(rank) if fields.get("use_rslora") else alpha
