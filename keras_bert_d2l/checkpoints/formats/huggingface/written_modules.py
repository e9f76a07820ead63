"""Write the files that describe a model of sentence-transformers; `sentence_transformers.py` reads.

Source: github.com/huggingface/sentence-transformers, `base/model.py`, `base/modules/` and
`sentence_transformer/modules/`.
"""

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from keras_bert_d2l.checkpoints.array_files import write_safetensors
from keras_bert_d2l.checkpoints.formats.checkpoint import step_weights
from keras_bert_d2l.checkpoints.formats.huggingface import sentence_transformers as sbert
from keras_bert_d2l.checks import check_that
from keras_bert_d2l.files import write_json
from keras_bert_d2l.types import ConfigDict

_MODULES = "sentence_transformers.models"


def write_embedding(
    folder: pathlib.Path,
    width: int,
    max_len: int,
    arguments: ConfigDict,
    weights: Mapping[str, np.ndarray],
) -> None:
    """Write the files that define the embedding of a text.

    Args:
        folder: The folder of the checkpoint.
        width: The width of the model, D.
        max_len: Maximum number of tokens of the model.
        arguments: The arguments of the `TextEmbedder`.
        weights: The weights of its steps, by our names.

    Raises:
        ValueError: The pooling skips `[CLS]` and `[SEP]`.
    """
    is_right = arguments.get("include_special", True)
    check_that(is_right, "include_special", "True in sentence-transformers", is_right)
    max_len = arguments.get("max_len") or max_len
    # The options of the tokenizer contain whether it lowercases.
    write_json(folder / sbert.TRANSFORMER_FILE, {"max_seq_length": max_len, "do_lower_case": False})
    found = arguments["pooling"]
    kinds = [found] if isinstance(found, str) else [*found]
    pooling: ConfigDict = {"word_embedding_dimension": width}
    pooling |= {sbert.old_name(theirs): ours in kinds for ours, theirs in sbert.POOLINGS.items()}
    if kinds != [name for name in sbert.POOLINGS if name in kinds]:  # only version 6 has an order
        pooling["pooling_mode"] = [sbert.POOLINGS[kind] for kind in kinds]
    write_json(
        folder / sbert.POOLING_FILE,
        {**pooling, "include_prompt": arguments.get("include_prompt", True)},
    )
    write_modules(folder, ["Transformer", "Pooling"], width * len(kinds), arguments, weights)


def write_modules(
    folder: pathlib.Path,
    first: Sequence[str],
    width: int,
    arguments: ConfigDict,
    weights: Mapping[str, np.ndarray],
) -> None:
    """Write the list of modules, those of the steps, and the file of the whole model.

    Args:
        folder: The folder of the checkpoint.
        first: The modules before the steps. The first of them is in `folder` itself.
        width: Width of the vector before the steps.
        arguments: As for `write_embedding`.
        weights: As for `write_embedding`.
    """
    paths = {f"{number}_{kind}" * bool(number): kind for number, kind in enumerate(first)}
    steps = [*arguments.get("steps", ()), *["normalize"] * arguments["normalize"]]
    for step, names in zip(steps, [*step_weights(arguments), []], strict=False):
        kind = "Normalize" if step == "normalize" else "Dense"
        place = folder / f"{len(paths)}_{kind}"
        paths[place.name] = kind
        if kind == "Dense":
            fields = {"in_features": width, "out_features": step["units"], "bias": step["use_bias"]}
            activation = sbert.ACTIVATIONS[step["activation"]]
            write_json(place / "config.json", {**fields, "activation_function": activation})
            width = step["units"]
            named = zip(sbert.OF_DENSE, names, strict=False)
            arrays = {theirs: np.ascontiguousarray(weights[ours].T) for theirs, ours in named}
            write_safetensors(place / sbert.WEIGHTS_FILE, arrays, {"format": "pt"})
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"{_MODULES}.{kind}"}
        for index, (path, kind) in enumerate(paths.items())
    ]
    write_json(folder / sbert.MODULES_FILE, modules)
    of_model: ConfigDict = {"model_type": "SentenceTransformer"}
    for name, usual in (("prompts", {}), ("default_prompt_name", None), ("truncate_dim", None)):
        of_model[name] = arguments.get(name) or usual
    of_model["similarity_fn_name"] = arguments.get("similarity", "cosine")
    write_json(folder / sbert.MODEL_FILE, of_model)
