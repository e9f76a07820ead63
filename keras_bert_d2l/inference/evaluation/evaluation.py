"""`evaluate`: metrics, predictions and most confident errors of a model on labeled examples."""

import dataclasses
import itertools
import sys
from collections.abc import Iterable, Sequence
from typing import TypeAlias, cast

import numpy as np

from keras_bert_d2l.data.tasks.encoding import as_cosines
from keras_bert_d2l.data.tasks.examples import (
    ChoiceExamples,
    PairExamples,
    QuestionExamples,
    TaskExamples,
    TextExamples,
    WordExamples,
    how_many,
)
from keras_bert_d2l.data.tasks.readers.memory import InMemory
from keras_bert_d2l.inference.asked_model import model_at
from keras_bert_d2l.inference.evaluation import scores
from keras_bert_d2l.inference.evaluation.checks import as_examples, check_examples
from keras_bert_d2l.inference.tasks.answers import (
    AnswerOptions,
    FoundAnswer,
    answer,
    checked_null_threshold,
    fitting_questions,
)
from keras_bert_d2l.inference.tasks.choices import Choice, choose
from keras_bert_d2l.inference.tasks.classification import (
    Classification,
    Regression,
    RowOptions,
    classify,
    regress,
)
from keras_bert_d2l.inference.tasks.retrieval import compare, pair_cosines
from keras_bert_d2l.inference.tasks.tagging import Tag, tag
from keras_bert_d2l.models.tasks import (
    MultipleChoice,
    QuestionAnswerer,
    SequenceClassifier,
    SequenceRegressor,
    TextEmbedder,
    TokenClassifier,
)
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.types import PathLike

Predictions: TypeAlias = (
    list[Classification]
    | list[Regression]
    | list[list[Tag]]
    | list[FoundAnswer]
    | list[Choice]
    | list[float]
)

NUM_MISTAKES = 20
_WORDS_AROUND = 8  # words of context on each side of an incorrectly tagged word


@dataclasses.dataclass(frozen=True)
class Mistake:
    """A wrong prediction.

    Attributes:
        id: The id of the example.
        text: The text of the example: both texts of a pair, an incorrectly tagged `[word]` with its
            context, or the question.
        gold: The correct label, score, tag, answer or second text of a pair.
        predicted: The predicted label, score, tag or answer, the cosine of a pair with a score, or
            the most similar text.
        score: The confidence: the probability of the prediction, or the cosine of the most similar
            text. For a regressor, the absolute error. For pairs with scores, the distance of their
            cosine from the score, after scores outside [-1, 1] are mapped to [0, 1].
    """

    id: str
    text: str
    gold: str
    predicted: str
    score: float


@dataclasses.dataclass(frozen=True)
class Confusion:
    """Confusion matrix: how often each label was predicted for each gold label.

    Attributes:
        labels: The names of the C labels.
        counts: int `(C, C)`, with a row per gold label and a column per predicted label.
    """

    labels: tuple[str, ...]
    counts: np.ndarray

    @classmethod
    def of(
        cls, gold: Iterable[str], predicted: Iterable[str], labels: Sequence[str]
    ) -> "Confusion":
        """Count the pairs of gold and predicted labels."""
        metrics = scores.library("classify")
        counts = metrics.confusion_matrix(list(gold), list(predicted), labels=list(labels))
        return cls(tuple(labels), counts)

    def most_frequent(self, number: int) -> list[tuple[str, str, int]]:
        """Return the most frequent confusions: gold label, predicted label and count."""
        wrong = self.counts - np.diag(np.diag(self.counts))
        order = np.argsort(-wrong, axis=None, kind="stable")[:number]
        pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
        return [
            (self.labels[gold], self.labels[predicted], int(wrong[gold, predicted]))
            for gold, predicted in pairs
            if wrong[gold, predicted]
        ]


