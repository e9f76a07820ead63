"""Functions that ask a model take its tokenizer from it, and load it if it is a path or a name."""

import json

import keras
import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS


@pytest.mark.slow
def test_the_tokenizer_comes_with_the_model_and_can_be_replaced(words_bert, words_tokenizer):
    swapped = [*words_tokenizer.vocab.tokens]
    cat, dog = swapped.index("cat"), swapped.index("dog")
    swapped[cat], swapped[dog] = "dog", "cat"
    other = kb.Tokenizer(kb.Vocab(swapped))
    expected = kb.embed(words_bert, "the cat")
    np.testing.assert_array_equal(kb.embed(words_bert, "the dog", tokenizer=other), expected)
    classifier = kb.SequenceClassifier(words_bert, ["a", "b"])
    assert classifier.tokenizer is words_tokenizer
    score = kb.classify(classifier, "the cat").scores["a"]
    assert kb.classify(classifier, "the dog", tokenizer=other).scores["a"] == score
    assert kb.SequenceClassifier(words_bert, ["a", "b"], tokenizer=other).tokenizer is other


@pytest.mark.long
def test_a_keras_file_keeps_the_tokenizer_also_for_another_process(tmp_path, fresh_process):
    vocab = kb.Vocab([*GOOGLE_SPECIALS, "[E1]", "The", "the", "cat"])
    tokenizer = kb.Tokenizer(vocab, lowercase=False, special_tokens=["[E1]"])
    bert = kb.BERTModel(len(vocab), 8, 16, 2, 1, 0.1, 16)
    bert.tokenizer = tokenizer
    model = kb.SequenceClassifier(bert, ["a", "b"])
    model.run_eagerly = True
    model.save(tmp_path / "model.keras")
    texts = ["The [E1]cat", "the cat"]
    expected = model.predict(texts, verbose=0)
    assert not np.allclose(*expected)  # the case matters
    copies = {
        "file": keras.models.load_model(tmp_path / "model.keras", compile=False),
        "clone": keras.models.clone_model(model),
        "configuration": type(model).from_config(model.get_config()),
        "BERT": kb.BERTModel.from_config(bert.get_config()),
    }
    for copy in copies.values():
        assert copy.tokenizer.vocab == vocab
        assert copy.tokenizer.options == tokenizer.options
    scores = [kb.classify(one, "the cat").scores for one in (copies["file"], model)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    found = fresh_process(
        """
        import keras, keras_bert_d2l, sys
        model = keras.models.load_model(sys.argv[1])
        print(model.predict(["The [E1]cat", "the cat"], verbose=0).tolist())
        """,
        tmp_path / "model.keras",
    )
    np.testing.assert_allclose(json.loads(found), expected, atol=1e-6)


@pytest.mark.slow
def test_keras_does_not_track_the_tokenizer_and_it_may_be_missing_or_replaced(words_bert):
    config = words_bert.get_config()
    assert isinstance(config.pop("tokenizer")["vocab"], str)  # fast also for 30,000 tokens
    loaded = kb.BERTModel.from_config(config)  # as of an earlier version
    assert loaded.tokenizer is None
    with pytest.raises(ValueError, match="`tokenizer` must be a Tokenizer. Received: tokenizer=5"):
        loaded.tokenizer = 5
    loaded.tokenizer = kb.Tokenizer(kb.Vocab([*GOOGLE_SPECIALS, "cat"]))
    with pytest.raises(ValueError, match="17 tokens that the model was made for.*6 tokens"):
        kb.fill_mask(loaded, "[MASK]")


@pytest.mark.long
def test_the_model_may_be_a_folder_or_a_name(words_bert, tmp_path, local_hub):
    tagger = kb.TokenClassifier(words_bert, ["a", "b"])
    embedder = kb.TextEmbedder(words_bert, pooling="cls")
    for name, model in (("bert", words_bert), ("tagger", tagger), ("cls", embedder)):
        kb.save_pretrained(model, tmp_path / name)
    local_hub.add("someone/tiny", tmp_path / "bert")
    expected = kb.fill_mask(words_bert, "the [MASK] sat")
    assert kb.fill_mask(tmp_path / "bert", "the [MASK] sat") == expected
    assert kb.fill_mask("someone/tiny", "the [MASK] sat") == expected
    assert [one.word for one in kb.tag(str(tmp_path / "tagger"), "the cat")] == ["the", "cat"]
    vector = kb.embed(tmp_path / "cls", "the cat")
    np.testing.assert_allclose(vector, kb.embed(embedder, "the cat"), atol=1e-6)
    with pytest.raises(ValueError, match="Received: a TokenClassifier"):
        kb.classify(tmp_path / "tagger", "the cat")
    words = kb.WordExamples(words=[["the", "cat"]], labels=[["a", "b"]])
    expected = kb.evaluate(tagger, words).metrics
    assert kb.evaluate(tmp_path / "tagger", words).metrics == expected
    with pytest.raises(ValueError, match="must be a TokenClassifier. Received: a BERTModel"):
        kb.evaluate(str(tmp_path / "bert"), words)
    texts = {"text": ["the cat", "the dog"], "text_b": ["cat", "dog"]}
    assert kb.evaluate(tmp_path / "cls", texts).metrics["recall@10"] == 1
