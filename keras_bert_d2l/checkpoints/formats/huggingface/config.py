"""Read and write the architecture in Hugging Face's `config.json`.

Source: github.com/huggingface/transformers, `configuration_utils.py` and `models/`.
"""

import dataclasses
import pathlib
from collections.abc import Collection

from keras_bert_d2l.checkpoints.formats import foreign_config
from keras_bert_d2l.checkpoints.formats.huggingface.heads import (
    LINEAR,
    SCORE_FIELD,
    check_pooling,
    fields_of_task,
)
from keras_bert_d2l.checkpoints.formats.huggingface.model_types import (
    MODEL_TYPES,
    ModelType,
    model_type_of,
)
from keras_bert_d2l.checks import check_choice, check_integer, check_that, is_integer, shown, wrong
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.contract.task import task_of_kind
from keras_bert_d2l.reading import errors_naming, read_json_object
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.types import ConfigDict

CONFIG_FILE = "config.json"
_CLASSES = {  # keys: whether the model has an MLM head, and another one
    (True, True): "ForPreTraining",
    (True, False): "ForMaskedLM",
    (False, True): "ForNextSentencePrediction",
    (False, False): "Model",
}
_ACTIVATIONS = {
    **{name: name for name in ("relu", "tanh", "linear")},
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_python": "gelu",
}
_OF_ACTIVATIONS = ("activation", "pooler_activation")
_THETAS = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}
# Fields without effect on outputs whose names are like those of relatives of BERT.
_WITHOUT_EFFECT = (
    *("_experts_implementation", "decoder_start_token_id", "num_beam_groups", SCORE_FIELD),
)


def config_from_json(path: pathlib.Path) -> tuple[BERTConfig, ModelType]:
    """Read Hugging Face's `config.json`.

    Missing fields have the defaults of transformers. The file does not record whether the model has
    a pooler and a next-sentence head. Both are assumed here; the weights show if they exist.

    Returns: The architecture and the model type.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file is not JSON, or a field is out of range or requests a feature that the
            models of this package do not have.
    """
    fields = read_json_object(path)
    with errors_naming(path, " cannot be read"):
        name = check_choice("model_type", fields.get("model_type") or "bert", tuple(MODEL_TYPES))
        kind = MODEL_TYPES[name]
        fields |= {ours: fields[name] for name, ours in kind.aliases.items() if name in fields}
        known = {*kind.fields, *kind.fixed, *kind.ignored.split(), *_WITHOUT_EFFECT}
        foreign_config.check_others(fields, known)
        return _from_fields(fields, kind), kind


def config_to_dict(
    config: BERTConfig, task: ConfigDict | None = None, vocab: Vocab | None = None
) -> ConfigDict:
    """Return the fields of Hugging Face's `config.json`.

    A warning is issued if a dropout rate cannot be stored. The outputs do not depend on it, and
    trained weights do not depend on the `initializer`.

    Args:
        config: The architecture.
        task: The fields of a task model. The options of the pretraining heads then do not matter.
        vocab: The vocabulary.

    Raises:
        ValueError: Hugging Face's format cannot express the model. The message names the field.
    """
    if task is not None:
        config = foreign_config.without_heads(config)
    fields = _to_fields(config, vocab)
    kind = MODEL_TYPES[fields["model_type"]]
    # The weights show which heads there are. Of BERT, only models with a next-sentence head have a
    # pooler.
    has_nsp = config.next_sentence and "nsp/dense/bias" in kind.names
    pooler = has_nsp if kind.base == "bert" else config.pooler
    kept: ConfigDict = {"pooler": pooler, "next_sentence": has_nsp}
    if "rtd/dense" in kind.names:
        kept["replaced_tokens"] = config.replaced_tokens
    if task is not None:
        kept = {name: getattr(config, name) for name in foreign_config.NO_HEADS}
    if not config.first_position_id:
        kept["pad_id"] = config.pad_id  # no output depends on it
    read_back = dataclasses.replace(_from_fields(fields, kind), **kept)
    foreign_config.check_kept(_simplest(config), _simplest(read_back), "Hugging Face")
    if task is None:
        return fields
    check_pooling(task, kind)
    return fields | fields_of_task(task, kind)


