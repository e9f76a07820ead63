"""The selection of documents: languages, counts, and options that are rejected."""

import random
import sys

import pytest

from keras_bert_d2l.text.selection.languages import LanguageFilter, _identifier
from keras_bert_d2l.text.selection.selection import Selection, Selector

TEXTS = {
    "en": "The old house stood at the end of a narrow road, and nobody had lived there for years.",
    "de": "Das alte Haus stand am Ende einer schmalen Straße, und niemand hatte dort gewohnt.",
    "fr": "La vieille maison se trouvait au bout d'une route étroite, et personne n'y habitait.",
    "es": "La casa vieja estaba al final del camino, y nadie vivía allí desde hacía años.",
}


@pytest.fixture
def identifier():
    pytest.importorskip("py3langid")
    _identifier.cache_clear()


@pytest.mark.slow
def test_documents_in_other_languages_are_discarded_and_counted(identifier):
    select = Selector(Selection(language="en"))
    assert select([[text] for text in TEXTS.values()]) == [[TEXTS["en"]]]
    assert select.discarded == {"language: de": 1, "language: fr": 1, "language: es": 1}


@pytest.mark.slow
def test_the_scores_of_languages_are_those_of_py3langid(identifier):
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    original = LanguageIdentifier.from_model_file(MODEL_FILE)
    for text in (*TEXTS.values(), "", "a", "東京は夜の七時", "1 2 3", "THE OLD HOUSE"):
        assert _identifier().rank(text) == original.rank(text)


@pytest.mark.slow
def test_an_unknown_language_is_rejected(identifier):
    with pytest.raises(ValueError, match="`language` must be one of .*'en'.*Received.*english"):
        LanguageFilter("english")


def test_the_error_for_a_missing_package_explains_how_to_install_it(monkeypatch):
    _identifier.cache_clear()
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(ImportError, match=r"pip install .keras-bert-d2l\[language\]"):
        Selector(Selection(language="en"))


def test_rules_are_applied_one_after_another():
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=5)) for _ in range(500)]
    good = [f"The {' '.join(draw.sample(words, 12))} of them." for _ in range(9)]
    documents = [good, [*good, "Home"], good[:4], ["{", *good], good[:5]]
    select = Selector(Selection(quality=["gopher", "c4"]))
    assert select(documents) == [good, good, good[:5]]
    assert select.discarded == {"C4: few sentences": 1, "C4: curly bracket": 1}


def test_without_options_everything_is_kept():
    select = Selector(Selection())
    assert select([["{"], [""]]) == [["{"], [""]]
    assert not select.discarded


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"quality": ["c5"]}, "`quality` must be one of 'c4', 'gopher'"),
        ({"quality": "c4"}, "`quality` must be a list of 'c4', 'gopher'"),
        ({"language": 3}, "`language` must be a `str`"),
        ({"deduplicate": "yes"}, "`deduplicate` must be True or False"),
    ],
)
def test_invalid_options_are_rejected(option, message):
    with pytest.raises(ValueError, match=message):
        Selection(**option)
