"""TokenClassifier: classification of every token.

B batch, T tokens, C labels.
"""

import keras

from keras_bert_d2l.contract.task import lazy
from keras_bert_d2l.models.tasks.labeled_task import LabeledTask, word_label_ids
from keras_bert_d2l.types import Tensor


@keras.saving.register_keras_serializable("keras_bert_d2l")
class TokenClassifier(LabeledTask):
    """Token classifier, for example for parts of speech or named entities.

    Losses and metrics ignore tokens with the label -100.

    `fit`, `evaluate` and `predict` also take words: `x` contains the words of each text and `y`
    their labels (names or ids), as lists of lists or ragged tensors. The first token of a word
    gets the label of the word; its other tokens are ignored. A text that is too long for the model
    gives several rows, which overlap by half; each word counts in one of them. `predict` returns
    one row per window, in order; `model.preprocessor.rows(words)["windows"]` says which text each
    belongs to. Use `tag` to get labels as text.

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
    preprocessing = lazy("keras_bert_d2l.tasks.tag.rows:WordPreprocessor")
    gives_tokens = has_token_labels = True
    labels_are = "ids"

    def label_ids(self, y: object) -> Tensor:
        return word_label_ids(y, self.labels)
