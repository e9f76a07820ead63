"""Names of Hugging Face's weights, including old spellings and duplicates in old files.

Source: github.com/huggingface/transformers, `models/bert/modeling_bert.py`. Dense kernels have the
shape `(out, in)`, and column 0 of the next-sentence logits means "is next".
"""

import os
import pathlib

import numpy as np

from keras_bert_d2l.checkpoints.formats.huggingface.config import head_name
from keras_bert_d2l.checkpoints.formats.task_fields import TaskFields, parts_of
from keras_bert_d2l.checkpoints.weights import tables
from keras_bert_d2l.checkpoints.weights.arrays import NamedArrays
from keras_bert_d2l.checkpoints.weights.safetensors_files import open_safetensors
from keras_bert_d2l.checkpoints.weights.tables import first_few
from keras_bert_d2l.checks import shown
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.reading import read_json_object

WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"

MLM_BIAS, DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"
_DECODER = "cls.predictions.decoder.weight"
_TOKEN_EMBEDDING = "bert.embeddings.word_embeddings.weight"
_NAMES: tables.Names = {
    "encoder/token_embedding": "bert.embeddings.word_embeddings",
    "encoder/segment_embedding": "bert.embeddings.token_type_embeddings",
    "encoder/pos_embedding": ("bert.embeddings.position_embeddings.weight", tables.POSITIONS),
    "encoder/embedding_ln": "bert.embeddings.LayerNorm",
    "encoder/blk_{}/attention/W_q": "bert.encoder.layer.{}.attention.self.query",
    "encoder/blk_{}/attention/W_k": "bert.encoder.layer.{}.attention.self.key",
    "encoder/blk_{}/attention/W_v": "bert.encoder.layer.{}.attention.self.value",
    "encoder/blk_{}/attention/W_o": "bert.encoder.layer.{}.attention.output.dense",
    "encoder/blk_{}/addnorm1/ln": "bert.encoder.layer.{}.attention.output.LayerNorm",
    "encoder/blk_{}/ffn/dense1": "bert.encoder.layer.{}.intermediate.dense",
    "encoder/blk_{}/ffn/dense2": "bert.encoder.layer.{}.output.dense",
    "encoder/blk_{}/addnorm2/ln": "bert.encoder.layer.{}.output.LayerNorm",
    "hidden": "bert.pooler.dense",
    "mlm/mlp/dense": "cls.predictions.transform.dense",
    "mlm/mlp/ln": "cls.predictions.transform.LayerNorm",
    "mlm/mlp/logits": "cls.predictions.decoder",
    "mlm/bias": MLM_BIAS,
    "nsp/dense/kernel": ("cls.seq_relationship.weight", tables.SWAPPED_TRANSPOSED),
    "nsp/dense/bias": ("cls.seq_relationship.bias", tables.SWAPPED),
}
# Constant buffers that old versions stored like weights.
_BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")


def table(config: BERTConfig, task: TaskFields | None) -> list[tables.Row]:
    """Return a row for every weight, with the name that transformers writes."""
    head = head_name(task) if task else None
    names = {**_NAMES, "head": head} if head else _NAMES
    return tables.expand(config, names, tables.TORCH_ENDINGS, parts_of(task))


class Weights:
    """The weights of a folder, under the names that its files use.

    Old files use `gamma` and `beta` for the weight and bias of a normalization. Files of a bare
    `BertModel` omit the prefix `bert.`. Some files store a second copy of tied weights.

    Args:
        stored: The arrays of the files.

    Attributes:
        arrays: The arrays that are weights of the model, without buffers and duplicates.
    """

    def __init__(self, stored: NamedArrays) -> None:
        self._names = stored.shapes
        self._prefix = "bert." if any(n.startswith("bert.") for n in self._names) else ""
        # The two biases are equal in transformers unless the head is untied. In that case, only the
        # decoder bias takes effect.
        self._bias = DECODER_BIAS if DECODER_BIAS in self._names else MLM_BIAS
        copies = {self.spelled(name) for name in _BUFFERS}
        copies |= {MLM_BIAS, DECODER_BIAS} - {self._bias}
        self.arrays = stored.select({name: name for name in self._names if name not in copies})

    def spelled(self, name: str) -> str:
        """Return the name that a weight has, or would have, in the files."""
        if name in (MLM_BIAS, DECODER_BIAS):
            return self._bias
        if name.startswith("bert."):
            name = self._prefix + name.removeprefix("bert.")
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        old = old.replace("LayerNorm.bias", "LayerNorm.beta")
        return old if old in self._names else name

    def has(self, beginning: str) -> bool:
        """Return whether there is a weight whose name starts with this prefix."""
        return any(name.startswith(self.spelled(beginning)) for name in self._names)

    def discard(self, beginning: str) -> None:
        """Discard the weights whose names start with this prefix."""
        prefix = self.spelled(beginning)
        kept = {name: name for name in self.arrays.shapes if not name.startswith(prefix)}
        self.arrays = self.arrays.select(kept)

    def discard_tied_copy(self) -> bool:
        """Discard the kernel of the MLM head if it is a copy of the token embedding.

        Returns:
            Whether the kernel is a copy or absent.
        """
        if _DECODER not in self._names:
            return True
        token_embedding = self.spelled(_TOKEN_EMBEDDING)
        if self._names[_DECODER] != self._names.get(token_embedding) or not np.array_equal(
            self.arrays.read(_DECODER), self.arrays.read(token_embedding)
        ):
            return False
        self.discard(_DECODER)
        return True


def open_weights(path: pathlib.Path) -> NamedArrays:
    """Open the weights of a folder: one safetensors file, or several files with an index.

    Raises:
        FileNotFoundError: The folder contains no weights, or a file is missing.
        ValueError: A file is damaged, or all weights are pickled.
    """
    if (path / WEIGHTS_FILE).is_file():
        return open_safetensors([path / WEIGHTS_FILE])
    if (path / INDEX_FILE).is_file():
        return _open_shards(path / INDEX_FILE)
    pickles = [file.name for ending in ("bin", "pt", "pth") for file in path.glob(f"*.{ending}")]
    if pickles:
        raise ValueError(
            f"{os.fspath(path)!r} has its weights in {first_few(pickles)}. These are Python "
            "pickles, which can run arbitrary code when they are read, so this package does not "
            "read them. If you trust their source, convert them to safetensors in an environment "
            "with PyTorch and transformers, with the class that has the same heads: "
            "`BertForPreTraining.from_pretrained(folder).save_pretrained(other_folder)`."
        )
    raise FileNotFoundError(
        f"{os.fspath(path)!r} has no weights: neither {WEIGHTS_FILE} nor {INDEX_FILE}."
    )


def _open_shards(index: pathlib.Path) -> NamedArrays:
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(
            f'{os.fspath(index)!r} must have an object "weight_map" that maps weights to files. '
            f"Received: {shown(weight_map)}."
        )
    names = sorted(set(map(str, weight_map.values())))
    for name in names:
        if pathlib.PurePath(name).name != name:  # a path could point outside the folder
            raise ValueError(
                f"{os.fspath(index)!r} must name files in its own folder. Received: {shown(name)}."
            )
    stored = open_safetensors([index.parent / name for name in names])
    absent = weight_map.keys() - stored.shapes.keys()
    if absent:
        raise ValueError(
            f"{os.fspath(index)!r} lists weights that its files do not contain: "
            f"{first_few(absent)}. The files belong to a different model: copy all of them again."
        )
    return stored
