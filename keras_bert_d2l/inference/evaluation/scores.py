"""Gold and predicted labels, scores, tags or answers in, figures of quality from 0 to 1 out.

All are fractions, where other programs print percents, but for the squared error and for
correlations and Matthews's coefficient, which go from -1 to 1.
"""

import collections
import importlib
import re
import string
import types
import warnings
from collections.abc import Sequence

import numpy as np

from keras_bert_d2l.inference.evaluation.entities import has_scheme, span_scores

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")

_LIBRARIES = {"classify": "sklearn.metrics", "regress": "scipy.stats"}  # by task


def classification_scores(
    gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]
) -> dict[str, float]:
    """Returns how well texts are classified that have one label each.

    Args:
        gold: The right label of each text.
        predicted: The predicted label of each.
        labels: The labels of the model, in the order of their ids.

    Returns: `accuracy`; `macro_f1`, the mean of F1 over the labels that occur on either side;
        `matthews`, the correlation coefficient; and of two labels `f1`, that of the second.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: There is nothing to score, or the two are not equally many.
    """
    _check_counts(gold, predicted)
    metrics = _library(_LIBRARIES["classify"])
    gold, predicted = list(gold), list(predicted)
    with warnings.catch_warnings():  # of a single label, for which Matthews's coefficient is 0
        warnings.simplefilter("ignore")
        scores = {
            "accuracy": _accuracy(gold, predicted),
            "macro_f1": metrics.f1_score(gold, predicted, average="macro", zero_division=0.0),
            "matthews": metrics.matthews_corrcoef(gold, predicted),
        }
        if len(labels) == 2:
            scores["f1"] = metrics.f1_score(
                gold, predicted, labels=labels[1:], average="macro", zero_division=0.0
            )
    return {name: float(score) for name, score in scores.items()}


def multi_label_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], labels: Sequence[str]
) -> dict[str, float]:
    """Returns how well texts are classified that have any number of labels.

    Args:
        gold: The right labels of each text.
        predicted: The predicted labels of each.
        labels: The labels of the model.

    Returns: `subset_accuracy`, the share of texts of which all labels are right; `micro_f1`, F1
        of all decisions together; `macro_f1`, the mean of F1 over all labels, 0 for one that
        occurs on neither side.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: There is nothing to score, or the two are not equally many.
    """
    _check_counts(gold, predicted)
    metrics = _library(_LIBRARIES["classify"])
    of_gold, of_predicted = (
        np.array([[label in row for label in labels] for row in map(set, rows)], "int32")
        for rows in (gold, predicted)
    )
    # Of a single column scikit-learn would score having the label and not having it as two classes.
    columns = [1] if len(labels) == 1 else None
    return {
        "subset_accuracy": float((of_gold == of_predicted).all(axis=1).mean()),
        **{
            f"{average}_f1": float(
                metrics.f1_score(
                    of_gold, of_predicted, labels=columns, average=average, zero_division=0.0
                )
            )
            for average in ("micro", "macro")
        },
    }


def regression_scores(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """Returns how well scores of texts are predicted.

    Args:
        gold: The right score of each text.
        predicted: The predicted score of each.

    Returns: `pearson` and `spearman`, the correlations of values and of ranks, 0 where one side
        is constant; and `mean_squared_error`.

    Raises:
        ImportError: scipy is not installed.
        ValueError: There is nothing to score, or the two are not equally many.
    """
    _check_counts(gold, predicted)
    stats = _library(_LIBRARIES["regress"])
    of_gold, of_predicted = np.asarray(gold, "float64"), np.asarray(predicted, "float64")
    scores = {"pearson": 0.0, "spearman": 0.0}
    if min(np.ptp(of_gold), np.ptp(of_predicted)) > 0:
        with warnings.catch_warnings():  # of values that are all but constant
            warnings.simplefilter("ignore")
            scores["pearson"] = float(stats.pearsonr(of_gold, of_predicted).statistic)
            scores["spearman"] = float(stats.spearmanr(of_gold, of_predicted).statistic)
    return {**scores, "mean_squared_error": float(np.square(of_gold - of_predicted).mean())}


def tagging_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], labels: Sequence[str]
) -> dict[str, float]:
    """Returns how well the words of texts are tagged.

    Args:
        gold: The right tags of the words of each text.
        predicted: The predicted tags, as many.
        labels: The labels of the model, which tell whether tags mark spans (`B-PER`, `I-PER`,
            `O`) or words alone (`NOUN`).

    Returns: `accuracy` over all words; for tags of spans also `precision`, `recall` and `f1` of
        the spans, as seqeval computes them by default.

    Raises:
        ValueError: There is nothing to score, or the two are not equally many.
    """
    _check_counts(gold, predicted)
    for number, (wanted, found) in enumerate(zip(gold, predicted, strict=True)):
        if len(wanted) != len(found):
            raise ValueError(
                f"Every word has one tag. Received: {len(wanted)} gold and {len(found)} predicted "
                f"tags for text {number}."
            )
    words = [tag for tags in gold for tag in tags]
    if not words:
        raise ValueError("There must be a word to score. Received: texts without words.")
    scores = {"accuracy": _accuracy(words, [tag for tags in predicted for tag in tags])}
    return {**scores, **span_scores(gold, predicted)} if has_scheme(labels) else scores


