import pytest

from keras_bert_d2l.data.tasks.peek import peek
from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.tasks.answer.examples import Answer, QuestionExamples
from keras_bert_d2l.tasks.tag.examples import WordExamples
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab

PIECES = "a crane is fly ##ing over the lake it who . ?".split()
CONTEXT = "a crane is flying over the lake ."


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(Vocab([*GOOGLE_SPECIALS, *PIECES]))


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


def words_of(text):
    """Return the text without table lines and repeated spaces."""
    return " ".join(text.replace("│", " ").split())


def test_texts_are_shown_as_the_model_sees_them(tokenizer):
    examples = TextExamples(
        texts=("flying", "a crane is flying over the lake"),
        texts_b=("it is", "who ?"),
        labels=("[yes]", "no"),
        source="folder/pairs.tsv",
        dropped={"empty text": 3},
        first_dropped={"empty text": "line 7"},
    )
    shown = words_of(peek(examples, tokenizer, 10))
    assert "pairs.tsv as the model sees it" in shown
    assert "[yes] ████████████████████████ 1 (50.0%)" in shown
    assert "examples truncated to 10 tokens, longer text first 1 (50.0%)" in shown
    assert "maximum 13" in shown
    assert "empty text (first: line 7) 3" in shown
    assert "[yes] [CLS] fly ##ing [SEP] it is [SEP]" in shown
    assert "no (truncated) [CLS] a crane is fly ##ing [SEP] who ? [SEP]" in shown


def test_tags_are_printed_behind_the_first_token_of_a_word(tokenizer):
    tags = ("DET", "NOUN", "VERB", "ADP")
    examples = WordExamples(words=(("a", "crane", "flying", "over"),), labels=(tags,))
    shown = peek(examples, tokenizer, 16)
    assert "  [CLS] a/DET crane/NOUN fly/VERB ##ing over/ADP [SEP]" in shown
    assert "longer than 16 tokens, split into rows 0 (0.0%)" in words_of(shown)


def test_answers_are_marked(tokenizer):
    asked, answers = ("who ?", "who is it ?"), ([Answer("the lake", 23)], [])
    examples = QuestionExamples(questions=asked, contexts=(CONTEXT, CONTEXT), answers=answers)
    shown = words_of(peek(examples, tokenizer, 32))
    assert "answer: the lake" in shown
    assert "who ? [SEP] a crane is fly ##ing over »the lake« . [SEP]" in shown
    assert "1 no answer" in shown
    assert "without an answer 1 (50.0%)" in shown


def test_long_texts_are_abbreviated(tokenizer):
    examples = TextExamples(task="regress", texts=("a " * 200,), labels=(0.5,))
    shown = words_of(peek(examples, tokenizer, 512))
    assert "… and 82 more tokens" in shown
    assert "mean 0.500" in shown
    context = "a " * 100 + "crane" + " a" * 100
    answers = [[Answer("crane", 200)]]
    asked = QuestionExamples(questions=["who ?"], contexts=[context], answers=answers)
    shown = words_of(peek(asked, tokenizer, 512))
    assert "[SEP] … 60 tokens … a" in shown
    assert "»crane«" in shown


def test_examples_with_a_single_label_or_without_labels_can_be_shown(tokenizer):
    shown = words_of(peek(TextExamples(texts=("a", "it"), labels=("x", "x")), tokenizer, 8))
    assert "2 (100.0%)" in shown
    assert "labels none" in words_of(peek(TextExamples(texts=("a", "it")), tokenizer, 8))


def test_columns_and_label_shares_of_multi_label_examples_are_shown(tokenizer):
    examples = TextExamples(
        texts=("a crane", "the lake"),
        labels=(("x", "y"), ("x",)),
        columns={"text": "body", "label": "x, y, z"},
    )
    shown = words_of(peek(examples, tokenizer, 10))
    assert "`text` body `label` x, y, z" in shown
    assert "x ████████████████████████ 2 (100.0%)" in shown
    assert "y ████████████ 1 (50.0%)" in shown
    assert "mean labels per example 1.50" in shown
