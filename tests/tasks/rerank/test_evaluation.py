import numpy as np
import pytest

import keras_bert_d2l as kb


def test_the_metrics_of_a_known_ranking():
    labels = [[0, 1, 0, 1], [1, 0]]
    scores = [[0.9, 0.8, 0.1, 0.7], [0.2, 0.3]]  # right at 2 and 3; at 2
    found = kb.ranking_metrics(labels, scores)
    discounts = 1 / np.log2([2, 3, 4])
    ndcg = np.mean([(discounts[1] + discounts[2]) / (discounts[0] + discounts[1]), discounts[1]])
    expected = {"ndcg@10": ndcg, "mrr@10": 0.5, "map": ((1 / 2 + 2 / 3) / 2 + 1 / 2) / 2}
    assert found == pytest.approx({**expected, "recall@10": 1.0})


def test_only_the_first_ten_texts_count():
    labels = [[0] * 10 + [1]]
    found = kb.ranking_metrics(labels, [range(11, 0, -1)])
    assert found == pytest.approx({"ndcg@10": 0, "mrr@10": 0, "map": 1 / 11, "recall@10": 0})


@pytest.mark.parametrize("scores", [[0.5, 0.5, 0.5], [np.nan] * 3])
def test_equal_scores_and_those_that_are_not_numbers_find_nothing(scores):
    found = kb.ranking_metrics([[1, 0, 0]], [scores])
    assert found["mrr@10"] == pytest.approx(1 / 3)


def test_a_query_without_a_right_text_counts_as_0():
    found = kb.ranking_metrics([[0, 0.4], [1, 0]], [[0.9, 0.1], [0.9, 0.1]])
    assert set(found.values()) == {0.5}


def test_sizes_must_be_equal():
    with pytest.raises(ValueError, match=r"`scores` must be lists of \[2\] numbers"):
        kb.ranking_metrics([[1, 0]], [[0.5]])
