"""Several task models on one encoder: they learn together, and become one export."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from tests.family import WORDS

TEXTS = ["the cat sat", "a bad film"]


def models():
    """Return a classifier and a tagger that share a small BERT."""
    words = dict.fromkeys(map(str.lower, WORDS))
    tokenizer = kb.Tokenizer(kb.Vocab([*"[PAD] [UNK] [CLS] [SEP] [MASK]".split(), *words]))
    bert = kb.BERTModel(len(tokenizer.vocab), 16, 32, 2, 1, 0.0, 16)
    bert.tokenizer = tokenizer
    return kb.SequenceClassifier(bert, ["a", "b"]), kb.TokenClassifier(bert, ["O", "X"])


class TwoHeads(keras.Model):
    def __init__(self, classifier, tagger):
        super().__init__()
        self.classifier, self.tagger = classifier, tagger

    def call(self, batch):
        encoded = self.classifier.encoder(**batch)
        parts = {"classify": self.classifier, "tag": self.tagger}
        return {name: part.head_outputs(encoded) for name, part in parts.items()}


@pytest.mark.slow
def test_two_heads_on_one_encoder_learn_together_and_answer_in_one_export(tmp_path):
    keras.utils.set_random_seed(0)
    classifier, tagger = models()
    words, tags = [text.split() for text in TEXTS], [["O", "X", "O"], ["X", "O", "X"]]
    batch, tag_ids = tagger.preprocessor(words, tags)
    model, labels = TwoHeads(classifier, tagger), {"classify": np.array([0, 1]), "tag": tag_ids}
    losses = {"classify": classifier, "tag": tagger}
    losses = {name: part.default_training(None).loss for name, part in losses.items()}
    model.compile(keras.optimizers.Adam(0.01), losses)
    history = model.fit(batch, labels, epochs=40, verbose=0).history
    assert max(history["classify_loss"][-1], history["tag_loss"][-1]) < 0.05
    own = {id(weight) for weight in (*classifier.weights, *tagger.weights)}
    assert len(own) == len({id(weight) for weight in model.weights}) == len(model.weights)
    assert [one.label for one in kb.classify(classifier, TEXTS)] == ["a", "b"]
    assert [[one.label for one in row] for row in kb.tag(tagger, TEXTS)] == tags

    heads = {"classify": classifier, "tag": tagger}
    folder = kb.export_saved_model(heads, tmp_path / "both")
    loaded = tf.saved_model.load(str(folder))
    assert set(loaded.signatures) == {"classify", "tag", "serving_default"}
    found = loaded.signatures["classify"](text=tf.constant(TEXTS))
    scores = [one.score for one in kb.classify(classifier, TEXTS)]
    np.testing.assert_allclose(found["score"], scores, atol=1e-6)
    found = loaded.signatures["tag"](text=tf.constant(TEXTS))
    assert found["labels"].numpy().astype(str).tolist() == tags
    read = classifier.count_params() + tagger.head.count_params()
    saved = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    shapes = [
        shape for name, shape in saved.get_variable_to_shape_map().items() if "GRAPH" not in name
    ]
    assert sum(int(np.prod(shape)) for shape in shapes if shape) == read


def test_an_export_of_several_models_needs_one_encoder_and_a_tokenizer(tmp_path):
    (classifier, tagger), (_, other) = models(), models()
    with pytest.raises(ValueError, match="`model` must be task models that share their encoder"):
        kb.export_saved_model({"classify": classifier, "tag": other}, tmp_path)
    classifier.tokenizer = None
    with pytest.raises(ValueError, match="`tokenizer` must be one for strings"):
        kb.export_saved_model({"classify": classifier, "tag": tagger}, tmp_path)
