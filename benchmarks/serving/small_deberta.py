"""Train a small DeBERTa-v3 on SST-2 from random weights, to compare its exported forms.

    python -m benchmarks.serving.small_deberta SST2 runs/deberta
    python -m benchmarks.serving.accuracy --classifier runs/deberta --dev SST2/dev.tsv.gz

SST2 has `train.tsv.gz` and `dev.tsv.gz`. The model has 4 blocks of width 256 and a vocabulary of
Unigram with 6,000 tokens; two epochs on 12,000 sentences take about 5 minutes of two cores.
"""

import argparse
import tempfile
from pathlib import Path

import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.data.tasks.read_examples import read_examples

EXAMPLES, EPOCHS, VOCAB_SIZE = 12_000, 2, 6000
SIZES = {"num_hiddens": 256, "ffn_num_hiddens": 1024, "num_heads": 4, "num_blks": 4, "max_len": 128}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with train.tsv.gz")
    parser.add_argument("out", type=Path, help="folder for the checkpoint")
    options = parser.parse_args()
    train = read_examples("classify", options.data / "train.tsv.gz")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "text.txt"
        file.write_text("\n".join(train.texts), encoding="utf-8")
        corpus = kb.Corpus.open(file, layout="lines")
        vocab = kb.learn_vocab(corpus, size=VOCAB_SIZE, kind="unigram")
    sizes = {"vocab_size": len(vocab), "pad_id": vocab.pad_id, **SIZES}
    bert = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("deberta-v3-small", **sizes))
    names = list(train.label_names)
    model = kb.SequenceClassifier(bert, names, tokenizer=kb.Tokenizer(vocab))
    model.compile(kb.BERTAdamW(3e-4))
    examples = (
        list(train.texts[:EXAMPLES]),
        [names.index(label) for label in train.labels[:EXAMPLES]],
    )
    data = tf.data.Dataset.from_tensor_slices(examples).shuffle(EXAMPLES, seed=1).batch(32)
    model.fit(data, epochs=EPOCHS)
    kb.save_pretrained(model, options.out)


if __name__ == "__main__":
    main()
