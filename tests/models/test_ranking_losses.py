import numpy as np
import pytest

import keras_bert_d2l as kb

QUERIES = np.array([0, 0, 0, 1, 1])
LABELS = np.stack([QUERIES, [1, 0, 0, 0, 1]], axis=1)


def scores(*values):
    return np.array(values, "float32")[:, None]


def test_the_lambda_loss_of_one_pair_is_its_weighted_cross_entropy():
    # The best text has the gain 1 at rank 1. Below it, both weights are 1 - 1 / log2(3).
    labels, change = np.array([[7, 1], [7, 0]]), 1 - 1 / np.log2(3)
    found = kb.LambdaLoss()(labels, scores(0.5, 0.0))
    assert float(found) == pytest.approx(11 * change * np.log2(1 + np.exp(-0.5)), rel=1e-6)


def test_texts_of_different_queries_are_not_compared():
    first = kb.LambdaLoss()(LABELS[:3], scores(1, 2, 3))
    both = kb.LambdaLoss()(LABELS, scores(1, 2, 3, 4, 5))
    shifted = kb.LambdaLoss()(LABELS, scores(1, 2, 3, 104, 105))
    second = kb.LambdaLoss()(LABELS[3:], scores(4, 5))
    assert float(both) == pytest.approx((2 * float(first) + float(second)) / 3, rel=1e-6)
    assert float(shifted) == pytest.approx(float(both), rel=1e-6)


@pytest.mark.parametrize("loss", [kb.LambdaLoss(), kb.MarginMSELoss()])
def test_a_text_of_weight_0_is_ignored(loss):
    outputs, weights = scores(1, 2, 3, 4, 5), np.array([1, 1, 0, 1, 1], "float32")
    kept = [0, 1, 3, 4]
    found = loss(LABELS, outputs, weights)
    assert float(found) == pytest.approx(float(loss(LABELS[kept], outputs[kept])), rel=1e-6)


@pytest.mark.parametrize("loss", [kb.LambdaLoss(), kb.MarginMSELoss()])
def test_a_batch_without_pairs_has_the_loss_0(loss):
    assert float(loss(np.array([[0, 1], [1, 0]]), scores(3, 5))) == 0


def test_margins_are_those_between_the_first_text_of_a_query_and_the_others():
    teacher = np.array([[0, 5.0], [0, 3.0], [0, 1.0], [1, 0.0], [1, 9.0]])
    found = kb.MarginMSELoss()(teacher, scores(1, 0, 0, 2, 1))
    assert float(found) == pytest.approx(((2 - 1) ** 2 + (4 - 1) ** 2 + (-9 - 1) ** 2) / 3)


def test_the_first_vector_of_a_query_is_compared_with_those_of_its_texts():
    vectors = np.array([[2.0, 0.0], [3.0, 0.0], [0.0, 5.0]], "float32")
    teacher = np.array([[4, -1.0], [4, 1.0], [4, 0.0]])
    for similarity, margin in (("dot", 6), ("cosine", 1)):
        found = kb.MarginMSELoss(similarity)(teacher, vectors)
        assert float(found) == pytest.approx((margin - 1) ** 2)
    with pytest.raises(ValueError, match="`similarity` must be"):
        kb.MarginMSELoss("manhattan")
    assert kb.MarginMSELoss.from_config(kb.MarginMSELoss("dot").get_config()).similarity == "dot"
