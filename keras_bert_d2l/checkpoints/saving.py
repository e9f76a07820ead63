"""Save models and tokenizers as checkpoint folders, in this package's format or others."""

import os
from typing import Literal, get_args

import keras

from keras_bert_d2l.checkpoints.checks import check_kind, check_vocabulary
from keras_bert_d2l.checkpoints.detection import FORMATS, open_checkpoint, summary
from keras_bert_d2l.checkpoints.formats import kerashub
from keras_bert_d2l.checkpoints.formats.huggingface.sentence_transformers import (
    MODEL_FILE,
    MODULES_FILE,
    POOLING_FILE,
    TRANSFORMER_FILE,
)
from keras_bert_d2l.checkpoints.formats.huggingface.tokenizer import (
    TOKENIZER_FILES,
    write_tokenizer,
)
from keras_bert_d2l.checkpoints.loading import load_model, with_new_head
from keras_bert_d2l.checks import check_choice, check_that, check_type, shown
from keras_bert_d2l.contract.task import embedder
from keras_bert_d2l.files import CHECKSUMS, check_replaceable, replacing_folder
from keras_bert_d2l.layers.sparse import SparsePooling
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.types import ConfigDict, PathLike

Format = Literal["native", "huggingface", "kerashub", "book"]
Dtype = Literal["float32", "bfloat16"]

_FOR_TASKS = ("native", "huggingface", "kerashub")
_CONFIG_FILE = "config.json"
# The files that `save_pretrained` writes and may therefore replace in a folder.
_REPLACEABLE = {
    *(CHECKSUMS, _CONFIG_FILE, "model.safetensors", *TOKENIZER_FILES),
    *("vocab.json", "pretrained.safetensors"),
    *kerashub.FILES,
    *(MODULES_FILE, MODEL_FILE, TRANSFORMER_FILE, os.path.dirname(POOLING_FILE)),
    *(f"{number}_Dense" for number in range(1, 20)),
}


def save_pretrained(
    model: keras.Model,
    path: PathLike,
    *,
    tokenizer: Tokenizer | None = None,
    format: Format = "native",
    dtype: Dtype = "float32",
) -> None:
    """Save a model and its tokenizer to a folder, completely or not at all.

    An existing checkpoint in the folder is replaced in one step. The training state (optimizer,
    random generators) is not saved, and neither are the random weights of `missing_heads`.

    Args:
        model: A `BERTModel`, or a task model, which is saved with its head and its labels.
        path: The folder to write. It must be new or empty, or contain a checkpoint.
        tokenizer: The tokenizer that the model was trained with. `None` means `model.tokenizer`; if
            that is `None` as well, the model is saved without a vocabulary.
        format: `"native"` keeps everything. The others are for other programs: `"huggingface"`,
            `"kerashub"`, and `"book"`, a state dict for PyTorch in safetensors. Task models can be
            saved in the first three formats. The last does not store compat="huggingface" of a
            tokenizer, and says so in a printed line.
        dtype: `"bfloat16"` halves the file of weights, which keep 8 significant bits. Only for the
            native format. Weights are always loaded as float32.

    Raises:
        ValueError: The format is unknown or cannot express the model or the dtype, the vocabulary
            does not have the model's size, or `path` is the working directory.
        FileExistsError: `path` contains anything other than a checkpoint.
        OSError: The folder cannot be written.

    Example:

    ```python
    import keras_bert_d2l as kb

    config = kb.BERTConfig.preset("tiny", vocab_size=100, activation="gelu")
    model = kb.BERTModel.from_bert_config(config)
    kb.save_pretrained(model, "checkpoints/tiny")
    kb.save_pretrained(model, "checkpoints/tiny-hf", format="huggingface")
    ```
    """
    check_choice("dtype", dtype, get_args(Dtype))
    check_kind(model, BERTModel, TaskModel)
    tokenizer = model.tokenizer if tokenizer is None else tokenizer
    if tokenizer is None:
        _save(model, path, None, {}, format, dtype)
    else:
        check_vocabulary(model, tokenizer)
        _save(model, path, tokenizer.vocab, tokenizer.options, format, dtype)


def check_target(path: PathLike) -> None:
    """Raise the errors of `save_pretrained` for a path at which no checkpoint can be saved."""
    check_replaceable(path, "checkpoint", _REPLACEABLE)


