"""Train two heads on one encoder with one Keras model: classify a sentence and tag its words.

    python examples/08_several_heads.py    # takes a minute

The sentences are generated. One call of `fit` trains both heads, and one export answers both
questions about a string.
"""

import itertools
import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

import keras_bert_d2l as kb

PEOPLE = ["ada", "alan turing", "emmy noether", "grace hopper", "john", "kurt"]
THINGS = ["kettle", "desk lamp", "radio", "road bike", "wall clock"]
STATES = {"leaks": "complaint", "broke": "complaint", "shines": "praise", "works": "praise"}


# %% Make the sentences and their labels
def tagged(words: str, kind: str) -> list[tuple[str, str]]:
    """Return words with tags: B- for the first one and I- for the others."""
    first, *others = words.split()
    return [(first, f"B-{kind}"), *((word, f"I-{kind}") for word in others)]


def outside(words: str) -> list[tuple[str, str]]:
    """Return words that belong to no name."""
    return [(word, "O") for word in words.split()]


rows = [*itertools.product(PEOPLE, ["bought", "got"], THINGS, STATES)]
np.random.default_rng(0).shuffle(rows)
pairs = [
    [
        *tagged(person, "PER"),
        *outside(f"{verb} a"),
        *tagged(thing, "THING"),
        *outside(f"which {state}"),
    ]
    for person, verb, thing, state in rows
]
words = [[word for word, _ in sentence] for sentence in pairs]
tags = [[tag for _, tag in sentence] for sentence in pairs]
kinds = [STATES[state] for *_, state in rows]
print(len(words), "sentences, such as:", " ".join(words[0]), kinds[0], tags[0])

# %% Two task models that share one BERT
keras.utils.set_random_seed(0)
vocab = kb.learn_vocab([[" ".join(sentence) for sentence in words]], size=150)
config = kb.BERTConfig.preset("tiny", vocab_size=len(vocab), max_len=32)
bert = kb.BERTModel.from_bert_config(config)
bert.tokenizer = kb.Tokenizer(vocab)
classifier = kb.SequenceClassifier(bert, ["complaint", "praise"], pooling="mean")
tagger = kb.TokenClassifier(bert, sorted({tag for sentence in tags for tag in sentence}))


# %% One Keras model, in which the encoder runs once
class TwoHeads(keras.Model):
    """The outputs of a classifier and of a tagger that share their encoder."""

    def __init__(self, classifier: kb.SequenceClassifier, tagger: kb.TokenClassifier) -> None:
        super().__init__()
        self.classifier, self.tagger = classifier, tagger

    def call(self, batch: dict, training: bool | None = None) -> dict:
        """Return the logits of both heads for a batch of token ids."""
        encoded = self.classifier.encoder(**batch, training=training)
        is_token = self.classifier.is_token(batch["tokens"], batch["valid_lens"])
        return {
            "classify": self.classifier.head_outputs(encoded, is_token),
            "tag": self.tagger.head_outputs(encoded),
        }


model = TwoHeads(classifier, tagger)

# %% Train both heads with two losses
features, tag_ids = tagger.preprocessor(words, tags)  # -100 for pieces that are not the first
labels = {"classify": np.array([classifier.labels.index(kind) for kind in kinds]), "tag": tag_ids}
train = {name: x[:200] for name, x in features.items()}
held_out = {name: x[200:] for name, x in features.items()}
cross_entropy = keras.losses.SparseCategoricalCrossentropy
model.compile(
    kb.BERTAdamW(1e-3),
    loss={
        "classify": cross_entropy(from_logits=True),
        "tag": cross_entropy(from_logits=True, ignore_class=-100),
    },
    loss_weights={"classify": 1.0, "tag": 1.0},
)
history = model.fit(
    train,
    {name: x[:200] for name, x in labels.items()},
    validation_data=(held_out, {name: x[200:] for name, x in labels.items()}),
    batch_size=20,
    epochs=12,
    verbose=0,
).history
for name in ("classify_loss", "tag_loss", "val_classify_loss", "val_tag_loss"):
    print(f"{name}: {history[name][0]:.3f} in the first epoch, {history[name][-1]:.3f} in the last")

# %% Ask each head
text = "Alan Turing got a desk lamp which broke"
print(kb.classify(classifier, text).label)
for entity in kb.tag(tagger, text, aggregate="first"):
    print(entity.text, entity.label)

# %% One export with two signatures
folder = pathlib.Path(tempfile.mkdtemp())
heads = {"classify": classifier, "tag": tagger}
both = kb.export_saved_model(heads, folder / "both")
alone = kb.export_saved_model(tagger, folder / "alone")


def size(version: pathlib.Path) -> float:
    """Return the size of the weights of an export in MB."""
    return sum(file.stat().st_size for file in (version / "variables").iterdir()) / 1e6


print(f"weights: {size(both):.2f} MB for both, {size(alone):.2f} MB for the tagger alone")
loaded = tf.saved_model.load(str(both))
said = loaded.signatures["classify"](text=tf.constant([text]))
print(said["label"][0].numpy().decode(), round(float(said["score"][0]), 3))
said = loaded.signatures["tag"](text=tf.constant([text]))
print([word.decode() for word in said["labels"][0].numpy()])