@dataclasses.dataclass(frozen=True, repr=False)
class Evaluation:
    """The results of an evaluation.

    Attributes:
        task: `"classify"`, `"regress"`, `"tag"`, `"answer"`, `"choose"` or `"embed"`.
        metrics: The metrics of the task, by name. If some questions have no answer, this includes
            `null_threshold`. If some questions are too long for the model, this includes their
            number, `unread_questions`; they count as unanswered.
        predictions: The results of `classify`, `regress`, `tag` or `choose` for the examples, the
            best `FoundAnswer` to each question, or the cosine of each pair of texts.
        errors: The 20 most confident errors, in descending order of confidence; for scores, the
            20 largest errors.
        confusion: The confusion matrix of classes or tags. `None` for other tasks, or if a text can
            have several labels.
        num_examples: Number of examples.

    Example:

    ```python
    import keras_bert_d2l as kb

    evaluation = kb.Evaluation("regress", {"pearson": 0.9}, [], [], None, num_examples=2)
    evaluation.metrics["pearson"]
    ```
    """

    task: str
    metrics: dict[str, float]
    predictions: Predictions
    errors: list[Mistake]
    confusion: Confusion | None
    num_examples: int

    def __repr__(self) -> str:
        metrics = ", ".join(f"{name}={value:.4g}" for name, value in self.metrics.items())
        return f"Evaluation({self.task!r}, {how_many(self.num_examples, 'example')}, {metrics})"

    @property
    def warning(self) -> str | None:
        """A warning if all predictions are the same label, although the gold labels differ."""
        if self.confusion is None:
            return None
        counts = self.confusion.counts
        gold, predicted = (np.flatnonzero(counts.sum(axis)) for axis in (1, 0))
        if len(predicted) > 1 or len(gold) < 2:
            return None
        return (
            f"The model predicts {self.confusion.labels[predicted[0]]!r} for all "
            f"{how_many(counts.sum(), 'word' if self.task == 'tag' else 'example')}, although "
            f"there are {len(gold)} different labels. Try more epochs, a smaller learning rate, or "
            "class weights that balance the labels."
        )


def evaluate(
    model: TaskModel | PathLike,
    examples: TaskExamples | PathLike | InMemory,
    *,
    batch_size: int = 32,
    max_len: int | None = None,
    overlap: int | None = None,
    max_answer_len: int = 30,
    null_threshold: float | None = None,
) -> Evaluation:
    """Evaluate a model on labeled examples.

    Args:
        model: The model for the task of the examples, with its tokenizer; or its run, its folder,
            or its name on the Hugging Face Hub.
        examples: The examples that `read_examples` returns, with labels, or the path, `DataFrame`,
            `Dataset` or lists that it reads.
        batch_size: Rows per batch.
        max_len: Maximum number of tokens in a row. `None` has the same meaning as for `classify`,
            `regress`, `tag`, `answer` or `choose`. A `TextEmbedder` reads up to its own maximum.
        overlap: Overlap of the windows of long contexts, as for `answer`.
        max_answer_len: As for `answer`.
        null_threshold: As for `answer`, if some questions have no answer. `None` means the best
            threshold for these examples, which is appropriate for development data.

    Raises:
        FileNotFoundError: There is no checkpoint of this name, or no file.
        ImportError: scikit-learn or scipy is not installed.
        ValueError: There are no examples, they have no labels or belong to a different task, or
            the model lacks one of their labels.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a good bad film".split()))
    bert = kb.BERTModel(9, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    classifier = kb.SequenceClassifier(bert, ["bad", "good"], tokenizer=tokenizer)
    examples = kb.TextExamples(texts=["a good film", "a bad film"], labels=["good", "bad"])
    evaluation = kb.evaluate(classifier, examples)
    print(evaluation.metrics["accuracy"])
    kb.print_evaluation(evaluation)
    ```
    """
    model = cast(TaskModel, model_at(model))
    examples = cast(TaskExamples, as_examples(model, examples))
    check_examples(model, examples)
    rows: RowOptions = {"batch_size": batch_size, "max_len": max_len}
    if isinstance(examples, QuestionExamples):
        threshold = checked_null_threshold(null_threshold)
        options: AnswerOptions = {**rows, "overlap": overlap, "max_answer_len": max_answer_len}
        return _evaluate_answers(cast(QuestionAnswerer, model), examples, threshold, options)
    if isinstance(examples, WordExamples):
        return _evaluate_tags(cast(TokenClassifier, model), examples, rows)
    if isinstance(examples, PairExamples):
        evaluate_pairs = _evaluate_retrieval if examples.labels is None else _evaluate_cosines
        return evaluate_pairs(cast(TextEmbedder, model), examples, batch_size)
    if isinstance(examples, ChoiceExamples):
        return _evaluate_choices(cast(MultipleChoice, model), examples, rows)
    examples = cast(TextExamples, examples)
    if isinstance(model, SequenceRegressor):
        return _evaluate_scores(model, examples, rows)
    return _evaluate_labels(cast(SequenceClassifier, model), examples, rows)


