import gzip
import inspect
import json
import lzma
import re
from types import SimpleNamespace

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.saving import save_pretrained
from keras_bert_d2l.cli import input_output
from keras_bert_d2l.cli.commands import ask, predict_texts
from keras_bert_d2l.inference.features import extract_features
from keras_bert_d2l.inference.heads import next_sentence_score
from keras_bert_d2l.inference.perplexity import joint_perplexity, minimal_pairs, pseudo_perplexity
from keras_bert_d2l.tasks.choose.model import MultipleChoice
from keras_bert_d2l.tasks.choose.predictions import choose
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.classify.predictions import classify
from keras_bert_d2l.tasks.embed.predictions import embed, similar
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from keras_bert_d2l.tasks.tag.model import TokenClassifier

LINES = ["the dog sees the hare .", "the owl hears the mouse .", "the fox ."]
LONG = "the dog " * 2000


@pytest.fixture(scope="session")
def texts(folder):
    (folder / "texts.txt").write_text("".join(f"{line}\n" for line in LINES))
    return "texts.txt"


@pytest.fixture(scope="session")
def bert(trained):
    return ask.load(trained)


@pytest.fixture(scope="session")
def tasks(bert, folder):
    """Checkpoints of untrained task models, named by task."""
    models = {
        "classify": SequenceClassifier(bert.model, ["bad", "good"]),
        "both": SequenceClassifier(bert.model, ["bad", "good"], multi_label=True),
        "regress": SequenceRegressor(bert.model),
        "tag": TokenClassifier(bert.model, ["NOUN", "X"]),
        "choose": MultipleChoice(bert.model),
    }
    for name, model in models.items():
        save_pretrained(model, folder / "tasks" / name)
    return folder / "tasks"


def objects(out):
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.slow
def test_embed_writes_the_vectors_of_the_python_function(run, texts, trained, bert, folder):
    expected = embed(bert.model, LINES)
    out = run("embed", "--file", texts, "--model", trained, "--out", "made/vectors.npy").stdout
    assert out == "3 vectors with 128 dimensions in made/vectors.npy\n"
    np.testing.assert_array_equal(np.load(folder / "made/vectors.npy"), expected)
    rows = objects(run("embed", *LINES, "--model", trained).stdout)
    assert [row["text"] for row in rows] == LINES
    np.testing.assert_array_equal(np.array([r["vector"] for r in rows], "float32"), expected)


@pytest.mark.slow
def test_similar_lists_the_most_similar_texts(run, texts, trained, bert):
    expected = similar(bert.model, LINES[1], LINES, top_k=2)
    command = ("similar", LINES[1], "--file", texts, "--model", trained, "--top-k", 2)
    out = run(*command).stdout.splitlines()
    assert out == [f"{m.score:6.3f}  {m.index + 1}  {m.text}" for m in expected]
    assert out[0] == f" 1.000  2  {LINES[1]}"
    assert [row["index"] for row in objects(run(*command, "--json").stdout)] == [
        match.index for match in expected
    ]
    for _ in range(2):
        assert run(*command, "--vectors", "made/lines.npy").stdout.splitlines() == out


@pytest.mark.slow
def test_next_sentence_scores_pairs(run, trained, bert, folder):
    scores = next_sentence_score(bert.model, LINES[:2], LINES[1:])
    command = ("next-sentence", "--model", trained)
    out = run(*command, LINES[0], LINES[1], LINES[1], LINES[2]).stdout.splitlines()
    assert out == [
        f"{s:.3f}  {a} | {b}" for a, b, s in zip(LINES[:2], LINES[1:], scores, strict=True)
    ]
    (folder / "pairs.tsv").write_text(f"{LINES[0]}\t{LINES[1]}\r\n{LINES[1]}\t{LINES[2]}\r\n")
    rows = objects(run(*command, "--file", "pairs.tsv", "--json").stdout)
    assert [row["score"] for row in rows] == pytest.approx(list(scores), abs=1e-6)
    assert rows[1]["text_b"] == LINES[2]


