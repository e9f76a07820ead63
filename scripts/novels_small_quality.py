"""Measure `novels-small` or another checkpoint on text that it has not read, for its model card.

    python scripts/novels_small_quality.py novels/ wiki.valid.tokens novels-small

Prints the held-out metrics of the chapters of the novels and of the validation text of WikiText-2,
and for 1,000 sentences of each the negative pseudo-log-likelihood per word (Salazar et al. 2020),
which compares models with different vocabularies.
"""

import argparse
import math
import random
import tempfile

import keras_bert_d2l as kb
from keras_bert_d2l.data.pretraining.pairs import split_documents

HELD_OUT = 0.02  # of the chapters, as in scripts/novels_small.py
MASKINGS = {"[MASK] only": (1.0, 0.0, 0.0), "80/10/10": (0.8, 0.1, 0.1)}
NUM_SENTENCES = 1000

Documents = list[list[str]]


def held_out_chapters(novels: kb.Corpus, tokenizer: kb.Tokenizer) -> Documents:
    """Return the documents that the training never reads. They do not depend on the tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        hashes = kb.build_store(novels, tokenizer, f"{folder}/store").document_hashes
        kept = set(split_documents(hashes, "held_out", HELD_OUT).tolist())
    return [document for number, document in enumerate(novels) if number in kept]


def metrics(model: kb.BERTModel, documents: Documents, replace: tuple[float, ...]) -> dict:
    """Return the metrics on rows of 128 tokens, of which 15% are predicted."""
    with tempfile.TemporaryDirectory() as folder:
        batches = kb.pretraining_dataset(
            documents,
            model.tokenizer,
            batch_size=64,
            max_len=128,
            short_seq_prob=0.3,
            rows="packed",
            masking=kb.Masking(replace=replace),
            drop_remainder=False,
            cache_dir=folder,
        )
        return model.evaluate(batches, return_dict=True, verbose=0)


def nats_per_word(model: kb.BERTModel, documents: Documents) -> float:
    """Return the negative pseudo-log-likelihood per word of sentences of 5 to 40 words."""
    sentences = [sentence for document in documents for sentence in document]
    chosen = [x for x in sentences if 5 <= len(x.split()) <= 40 and "<unk>" not in x]
    random.Random(0).shuffle(chosen)
    chosen = chosen[:NUM_SENTENCES]
    found = kb.pseudo_perplexity(model, chosen)
    nats = sum(math.log(one.perplexity) * one.num_tokens for one in found)
    return nats / sum(len(sentence.split()) for sentence in chosen)


def main() -> None:
    """Print the measurements of one checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("novels", help="folder of the novels that the model was trained on")
    parser.add_argument("wikitext", help="validation text of WikiText-2")
    parser.add_argument("model", help="checkpoint, run or name")
    options = parser.parse_args()
    model = kb.load_pretrained(options.model).model
    model.compile()
    chapters = held_out_chapters(kb.Corpus.open(options.novels), model.tokenizer)
    for name, documents in (
        ("held-out chapters", chapters),
        ("WikiText-2", list(kb.Corpus.open(options.wikitext))),
    ):
        for masking, replace in MASKINGS.items():
            found = metrics(model, documents, replace)
            loss, accuracy = found["mlm_cross_entropy"], found["mlm_accuracy"]
            print(
                f"{name}, {masking}: MLM loss {loss:.2f}, accuracy {accuracy:.3f}; "
                f"next sentence {found['nsp_accuracy']:.3f}"
            )
        print(f"{name}: {nats_per_word(model, documents):.2f} nats per word")


if __name__ == "__main__":
    main()
