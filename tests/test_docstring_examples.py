"""Examples in the docstrings of public names run, and doctests print what they show."""

import doctest
import inspect
import re

import numpy as np
import pytest

import keras_bert_d2l as kb

CODE_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
# Their examples begin with files, a checkpoint or a model of the reader.
NEEDS_FILES = set(
    """
    Masking answer classify data_report embed evaluate fill_mask finetune finetune_files
    next_sentence_score pretrain pseudo_perplexity read_tfrecords similar tag write_tfrecords
    """.split()
)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(kb.__all__) - NEEDS_FILES))
def test_the_example_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    docstring = inspect.getdoc(getattr(kb, name)) or ""
    public = {"np": np, **{public: getattr(kb, public) for public in kb.__all__}}
    for block in CODE_BLOCK.findall(docstring):
        exec(compile(block, f"<example of {name}>", "exec"), public.copy())
    doctests = doctest.DocTestParser().get_doctest(docstring, {}, name, None, 0)
    report = []
    result = doctest.DocTestRunner().run(doctests, out=report.append)
    assert result.failed == 0, "".join(report)
