import dataclasses
import json
from types import SimpleNamespace

import keras
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.contract.task import task_named
from keras_bert_d2l.data.tasks.readers.text_file import read_file

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] good bad film a what is it the dog runs .".split()
WORD_OF_CONLLU = "{}\t{}\t_\tNOUN\t_\t_\t0\t_\t_\t_\n"


@pytest.fixture(scope="session")
def models(folder):
    """A folder with the untrained models `reviews`, `several`, `tags`, `answers` and `vectors`."""
    keras.utils.set_random_seed(0)
    config = kb.BERTConfig(len(WORDS), 8, 8, num_heads=2, num_blks=1, dropout=0.0, max_len=16)
    kinds = {
        "reviews": lambda bert, **given: kb.SequenceClassifier(bert, ["bad", "good"], **given),
        "several": lambda bert, **given: kb.SequenceClassifier(
            bert, ["bad", "good"], multi_label=True, **given
        ),
        "tags": lambda bert, **given: kb.TokenClassifier(bert, ["NOUN", "VERB", "O", "."], **given),
        "answers": kb.QuestionAnswerer,
        "vectors": kb.TextEmbedder,
    }
    for name, make in kinds.items():
        tokenizer = kb.Tokenizer(kb.Vocab(WORDS))
        model = make(kb.BERTModel.from_bert_config(config), tokenizer=tokenizer)
        kb.save_pretrained(model, folder / name, tokenizer=tokenizer)
    return folder


def rows(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.slow
def test_a_line_of_any_length_is_one_text(run, models):
    text = "a good film " * 12_000
    (models / "long.txt").write_text(f"{text}\na film\n")
    found = rows(run("predict", "long.txt", "--model", "reviews"))
    assert [(row["id"], row["text"]) for row in found] == [("1", text), ("2", "a film")]


def test_the_context_is_the_complete_text_of_its_file(run, models, monkeypatch):
    context = "a film is\r\n" + "it " * 50_000
    (models / "about.txt").write_bytes(context.encode())
    (models / "ask.txt").write_bytes(b"what is it\r\nwhat is a dog\r\n")
    asked = []

    def answer(model, questions, contexts, **options):
        asked.extend(zip(questions, contexts, strict=True))
        return [[SimpleNamespace(text="it", score=0.5, start=0, end=2)] for _ in questions]

    monkeypatch.setattr("keras_bert_d2l.tasks.answer.predictions.answer", answer)
    run("predict", "ask.txt", "--context", "about.txt", "--model", "answers")
    assert asked == [("what is it", context), ("what is a dog", context)]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["reviews", "answers"])
def test_empty_lines_between_texts_are_reported(run, models, model):
    (models / "gaps.txt").write_text("\nwhat is it\n\n \nwhat is a dog\n\n")
    (models / "short.txt").write_text("it is a dog")
    context = ("--context", "short.txt") if model == "answers" else ()
    told = run("predict", "gaps.txt", "--model", model, *context)
    assert "gaps.txt: 2 dropped: empty line (first: line 3)\n" in told.stderr
    assert [row["id"] for row in rows(told)] == ["2", "5"]
    (models / "plain.txt").write_text("what is it\nwhat is a dog\n\n")
    assert "dropped" not in run("predict", "plain.txt", "--model", model, *context).stderr


@pytest.mark.slow
def test_tables_are_read_from_files_and_standard_input(run, error, models):
    model = ("--model", "reviews")
    read = rows(run("predict", "-", "--text", 2, *model, input="bad\ta film\ngood\ta dog\n"))
    assert [row["text"] for row in read] == ["a film", "a dog"]
    (models / "bare.txt").write_text("bad\ta good film\ngood\ta bad film\n")
    for columns in ((), ("--text", 2)):  # detected and specified
        found = rows(run("predict", "bare.txt", *columns, *model))
        assert [row["text"] for row in found] == ["a good film", "a bad film"]
    (models / "bare.txt").write_text("a dog\ta good film\na film\ta bad film\n")
    assert "by its number from 1, with --text" in error("predict", "bare.txt", *model)


@pytest.mark.slow
def test_errors_name_standard_input(run, models):
    for text, error in (
        (b"a \xff film\n", "error: standard input must be UTF-8"),
        ("\n", "error: standard input contains no text."),
    ):
        told = run("predict", "-", "--model", "reviews", input=text, exit_code=2).stderr
        assert error in told
        assert "stdin" not in told
    told = run("predict", "-", "--model", "reviews", input="it\n\na film\n").stderr
    assert told == "standard input: 1 dropped: empty line (first: line 2)\n"


WORDS_IN_COLUMNS = [
    "-DOCSTART- -X- O\n\nthe DT B-NEW\ndog NN B-NEW\n\nit PRP B-NEW\n",  # no tag is known
    "#begin document (a); part 000\na 0 0 the DT\na 0 1 dog NN *\n\na 0 0 it PRP\n",
    "the DET\ndog NOUN\nruns VERB\n\nthe NOUN\ndog NEW\nruns VERB\n",  # most tags are known
    "# id 1\nthe O\ndog NOUN \n\n# id 2\nruns VERB\n",
    f"# text = the dog\n{WORD_OF_CONLLU.format(1, 'the')}\n{WORD_OF_CONLLU.format(1, 'it')}",
    "# id 1\nthe\tNEW\ndog\tNEW\n\nruns\tNEW\n",  # the same number of tabs
]
TEXTS = [
    "the dog runs .\nit runs .\n",  # "." is a tag
    "the dog\nthe good NOUN\nit is a dog\n",
    "NOUN\nVERB\n",
]


