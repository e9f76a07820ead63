"""Docstrings: English prose from installed packages, which are parsed but never imported."""

import keras
import pytest

from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.docstrings import documents_in, prose

GOOGLE_STYLE = """Turns a tensor into another tensor of the same shape.

    See [the guide](https://example.org/guide) for more on `tf.Tensor` objects. *Every* value is
    kept, e.g. the first one. The result = f(x) is not prose. Visit https://example.org for more!

    ```python
    x = f(1)  # This comment looks like a sentence.
    This line looks like one.
    ```

    For example:

        This is a [literal] block = code.
        print(x)

    >>> f([1, 2])
    The printed value is no prose either.

    * Bullets may hold a whole sentence too.
    1. Numbers may do so as well.

    | a | table |
    |---|-------|

    Args:
        x: A tensor of any shape and of any type.
        y, z (int): Two numbers that say how far
            the values are moved. They are zero if not given.
        name: Optional.

    Returns:
        The tensor that was moved by so much.

    Raises:
        ValueError: If the shapes do not fit.
    """
NUMPY_STYLE = """
    Return the number of elements along an axis.

    Parameters
    ----------
    a : array_like
        The array whose elements are counted.
    axis : None or int, optional
        The axis along which they are counted [1]_.

        .. versionchanged:: 2.4
           This was extended to accept multiple axes.

    See Also
    --------
    shape : This says how many there are of each.

    Notes
    -----
    A view with :func:`numpy.squeeze` is returned where this is possible.

    References
    ----------
    .. [1] A. Author, The book that is cited here.

    Examples
    --------
    >>> np.size(a)
    This is printed by the example.
    """


def test_prose_is_kept_and_code_is_not():
    assert prose(GOOGLE_STYLE) == [
        "Turns a tensor into another tensor of the same shape.",
        "See the guide for more on tf.Tensor objects.",
        "Every value is kept, e.g. the first one.",
        "Bullets may hold a whole sentence too.",
        "Numbers may do so as well.",
        "A tensor of any shape and of any type.",
        "Two numbers that say how far the values are moved.",
        "They are zero if not given.",
        "The tensor that was moved by so much.",
        "If the shapes do not fit.",
    ]


def test_sections_in_numpy_style_are_recognized():
    assert prose(NUMPY_STYLE) == [
        "Return the number of elements along an axis.",
        "The array whose elements are counted.",
        "The axis along which they are counted.",
        "A view with numpy.squeeze is returned where this is possible.",
    ]


def test_fragments_are_not_sentences():
    fragments = "A tensor.\n\nno capital letter at the beginning here.\n\nNo full stop at the end"
    assert prose(fragments) == []


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "some_package"
    (folder / "tests").mkdir(parents=True)
    sentences = [
        f"This is the {n} sentence of all." for n in ("first", "second", "third", "fourth")
    ]
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (folder / "b.py").write_text(
        f'"""{sentences[0]} {sentences[1]}"""\n'
        "import not_there\n"
        "PATTERN = '\\d'\n"
        f'class Thing:\n    """{" ".join(s.replace("This", "Here") for s in sentences)}"""\n'
        f'    def method(self):\n        """{sentences[3].replace("This", "That")}"""\n'
        f'if True:\n    def function():\n        """{sentences[2]} {sentences[0]}"""\n'
    )
    (folder / "a.py").write_text('"""Only one sentence stands in here."""\n')
    (folder / "tests" / "c.py").write_text(f'"""{" ".join(sentences)}"""\n')
    return folder


def test_each_module_and_class_is_a_document_without_repeated_sentences(package):
    expected = [
        [f"This is the {n} sentence of all." for n in ("first", "second", "third")],
        [f"Here is the {n} sentence of all." for n in ("first", "second", "third", "fourth")]
        + ["That is the fourth sentence of all."],
    ]
    assert list(documents_in([package])) == expected


def test_the_fingerprint_depends_on_the_package_versions(monkeypatch):
    corpus = Corpus.open("docstrings")
    fingerprint = corpus.fingerprint()
    assert corpus.description.startswith("docstrings of tensorflow 2.")
    assert Corpus.open(["docstrings"]).fingerprint() == fingerprint
    monkeypatch.setattr(keras, "__version__", "9.9")
    assert Corpus.open("docstrings").fingerprint() != fingerprint


@pytest.mark.long
def test_the_installed_packages_contain_half_a_million_words_of_english():
    num_words = num_articles = num_documents = 0
    sentences = set()
    for document in Corpus.open("docstrings"):
        assert 3 <= len(document) <= 1000
        num_documents += 1
        for sentence in document:
            words = sentence.lower().split()
            num_words += len(words)
            num_articles += sum(word in ("the", "a", "an") for word in words)
            assert sentence not in sentences
            sentences.add(sentence)
    assert num_words > 500_000
    assert num_documents > 1000
    assert 0.08 < num_articles / num_words < 0.2  # of running English, about one word in ten