def runtime_fields(
    config: BERTConfig, task: ConfigDict | None, vocab: Vocab | None = None
) -> ConfigDict:
    """Return the fields of `config.json` for programs that run a graph instead of building it.

    They read the sizes, the labels and the kind of task, so every model has such fields. Models
    that embed texts, with or without pretraining heads, and those of a task that transformers does
    not have, are a `BertModel`.
    """
    fields = _to_fields(config, vocab)
    kind = MODEL_TYPES[fields["model_type"]]
    fields["architectures"] = [class_without_task(kind, ())]
    if task and task_of_kind(task["kind"]).huggingface:
        fields |= fields_of_task(task, kind)
    if SCORE_FIELD in fields:  # the graph applies the activation
        fields[SCORE_FIELD] = LINEAR
    return fields


def class_without_task(kind: ModelType, heads: Collection[str]) -> str:
    """Return the class of a model without a task and with the given heads."""
    has_other = not {"nsp", "rtd"}.isdisjoint(heads)
    # ALBERT has no class with a next-sentence head only, and ELECTRA none with both heads.
    has_mlm = "mlm" in heads or (has_other and kind.base != "bert")
    return kind.title + _CLASSES[has_mlm, has_other]


def _to_fields(config: BERTConfig, vocab: Vocab | None) -> ConfigDict:
    name = model_type_of(config)
    if name == "roberta" and vocab is not None and vocab.kind == "unigram":
        name = "xlm-roberta"  # of the same architecture
    kind = MODEL_TYPES[name]
    theirs_of = {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}
    fields = {"model_type": name, **foreign_config.their_fields(config, kind.fields)}
    for theirs, (ours, _) in kind.fields.items():
        if ours in _OF_ACTIVATIONS:
            fields[theirs] = theirs_of[fields[theirs]]
    fields["max_position_embeddings"] += config.first_position_id
    if "embedding_size" in fields and config.embedding_width is None:
        fields["embedding_size"] = config.num_hiddens
    if kind.base == "deberta":
        fields |= _deberta_fields(config)
    if "local_attention" in fields and not config.local_attention:
        fields |= {"local_attention": 128, "global_attn_every_n_layers": 1}
    fields["pad_token_id"] = config.pad_id
    if vocab is not None and not config.first_position_id:
        fields["pad_token_id"] = vocab.pad_id
    return fields


def _from_fields(fields: ConfigDict, kind: ModelType) -> BERTConfig:
    for name, supported in kind.fixed.items():
        if fields.get(name, supported[0]) not in supported:
            expected = f"{shown(supported[0])}, as in every model that this package can load"
            raise wrong(name, expected, fields[name])
    if kind.title == "ModernBert":
        fields = _with_old_names(fields)
    values: ConfigDict = _from_deberta(fields, kind) if kind.base == "deberta" else {}
    values |= foreign_config.our_fields(fields, kind.fields) | kind.values
    for theirs, (ours, _) in kind.fields.items():
        if ours in _OF_ACTIVATIONS:
            values[ours] = _ACTIVATIONS[check_choice(theirs, values[ours], tuple(_ACTIVATIONS))]
    if kind.base in ("roberta", "mpnet"):
        first = check_integer("pad_token_id", values["pad_id"], 0) + 1
        length = check_integer("max_position_embeddings", values["max_len"], first + 1)
        values |= {"first_position_id": first, "max_len": length - first}
    if kind.base == "electra" and values["embedding_width"] == values["num_hiddens"]:
        values["embedding_width"] = None  # there is no projection, unlike in ALBERT
    if kind.title == "ModernBert":
        window = check_integer("local_attention", values["local_attention"], 1)
        values["local_attention"] = window if values["global_attention_every"] != 1 else 0
        values["mlm_activation"] = values["pooler_activation"]
    if "type_vocab_size" in kind.fields:
        check_integer("type_vocab_size", values["num_segments"], int(kind.base != "deberta"))
    if kind.base != "bert":
        values["next_sentence"] = "nsp/dense/bias" in kind.names
    config = BERTConfig(**values, embedding_norm=True, initializer="truncated_normal")
    return _simplest(config)


