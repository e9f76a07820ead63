"""Read and write Hugging Face's `config.json`.

Source: github.com/huggingface/transformers, `configuration_utils.py`, and in `models/bert`
`configuration_bert.py` and `modeling_bert.py`.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import cast

from keras_bert_d2l.checkpoints.formats import foreign_config
from keras_bert_d2l.checkpoints.weights import first_few
from keras_bert_d2l.checks import check_choice, check_that, shown, wrong
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.tasks.task import AnyTask, HuggingFace, task_of_kind, tasks
from keras_bert_d2l.types import ConfigDict

CONFIG_FILE = "config.json"
ARCHITECTURES = {  # keys: whether the model has an MLM head, and a next-sentence head
    (True, True): "BertForPreTraining",
    (True, False): "BertForMaskedLM",
    (False, True): "BertForNextSentencePrediction",
    (False, False): "BertModel",
}

_FIELDS: foreign_config.FieldTable = {
    "vocab_size": ("vocab_size", 30522),
    **foreign_config.GOOGLE_FIELDS,
    "type_vocab_size": ("num_segments", 2),
    "layer_norm_eps": ("layer_norm_epsilon", 1e-12),
    "hidden_act": ("activation", "gelu"),
    "tie_word_embeddings": ("tie_embeddings", True),
}
_ACTIVATIONS = {
    **{name: name for name in ("relu", "tanh", "linear")},
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_python": "gelu",
}
_FIXED = {"model_type": "bert", "position_embedding_type": "absolute"}
# These fields describe the origin of the file, training, generation, label names or
# the format of the outputs. None of them affects what the model computes.
_WITHOUT_EFFECT = frozenset(
    """
    _attn_implementation _attn_implementation_autoset _commit_hash _name_or_path _num_labels
    architectures
    attn_implementation bad_words_ids begin_suppress_tokens bos_token_id chunk_size_feed_forward
    classifier_dropout decoder_start_token_id directionality diversity_penalty do_sample dtype
    early_stopping encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty
    finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing id2label
    label2id length_penalty long_texts max_length min_length name_or_path
    no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences
    output_attentions output_hidden_states output_past output_scores pad_token_id pooler_fc_size
    pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type prefix
    problem_type remove_invalid_values repetition_penalty return_dict return_dict_in_generate
    sbert_ce_default_activation_function sentence_transformers sep_token_id suppress_tokens
    task_specific_params temperature tf_legacy_loss tokenizer_class top_k top_p torch_dtype
    torchscript transformers_version typical_p use_bfloat16 use_cache
    """.split()
)
_SINGLE, _REGRESSION = "single_label_classification", "regression"
_DEFAULT_NUM_LABELS = 2
# The activation that sentence-transformers before version 4 records for a `CrossEncoder`.
_SCORE_FIELD = "sbert_ce_default_activation_function"
_LINEAR = "torch.nn.modules.linear.Identity"
_SIGMOID = "torch.nn.modules.activation.Sigmoid"
_SOFTMAX = "torch.nn.modules.activation.Softmax"


def config_from_json(path: pathlib.Path) -> BERTConfig:
    """Read Hugging Face's `config.json`.

    Missing fields have the defaults of transformers. The file does not record whether the model has
    a pooler and a next-sentence head. Both are assumed here; the weights show if they exist.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file is not JSON, or a field is out of range or requests a feature that BERT
            does not have.
    """
    known = {*_FIELDS, *_FIXED, *_WITHOUT_EFFECT}
    return foreign_config.read_config(path, _FIELDS, known, _from_fields)


def config_to_dict(config: BERTConfig) -> ConfigDict:
    """Return the fields of Hugging Face's `config.json`.

    A warning is issued if a dropout rate cannot be stored. The outputs do not depend on it, and
    trained weights do not depend on the `initializer`.

    Raises:
        ValueError: Hugging Face's BERT cannot express the architecture. The message names the
            field.
    """
    fields = _to_fields(config)
    # The weights show whether there is a next-sentence head, and only models with it have a pooler.
    has_both = config.next_sentence
    read_back = dataclasses.replace(_from_fields(fields), pooler=has_both, next_sentence=has_both)
    foreign_config.check_kept(config, read_back, "Hugging Face")
    return fields


def runtime_fields(config: BERTConfig, task: ConfigDict | None) -> ConfigDict:
    """Return the fields of `config.json` for programs that run a graph instead of building it.

    They read the sizes, the labels and the kind of task, so every model has such fields. Models
    that embed texts, with or without pretraining heads, are a `BertModel`.
    """
    fields = {**_to_fields(config), "architectures": ["BertModel"]}
    if task:
        fields |= config_fields(task)
    if _SCORE_FIELD in fields:  # the graph applies the activation
        fields[_SCORE_FIELD] = _LINEAR
    return fields


def _to_fields(config: BERTConfig) -> ConfigDict:
    theirs_of = {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}
    return {
        "model_type": "bert",
        **foreign_config.their_fields(config, _FIELDS),
        "hidden_act": theirs_of[config.activation],
        "pad_token_id": 0,
    }


def _from_fields(fields: ConfigDict) -> BERTConfig:
    for name, expected in _FIXED.items():
        if fields.get(name) not in (None, expected):
            raise wrong(name, f'"{expected}"', fields[name], "Only BERT can be loaded.")
    values = foreign_config.our_fields(fields, _FIELDS)
    activation = check_choice("hidden_act", values["activation"], tuple(_ACTIVATIONS))
    values["activation"] = _ACTIVATIONS[activation]
    return BERTConfig(**values, embedding_norm=True, initializer="truncated_normal")


def task_of(
    fields: ConfigDict,
    shapes: Mapping[str, tuple[int, ...]],
    source: str,
    stored_class: str | None = None,
) -> ConfigDict | None:
    """Return the task of a checkpoint, or `None` for a BERT without a task.

    Args:
        fields: The fields of `config.json`.
        shapes: The shapes of the weights by name.
        source: The file of the weights, for messages.
        stored_class: The class that the file of the weights names. `fields` may have that of the
            model that it was fine-tuned from.

    Raises:
        ValueError: The task of the head is not supported, or a field is damaged.
    """
    known = [task for task in tasks().values() if task.huggingface and task.huggingface.head]
    heads_of = {_names(task).architecture: _names(task).head for task in known}
    heads = [name for name in shapes if name.partition(".")[0] in heads_of.values()]
    if not heads:
        return None
    if stored_class in heads_of or (stored_class and fields.get("architectures") is None):
        fields = {**fields, "architectures": [stored_class]}
    match fields.get("architectures"):
        case [str(architecture), *_]:
            head = heads_of.get(architecture)
        case _:
            architecture, head = "", None
    found = {name.partition(".")[0] for name in heads}
    if not fields.get("architectures"):
        classes = tuple(name for name, head in heads_of.items() if head in found)
        raise ValueError(
            f"{source!r} has a head, {first_few(heads)}, of an unknown class. Add the class to "
            f'config.json: "architectures": ["{classes[0]}"]. The classes with such a head are '
            f"{classes}."
        )
    if found != {head}:
        raise ValueError(
            f"{source!r} is a BERT with a task head, {first_few(heads)}, not supported for "
            f"architectures={shown(fields.get('architectures'))}. Supported: {tuple(heads_of)}. "
            "To load the encoder alone, save it with transformers: `BertModel` (in TensorFlow, "
            "`TFBertModel`)`.from_pretrained(folder).save_pretrained(other_folder)`."
        )
    shape = shapes.get(f"{head}.bias", ())
    fitting = [task for task in known if _names(task).architecture == architecture]
    problem = ""
    if len(fitting) > 1:  # such as classification and regression
        problems = tuple(one for task in fitting for one in _names(task).problems)
        problem = _problem_type(fields, len(_labels(fields, shape)), problems)
        fitting = [task for task in fitting if problem in _names(task).problems]
    kind = fitting[0].model
    dropout = fields.get("classifier_dropout")
    values = {
        "multi_label": problem in _names(fitting[0]).problems[1:],
        "long_texts": fields.get("long_texts", "cut"),
        "dropout": fields.get("hidden_dropout_prob", 0.1) if dropout is None else dropout,
        "pooling": "cls",
        "activation": _activation(fields, is_applied="activation" in kind.fields),
    }
    if "labels" in kind.fields:
        values["labels"] = _labels(fields, shape)
    named = {name: values[name] for name in kind.fields}
    return {"kind": kind.__name__, **named}


def _names(task: AnyTask) -> HuggingFace:
    """Return what transformers calls a model for a task.

    Raises:
        ValueError: It has no such model.
    """
    if task.huggingface is None:
        raise ValueError(
            f"Hugging Face's format has no model for the task {task.name!r}. Choose another format."
        )
    return task.huggingface


def config_fields(task: ConfigDict) -> ConfigDict:
    """Return the fields of `config.json` that describe a task."""
    names = _names(task_of_kind(task["kind"]))
    fields: ConfigDict = {"architectures": [names.architecture]}
    if "labels" in task:
        fields["id2label"] = {str(number): name for number, name in enumerate(task["labels"])}
        fields["label2id"] = {name: number for number, name in enumerate(task["labels"])}
    if "dropout" in task:
        fields["classifier_dropout"] = task["dropout"]
    if task.get("long_texts", "cut") != "cut":
        fields["long_texts"] = task["long_texts"]  # transformers ignores it and truncates
    if "activation" in task:
        fields[_SCORE_FIELD] = _LINEAR if task["activation"] == "linear" else _SIGMOID
    if names.problems:
        fields["problem_type"] = names.problems[task.get("multi_label", False)]
    return fields


def head_name(task: ConfigDict) -> str | None:
    """Return Hugging Face's name for the head of a task, or `None` for a task without one."""
    return _names(task_of_kind(task["kind"])).head or None


