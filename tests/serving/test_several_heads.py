"""Several task models on one encoder: they learn together, and become one export."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb

TEXTS = ["the cat sat", "a bad film"]


def models():
    """Return a classifier and a tagger that share a small BERT."""
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat a bad film".split()
    bert = kb.BERTModel(len(words), 16, 32, 2, 1, 0.0, 16)
    bert.tokenizer = kb.Tokenizer(kb.Vocab(words))
    return {
        "classify": kb.SequenceClassifier(bert, ["a", "b"]),
        "tag": kb.TokenClassifier(bert, ["O", "X"]),
    }


class TwoHeads(keras.Model):
    def __init__(self, heads):
        super().__init__()
        self.heads = heads

    def call(self, batch):
        encoded = self.heads["tag"].encoder(**batch)
        return {name: head.head_outputs(encoded) for name, head in self.heads.items()}


@pytest.mark.long
def test_two_heads_on_one_encoder_learn_together_and_answer_in_one_export(tmp_path):
    keras.utils.set_random_seed(0)
    heads, tags = models(), [["O", "X", "O"], ["X", "O", "X"]]
    classifier, tagger = heads.values()
    batch, tag_ids = tagger.preprocessor([text.split() for text in TEXTS], tags)
    model, labels = TwoHeads(heads), {"classify": np.array([0, 1]), "tag": tag_ids}
    losses = {name: head.default_training(None).loss for name, head in heads.items()}
    model.compile(keras.optimizers.Adam(0.01), losses)
    history = model.fit(batch, labels, epochs=40, verbose=0).history
    assert max(history["classify_loss"][-1], history["tag_loss"][-1]) < 0.05
    folder = str(kb.export_saved_model(heads, tmp_path / "both"))
    loaded = tf.saved_model.load(folder)
    assert set(loaded.signatures) == {"classify", "tag", "serving_default"}
    found = loaded.signatures["classify"](text=tf.constant(TEXTS))
    scores = [one.score for one in kb.classify(classifier, TEXTS)]
    np.testing.assert_allclose(found["score"], scores, atol=1e-6)
    found = loaded.signatures["tag"](text=tf.constant(TEXTS))
    assert found["labels"].numpy().astype(str).tolist() == tags
    saved = tf.train.load_checkpoint(f"{folder}/variables/variables")
    sizes = map(np.prod, filter(None, saved.get_variable_to_shape_map().values()))
    assert sum(sizes) == classifier.count_params() + tagger.head.count_params()


def test_an_export_of_several_models_needs_one_encoder_and_a_tokenizer(tmp_path):
    message = "`model` must be task models with a tokenizer, which share their encoder"
    heads = models()
    with pytest.raises(ValueError, match=message):
        kb.export_saved_model({**heads, "tag": models()["tag"]}, tmp_path)
    heads["classify"].tokenizer = None
    with pytest.raises(ValueError, match=message):
        kb.export_saved_model(heads, tmp_path)
