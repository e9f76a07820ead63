"""KerasBERTHandler: the same results as the functions of the package, in a pipeline of Beam."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import keras_bert_d2l as kb

EXAMPLE = Path(__file__).parents[2] / "examples" / "beam" / "embed_files.py"
KINDS = {".jsonl": ".parquet", ".parquet": ".jsonl"}
TEXTS = ["red blue", "green", "", "reddish blue green"]
# Beam itself causes these warnings in its threads and at shutdown.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture
def folder(model, tokenizer, tmp_path):
    kb.save_pretrained(model, tmp_path / "model", tokenizer=tokenizer)
    return tmp_path / "model"


@pytest.mark.parametrize(("kind", "options"), [(".jsonl", ()), (".parquet", ("--jsonl",))])
def test_an_interrupted_run_of_the_example_embeds_only_the_missing_files(
    kind, options, folder, tmp_path
):
    pytest.importorskip("apache_beam", reason="needs Apache Beam, the extra [beam]")
    arrow, parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet"))
    spec = importlib.util.spec_from_file_location("embed_files", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    for name in ("a", "b"):
        rows = [{"id": f"{name}{n}", "text": text} for n, text in enumerate(TEXTS)]
        if kind == ".jsonl":
            (source / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        else:
            table = arrow.Table.from_pylist([{"other": 1, **row} for row in rows])
            parquet.write_table(table, source / f"{name}.parquet", row_group_size=3)
    ending = ".jsonl" if options else ".parquet"
    (out / f"a{ending}").write_text("finished before")
    example.main(str(source), str(out), str(folder), *options)
    assert sorted(file.name for file in out.iterdir()) == [f"a{ending}", f"b{ending}"]
    assert (out / f"a{ending}").read_text() == "finished before"
    if options:
        rows = [*map(json.loads, (out / "b.jsonl").read_text().splitlines())]
    else:
        rows = parquet.read_table(out / "b.parquet").to_pylist()
    found = {row["id"]: row["vector"] for row in rows}
    assert found.keys() == {"b0", "b1", "b2", "b3"}
    vectors = [found[f"b{n}"] for n in range(4)]
    np.testing.assert_allclose(vectors, kb.embed(folder, TEXTS), atol=1e-6)
    (source / f"a{KINDS[kind]}").touch()
    with pytest.raises(SystemExit, match="must have different names"):
        example.main(str(source), str(out), str(folder))


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