def _activation(fields: ConfigDict, *, is_applied: bool) -> str:
    """Return the activation of a regressor's scores, as a `CrossEncoder` applies it.

    Raises:
        ValueError: The task does not support it.
    """
    encoder = fields.get("sentence_transformers")
    found = encoder.get("activation_fn") if isinstance(encoder, dict) else None
    found = found or fields.get(_SCORE_FIELD)
    if not found and encoder and is_applied:  # as in a `CrossEncoder` with one label
        found = _SIGMOID
    names = {None: "linear", _LINEAR: "linear", _SIGMOID: "sigmoid"}
    if not is_applied:  # the scores are probabilities, whatever it is
        names = {None: "linear", _LINEAR: "linear", _SOFTMAX: "linear"}
    if not isinstance(found, str | None) or found not in names:
        raise wrong(_SCORE_FIELD, f"one of {tuple(names)}", found)
    return names[found]


def _problem_type(fields: ConfigDict, num_labels: int, known: tuple[str, ...]) -> str:
    problem = fields.get("problem_type")
    if problem is None:  # same rule as transformers for a first batch of integer labels
        return _REGRESSION if num_labels == 1 else _SINGLE
    return str(check_choice("problem_type", problem, known))


def _labels(fields: ConfigDict, shape: tuple[int, ...]) -> list[str]:
    """Return the label names in the order of their ids. `shape` is that of the head's bias."""
    id2label = fields.get("id2label")
    if id2label is None:
        number = fields.get("num_labels", _DEFAULT_NUM_LABELS)
        check_that(
            (number,) == shape,
            "num_labels",
            f"the number of outputs of the head, whose bias has the shape {shape}",
            number,
        )
        return [f"LABEL_{index}" for index in range(number)]
    names = id2label if isinstance(id2label, dict) else {}
    labels = [names.get(str(number)) for number in range(len(names))]
    are_strings = bool(labels) and all(isinstance(label, str) for label in labels)
    expected = "an object with a string for each of the ids 0, 1, 2 and so on"
    check_that(are_strings, "id2label", expected, id2label)
    return cast(list[str], labels)
