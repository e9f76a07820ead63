"""TokenClassifier: classification of every token.

B batch, T tokens, C labels.
"""

from collections.abc import Sequence

import keras

from keras_bert_d2l.checks import shown
from keras_bert_d2l.models.keras_objects import Training
from keras_bert_d2l.models.losses import WeightedCrossEntropy, label_metrics
from keras_bert_d2l.models.tasks import text_inputs
from keras_bert_d2l.models.tasks.labeled_task import LabeledTask, word_label_ids
from keras_bert_d2l.models.tasks.text_inputs import Batch
from keras_bert_d2l.types import Tensor


@keras.saving.register_keras_serializable("keras_bert_d2l")
class TokenClassifier(LabeledTask):
    """Token classifier, for example for parts of speech or named entities.

    Losses and metrics ignore tokens with the label -100.

    `fit`, `evaluate` and `predict` also take words: `x` contains the words of each text and `y`
    their labels (names or ids), as lists of lists or ragged tensors. The first token of a word
    gets the label of the word; its other tokens are ignored. Texts that are too long for the model
    are truncated: the words beyond `max_len` are neither learned nor scored, and have no
    predictions. `finetune`, `evaluate` of this package and `tag` read all words.

    Source: Devlin et al. 2019, figure 4 (d); transformers, `BertForTokenClassification`.

    Args:
        bert: The pretrained model.
        labels: Label names, in the order of their ids.
        dropout: Dropout rate before the head. `None`: the `dropout` of `bert`.
        tokenizer: Converts words to batches.
        name: Name of the model.

    Call arguments: As for `SequenceClassifier`.

    Returns: Logits `(B, T, C)`. Labels are int `(B, T)`.

    Raises:
        ValueError: There are fewer than two labels.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] ada wrote it".split())
    bert = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", vocab_size=len(vocab)))
    tagger = kb.TokenClassifier(bert, ["noun", "verb", "pronoun"], tokenizer=kb.Tokenizer(vocab))
    tagger.compile(kb.BERTAdamW(2e-5))
    tagger.fit([["ada", "wrote", "it"]], [["noun", "verb", "pronoun"]])
    ```
    """

    task = "tag"
    gives_tokens = has_token_labels = True

    def default_training(self, class_weights: Sequence[float] | None) -> Training:
        return Training(WeightedCrossEntropy(class_weights=class_weights), label_metrics())

    def label_ids(self, y: object) -> Tensor:
        return word_label_ids(y, self.labels)

    def checked_texts(self, x: object, y: Tensor | None = None) -> text_inputs.Texts:
        import tensorflow as tf

        if y is not None and not isinstance(y, tf.RaggedTensor):
            raise ValueError(
                "The labels of words must be a list of labels for each text, or a ragged tensor. "
                f"Received: {shown(y)}."
            )
        texts = text_inputs.as_tensors(x)
        if y is not None:
            text_inputs.check_word_counts(texts, y)
        return texts

    def text_batch(self, texts: text_inputs.Texts) -> Batch:
        return self.tokenizer.from_words(texts, max_len=self.bert_config.max_len)

    def text_targets(
        self, texts: text_inputs.Texts, batch: Batch, labels: Tensor, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        return text_inputs.first_piece_labels(labels, batch["word_ids"]), *weights
