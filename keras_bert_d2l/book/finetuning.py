"""Fine-tuning a pretrained model on sentence pairs of SNLI (d2l.ai, section 16.7).

B batch, T tokens, D hidden width.
"""

import csv
import dataclasses
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Self, Unpack

import keras
import numpy as np
import tensorflow as tf

from keras_bert_d2l.book.pretraining_data import PAD, padded
from keras_bert_d2l.book.vocabulary import Vocab, check_vocab, tokenize
from keras_bert_d2l.checkpoints.loading import load_pretrained
from keras_bert_d2l.checks import check_integer, check_path, check_that, check_type, shown, wrong
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.tokenizer.framing import get_tokens_and_segments
from keras_bert_d2l.types import ConfigDict, LayerOptions, PathLike, Tensor

# Archives of the book's two pretrained models and their SHA-1 hashes. They are never downloaded.
DATA_HUB = {
    "bert.base": ("bert.base.torch.zip", "225d66f04cae318b841a13d32af3acc165f253ac"),
    "bert.small": ("bert.small.torch.zip", "c72329e68a732bef0452e4b96a1c341c8910f81f"),
}

SNLI_LABELS = {"entailment": 0, "contradiction": 1, "neutral": 2}
_SNLI_COLUMNS = ("gold_label", "sentence1_binary_parse", "sentence2_binary_parse")


def load_pretrained_model(
    pretrained_model: PathLike,
    num_hiddens: int,
    ffn_num_hiddens: int,
    num_heads: int,
    num_blks: int,
    dropout: float,
    max_len: int,
    devices: Sequence[object] = (),
) -> tuple[BERTModel, Vocab]:
    """Load a pretrained model and its vocabulary from a local folder.

    The folder has the book's layout (`vocab.json`, and the parameters in `pretrained.params`, as in
    the book's archives, `pretrained.safetensors` or `pretrained.npz`) or any other format of
    `kb.load_pretrained`. The book downloads an archive by its name in `DATA_HUB`; this function
    downloads nothing.

    The book's PyTorch edition has a bug: it ignores `num_heads`, `num_blks` and `dropout`, so
    `bert.base` cannot be loaded. Here the sizes must match the model in the folder, and `dropout`
    is applied.

    Args:
        pretrained_model: The folder.
        num_hiddens: Hidden width D.
        ffn_num_hiddens: Width of the feed-forward layers.
        num_heads: Number of attention heads per block.
        num_blks: Number of blocks.
        dropout: Dropout rate of the returned model. It may differ from the rate in the folder.
        max_len: Maximum sequence length.
        devices: Unused; accepted because the book passes it.

    Returns:
        The model and the vocabulary.

    Raises:
        FileNotFoundError: The folder does not exist.
        ValueError: The folder contains no vocabulary or a damaged file, or a size differs from the
            model's.

    Example:

    ```python
    import keras_bert_d2l as kb
    from keras_bert_d2l import book as d2l

    net = d2l.BERTModel(8, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat".split()))
    kb.save_pretrained(net, "small", tokenizer=tokenizer)
    bert, vocab = d2l.load_pretrained_model("small", 16, 32, 2, 1, 0.1, 16)
    ```
    """
    check_path("pretrained_model", pretrained_model)
    folder = pathlib.Path(pretrained_model)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"`pretrained_model` must be a local folder with a checkpoint. Received: "
            f"{str(folder)!r}. Nothing is downloaded: unpack the book's archive."
        )
    pretrained = load_pretrained(folder, num_heads=num_heads, verbose=False)
    if pretrained.tokenizer is None:
        raise ValueError(
            f"{str(folder)!r} contains no vocabulary. Add the book's vocab.json to it, or save the "
            "model with its tokenizer: `save_pretrained(model, path, tokenizer=tokenizer)`."
        )
    sizes = {
        "num_hiddens": num_hiddens,
        "ffn_num_hiddens": ffn_num_hiddens,
        "num_blks": num_blks,
        "max_len": max_len,
    }
    for name, size in sizes.items():
        found = getattr(pretrained.config, name)
        check_that(size == found, name, f"{found}, as in the model in {str(folder)!r}", size)
    bert = BERTModel.from_bert_config(dataclasses.replace(pretrained.config, dropout=dropout))
    bert.set_weights(pretrained.model.get_weights())
    vocab = Vocab()
    vocab.idx_to_token = list(pretrained.tokenizer.vocab.tokens)
    vocab.token_to_idx = {token: idx for idx, token in enumerate(vocab.idx_to_token)}
    return bert, vocab