def answer_scores(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> dict[str, float]:
    """Returns how well questions are answered, as the official script of SQuAD 2.0.

    Source: Rajpurkar et al. 2016 and 2018 (SQuAD). On data of 1.1 the script of 1.1 differs for
    gold answers alone of which normalisation leaves nothing, such as ".".

    Args:
        gold: The right answers to each question, any of which will do; none, where the context
            has no answer.
        predicted: The answer to each question, `""` for none.

    Returns: `exact_match` and `f1` (of the words of an answer, the best over the gold answers);
        where some questions have no answer also `has_answer_exact_match`, `has_answer_f1` and
        `no_answer_accuracy`, for the two kinds of questions.

    Raises:
        ValueError: There is nothing to score, or the two are not equally many.
    """
    _check_counts(gold, predicted)
    pairs = list(zip(gold, predicted, strict=True))
    exact = np.array([exact_match(*pair) for pair in pairs])
    f1 = np.array([answer_f1(*pair) for pair in pairs])
    answerable = np.array([bool(answers) for answers in gold])
    scores = {"exact_match": float(exact.mean()), "f1": float(f1.mean())}
    if answerable.any() and not answerable.all():
        scores["has_answer_exact_match"] = float(exact[answerable].mean())
        scores["has_answer_f1"] = float(f1[answerable].mean())
    if not answerable.all():
        scores["no_answer_accuracy"] = float(exact[~answerable].mean())
    return scores


def exact_match(gold: Sequence[str], predicted: str) -> float:
    """Returns 1 if an answer is, once normalised, one of the gold answers, and 0 otherwise."""
    return float(normalized_answer(predicted) in _normalized_gold(gold))


def answer_f1(gold: Sequence[str], predicted: str) -> float:
    """Returns F1 of the words of an answer and of the gold answer that is most like it."""
    words = normalized_answer(predicted).split()
    return max(_word_f1(answer.split(), words) for answer in _normalized_gold(gold))


def normalized_answer(text: str) -> str:
    """Returns an answer in lower case, without ASCII punctuation, articles and needless spaces."""
    without_punctuation = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", without_punctuation).split())


def best_null_threshold(
    gold: Sequence[Sequence[str]], predicted: Sequence[str], null_margins: Sequence[float]
) -> float:
    """Returns the threshold above which "no answer" is to be preferred, for the best F1.

    Source: the official script of SQuAD 2.0, which calls it `best_f1_thresh`. Of questions with
    equal margins it may part some; here all of them are answered or none.

    Args:
        gold: The right answers to each question; none, where it has no answer.
        predicted: The best answer to each question that is not `""`.
        null_margins: By how much the score of "no answer" is above that of the best answer.

    Returns: one of the margins: questions with a larger one are better left without an answer. If
        all are, it is 1 less than the smallest margin.

    Raises:
        ValueError: There is nothing to score, or the three are not equally many.
    """
    _check_counts(gold, predicted)
    _check_counts(gold, null_margins)
    margins = np.asarray(null_margins, "float64")
    answered = np.array([answer_f1(*pair) for pair in zip(gold, predicted, strict=True)])
    left = np.array([answer_f1(answers, "") for answers in gold])
    order = np.argsort(margins, kind="stable")
    # gains[i]: what answering the i + 1 questions with the smallest margins adds to the sum.
    gains, ordered = np.cumsum((answered - left)[order]), margins[order]
    is_last_of_equals = np.append(ordered[1:] > ordered[:-1], True)
    gains = np.where(is_last_of_equals, gains, -np.inf)
    best = int(np.argmax(gains))
    return float(ordered[best] if gains[best] > 0 else ordered[0] - 1)


def _normalized_gold(gold: Sequence[str]) -> list[str]:
    """The gold answers of which something is left, or the empty one that stands for none."""
    return [text for text in map(normalized_answer, gold) if text] or [""]


def _word_f1(gold: list[str], predicted: list[str]) -> float:
    if not gold or not predicted:
        return float(gold == predicted)
    shared = collections.Counter(gold) & collections.Counter(predicted)
    return 2 * shared.total() / (len(gold) + len(predicted))


def _accuracy(gold: Sequence[str], predicted: Sequence[str]) -> float:
    return sum(map(str.__eq__, gold, predicted)) / len(gold)


def _check_counts(gold: Sequence[object], predicted: Sequence[object]) -> None:
    if not len(gold) or len(gold) != len(predicted):
        raise ValueError(
            "There must be as many predictions as gold values, and at least one. Received: "
            f"{len(gold)} gold values and {len(predicted)} predictions."
        )


def check_libraries(task: str) -> None:
    """Raises an `ImportError` where a library is missing that the scores of a task need."""
    if task in _LIBRARIES:
        _library(_LIBRARIES[task])


def _library(module: str) -> types.ModuleType:
    """The one door to scikit-learn and scipy, which are imported where a score needs them."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            "The scores of tasks need scikit-learn and scipy: "
            f'`pip install "keras-bert-d2l[tasks]"`. The import of {module} failed: {error}'
        ) from error