@pytest.mark.slow
def test_perplexity_measures_each_text_and_all_texts_together(run, texts, trained, bert):
    expected = pseudo_perplexity(bert.model, LINES)
    out = run("perplexity", "--file", texts, "--model", trained).stdout.splitlines()
    figures = [line.split(maxsplit=2) for line in out]
    assert [text for _, _, text in figures] == [*LINES, "(all 3 texts)"]
    for (value, count, _), one in zip(
        figures, [*expected, joint_perplexity(expected)], strict=True
    ):
        assert float(value) == pytest.approx(one.perplexity, abs=0.006)
        assert int(count) == one.num_tokens
    rows = objects(run("perplexity", *LINES, "--json", "--model", trained).stdout)
    joint = joint_perplexity(expected)
    assert [row["num_tokens"] for row in rows] == [one.num_tokens for one in [*expected, joint]]
    assert rows[-1].keys() == {"num_texts", "num_tokens", "perplexity"}
    assert rows[-1]["num_texts"] == len(LINES)
    assert rows[-1]["perplexity"] == pytest.approx(joint.perplexity, rel=1e-5)


@pytest.mark.slow
def test_grammar_prints_the_accuracy_of_each_phenomenon(run, folder, trained, bert):
    good, bad = LINES[0], "the the dog hare sees ."
    pairs = [("order", good, bad), ("other", good, good), ("other", bad, bad)]
    columns = ("UID", "sentence_good", "sentence_bad")
    rows = [dict(zip(columns, pair, strict=True)) for pair in pairs]
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    command = ("grammar", "--model", trained, "--data", "pairs.jsonl", "--word-wise")
    lines = run(*command).stdout.splitlines()
    expected = minimal_pairs(bert.model, rows, word_wise=True)
    names, shares = ["order", "other", "(all 3 pairs)"], [*expected.by_uid.values()]
    assert [line.split(")  ")[1] for line in lines] == names
    for line, accuracy in zip(lines, [*shares, expected.accuracy], strict=True):
        assert line.startswith(f"{accuracy:6.1%}  (")
    [found] = objects(run(*command, "--json").stdout)
    assert found["by_uid"] == expected.by_uid == {**found["by_uid"], "other": 0}  # ties are wrong
    assert (found["word_wise"], found["precision"]) == (True, "float32")
    assert found["model"] == str(trained)


@pytest.mark.slow
def test_classify_prints_the_label_or_the_score(run, texts, tasks):
    model = ask.load(tasks / "classify").model
    expected = classify(model, LINES)
    command = ("classify", "--file", texts, "--model")
    out = run(*command, tasks / "classify").stdout.splitlines()
    assert out == [
        f"{one.label} {one.score:.3f}  {text}" for text, one in zip(LINES, expected, strict=True)
    ]
    rows = objects(run(*command, tasks / "classify", "--json").stdout)
    assert [row["label"] for row in rows] == [one.label for one in expected]
    assert rows[0]["scores"] == pytest.approx(expected[0].scores, abs=1e-5)
    for line in run(*command, tasks / "both").stdout.splitlines():
        assert re.match(r"(-|(bad|good) 0\.\d{3}(, good 0\.\d{3})?)  the ", line)
    for line in run(*command, tasks / "regress").stdout.splitlines():
        assert re.match(r"score -?\d\.\d{3}  the ", line)


@pytest.mark.slow
def test_classify_accepts_pairs(run, tasks):
    model = ask.load(tasks / "classify").model
    expected = classify(model, LINES[0], LINES[1])
    command = ("classify", "--pairs", "--json", "--model", tasks / "classify")
    [row] = objects(run(*command, LINES[0], LINES[1]).stdout)
    assert [row["text"], row["text_b"]] == LINES[:2]
    assert row["score"] == pytest.approx(expected.score, abs=1e-6)