def read_snli(data_dir: PathLike, is_train: bool) -> tuple[list[str], list[str], list[int]]:
    r"""Read SNLI from the text files of its official archive.

    Pairs that the annotators disagreed on (label "-") are skipped.

    Args:
        data_dir: Folder with `snli_1.0_train.txt` and `snli_1.0_test.txt`.
        is_train: Whether to read the training file instead of the test file.

    Returns:
        Premises, hypotheses and labels (0 entailment, 1 contradiction, 2 neutral). Words and
        punctuation marks are separated by single spaces.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file does not have the columns of SNLI.

    Example:
        >>> import pathlib
        >>> from keras_bert_d2l import book as d2l
        >>> names = "gold_label", "sentence1_binary_parse", "sentence2_binary_parse"
        >>> rows = names, ("neutral", "( A ( cat sat ) )", "( It slept )")
        >>> text = "\n".join("\t".join(row) for row in rows)
        >>> size = pathlib.Path("snli_1.0_test.txt").write_text(text)
        >>> d2l.read_snli(".", is_train=False)
        (['A cat sat'], ['It slept'], [2])
    """
    check_path("data_dir", data_dir)
    path = pathlib.Path(data_dir, f"snli_1.0_{'train' if is_train else 'test'}.txt")
    if not path.is_file():
        raise FileNotFoundError(
            f"No {path.name} in {os.fspath(data_dir)!r}. Nothing is downloaded: pass the folder of "
            "an unpacked SNLI 1.0 as `data_dir`."
        )
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        missing = [name for name in _SNLI_COLUMNS if name not in (rows.fieldnames or ())]
        if missing:
            raise ValueError(
                f"{str(path)!r} must start with a line of tab-separated column names, including "
                f"{missing[0]!r}. Received: {shown(rows.fieldnames)}."
            )
        labeled = [row for row in rows if row["gold_label"] in SNLI_LABELS]
    premises = [_words(row["sentence1_binary_parse"]) for row in labeled]
    hypotheses = [_words(row["sentence2_binary_parse"]) for row in labeled]
    return premises, hypotheses, [SNLI_LABELS[row["gold_label"]] for row in labeled]


def _words(parse: str) -> str:
    """Return the words of a binary parse such as `( ( A crane ) ( is flying ) )`."""
    return " ".join(re.sub(r"[()]", "", parse).split())


class SNLIBERTDataset:
    """Sentence pairs as BERT input sequences of equal length.

    Pairs that are too long lose tokens at the end of the longer sentence, or of the hypothesis if
    both have the same length. The attributes contain all examples. `dataset[i]` is
    `((token_ids, segments, valid_len), label)`, and `batches` returns a dataset for `fit`.

    Args:
        dataset: Premises, hypotheses and labels, as `read_snli` returns them.
        max_len: Sequence length T, at least 3.
        vocab: The vocabulary of the pretrained model.

    Raises:
        ValueError: `vocab` is missing, `max_len` is below 3, or the lengths of `dataset` differ.

    Example:
        >>> from keras_bert_d2l import book as d2l
        >>> specials = ["<pad>", "<mask>", "<cls>", "<sep>"]
        >>> vocab = d2l.Vocab(["a", "cat"], reserved_tokens=specials)
        >>> dataset = d2l.SNLIBERTDataset((["A cat"], ["A cat"], [0]), 8, vocab)
        read 1 examples
        >>> dataset.valid_lens.tolist()
        [7]
    """

    def __init__(
        self,
        dataset: tuple[Sequence[str], Sequence[str], Sequence[int]],
        max_len: int,
        vocab: Vocab | None = None,
    ) -> None:
        vocab = check_vocab(vocab)
        check_integer("max_len", max_len, 3)
        is_right = isinstance(dataset, list | tuple) and len(dataset) == 3
        expected = "a tuple of premises, hypotheses and labels, as `read_snli` returns them"
        check_that(is_right, "dataset", expected, dataset)
        premises, hypotheses, labels = dataset
        is_right = len(premises) == len(hypotheses) == len(labels)
        expected = "as many premises as hypotheses and labels"
        check_that(is_right, "dataset", expected, [*map(len, dataset)])
        self.vocab = vocab
        self.max_len = max_len
        self.labels = np.asarray(labels, np.int32)
        sides = (tokenize([text.lower() for text in texts]) for texts in (premises, hypotheses))
        rows = [
            get_tokens_and_segments(*self._truncate_pair_of_tokens(*pair))
            for pair in zip(*sides, strict=True)
        ]
        ids = [vocab[tokens] for tokens, _ in rows]
        self.all_token_ids = padded(ids, max_len, vocab[PAD], "tokens", np.int32)  # (examples, T)
        self.all_segments = padded([row for _, row in rows], max_len, 0, "segments", np.int32)
        self.valid_lens = np.asarray([len(row) for row in ids], np.int32)
        print(f"read {len(self)} examples")

    def _truncate_pair_of_tokens(
        self, p_tokens: list[str], h_tokens: list[str]
    ) -> tuple[list[str], list[str]]:
        len_p, len_h = len(p_tokens), len(h_tokens)
        while len_p + len_h > self.max_len - 3:  # reserves <cls> and two <sep>
            if len_p > len_h:
                len_p -= 1
            else:
                len_h -= 1
        return p_tokens[:len_p], h_tokens[:len_h]

    def __getitem__(self, idx: int) -> tuple[tuple[np.ndarray, np.ndarray, np.int32], np.int32]:
        example = (self.all_token_ids[idx], self.all_segments[idx], self.valid_lens[idx])
        return example, self.labels[idx]

    def __len__(self) -> int:
        return len(self.all_token_ids)

    def batches(self, batch_size: int, *, seed: int | None = None) -> tf.data.Dataset:
        """Return a dataset of batches `((token ids, segments, valid lengths), labels)`.

        Args:
            batch_size: Number of examples per batch. The last batch may be smaller.
            seed: Random seed for shuffling, with a new order in every epoch. `None`: the examples
                are not shuffled.
        """
        check_integer("batch_size", batch_size, 1)
        check_integer("seed", 0 if seed is None else seed, 0)
        examples = (self.all_token_ids, self.all_segments, self.valid_lens)
        dataset = tf.data.Dataset.from_tensor_slices((examples, self.labels))
        if seed is not None:
            dataset = dataset.shuffle(len(self), seed=seed)
        return dataset.batch(batch_size).prefetch(tf.data.AUTOTUNE)


