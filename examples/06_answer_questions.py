"""Fine-tune a BERT to answer questions about a text, then ask it three questions.

    python examples/06_answer_questions.py CHECKPOINT train-v1.1.json [dev-v1.1.json]
    python examples/06_answer_questions.py                       # toy data, takes a few minutes

The files are in SQuAD format, or JSON lines with "question", "context" and "answers". Without a
development file, a fifth of the training articles is held out. Without arguments, a small model is
trained from scratch on toy sentences about who went where and when.
"""

import itertools
import json
import pathlib
import sys

import keras

import keras_bert_d2l as kb

TOY = pathlib.Path("runs/toy_questions")
PEOPLE, PLACES = ["ada", "grace", "alan", "emmy", "mary"], ["paris", "london", "oslo", "rome"]
MONTHS = ["may", "june", "july"]


# %% Make toy questions
def make_toy() -> list[pathlib.Path]:
    """Write three questions about each of 60 toy sentences, and an untrained BERT."""
    rows = []
    for person, place, month in itertools.product(PEOPLE, PLACES, MONTHS):
        context = f"in {month} {person} went to {place} ."
        asked = {"who went there ?": person, "where was that ?": place, "when was that ?": month}
        for question, answer in asked.items():
            answers = {"text": [answer], "answer_start": [context.index(answer)]}
            rows.append({"question": question, "context": context, "answers": answers})
    TOY.mkdir(parents=True, exist_ok=True)
    (TOY / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [*PEOPLE, *PLACES, *MONTHS, *"in went to . who where when there was that ?".split()]
    vocab = kb.Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    config = kb.BERTConfig(len(vocab), 64, 128, num_heads=2, num_blks=2, dropout=0.0, max_len=32)
    kb.save_pretrained(
        kb.BERTModel.from_bert_config(config), TOY / "untrained", tokenizer=kb.Tokenizer(vocab)
    )
    return [TOY / "untrained", TOY / "train.jsonl"]


# %% Read the examples
keras.utils.set_random_seed(0)
is_toy = len(sys.argv) < 3
checkpoint, *files = make_toy() if is_toy else map(pathlib.Path, sys.argv[1:4])

train, *others = (kb.read_examples("answer", file) for file in files)
train, dev = (train, others[0]) if others else kb.split_examples(train, 0.2)

# %% Fine-tune
model = kb.QuestionAnswerer.from_pretrained(checkpoint)
runs = (pathlib.Path(f"runs/answers_{number}") for number in itertools.count(1))
run_dir = next(run for run in runs if not run.exists())
rate, epochs, rows = (2e-3, 12, 8) if is_toy else (5e-5, 2, 32)
result = kb.finetune(model, train, dev, run_dir, epochs=epochs, learning_rate=rate, batch_size=rows)

# %% Ask
context = "in june alan went to rome ."
for question in ("who went there ?", "where was that ?", "when was that ?"):
    [best] = kb.answer(result.model, question, context)
    print(f"{question} {best.text!r} ({best.score:.3f}), characters {best.start} to {best.end}")
print(f"The model is in {run_dir}/best, the learning curves are in {run_dir}/report.html.")
