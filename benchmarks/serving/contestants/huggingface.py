"""Hugging Face: the text classification pipeline in PyTorch with default settings."""

from transformers import pipeline

from benchmarks.serving.contestants import turns

options = turns.arguments().parse_args()
ask = pipeline("text-classification", model=str(options.model), device="cpu")
second = ask.model.config.id2label[1]


def answer(texts: list[str]) -> list[float]:
    found = ask(texts, batch_size=len(texts))
    return [one["score"] if one["label"] == second else 1 - one["score"] for one in found]


turns.take_turns(answer, options)
