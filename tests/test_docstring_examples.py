"""Examples in the docstrings of public names run as printed."""

import doctest
import inspect
import re

import pytest

import keras_bert_d2l as kb

FENCED = re.compile(r"```python\n(.*?)```", re.DOTALL)
IMPORT = "import keras_bert_d2l as kb"


def examples(name):
    """Return the doctests of a public name, and its code blocks that import the package."""
    docstring = inspect.getdoc(getattr(kb, name)) or ""
    blocks = [block for block in FENCED.findall(docstring) if IMPORT in block]
    return doctest.DocTestParser().get_doctest(docstring, {}, name, None, 0), blocks


@pytest.mark.slow
@pytest.mark.parametrize("name", kb.__all__)
def test_the_example_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    doctests, blocks = examples(name)
    if not doctests.examples and not blocks:
        pytest.skip(f"{name} has no example that imports the package")
    for block in blocks:
        exec(compile(block, f"<example of {name}>", "exec"), {})
    report = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(doctests, out=report.append)
    assert result.failed == 0, "".join(report)