@keras.saving.register_keras_serializable("keras_bert_d2l")
class BERTClassifier(keras.Model):
    """A pretrained encoder and pooler with a new output layer for three classes.

    The classifier shares the encoder and the pooler with `bert`, so training the classifier also
    trains `bert`. The book calls the last layer `output`, which is a reserved name in Keras. Here
    it is called `output_layer`.

    Args:
        bert: The pretrained model.

    Call arguments:
        inputs: `(tokens, segments, valid_lens)`: int `(B, T)`, int `(B, T)`, `(B,)`.
        training: Whether to apply dropout.

    Output shape: logits, `(B, 3)`.

    Example:
        >>> import numpy as np
        >>> from keras_bert_d2l import book as d2l
        >>> net = d2l.BERTModel(50, 8, 16, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
        >>> tokens = np.ones((2, 6), "int32")
        >>> logits = d2l.BERTClassifier(net)((tokens, 0 * tokens, np.array([6, 4])))
        >>> tuple(logits.shape)
        (2, 3)
    """

    def __init__(self, bert: BERTModel, **kwargs: Unpack[LayerOptions]) -> None:
        check_type("bert", bert, BERTModel)
        kwargs.setdefault("dtype", bert.dtype_policy)  # decides whether `fit` scales the loss
        # Disable autocast: lengths may be floats, and bfloat16 would round 257 to 256.
        super().__init__(autocast=False, **kwargs)
        if bert.hidden is None:
            raise wrong("bert", "a model with a pooler, whose output is classified", bert)
        self.bert_config = bert.bert_config
        self.encoder = bert.encoder
        self.hidden = bert.hidden
        self.output_layer = keras.layers.Dense(
            len(SNLI_LABELS), dtype=bert.dtype_policy, name="output_layer"
        )
        self.output_layer.build((None, bert.bert_config.num_hiddens))
        self.built = True

    def call(self, inputs: tuple[Tensor, Tensor, Tensor], training: bool | None = None) -> Tensor:
        tokens_X, segments_X, valid_lens_x = inputs
        encoded_X = self.encoder(tokens_X, segments_X, valid_lens_x, training=training)
        return self.output_layer(self.hidden(encoded_X[:, 0, :]))

    def get_config(self) -> ConfigDict:
        return {"name": self.name, "bert_config": self.bert_config.to_dict()}

    @classmethod
    def from_config(cls, config: ConfigDict, custom_objects: object = None) -> Self:
        bert = BERTModel.from_bert_config(BERTConfig.from_dict(config["bert_config"]))
        return cls(bert, name=config["name"])
