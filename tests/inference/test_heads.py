import numpy as np
import pytest

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.inference.heads import Prediction, fill_mask, next_sentence_score
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import BOOK_SPECIALS, GOOGLE_SPECIALS, Vocab
from tests.family import tokenizer_of

WORDS = ("red", "green", "blue", "##ish")
MAX_LEN = 8


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(Vocab([*GOOGLE_SPECIALS, *WORDS]))


@pytest.fixture
def model(tokenizer):
    config = BERTConfig(len(tokenizer.vocab), 8, 16, 2, 1, 0.5, MAX_LEN)
    model = BERTModel.from_bert_config(config)
    model.tokenizer = tokenizer
    return model


@pytest.fixture
def guesses(tokenizer, model):
    """Make the model predict fixed probabilities for any text, and return them."""
    probabilities = np.arange(1, len(tokenizer.vocab) + 1) / 45
    kernel, bias = model.mlm.mlp.layers[-1].weights
    kernel.assign(np.zeros(kernel.shape))
    bias.assign(np.log(probabilities))
    return probabilities


def test_predictions_are_the_most_likely_tokens_with_their_probabilities(model, guesses):
    [predictions] = fill_mask(model, "the [MASK] house", top_k=3)
    assert predictions == [
        Prediction("##ish", 8, pytest.approx(9 / 45)),
        Prediction("blue", 7, pytest.approx(8 / 45)),
        Prediction("green", 6, pytest.approx(7 / 45)),
    ]


def test_each_mask_of_each_text_has_its_own_predictions(model):
    texts = ["[MASK] red", "red [MASK] blue [MASK][MASK]", "[MASK]"]
    answers = fill_mask(model, texts, top_k=2)
    assert [[len(predictions) for predictions in masks] for masks in answers] == [
        [2],
        [2, 2, 2],
        [2],
    ]
    assert fill_mask(model, [], top_k=2) == []


def test_a_prediction_is_the_softmax_at_the_position_of_its_mask(model, tokenizer):
    batch = tokenizer("red [MASK] blue [MASK]")
    _, logits, _ = model(**batch, pred_positions=np.array([[2, 4]]))
    expected = np.exp(logits[0]) / np.exp(logits[0]).sum(axis=-1, keepdims=True)  # (P, V)
    answers = fill_mask(model, "red [MASK] blue [MASK]", top_k=9)
    for predictions, probabilities in zip(answers, expected, strict=True):
        assert [prediction.id for prediction in predictions] == list(np.argsort(-probabilities))
        for prediction in predictions:
            assert prediction.score == pytest.approx(probabilities[prediction.id], rel=1e-5)


@pytest.mark.slow
def test_predictions_do_not_depend_on_the_batch_size(model):
    texts = ["red [MASK]", "[MASK] blue green [MASK] red", "blue [MASK] blue"]
    alone = [fill_mask(model, text, top_k=9) for text in texts]
    together = fill_mask(model, texts, top_k=9, batch_size=2)
    for one, other in zip(alone, together, strict=True):
        for predictions, again in zip(one, other, strict=True):
            assert again == [
                Prediction(p.token, p.id, pytest.approx(p.score, rel=1e-5)) for p in predictions
            ]


def test_the_mask_can_be_written_as_in_the_book(model):
    tokenizer = Tokenizer(Vocab([*BOOK_SPECIALS, *WORDS]))
    assert len(fill_mask(model, "red <mask> blue <mask>", tokenizer=tokenizer)) == 2
    with pytest.raises(
        ValueError, match=r"contain a mask, <mask>.*Received: 0 masks, in 'red \[MASK"
    ):
        fill_mask(model, "red [MASK]", tokenizer=tokenizer)


def test_the_error_names_a_text_without_a_mask_or_that_is_too_long(model):
    with pytest.raises(ValueError, match=r"a mask, \[MASK\].*Received: 0 masks, in 'all red'"):
        fill_mask(model, ["[MASK]", "all red", "blue [MASK]"])
    fill_mask(model, "[MASK]" + " red" * (MAX_LEN - 3))
    with pytest.raises(ValueError, match="at most 8 tokens.*9 tokens in '.MASK. red"):
        fill_mask(model, ["[MASK]", "[MASK]" + " red" * (MAX_LEN - 2)], truncate=False)


def test_half_precision_models_return_float32_probabilities_of_all_tokens(tokenizer):
    config = BERTConfig(len(tokenizer.vocab), 8, 16, 2, 1, 0.0, MAX_LEN)
    model = BERTModel.from_bert_config(config, dtype="mixed_bfloat16")
    [predictions] = fill_mask(model, "[MASK]", top_k=9, tokenizer=tokenizer)
    assert {prediction.token for prediction in predictions} == set(tokenizer.vocab.tokens)
    assert sum(prediction.score for prediction in predictions) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("top_k", [0, 10, True, 1.5, "1"])
def test_top_k_must_not_exceed_the_vocabulary_size(top_k, model):
    with pytest.raises(ValueError, match=f"from 1 to the vocabulary size, 9.*top_k={top_k!r}"):
        fill_mask(model, "[MASK]", top_k=top_k)


A = ["the cat sat", "good", "the dog ran on the rug", "bad"]
B = ["on the mat", "bad dogs", "good", "the cat sat on the rug"]


@pytest.mark.slow
def test_a_score_is_the_softmax_of_the_second_logit_for_any_batch_size(words_bert, words_tokenizer):
    expected = []
    for a, b in zip(A, B, strict=True):
        _, _, logits = words_bert(**words_tokenizer(a, b))
        odds = np.exp(logits[0])
        expected.append(odds[1] / odds.sum())
    assert np.std(expected) > 5e-4  # the pairs differ
    scores = next_sentence_score(words_bert, A, B, batch_size=3)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    one = next_sentence_score(words_bert, A[3], B[3])
    assert isinstance(one, float)
    assert one == pytest.approx(expected[3], abs=1e-6)
    assert next_sentence_score(words_bert, [], []).shape == (0,)


def test_models_without_the_head_and_unpaired_texts_are_rejected(words_bert, words_tokenizer):
    def scores(a, b, model=words_bert):
        return next_sentence_score(model, a, b, tokenizer=words_tokenizer, truncate=False)

    with pytest.raises(ValueError, match="a list of 2 and a list of 1"):
        scores(["good", "bad"], ["good"])
    with pytest.raises(ValueError, match="at most 16 tokens.*18 tokens in 'bad bad"):
        scores(["good", "bad " * 7], ["good", "good " * 8])
    with pytest.raises(ValueError, match=r"18 tokens in 'bad \| good good"):
        scores("bad", "good " * 14)
    headless = BERTModel(len(words_tokenizer.vocab), 8, 16, 2, 1, 0.0, 16, next_sentence=False)
    with pytest.raises(ValueError, match=r"trained heads are \['mlm', 'pooler'\]"):
        scores("good", "bad", headless)


def test_spaces_and_parts_of_characters_are_spelled_as_in_the_vocabulary():
    vocab = tokenizer_of("roberta").vocab
    found = [vocab.spelled(vocab[token]) for token in ("Ġcat", "Ġ", "Ċ", "Ã", "<mask>")]
    assert found == [" cat", "Ġ", "Ċ", "Ã", "<mask>"]
