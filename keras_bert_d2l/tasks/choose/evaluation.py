"""Evaluate choices: the share of texts whose choice is right, and the most confident errors."""

from keras_bert_d2l.inference.evaluation.evaluation import Evaluation, Mistake, evaluation_of
from keras_bert_d2l.tasks.choose.examples import ChoiceExamples
from keras_bert_d2l.tasks.choose.model import MultipleChoice
from keras_bert_d2l.tasks.choose.predictions import choose
from keras_bert_d2l.tasks.task import EvaluationOptions


def evaluate_choices(
    model: MultipleChoice, examples: ChoiceExamples, options: EvaluationOptions
) -> Evaluation:
    """Evaluate choices."""
    found = choose(
        model,
        examples.texts,
        examples.choices,
        batch_size=options["batch_size"],
        max_len=options["max_len"],
    )
    gold = examples.labels or ()
    mistakes = [
        Mistake(name, text, choices[label], one.choice, one.score)
        for name, text, choices, label, one in zip(
            examples.ids, examples.texts, examples.choices, gold, found, strict=True
        )
        if one.index != label
    ]
    accuracy = 1 - len(mistakes) / len(found)
    return evaluation_of(examples, {"accuracy": accuracy}, found, mistakes)
