"""A fixture that runs tests with TensorFlow's operations and with the library tokenizers."""

import pytest

from keras_bert_d2l.text.tokenizer import tokenizer
from tests.nightly import nightly_except


@pytest.fixture(params=nightly_except(["tensorflow"], ["tensorflow", "rust"]))
def engine(request, monkeypatch):
    """Tokenize outside of graphs with TensorFlow's operations, and with the library tokenizers.

    Each day, `test_rust.py` compares the two.
    """
    if request.param == "tensorflow":
        monkeypatch.setattr(tokenizer, "are_short", lambda texts: False)
    else:
        pytest.importorskip("tokenizers", reason="needs tokenizers")
