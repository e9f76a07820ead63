"""All public names have an example in their docstring that runs; doctests print what they show."""

import doctest
import inspect
import re

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l import book
from keras_bert_d2l.contract import task as registry
from tests.nightly import nightly_except

CODE_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)

# Examples that train, export or serve -> what runs the same call every day.
NIGHTLY = {
    **dict.fromkeys(["finetune", "export_saved_model", "book.train_bert"], "README.md"),
    **dict.fromkeys(["pretrain", "distill", "finetune_files"], "tests/training"),
    **dict.fromkeys(["ServingClient", "audit_saved_model"], "tests/serving"),
    **dict.fromkeys(["SequenceClassifier", "SequenceRegressor", "TokenClassifier"], "tests/tasks"),
    **dict.fromkeys(
        ["QuestionAnswerer", "MultipleChoice", "TextEmbedder", "Reranker"], "tests/tasks"
    ),
}
NAMES = {name: getattr(kb, name) for name in kb.__all__}
NAMES |= {
    f"book.{name}": getattr(book, name) for name in book.__all__ if name != "DATA_HUB"
}  # a dict


@pytest.mark.slow
@pytest.mark.usefixtures("eager_models")
@pytest.mark.parametrize("name", nightly_except(NAMES.keys() - NIGHTLY, NAMES))
def test_the_example_runs(name, tmp_path, monkeypatch):
    if "beam" in inspect.getmodule(NAMES[name]).__name__:
        pytest.importorskip("apache_beam", reason="needs Apache Beam, the extra [beam]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_TASKS", registry.tasks())
    docstring = inspect.getdoc(NAMES[name]) or ""
    public = {"kb": kb, "np": np, **{public: getattr(kb, public) for public in kb.__all__}}
    blocks = CODE_BLOCK.findall(docstring)
    for block in blocks:
        exec(compile(block, f"<example of {name}>", "exec"), public.copy())
    doctests = doctest.DocTestParser().get_doctest(docstring, {}, name, None, 0)
    assert blocks or doctests.examples, f"{name} has no example"
    report = []
    result = doctest.DocTestRunner().run(doctests, out=report.append)
    assert result.failed == 0, "".join(report)