def save_tokenizer(tokenizer: Tokenizer, path: PathLike) -> None:
    """Save a tokenizer with all its options to a folder, completely or not at all.

    `load_tokenizer` restores it exactly. The files are those of Hugging Face, so `AutoTokenizer` of
    transformers reads them, too; it tokenizes like `Tokenizer(compat="huggingface")`.

    Args:
        tokenizer: The tokenizer.
        path: The folder to write. It must be new or empty, or contain only a tokenizer. (To save a
            model with its tokenizer, use `save_pretrained`.)

    Raises:
        ValueError: `tokenizer` is not a `Tokenizer`, or `path` is the working directory.
        FileExistsError: `path` contains anything other than a tokenizer.
        OSError: The folder cannot be written.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] [E1] a film".split())
    kb.save_tokenizer(kb.Tokenizer(vocab, special_tokens=["[E1]"]), "tokenizers/films")
    tokenizer = kb.load_tokenizer("tokenizers/films")
    assert tokenizer.tokenize("a [E1]film").to_list() == [[6, 5, 7]]
    ```
    """
    check_type("tokenizer", tokenizer, Tokenizer, "Create one with `Tokenizer(vocab)`.")
    check_replaceable(path, "tokenizer", {CHECKSUMS, *TOKENIZER_FILES})
    with replacing_folder(path) as temporary:
        write_tokenizer(temporary, tokenizer.vocab, tokenizer.options)


def convert_checkpoint(
    source: PathLike, target: PathLike, format: Format = "native", *, num_heads: int | None = None
) -> None:
    """Convert a checkpoint to a different format and print a one-line summary of it.

    The pooling that a folder of sentence-transformers or a `BertTextEmbedder` of KerasHub defines
    is kept in the formats `"native"`, `"huggingface"` and `"kerashub"`.

    Args:
        source: The checkpoint to read, as for `load_pretrained`.
        target: The folder to write, as for `save_pretrained`.
        format: `"native"` or another one, as for `save_pretrained`.
        num_heads: Number of attention heads, as for `load_pretrained`.

    Raises:
        FileNotFoundError: There is no checkpoint, or one of its files is missing.
        FileExistsError: `target` contains anything other than a checkpoint.
        ValueError: A file is damaged, or the format cannot express the model.

    Example:

    ```python
    import keras_bert_d2l as kb

    config = kb.BERTConfig.preset("tiny", vocab_size=100)
    kb.save_pretrained(kb.BERTModel.from_bert_config(config), "checkpoints/mine")
    kb.convert_checkpoint("checkpoints/mine", "checkpoints/mine-hf", format="huggingface")
    ```
    """
    check_choice("format", format, get_args(Format))
    check_target(target)
    checkpoint = open_checkpoint(source, num_heads)
    embedding = checkpoint.embedding
    unsupported = (embedding or {}).get("unsupported")
    if embedding and (format not in _FOR_TASKS or unsupported):
        raise ValueError(
            f"The format {format!r} cannot store how texts are embedded: "
            f"{unsupported or embedding}. To write the BERT alone, save the model of "
            "`load_pretrained`."
        )
    model: BERTModel | TaskModel = load_model(checkpoint)
    if embedding and (checkpoint.step_weights or not embedding.get("include_special", True)):
        model, embedding = with_new_head(model, embedder(), checkpoint.name, checkpoint, {}), None
    print(summary(checkpoint))
    options = checkpoint.tokenizer_options
    _save(model, target, checkpoint.vocab, options, format, embedding=embedding)


def _save(
    model: BERTModel | TaskModel,
    path: PathLike,
    vocab: Vocab | None,
    tokenizer_options: TokenizerOptions,
    format: str,
    dtype: Dtype = "float32",
    embedding: ConfigDict | None = None,
) -> None:
    check_choice("format", format, get_args(Format))
    check_target(path)
    if format != "native":
        check_that(dtype == "float32", "dtype", f'"float32" for the format {format!r}', dtype)
        sparse = getattr(model, "sparse", SparsePooling())
        expected = f"'native' for a model with {sparse}"
        check_that(sparse == SparsePooling(), "format", expected, format)
    if format not in _FOR_TASKS:
        is_bert = isinstance(model, BERTModel)
        check_that(is_bert, "format", f"one of {_FOR_TASKS} for a task model", format)
        _check_tokenizer(tokenizer_options, format)
        if tokenizer_options.get("compat") == "huggingface":
            print(
                f"The format {format!r} cannot store compat='huggingface': a tokenizer loaded from "
                "it follows Google's rules."
            )
    special: dict[str, object] = {} if embedding is None else {"embedding": embedding}
    special |= {} if dtype == "float32" else {"dtype": dtype}
    with replacing_folder(path) as temporary:
        FORMATS[format].write(model, temporary, vocab, tokenizer_options, **special)


def _check_tokenizer(options: TokenizerOptions, format: str) -> None:
    """Raise a `ValueError` if a tokenizer has options that the format cannot store."""
    kept = {"split_special_tokens": False, "tokenize_chinese_chars": True}
    kept |= {"lowercase": True, "strip_accents": True}
    for name, value in options.items():
        expected = f"one of {_FOR_TASKS} for a tokenizer with {name}={shown(value)}"
        is_kept = name == "compat" or value in (None, kept.get(name))
        check_that(is_kept, "format", expected, format)
