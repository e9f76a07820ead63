"""Fine-tune a BERT to label every word of a text, then tag a new sentence.

    python examples/05_tag_words.py CHECKPOINT train.conllu dev.conllu [COLUMN]
    python examples/05_tag_words.py                              # toy data, takes a minute

The files are in CoNLL-U format (COLUMN is UPOS, XPOS or another column) or CoNLL format: one word
with its label per line, and a blank line after each sentence. Without arguments, a small model is
trained from scratch to find people and places in toy sentences.
"""

import itertools
import pathlib
import sys

import keras

import keras_bert_d2l as kb

TOY = pathlib.Path("runs/toy_names")
PEOPLE = ["ada", "grace hopper", "alan turing", "emmy noether"]
PLACES = ["paris", "new york", "london", "rio de janeiro"]


# %% Make toy sentences
def tagged(words: str, kind: str) -> list[str]:
    """Return one line per word of a name, labeled B- for the first word and I- for the others."""
    first, *others = words.split()
    return [f"{first} B-{kind}", *(f"{word} I-{kind}" for word in others)]


def make_toy() -> tuple[pathlib.Path, ...]:
    """Write toy sentences (a fifth of them as development data) and an untrained BERT."""
    sentences = [
        [*tagged(person, "PER"), *(f"{word} O" for word in verb.split()), *tagged(place, "LOC")]
        for person, verb, place in itertools.product(
            PEOPLE, ["lived in", "went to", "has never seen", "dreams of"], PLACES
        )
    ]
    TOY.mkdir(parents=True, exist_ok=True)
    for name, part in (
        ("dev", sentences[::5]),
        ("train", [s for n, s in enumerate(sentences) if n % 5]),
    ):
        (TOY / f"{name}.conll").write_text("\n\n".join("\n".join(lines) for lines in part) + "\n")
    words = sorted({line.split()[0] for lines in sentences for line in lines})
    vocab = kb.Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    config = kb.BERTConfig.preset("tiny", vocab_size=len(vocab), max_len=32)
    kb.save_pretrained(
        kb.BERTModel.from_bert_config(config), TOY / "untrained", tokenizer=kb.Tokenizer(vocab)
    )
    return TOY / "untrained", TOY / "train.conll", TOY / "dev.conll"


# %% Read the examples
keras.utils.set_random_seed(0)
is_toy = len(sys.argv) < 4
checkpoint, *files = make_toy() if is_toy else map(pathlib.Path, sys.argv[1:4])
column = sys.argv[4] if len(sys.argv) > 4 else None

train, dev = (kb.read_examples("tag", file, label=column) for file in files)

# %% Fine-tune
model = kb.TokenClassifier.from_pretrained(checkpoint, labels=train.label_names)
runs = (pathlib.Path(f"runs/tags_{number}") for number in itertools.count(1))
run_dir = next(run for run in runs if not run.exists())
rate = 1e-3 if is_toy else 5e-5  # a pretrained model needs a low learning rate
result = kb.finetune(model, train, dev, run_dir, epochs=8, learning_rate=rate, batch_size=16)

# %% Tag a new sentence
for word in kb.tag(result.model, "Grace Hopper went to New York"):
    print(f"{word.label:6} {word.score:.3f}  {word.word}")
print(f"The model is in {run_dir}/best, the learning curves are in {run_dir}/report.html.")