def _evaluate_labels(
    model: SequenceClassifier, examples: TextExamples, options: RowOptions
) -> Evaluation:
    found = classify(model, examples.texts, examples.texts_b, **options)
    gold: tuple[tuple[str, ...], ...]
    confusion, mistakes = None, []
    if examples.multi_label:
        gold = cast("tuple[tuple[str, ...], ...]", examples.labels)
        metrics = scores.multi_label_scores(gold, [one.labels for one in found], model.labels)
    else:
        names, predicted = cast("tuple[str, ...]", examples.labels), [one.label for one in found]
        gold = tuple((name,) for name in names)
        metrics = scores.classification_scores(names, predicted, model.labels)
        confusion = Confusion.of(names, predicted, model.labels)
    for name, text, right, one in zip(
        examples.ids, shown_texts(examples), gold, found, strict=True
    ):
        wrong = set(right) ^ set(one.labels)
        if wrong:
            confidences = [one.scores[x] if x in one.labels else 1 - one.scores[x] for x in wrong]
            confidence = max(confidences) if examples.multi_label else one.score
            listed = [", ".join(sorted(names)) for names in (right, one.labels)]
            mistakes.append(Mistake(name, text, listed[0], listed[1], confidence))
    return _evaluation(examples, metrics, found, mistakes, confusion)


def _evaluate_scores(
    model: SequenceRegressor, examples: TextExamples, options: RowOptions
) -> Evaluation:
    found = regress(model, examples.texts, examples.texts_b, **options)
    gold = cast("tuple[float, ...]", examples.labels)
    mistakes = [
        Mistake(name, text, f"{score:g}", f"{one.score:.4g}", abs(one.score - score))
        for name, text, score, one in zip(
            examples.ids, shown_texts(examples), gold, found, strict=True
        )
        if one.score != score
    ]
    metrics = scores.regression_scores(gold, [one.score for one in found])
    return _evaluation(examples, metrics, found, mistakes)


def _evaluate_choices(
    model: MultipleChoice, examples: ChoiceExamples, options: RowOptions
) -> Evaluation:
    found = choose(model, examples.texts, examples.choices, **options)
    gold = examples.labels or ()
    mistakes = [
        Mistake(name, text, choices[label], one.choice, one.score)
        for name, text, choices, label, one in zip(
            examples.ids, examples.texts, examples.choices, gold, found, strict=True
        )
        if one.index != label
    ]
    accuracy = 1 - len(mistakes) / len(found)
    return _evaluation(examples, {"accuracy": accuracy}, found, mistakes)


def _evaluate_cosines(model: TextEmbedder, examples: PairExamples, batch_size: int) -> Evaluation:
    cosines, gold = pair_cosines(model, examples, batch_size), examples.labels or ()
    correlations = scores.regression_scores(cast("tuple[float, ...]", gold), cosines.tolist())
    mistakes = [
        Mistake(name, text, f"{score:g}", f"{cosine:.4g}", error)
        for name, text, score, cosine, error in zip(
            *(examples.ids, shown_texts(examples), gold, cosines),
            np.abs(cosines - as_cosines(gold)).tolist(),
            strict=True,
        )
    ]
    metrics = {name: correlations[name] for name in ("spearman", "pearson")}
    return _evaluation(examples, metrics, cosines.tolist(), mistakes)


def _evaluate_retrieval(model: TextEmbedder, examples: PairExamples, batch_size: int) -> Evaluation:
    candidates, comparisons = compare(model, examples, batch_size)
    ranks, cosines, mistakes = [], [], []
    for name, anchor, right, (cosine, others) in zip(
        examples.ids, examples.texts, examples.texts_b or (), comparisons, strict=True
    ):
        # Ties count as errors, so that a model whose vectors are all equal finds nothing.
        # A model whose vectors are not numbers finds nothing, either.
        ranks.append(1 + int((~(others < cosine)).sum()))
        cosines.append(cosine)
        if ranks[-1] > 1:
            nearest = int(others.argmax())
            score = float(others[nearest])
            mistakes.append(Mistake(name, anchor, right, candidates[nearest], score))
    return _evaluation(examples, scores.retrieval_scores(ranks), cosines, mistakes)