SCORES = {"good": 0.75, "bad": 0.25}
LABELS = ("--label", "bad", "--label", "good")
PARIS = kb.FoundAnswer("Paris", 0.5, 0, 5, logit=1.0, null_logit=0.0)
NOTHING = kb.FoundAnswer("", 0.25, 0, 0, logit=-1.0, null_logit=0.0)
ADA = kb.Entity("Ada Lovelace", "PER", 0.9, 0, 12)
ANSWERS = {  # function -> arguments, what it returns, and what the command prints
    "zero_shot": (
        ("a film", *LABELS, "--template", "{}?"),
        kb.Classification("good", 0.75, SCORES, ("good",)),
        "good 0.750, bad 0.250  a film\n",
    ),
    "tag": (
        ("Ada lived",),
        [kb.Tag("Ada", "PER", 0.9, 0, 3), kb.Tag("lived", "O", 0.8, 4, 9)],
        "Ada lived\n    Ada    PER  0.900\n    lived  O    0.800\n",
    ),
    "answer": (
        ("where ?", "Paris .", "--top-k", "2"),
        [PARIS, NOTHING],
        "where ?\n    0.500  Paris\n    0.250  (no answer)\n",
    ),
    "choose": (
        ("she opens", "the door", "the sky"),
        kb.Choice(1, "the sky", 0.75, (0.25, 0.75)),
        "0.750  2: the sky\n",
    ),
}


@pytest.fixture
def told(monkeypatch):
    """Return a function that lets a function return an answer, and the arguments that it gets."""
    arguments = []
    model = SimpleNamespace(model=None)
    monkeypatch.setattr(predict_texts, "load", lambda *_, **__: model)

    def tell(name, answer):
        signature = inspect.signature(getattr(kb, name))

        def ask(_, *texts, **options):
            signature.bind(None, *texts, **options)  # fails as the function itself would
            arguments.append((*texts, options))
            return [answer] * len(texts[0])

        monkeypatch.setattr(kb, name, ask)
        return arguments

    return tell


def in_json(answer):
    """Return the fields of an answer as they are in JSON."""
    if isinstance(answer, list):
        return {"answers" if PARIS in answer else "tags": [vars(one) for one in answer]}
    return json.loads(json.dumps(vars(answer)))


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_printed_as_text_and_as_json(name, run, told):
    texts, answer, printed = ANSWERS[name]
    told(name, answer)
    command = (name.replace("_", "-"), *texts, "--model", "x")
    assert run(*command).stdout == printed
    [row] = objects(run(*command, "--json").stdout)
    expected = in_json(answer)
    assert {field: row[field] for field in expected} == expected


@pytest.mark.slow
def test_choose_prints_the_best_choice_of_a_model(run, error, texts, tasks):
    model = ("--model", tasks / "choose")
    command = ("choose", *LINES, *model)
    expected = choose(ask.load(tasks / "choose").model, LINES[0], LINES[1:])
    [row] = objects(run(*command, "--json").stdout)
    assert (row["index"], row["choice"]) == (expected.index, expected.choice)
    assert row["scores"] == pytest.approx(expected.scores, abs=1e-5)
    line = f"{expected.score:.3f}  {expected.index + 1}: {expected.choice}\n"
    assert run(*command).stdout == line
    assert "at least two choices" in error(*command[:3], *model)
    assert "needs several texts for each example" in error("predict", texts, *model)


def test_the_entities_of_a_text_are_its_json(run, told):
    arguments = told("tag", [ADA])
    [row] = objects(run("tag", "Ada Lovelace", "--aggregate", "first", "-m", "x", "--json").stdout)
    assert row == {"text": "Ada Lovelace", "entities": [vars(ADA)]}
    assert arguments == [(["Ada Lovelace"], {"aggregate": "first", "batch_size": 32})]


def test_questions_and_texts_come_from_arguments_or_files(run, told, folder):
    arguments = told("answer", [PARIS])
    (folder / "page.txt").write_text("Paris .")
    (folder / "questions.tsv").write_text("where ?\tParis .\n")
    for source in (
        ("where ?", "Paris ."),
        ("where ?", "--context", "page.txt"),
        ("--file", "questions.tsv"),
    ):
        run("answer", *source, "--model", "x", "--null-threshold", 2)
    options = {"top_k": 1, "null_threshold": 2.0, "batch_size": 32}
    assert arguments == [(["where ?"], ["Paris ."], options)] * 3