@pytest.mark.parametrize("content", [*WORDS_IN_COLUMNS, *TEXTS])
def test_words_in_columns_are_recognized_by_their_tags(write, content):
    file = read_file(write("words.txt", content))
    found = task_named("tag").is_table(file, ["NOUN", "VERB", "O", "."])
    assert found == (content in WORDS_IN_COLUMNS)


@pytest.mark.slow
def test_lines_to_tag_are_words_in_columns_or_texts_with_a_message(run, models):
    words = run("predict", "-", "--model", "tags", input=WORDS_IN_COLUMNS[2])
    assert [len(row["words"]) for row in rows(words)] == [3, 3]
    assert words.stderr == ""
    told = run("predict", "-", "--model", "tags", input=TEXTS[0])
    assert [row["text"] for row in rows(told)] == TEXTS[0].splitlines()
    assert "standard input: read as one text per line" in told.stderr


@pytest.mark.slow
def test_tags_are_joined_to_entities(run, error, models):
    (models / "lines.txt").write_text("the dog runs .\nit is a good dog\n")
    (models / "words.conll").write_text("the NOUN\ndog NOUN\n\nruns VERB\n")
    options = ("--model", "tags", "--aggregate", "first")
    for file, name in (("lines.txt", "text"), ("words.conll", "words")):
        found = rows(run("predict", file, *options))
        expected = kb.tag(str(models / "tags"), [row[name] for row in found], aggregate="first")
        for row, entities in zip(found, expected, strict=True):
            labels = [(one["text"], one["label"]) for one in row["entities"]]
            assert labels == [(one.text, one.label) for one in entities]
    message = error("predict", "lines.txt", "--model", "reviews", "--aggregate", "first")
    assert "--aggregate requires a TokenClassifier" in message


def test_vectors_are_no_predictions(error, models):
    message = error("predict", "text.txt", "--model", "vectors")
    assert "TextEmbedder predicts nothing. Use `keras-bert-d2l embed`" in message


def test_lines_are_read_as_words_if_a_column_is_specified(run, models):
    (models / "words.txt").write_text("the\ndog\n\nruns\n")
    said = rows(run("predict", "words.txt", "--text", 1, "--model", "tags"))
    assert [row["words"] for row in said] == [["the", "dog"], ["runs"]]


@pytest.mark.slow
def test_a_question_that_is_too_long_for_a_row_has_no_answer(run, models):
    (models / "asked.txt").write_text("what is it\nwhat is it " + "what is it " * 8)
    (models / "fact.txt").write_text("it is a dog")
    told = run("predict", "asked.txt", "--context", "fact.txt", "--model", "answers")
    assert rows(told)[1]["answer"] is None
    assert "Too long for a row, so the answer is null: 1 question, first" in told.stderr


def test_an_uncertain_label_is_no_decision(run, error, models):
    (models / "films.tsv").write_text("label\ttext\ngood\ta good film\nbad\ta bad film\n")
    source = ("films.tsv", "--model", "reviews")
    sure = rows(run("predict", *source))
    least = sum(row["score"] for row in sure) / 2  # between the two
    told = run("predict", *source, "--min-confidence", least)
    assert "No decision: 1 of 2 (50.0%)" in told.stderr
    for row, one in zip(rows(told), sure, strict=True):
        label = one["label"] if one["score"] >= least else None
        assert row == {**one, "label": label, "guess": one["label"]}
    shown = run("predict", "a good film", "--model", "reviews", "--min-confidence", 1).stdout
    assert shown.startswith("(no decision) 0.")
    words = run("predict", "a film", "--model", "tags", "--min-confidence", 1, "--json")
    assert [tag["label"] for tag in rows(words)[0]["tags"]] == [None, None]
    evaluate = ("evaluate", "--model", "reviews", "--data", "films.tsv", "--min-confidence")
    metrics = rows(run(*evaluate, least, "--json"))[0]["metrics"]
    is_right = [one["label"] == label for one, label in zip(sure, ("good", "bad"), strict=True)]
    surest = max((0, 1), key=lambda n: sure[n]["score"])
    assert (metrics["coverage"], metrics["selective_accuracy"]) == (0.5, is_right[surest])
    assert "--min-confidence" in error("predict", "a", "--model", "answers", *evaluate[-1:], 0.5)
    assert "`least`" in error(*evaluate, 95)
    for command in ("predict", "a"), ("evaluate", "--data", "films.tsv"):
        message = error(*command, "--model", "several", "--min-confidence", 0.5)
        assert "--min-confidence is for one label per text" in message


@pytest.mark.slow
def test_predictions_are_explained(run, models):
    call = ("predict", "--model", "reviews", "a good film", "--explain")
    [said] = kb.explain(str(models / "reviews"), "a good film")
    words = ", ".join(f"{one.word} {one.value:+.3f}" for one in said.words)
    assert run(*call).stdout.splitlines()[1] == f"    {said.target}: {words}"
    [row] = rows(run(*call, "--json"))
    assert [one.keys() for one in row["explanations"]] == [dataclasses.asdict(said).keys()]
    [row] = rows(run("predict", "--model", "tags", "the dog runs", "--explain", "--json"))
    tags = [number for number, one in enumerate(row["tags"]) if one["label"] != "O"]
    assert [one["word"] for one in row["explanations"]] == tags
    ask = ("what is it", "a dog runs")
    assert "\n    " in run("predict", "--model", "answers", *ask, "--explain").stdout
    failed = run("predict", "--model", "vectors", "a film", "--explain", exit_code=2)
    assert "--explain requires a SequenceClassifier or a SequenceRegressor or a" in failed.stderr
