"""Read and write the checkpoint folders of google-research/bert.

A folder contains

- `bert_config.json`: the architecture, in the fields of `modeling.BertConfig`;
- `vocab.txt`: one token per line;
- `bert_model.ckpt.index` and `bert_model.ckpt.data-00000-of-00001`, under this or a different
  prefix: the variables under their names in `modeling.py` and `run_pretraining.py`, and in
  checkpoints of a training run also the optimizer state;
- often `checkpoint`, which names the latest prefix.

The files do not record the graph, the case of the vocabulary or the kind of model.

Source: github.com/google-research/bert, modeling.py, run_pretraining.py and optimization.py.
"""

import dataclasses
import os
import pathlib
import warnings
from collections.abc import Mapping

from keras_bert_d2l.checkpoints import weights
from keras_bert_d2l.checkpoints.formats import foreign_config, tensorflow_folder
from keras_bert_d2l.checkpoints.formats.checkpoint import Checkpoint, parts_of
from keras_bert_d2l.checkpoints.formats.tensorflow_folder import CONFIG_FILE, PREFIX, VOCAB_FILE
from keras_bert_d2l.checkpoints.tensorflow_files import open_tf, write_tf1
from keras_bert_d2l.checkpoints.weights import Names, Row
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import write_json, write_text
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.types import ConfigDict

# Dense kernels have the shape (in, out), as in Keras, except the kernel of the next-sentence head.
# Column 0 of its logits means "is next".
_NAMES: Names = {
    "encoder/token_embedding": "bert/embeddings/word_embeddings",
    "encoder/segment_embedding": "bert/embeddings/token_type_embeddings",
    "encoder/pos_embedding": ("bert/embeddings/position_embeddings", weights.POSITIONS),
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
    "nsp/dense/kernel": ("cls/seq_relationship/output_weights", weights.SWAPPED_TRANSPOSED),
    "nsp/dense/bias": ("cls/seq_relationship/output_bias", weights.SWAPPED),
}

_SIGNATURE = "bert/embeddings/word_embeddings"
# The heads of run_classifier.py and run_squad.py.
_CLASSIFIER, _SQUAD, _POOLER = "output_weights", "cls/squad/output_weights", "bert/pooler/"
# The state of Google's optimizer and of tf.train.AdamOptimizer: two slots for every variable, the
# number of steps, and powers.
_SLOTS = ("/adam_m", "/adam_v", "/Adam", "/Adam_1")
_STEPS = ("global_step", "beta1_power", "beta2_power")


def table(config: BERTConfig, task: ConfigDict | None = None) -> list[Row]:
    """Return a row with Google's name and layout for every weight."""
    kernel = _SQUAD if task and task["kind"] == "QuestionAnswerer" else _CLASSIFIER
    head: Names = {
        "head/kernel": (kernel, weights.TRANSPOSED),
        "head/bias": kernel.replace("weights", "bias"),
    }
    return weights.expand(config, {**_NAMES, **head}, weights.TENSORFLOW_ENDINGS, parts_of(task))


def _task(shapes: Mapping[str, tuple[int, ...]]) -> ConfigDict | None:
    """Return the task of a checkpoint, whose labels have no names, or `None`."""
    if _SQUAD in shapes:
        return {"kind": "QuestionAnswerer"}
    is_sentence = _CLASSIFIER in shapes
    return tensorflow_folder.sentence_task(shapes[_CLASSIFIER][0]) if is_sentence else None


def config_to_json(config: BERTConfig, path: pathlib.Path) -> None:
    """Write a `bert_config.json`.

    A warning is issued if a dropout rate cannot be stored. The outputs do not depend on it.

    Raises:
        ValueError: The format cannot express the architecture. The message names the field.
    """
    fields = {
        **foreign_config.their_fields(config, foreign_config.BERT_FIELDS),
        "hidden_act": {"gelu_tanh": "gelu"}.get(config.activation, config.activation),
    }
    foreign_config.check_kept(
        config, foreign_config.from_bert_fields(fields), "google-research/bert"
    )
    write_json(path, fields, sort_keys=True)


def recognizes(path: pathlib.Path) -> bool:
    """Return whether a folder or a checkpoint prefix looks like Google's."""
    if path.is_dir():
        return os.path.lexists(path / CONFIG_FILE) or bool(tensorflow_folder.prefixes(path))
    names = [file.name for file in path.parent.glob("*.*")]
    start = f"{path.name}.data-"
    return f"{path.name}.index" in names or any(name.startswith(start) for name in names)


def describe(
    path: pathlib.Path, num_heads: int | None = None, *, tokenizer: bool = True
) -> Checkpoint:
    """Locate the files of a checkpoint and read everything except the weights.

    No file records whether the vocabulary is lowercase, so this is inferred from the tokens.

    Args:
        path: The folder, whose top-level checkpoint is used, or a prefix such as
            `.../bert_model.ckpt`. The configuration and the vocabulary may also be in the parent
            folder, as they are for the step checkpoints of a training run.
        num_heads: Not used. The configuration records it.
        tokenizer: Whether to read the files of the tokenizer.

    Raises:
        FileNotFoundError: The checkpoint or `bert_config.json` is missing.
        ValueError: A file is damaged.
    """
    prefix = tensorflow_folder.find_prefix(path)
    config_file = tensorflow_folder.find_config(prefix, CONFIG_FILE)
    config = foreign_config.read_bert_config(config_file)
    vocab, options = tensorflow_folder.read_vocab(config_file.parent) if tokenizer else (None, {})
    arrays = open_tf(prefix)
    weights.check_extent(config, arrays)
    names = [name for name in arrays.shapes if not name.endswith((*_SLOTS, *_STEPS))]
    wrapper = weights.wrapper_prefix(arrays, _SIGNATURE)
    arrays = arrays.select({name.removeprefix(wrapper): name for name in names})
    task = _task(arrays.shapes)
    if task and "hidden" not in parts_of(task):  # run_squad.py does not use it
        arrays = arrays.select({x: x for x in arrays.shapes if not x.startswith(_POOLER)})
        config = dataclasses.replace(config, pooler=False, next_sentence=False)
    return Checkpoint(
        description=f"google-research/bert, TF1 checkpoint{weights.without_prefix(wrapper)}",
        config=config,
        table=table(config, task),
        arrays=arrays,
        task=task,
        vocab=vocab,
        tokenizer_options=options,
    )


def write(
    model: BERTModel, folder: pathlib.Path, vocab: Vocab | None, tokenizer_options: TokenizerOptions
) -> None:
    """Write a model as Google's own code would save it, without optimizer state.

    The same model always produces the same bytes. The format cannot store the tokenizer's options.
    `lowercase` corresponds to Google's flag `--do_lower_case`.

    Raises:
        ValueError: The format cannot express the model.
    """
    config_to_json(model.bert_config, folder / CONFIG_FILE)
    write_tf1(folder / PREFIX, weights.stored_weights(model, table(model.bert_config)))
    state = f'model_checkpoint_path: "{PREFIX}"\nall_model_checkpoint_paths: "{PREFIX}"\n'
    write_text(folder / "checkpoint", state)
    if vocab is not None:
        vocab.to_file(folder / VOCAB_FILE)
        lowercase = tokenizer_options.get("lowercase", True)
        if lowercase != tensorflow_folder.is_lowercase(vocab):
            warnings.warn(
                f"The tokenizer has lowercase={lowercase}, which this format does not record and "
                "which cannot be inferred from the vocabulary. Set it when you load the checkpoint "
                f"(Google's flag: --do_lower_case={lowercase}).",
                stacklevel=2,
            )
