"""Search in SQuAD: which paragraph answers a question, by BM25, an embedder and a reranker.

    python -m benchmarks.tasks.search dev-v1.1.json.gz --checkpoint all-MiniLM-L6-v2

A fifth of the articles is held out: their paragraphs are the texts, and some of their questions the
queries. The reranker learns for some minutes from questions of the other articles, each with its
own paragraph and negatives that the embedder mines. It starts from the same checkpoint, and sorts
the first 100 paragraphs of the embedder. BM25 needs the package `bm25s`.
"""

import argparse
import gzip
import json
import random
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import bm25s
import keras
import numpy as np

import keras_bert_d2l as kb
from benchmarks.runner import print_report
from benchmarks.tasks.results import HELD_OUT, number_of

NUM_CANDIDATES = 100


class Articles(NamedTuple):
    """Questions, for each the index of its paragraph, and all paragraphs of some articles."""

    questions: list[str]
    own: list[int]
    paragraphs: list[str]


def read(file: Path) -> tuple[Articles, Articles]:
    """Return the articles for training and those held out."""
    articles = json.loads(gzip.decompress(file.read_bytes()))["data"]
    ranked = sorted(articles, key=lambda article: number_of(article["title"]))
    sides = (Articles([], [], []), Articles([], [], []))
    for rank, article in enumerate(ranked):
        side = sides[rank < len(ranked) // HELD_OUT]
        for paragraph in article["paragraphs"]:
            for one in paragraph["qas"]:
                side.questions.append(one["question"].strip())
                side.own.append(len(side.paragraphs))
            side.paragraphs.append(paragraph["context"])
    return sides


def some(articles: Articles, number: int, seed: int) -> Articles:
    """Return articles with a random sample of the questions."""
    number = min(number, len(articles.questions))
    chosen = random.Random(seed).sample(range(len(articles.questions)), number)
    questions = [articles.questions[index] for index in chosen]
    return Articles(questions, [articles.own[index] for index in chosen], articles.paragraphs)


def train(options: argparse.Namespace, articles: Articles) -> kb.Reranker:
    """Fine-tune a reranker on questions with their paragraphs and mined negatives."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = Path(folder) / "pairs.jsonl"
        with pairs.open("w", encoding="utf-8") as file:
            for question, own in zip(articles.questions, articles.own, strict=True):
                row = {"query": question, "positive": articles.paragraphs[own]}
                print(json.dumps(row), file=file)
        reranker, _ = kb.finetune_files(
            Path(folder) / "run",
            task="rerank",
            model=options.checkpoint,
            train=pairs,
            held_out=0.05,
            mine_negatives=True,
            embedder=options.checkpoint,
            epochs=1,
            batch_size=options.batch_size,
            learning_rate=options.learning_rate,
            max_len=options.max_len,
            seed=options.seed,
        )
    return reranker


def bm25(articles: Articles) -> list[np.ndarray]:
    """Return the scores of all paragraphs for each question, with the defaults of bm25s."""
    retriever = bm25s.BM25()
    retriever.index(bm25s.tokenize(articles.paragraphs, stopwords="en", show_progress=False))
    asked = bm25s.tokenize(
        articles.questions, stopwords="en", return_ids=False, show_progress=False
    )
    return [retriever.get_scores(words) for words in asked]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="SQuAD, compressed by gzip")
    parser.add_argument("--checkpoint", required=True, help="an embedder, such as MiniLM")
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--train-queries", type=int, default=2000, help="0: no reranker")
    parser.add_argument("--batch-size", type=int, default=32, help="pairs per step")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--max-len", type=int, default=128, help="tokens of a pair in training")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    keras.utils.set_random_seed(options.seed)
    learned, held_out = read(options.file)
    held_out = some(held_out, options.queries, options.seed)
    embedder = kb.TextEmbedder.from_pretrained(options.checkpoint)
    rows = []

    def show(name: str, indices: list[np.ndarray], scores: list[np.ndarray], start: float) -> None:
        """Add a row of the table for the scores of some paragraphs of each question."""
        labels = [found == own for found, own in zip(indices, held_out.own, strict=True)]
        metrics = kb.ranking_metrics(labels, scores)
        rows.append({"ranking": name, **metrics, "seconds": time.perf_counter() - start})

    start, everything = time.perf_counter(), np.arange(len(held_out.paragraphs))
    show("bm25", [everything] * len(held_out.own), bm25(held_out), start)
    start = time.perf_counter()
    matches = kb.similar(embedder, held_out.questions, held_out.paragraphs, top_k=NUM_CANDIDATES)
    indices = [np.array([match.index for match in found]) for found in matches]
    show("embedder", indices, [[match.score for match in found] for found in matches], start)
    if options.train_queries:
        start = time.perf_counter()
        reranker = train(options, some(learned, options.train_queries, options.seed))
        seconds, start = time.perf_counter() - start, time.perf_counter()
        scores = []
        for question, found in zip(held_out.questions, matches, strict=True):
            texts = [match.text for match in found]
            ranked = kb.rerank(reranker, question, texts)
            by_index = sorted(ranked, key=lambda one: one.index)
            scores.append([one.score for one in by_index])
        show("embedder + reranker", indices, scores, start)
        rows[-1]["training"] = seconds
    for row in rows:
        row |= {"texts": len(held_out.paragraphs), "queries": len(held_out.questions)}
    metrics = dict.fromkeys(["mrr@10", "ndcg@10", "recall@10"], ".3f")
    times = dict.fromkeys(["seconds", "training"], ",.0f")
    print_report([rows], {"ranking": "", "texts": ",", "queries": ",", **metrics, **times})


if __name__ == "__main__":
    main()