def test_a_dash_means_standard_input(run, trained, monkeypatch):
    command = ["perplexity", "-", "--json", "--model", str(trained)]
    result = run(*command, input="\ufeffthe dog\nthe caf\u00e9\n")
    first, second, _ = objects(result.stdout)  # the last is for both texts together
    assert (first["text"], second["text"]) == ("the dog", "the caf\u00e9")


def test_fill_mask_predicts_each_mask_of_texts_or_a_file(run, trained, folder, error):
    (folder / "masks.txt").write_text("the [MASK] sees\nthe [MASK] [MASK]\n")
    command = ("fill-mask", "--file", "masks.txt", "--top-k", 2, "--json", "--model", trained)
    out = run(*command[:5], *command[6:]).stdout.splitlines()  # without --json
    assert [out[0], out[2]] == ["the [MASK] sees", "the [MASK] [MASK]"]
    assert all(re.fullmatch(r"    (\S+ 0\.\d{3}(, )?){2}", out[n]) for n in (1, 3, 4))
    rows = objects(run(*command).stdout)
    assert [[len(mask) for mask in row["masks"]] for row in rows] == [[2], [2, 2]]
    assert set(rows[0]["masks"][0][0]) == {"token", "id", "score"}
    targets = ("--target", "dog", "--target", "owl", "--target", "fox")
    [row] = objects(run("fill-mask", "the [MASK]", *targets, "--json", "--model", trained).stdout)
    assert {one["token"] for one in row["masks"][0]} == {"dog", "owl", "fox"}
    assert error("fill-mask", "a [MASK]", "--target", "the dog", "--model", trained).startswith(
        "error: Each of --target must be one token of the vocabulary."
    )


@pytest.mark.slow
def test_unusable_texts_give_a_one_line_error(error, texts, trained, folder):
    (folder / "gap.txt").write_text("the dog\n\nthe cat\n")
    (folder / "none.txt").write_text("\n")
    (folder / "latin.txt").write_bytes(b"caf\xe9\n")
    (folder / "three.tsv").write_text("a\tb\na\tb\tc\n")
    bert = ("--model", trained)
    assert "as arguments, with --file" in error("embed", *bert)
    assert "as arguments, with --file" in error("embed", "a", "--file", texts, *bert)
    assert "number 2 is empty" in error("perplexity", "--file", "gap.txt", *bert)
    assert "number 1 is empty" in error("embed", "", *bert)
    assert "line of 'none.txt' must contain text" in error("embed", "--file", "none.txt", *bert)
    assert "byte 3 is 0xe9" in error("embed", "--file", "latin.txt", *bert)
    assert "nowhere.txt" in error("embed", "--file", "nowhere.txt", *bert)
    assert "QUERY" in error("similar", " ", "a", *bert)
    assert "Received: 3 texts" in error("next-sentence", "a", "b", "c", *bert)
    assert "line 2, 'a\\tb\\tc'" in error("next-sentence", "--file", "three.tsv", *bert)
    for command in ("embed", "perplexity"):
        assert "at most 512 tokens" in error(command, LONG, "--no-truncate", *bert)
    pair = (LONG, "the dog", "--no-truncate")
    assert error("next-sentence", *pair, *bert).endswith("Split it, or omit --no-truncate.\n")
    assert "must end in .npy" in error("embed", "a", "--out", "vectors.txt", *bert)


