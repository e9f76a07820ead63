"""The contents of a checkpoint, in the same form for every format."""

from collections.abc import Sequence
from typing import NamedTuple

from keras_bert_d2l.checkpoints.formats.task_fields import TaskArguments, TaskFields
from keras_bert_d2l.checkpoints.weights.tables import NamedArrays, Row
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.vocab import Vocab


class Checkpoint(NamedTuple):
    """Everything in a checkpoint except the values of its weights.

    Attributes:
        description: The format and the kind of model, for summaries.
        config: The architecture.
        table: A row for every weight of that architecture.
        arrays: The weights, which are read on demand.
        vocab: The vocabulary, or `None` if the folder has none.
        tokenizer_options: The options of the tokenizer that uses the vocabulary.
        task: The task of the model, or `None` for a `BERTModel`.
        unsupported: What the tokenizer of the folder has that ours does not support.
        embedding: How the folder defines the embedding of a text, or `None`.
        name: The path of the checkpoint or its name on the Hub, for messages.
    """

    description: str
    config: BERTConfig
    table: Sequence[Row]
    arrays: NamedArrays
    vocab: Vocab | None
    tokenizer_options: TokenizerOptions
    task: TaskFields | None = None
    unsupported: str = ""
    embedding: TaskArguments | None = None
    name: str = ""