def _evaluate_tags(
    model: TokenClassifier, examples: WordExamples, options: RowOptions
) -> Evaluation:
    found = tag(model, examples.words, **options)
    gold, predicted = examples.labels or (), [[one.label for one in tags] for tags in found]
    mistakes = [
        Mistake(name, _in_context(words, place), label, one.label, one.score)
        for name, words, labels, tags in zip(examples.ids, examples.words, gold, found, strict=True)
        for place, (label, one) in enumerate(zip(labels, tags, strict=True))
        if one.label != label
    ]
    metrics = scores.tagging_scores(gold, predicted, model.labels)
    of_words = itertools.chain.from_iterable
    confusion = Confusion.of(of_words(gold), of_words(predicted), model.labels)
    return _evaluation(examples, metrics, found, mistakes, confusion)


def _evaluate_answers(
    model: QuestionAnswerer,
    examples: QuestionExamples,
    null_threshold: float | None,
    options: AnswerOptions,
) -> Evaluation:
    gold = [[one.text for one in answers] for answers in examples.answers or ()]
    fits = fitting_questions(model, examples.questions, options["max_len"], options["overlap"])
    # If no question fits, `answer` raises the error.
    read = np.flatnonzero(fits) if fits.any() else np.arange(len(examples))
    answered, threshold = _answers(
        model, examples.subset(read), [gold[row] for row in read], null_threshold, options
    )
    found = [FoundAnswer("", 0.0, 0, 0, 0.0, 0.0)] * len(examples)
    for row, one in zip(read.tolist(), answered, strict=True):
        found[row] = one
    mistakes = [
        Mistake(name, question, " | ".join(dict.fromkeys(answers)), one.text, one.score)
        for name, question, answers, one in zip(
            examples.ids, examples.questions, gold, found, strict=True
        )
        if not scores.exact_match(answers, one.text)
    ]
    metrics = scores.answer_scores(gold, [one.text for one in found])
    if threshold is not None:
        metrics["null_threshold"] = threshold
    if len(read) < len(examples):
        metrics["unread_questions"] = float(len(examples) - len(read))
    return _evaluation(examples, metrics, found, mistakes)


def _answers(
    model: QuestionAnswerer,
    examples: QuestionExamples,
    gold: list[list[str]],
    null_threshold: float | None,
    options: AnswerOptions,
) -> tuple[list[FoundAnswer], float | None]:
    """Return the answer to each question, and the no-answer threshold if there is one."""
    asked, contexts = examples.questions, examples.contexts
    if null_threshold is None and all(gold):
        return [best for [best] in answer(model, asked, contexts, **options)], None
    # With this threshold, the first result is "no answer" and the second is the best answer.
    options = {**options, "top_k": 2, "null_threshold": -sys.float_info.max}
    pairs = answer(model, asked, contexts, **options)
    # A context without tokens has only "no answer".
    margins = [results[-1].null_margin for results in pairs]
    if null_threshold is None:
        best = [results[-1].text for results in pairs]
        null_threshold = scores.best_null_threshold(gold, best, margins)
    found = [
        results[0] if margin > null_threshold else results[-1]
        for results, margin in zip(pairs, margins, strict=True)
    ]
    return found, null_threshold


def _evaluation(
    examples: TaskExamples,
    metrics: dict[str, float],
    predictions: Predictions,
    mistakes: list[Mistake],
    confusion: Confusion | None = None,
) -> Evaluation:
    worst = sorted(mistakes, key=lambda mistake: -mistake.score)[:NUM_MISTAKES]
    return Evaluation(examples.task, metrics, predictions, worst, confusion, len(examples))


def shown_texts(examples: TextExamples) -> Sequence[str]:
    """Return each text, or both texts of each pair."""
    if examples.texts_b is None:
        return examples.texts
    return [" | ".join(pair) for pair in zip(examples.texts, examples.texts_b, strict=True)]


def _in_context(words: Sequence[str], place: int) -> str:
    before, after = words[max(0, place - _WORDS_AROUND) : place], words[place + 1 :]
    return " ".join([*before, f"[{words[place]}]", *after[:_WORDS_AROUND]])