def _from_deberta(fields: ConfigDict, kind: ModelType) -> ConfigDict:
    """Return the fields about the distances between tokens in a DeBERTa."""
    is_v2 = kind.title == "DebertaV2"
    sizes = ("hidden_size", "num_attention_heads")
    width, heads = (fields.get(name, kind.fields[name][1]) for name in sizes)
    kinds = fields.get("pos_att_type")
    kinds = kinds.split("|") if isinstance(kinds, str) else kinds
    num = fields.get("position_buckets", -1) if is_v2 else -1
    far = fields.get("max_relative_positions", -1)
    if far == -1:
        far = fields.get("max_position_embeddings", 512)
    check_integer("max_relative_positions", far, 1)
    check_integer("position_buckets", num, -1)
    conv = fields.get("conv_kernel_size") and fields.get("conv_act", "tanh")
    rules = {
        "relative_attention": fields.get("relative_attention") is True,
        "share_att_key": not is_v2 or fields.get("share_att_key") is True,
        "pos_att_type": isinstance(kinds, list) and {*map(str, kinds)} == {"c2p", "p2c"},
        "conv_act": not conv or conv == fields.get("hidden_act", "gelu"),
    }
    equal = {"embedding_size": width, "pooler_hidden_size": width}
    if is_integer(width) and is_integer(heads) and heads:
        equal["attention_head_size"] = width // heads
    rules |= {name: fields.get(name, size) == size for name, size in equal.items()}
    for name, is_right in rules.items():
        check_that(is_right, name, "as in the published DeBERTas", fields.get(name))
    norms = str(fields.get("norm_rel_ebd", "none")).lower() if is_v2 else "none"
    return {
        "positions": "learned" if fields.get("position_biased_input", True) else "none",
        "relative_embeddings": num if num > 0 else far,
        "relative_max_distance": far if num > 0 else 0,
        "relative_norm": "layer_norm" in map(str.strip, norms.split("|")),
    }


def _deberta_fields(config: BERTConfig) -> ConfigDict:
    """Return the fields of a DeBERTa that `_from_deberta` reads."""
    num, far = config.relative_embeddings, config.relative_max_distance
    fields = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "pooler_dropout": 0}
    fields |= {"position_biased_input": config.positions == "learned"}
    fields |= {"max_relative_positions": far or num, "pooler_hidden_size": config.num_hiddens}
    if not config.own_relative_keys:
        norm = "layer_norm" if config.relative_norm else "none"
        fields |= {"share_att_key": True, "position_buckets": num if far else -1}
        fields |= {"norm_rel_ebd": norm, "conv_act": "gelu"}
    return fields


def _simplest(config: BERTConfig) -> BERTConfig:
    """Return the same architecture without options that have no effect."""
    simpler: ConfigDict = {}
    if config.mlm_activation == config.activation:
        simpler["mlm_activation"] = None
    if config.positions == "rotary" and not config.local_attention:
        simpler["global_attention_every"] = 1
    return dataclasses.replace(config, **simpler)


def _with_old_names(fields: ConfigDict) -> ConfigDict:
    """Return the fields of a ModernBERT with the names of version 4 instead of 5."""
    fields = dict(fields)
    if (types := fields.get("layer_types")) is not None:
        full, sliding = _THETAS
        expected = f"a list with num_hidden_layers names: {full!r} for the first block and every "
        expected += f"n-th one after it, and {sliding!r} for the others"
        check_that(isinstance(types, list), "layer_types", expected, types)
        every = next((n for n in range(1, len(types)) if types[n] == full), len(types))
        regular = [sliding if number % every else full for number in range(len(types))]
        is_complete = len(types) == fields.get("num_hidden_layers", len(types))
        check_that(is_complete and types == regular, "layer_types", expected, types)
        fields["global_attn_every_n_layers"] = max(every, 1)
    if (rotary := fields.get("rope_parameters")) is not None:
        is_plain = isinstance(rotary, dict) and all(
            name in _THETAS
            and isinstance(one, dict)
            and one.keys() <= {"rope_type", "rope_theta"}
            and one.get("rope_type", "default") == "default"
            for name, one in rotary.items()
        )
        expected = f'an object with {" and ".join(_THETAS)}, each with the rope_type "default"'
        check_that(is_plain, "rope_parameters", expected, rotary)
        found = {name: one["rope_theta"] for name, one in rotary.items() if "rope_theta" in one}
        fields |= {_THETAS[name]: theta for name, theta in found.items()}
    return fields
