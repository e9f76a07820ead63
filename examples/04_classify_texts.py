"""Fine-tune a BERT text classifier and classify two new texts.

    python examples/04_classify_texts.py CHECKPOINT reviews.tsv   # columns "label" and "text"
    python examples/04_classify_texts.py                          # toy data, takes a minute

CHECKPOINT is any folder that `kb.load_pretrained` reads: a Hugging Face or Google checkpoint, or
`best/` in a pretraining run folder. Without arguments, the script generates toy reviews and trains
a small model from scratch.
"""

import itertools
import pathlib
import sys

import keras

import keras_bert_d2l as kb

TOY = pathlib.Path("runs/toy_reviews")
OPINIONS = {"good": ["great", "lovely", "a joy"], "bad": ["dull", "a bore", "awful"]}


# %% Make toy reviews
def make_toy() -> tuple[pathlib.Path, pathlib.Path]:
    """Write toy reviews and a small untrained BERT with their words in its vocabulary."""
    rows = [
        f"{label}\tthe {thing} {verb} {adverb} {opinion} ."
        for label, opinions in OPINIONS.items()
        for thing, verb, adverb, opinion in itertools.product(
            ["film", "book", "play", "song"], ["is", "was"], ["quite", "really"], opinions
        )
    ]
    TOY.mkdir(parents=True, exist_ok=True)
    (TOY / "reviews.tsv").write_text("\n".join(["label\ttext", *rows]) + "\n")
    vocab = kb.learn_vocab(kb.Corpus.open(TOY / "reviews.tsv", layout="lines"), size=100)
    config = kb.BERTConfig.preset("tiny", vocab_size=len(vocab), max_len=32)
    model = kb.BERTModel.from_bert_config(config)
    kb.save_pretrained(model, TOY / "untrained", tokenizer=kb.Tokenizer(vocab))
    return TOY / "untrained", TOY / "reviews.tsv"


# %% Read and split the examples
keras.utils.set_random_seed(0)
is_toy = len(sys.argv) < 3
checkpoint, file = make_toy() if is_toy else map(pathlib.Path, sys.argv[1:3])

examples = kb.read_examples("classify", file)
train, dev = kb.split_examples(examples, 0.2)  # duplicate texts stay in the same part

# %% Fine-tune
model = kb.SequenceClassifier.from_pretrained(checkpoint, labels=train.label_names)
runs = (pathlib.Path(f"runs/{file.stem}_{number}") for number in itertools.count(1))
run_dir = next(run for run in runs if not run.exists())
rate, epochs = (1e-3, 15) if is_toy else (5e-5, 3)  # a pretrained model needs a low learning rate
result = kb.finetune(
    model, train, dev, run_dir, epochs=epochs, learning_rate=rate, batch_size=16, monitor="val_loss"
)

# %% Evaluate and classify
kb.print_evaluation(kb.evaluate(result.model, dev))
for text in ("the film was a joy .", "a bore , really ."):
    found = kb.classify(result.model, text)
    print(f"{found.label} {found.score:.3f}  {text}")
print(f"The model is in {run_dir}/best, the learning curves are in {run_dir}/report.html.")
