"""Text that datatrove has filtered becomes a token store."""

import json
import random
import runpy

import pytest

import keras_bert_d2l as kb
from scripts.notebooks import ROOT

pytest.importorskip("datatrove", reason="needs datatrove: make test-peers")

WORDS = (
    "the of and with have that house road night garden river window letter morning friend father "
    "mother sister light stone bread table summer winter village church market horse walked talked "
    "looked thought wanted carried opened closed followed answered remembered under over between"
).split()


@pytest.mark.long
def test_filtered_text_becomes_a_store_without_near_duplicates(tmp_path):
    draw = random.Random(0)
    pages = [
        "\n".join(f"{' '.join(draw.choices(WORDS, k=15)).capitalize()}." for _ in range(8))
        for _ in range(12)
    ]
    changed = {
        3: pages[0].replace(" and ", " indeed and ", 1),
        5: pages[5][:100],
        7: pages[7] + "\nThis is lorem ipsum of a page.",
        9: "\n".join(pages[9].split("\n")[:1] * 8),
    }
    (tmp_path / "crawl").mkdir()
    with open(tmp_path / "crawl" / "0.jsonl", "w") as file:
        for number, page in enumerate(pages):
            print(json.dumps({"id": str(number), "text": changed.get(number, page)}), file=file)
    example = runpy.run_path(str(ROOT / "examples" / "datatrove" / "filter_text.py"))
    example["main"](str(tmp_path / "crawl"), str(tmp_path / "out"), workers=1)
    corpus = kb.Corpus.open(tmp_path / "out" / "text", layout="lines")
    tokenizer = kb.Tokenizer(kb.learn_vocab(corpus, size=200))
    store = kb.build_store(corpus, tokenizer, tmp_path / "store")
    assert store.num_documents == len(pages) - len(changed)
    assert list(corpus) == [
        page.split("\n") for number, page in enumerate(pages) if number not in changed
    ]
