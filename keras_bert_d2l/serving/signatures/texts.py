"""The signatures that take strings: what those of all models share.

B: texts in a batch, D: hidden width.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_bert_d2l.serving.signatures.signature import (
    PREDICT,
    TEXT,
    Answer,
    Signature,
    TextOptions,
    traced_once,
)
from keras_bert_d2l.serving.signatures.text_batches import TextBatches
from keras_bert_d2l.serving.signatures.token_ids import ServedModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer


class TextSignatures:
    """String signatures of a model, with a subclass for every kind of model but `TextEmbedder`.

    Texts longer than the model's `max_len` are truncated at the end and flagged in the output
    `truncated` (bool `(B,)`). Padding does not affect the outputs; see `TextBatches`.

    Args:
        run: The model.
        tokenizer: The model's tokenizer.
        options: The options that apply to the kind of model.

    Attributes:
        specs: String inputs of `answer`.
        method: TensorFlow Serving method for the model in addition to `Predict`.
    """

    specs: tuple[tf.TensorSpec, ...] = (TEXT,)
    method: str = PREDICT

    def __init__(self, run: ServedModel, tokenizer: Tokenizer, options: TextOptions) -> None:
        self.run = run
        self.vocab = tokenizer.vocab
        model = run.model
        max_len = model.bert_config.max_len if options.pairs else model.max_row_len
        self.batches = TextBatches(tokenizer, max_len)

    def answer(self, *texts: tf.Tensor) -> Answer:
        """Return the outputs of `serving_default` for strings, each `(B,)`."""
        return self.embed(*texts)

    def for_method(self, answer: Answer) -> Answer:
        """Convert the outputs to the names and shapes that `method` requires."""
        return answer

    def embed(self, text: tf.Tensor) -> Answer:
        """Return one vector per text.

        Args:
            text: Strings `(B,)`.

        Returns: `embedding`, float32 `(B, D)`, as from `keras_bert_d2l.embed`, and `truncated`,
            bool `(B,)`.
        """
        batch, truncated = self.batches(text)
        return {"embedding": self.run(**batch)["embedding"], "truncated": truncated}

    def signatures(self) -> dict[str, Signature]:
        """Return the signatures by name."""
        answer = traced_once(self.answer, self.specs)
        found = {
            "serving_default": self.of_strings(answer, *self.specs),
            "tf_example": self._of_examples(answer),
        }
        if self.run.embeds:
            found["embed"] = self.of_strings(self.embed, TEXT)
        return found

    def of_strings(self, function: Callable[..., Answer], *specs: tf.TensorSpec) -> Signature:
        """Return the signature of a function of string tensors `(B,)`."""
        return Signature(function, specs, (_bytes_array(self._example),) * len(specs))

    def _of_examples(self, answer: Callable[..., Answer]) -> Signature:
        """Return a signature that reads its strings from serialized `tf.train.Example`s."""
        features = {spec.name: tf.io.FixedLenFeature((), tf.string) for spec in self.specs}

        def answer_examples(examples: tf.Tensor) -> Answer:
            parsed = tf.io.parse_example(examples, features)
            return self.for_method(answer(*(parsed[spec.name] for spec in self.specs)))

        # `Classify` and `Regress` require a specific name for their only input.
        name = "examples" if self.method == PREDICT else tf.saved_model.CLASSIFY_INPUTS
        value = tf.train.Feature(bytes_list=tf.train.BytesList(value=[self._example]))
        example = tf.train.Example(
            features=tf.train.Features(feature=dict.fromkeys(features, value))
        )
        return Signature(
            answer_examples,
            (tf.TensorSpec((None,), tf.string, name=name),),
            (_bytes_array(example.SerializeToString()),),
            self.method,
        )

    @property
    def _example(self) -> bytes:
        """Text for warming up a server: a mask, so that `fill_mask` has something to predict."""
        return self.vocab.to_tokens(self.vocab.mask_id).encode()


def _bytes_array(value: bytes) -> np.ndarray:
    return np.array([value], object)