@pytest.mark.slow
def test_truncated_texts_of_all_parts_are_counted_in_one_line(
    run, error, trained, tasks, folder, monkeypatch
):
    for module in (input_output, ask):
        monkeypatch.setattr(module, "PART", 2)
    texts = LONG, "the dog", f"a {LONG}", f"an {LONG}", "the owl"
    (folder / "long.txt").write_text("\n".join(texts))
    note = "Truncated to 512 tokens, including special tokens: 3 texts. Where --no-truncate is"
    for name, model in (("embed", trained), ("classify", tasks / "classify")):
        command = (name, "--file", "long.txt", "--model", model)
        lines = run(*command).stderr.splitlines()
        assert [line for line in lines if "truncate" in line.lower()] == [
            f"{note} an option, it makes this an error."
        ]
        assert "omit --no-truncate" in error(*command, "--no-truncate")


@pytest.mark.slow
def test_a_checkpoint_of_a_different_task_gives_a_one_line_error(error, tasks, trained):
    for command in ("fill-mask", "perplexity"):
        message = error(command, "the [MASK] dog", "--model", tasks / "tag")
        assert "a TokenClassifier" in message
    assert "a TokenClassifier" in error("next-sentence", "a", "b", "--model", tasks / "tag")
    assert "task TokenClassifier" in error("embed", "a", "--model", tasks / "tag")
    assert "a BERTModel" in error("classify", "a", "--model", trained)
    assert "a SequenceClassifier" in error("tag", "a", "--model", tasks / "classify")
    assert "a TokenClassifier" in error("answer", "who ?", "the dog", "--model", tasks / "tag")
    assert "--model" in error("classify", "a")


def test_texts_can_be_compressed(run, error, trained, folder):
    for name, compress in (("texts.gz", gzip.compress), ("texts.xz", lzma.compress)):
        (folder / name).write_bytes(compress("\n".join(LINES).encode()))
        rows = objects(run("perplexity", "--file", name, "--json", "--model", trained).stdout)
        assert [row["text"] for row in rows[:3]] == LINES
    (folder / "packed").write_bytes(gzip.compress(b"the dog\n", mtime=0))
    assert "Unpack or convert the file first" in error("embed", "--file", "packed", "-m", trained)
    told = error("embed", "-", "-m", trained, input=b"the dog\ncaf\xe9\n")
    assert "Line 2 of standard input must be UTF-8. Received: byte 3 is 0xe9" in told


def test_answer_requires_a_text_for_each_question(error, folder):
    (folder / "none.txt").write_text("")
    command = ("answer", "who ?", "--model", "nowhere")
    assert "Received: 1 text. Add the text that contains the answer" in error(*command)
    assert "'none.txt' is empty" in error(*command, "--context", "none.txt")


@pytest.mark.slow
def test_features_writes_the_vectors_of_the_chosen_layers(run, trained, texts, folder):
    command = ("features", "--model", trained, "--layers", "0,-1", "--pooling", "mean")
    found = extract_features(ask.load(trained).model, LINES, layers=[0, -1], pooling="mean")
    expected = [one.vectors for one in found]
    for source in (LINES, ["--file", texts], ["-"]):
        result = run(*command, "--out", "vectors.npz", *source, input="\n".join(LINES))
        assert result.stdout == "3 texts in vectors.npz\n"
        with np.load(folder / "vectors.npz") as arrays:
            np.testing.assert_allclose(arrays["vectors"], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "vectors.csv", *LINES], "must end in .npz, .jsonl"),
        (["--out", "vectors.npz", "--layers", "last", *LINES], "separated by commas"),
        (["--out", "vectors.npz", "--layers", "9", *LINES], "numbers from -3 to 2"),
        (["--out", "vectors.npz", "a fox", " "], "number 2 is empty"),
        (["--out", "vectors.npz", "--file", "absent.txt"], "absent.txt"),
    ],
)
def test_features_refuses_wrong_arguments(error, trained, arguments, message):
    assert message in error("features", "--model", trained, *arguments)


@pytest.mark.slow
def test_playground_writes_a_page(run, trained, texts, folder):
    command = ("playground", "--model", trained, "--out", "made/page.html")
    out = run(*command).stdout
    page = (folder / "made/page.html").read_bytes()
    assert out == f"{len(page) / 1e6:.1f} MB in made/page.html\n"
    run(*command, "--file", texts)
    assert len((folder / "made/page.html").read_bytes()) > len(page)
