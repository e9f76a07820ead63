"""KerasBERTHandler: the same results as the functions of the package, in a pipeline of Beam."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import keras_bert_d2l as kb

EXAMPLE = Path(__file__).parents[2] / "examples" / "beam" / "embed_files.py"
TEXTS = ["red blue", "green", "", "reddish blue green"]
# Beam itself causes these warnings in its threads and at shutdown.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture
def folder(model, tokenizer, tmp_path):
    kb.save_pretrained(model, tmp_path / "model", tokenizer=tokenizer)
    return tmp_path / "model"


def test_an_interrupted_run_of_the_example_embeds_only_the_missing_files(folder, tmp_path):
    pytest.importorskip("apache_beam", reason="needs Apache Beam, the extra [beam]")
    arrow, parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet"))
    spec = importlib.util.spec_from_file_location("embed_files", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    rows = [{"id": f"{n}", "text": text} for n, text in enumerate(TEXTS)]
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "c.parquet", row_group_size=3)
    out = tmp_path / "out"
    out.mkdir()
    (out / "a.parquet").write_text("finished before")
    (out / "c.jsonl").write_text("finished before")
    for options in ((), ("--jsonl",)):
        example.main(str(tmp_path), str(out), str(folder), *options)
    files = {file.name: file for file in out.iterdir()}
    assert files.keys() == {f"{name}{kind}" for name in "abc" for kind in (".jsonl", ".parquet")}
    for name in ("a.parquet", "c.jsonl"):
        assert files.pop(name).read_text() == "finished before"
    right = kb.embed(folder, TEXTS)
    for file in files.values():
        text = "" if file.suffix == ".parquet" else file.read_text()
        found = [*map(json.loads, text.splitlines())] or parquet.read_table(file).to_pylist()
        assert sorted(row["id"] for row in found) == ["0", "1", "2", "3"]
        for row in found:
            np.testing.assert_allclose(row["vector"], right[int(row["id"])], atol=1e-6)


def test_a_handler_answers_as_the_function_does(model, tokenizer, tmp_path):
    pytest.importorskip("apache_beam", reason="needs Apache Beam, the extra [beam]")
    reranker = kb.Reranker(model, tokenizer=tokenizer)
    kb.save_pretrained(reranker, tmp_path / "reranker")
    handler = kb.KerasBERTHandler(tmp_path / "reranker", "rerank", top_k=2)
    [answer] = handler.run_inference([("red", TEXTS)], handler.load_model())
    assert answer.example == ("red", TEXTS)
    assert answer.inference == kb.rerank(reranker, "red", TEXTS, top_k=2)
    with pytest.raises(ValueError, match="`function` must be one of 'embed', .*'predict'"):
        kb.KerasBERTHandler(tmp_path, "predict")


def test_without_beam_the_handler_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ImportError, match=r"pip install .keras-bert-d2l\[beam\]"):
        kb.KerasBERTHandler("minilm")
