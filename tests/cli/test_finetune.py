import json
import random
import re
import signal

import keras
import pytest
import yaml

from keras_bert_d2l import (
    BERTConfig,
    BERTModel,
    SequenceClassifier,
    Tokenizer,
    Vocab,
    load_pretrained,
    save_pretrained,
)
from keras_bert_d2l.models.tasks.task_model import TaskModel

pytestmark = pytest.mark.slow

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] good bad film a what is it ##s the dog cat runs".split()
NAMES = ["film", "it", "the", "dog", "cat", "runs"]
TAGS = {"the": "DET", "dog": "NOUN", "cat": "NOUN", "runs": "VERB", "a": "DET"}
SMALL = ("--epochs", 2, "--batch-size", 8, "--learning-rate", 0.01)


@pytest.fixture(scope="session")
def files(folder):
    """A folder with a BERT and a data file for each task."""
    keras.utils.set_random_seed(0)
    config = BERTConfig(len(WORDS), 16, 24, num_heads=2, num_blks=1, dropout=0.0, max_len=24)
    save_pretrained(
        BERTModel.from_bert_config(config), folder / "bert", tokenizer=Tokenizer(Vocab(WORDS))
    )
    draw = random.Random(0)
    rows = []
    for _ in range(48):
        label = draw.choice(["good", "bad"])
        rows.append((label, f"a {label} {draw.choice(NAMES)} is {draw.choice(NAMES)}"))
    lines = [f"{label}\t{text}" for label, text in rows]
    (folder / "reviews.tsv").write_text("\n".join(["label\ttext", *lines, "bad\t "]) + "\n")
    few = [f"{label}\t{text}" for label, text in rows[:8]]
    (folder / "few.tsv").write_text("\n".join(["label\ttext", *few]) + "\n")
    scores = [f"{int(label == 'good')}.5\t{text}" for label, text in rows[:16]]
    (folder / "scores.tsv").write_text("\n".join(["score\ttext", *scores]) + "\n")
    sentences = [[draw.choice(list(TAGS)) for _ in range(4)] for _ in range(16)]
    (folder / "words.conll").write_text(
        "\n\n".join("\n".join(f"{word} {TAGS[word]}" for word in words) for words in sentences)
        + "\n"
    )
    questions = [
        {
            "id": f"q{n}",
            "question": "what is it",
            "context": f"it is a {name}",
            "answers": {"text": [name], "answer_start": [8]},
        }
        for n, name in enumerate(NAMES * 2)
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in questions))
    return folder


@pytest.fixture(scope="session")
def reviews(files, invoke):
    """The folder and the printed output of a classification run."""
    command = ["finetune", "classify", "--train", "reviews.tsv", "--model", "bert"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(files)
        small = ("--epochs", 5, *SMALL[2:])
        result = invoke(*command, "--run-dir", "runs/reviews", *small)
    assert result.exit_code == 0, result.stderr
    return files / "runs/reviews", result.stdout


def test_finetune_reports_its_data_and_writes_model_metrics_and_report(reviews):
    run, out = reviews
    assert "are held out as development data, selected by a hash of their text" in out
    assert "1 dropped: empty text (first: line 50)" in out
    assert "New head: SequenceClassifier (labels: bad, good)" in out
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["monitor"] == "val_accuracy"
    assert metrics["best"]["val_accuracy"] == 1.0
    assert metrics["data"]["train"]["dropped"] == {"empty text": 1}
    assert len(metrics["data"]["dev"]["sha256"]) == 64
    assert metrics["seed"] == 0
    options = yaml.safe_load((run / "run.yaml").read_text())
    assert (options["task"], options["epochs"]) == ("classify", 5)
    assert options["train"] == str(run.parents[1] / "reviews.tsv")
    assert "Accuracy" in (run / "report.html").read_text()
    assert f"Best epoch: {metrics['best_epoch']}, accuracy 1.0000" in out


@pytest.mark.long
def test_multiple_choice_on_the_command_line(run, error, files):
    lines = [
        "sent1,sent2,ending0,ending1,label",
        *["a film,is,good,bad,0", "a dog,is,bad,good,1"] * 8,
    ]
    (files / "choices.csv").write_text("\n".join(lines) + "\n")
    data = ("--train", "choices.csv", "--model", "bert")
    peek = run("finetune", "choose", *data, "--peek").stdout
    assert "ending0, ending1" in peek
    assert "position 0" in peek
    run("finetune", "choose", *data, "--dev", "choices.csv", "--run-dir", "runs/choose", *SMALL)
    metrics = json.loads((files / "runs/choose/metrics.json").read_text())
    assert (metrics["monitor"], metrics["data"]["train"]["rows"]) == ("val_accuracy", 32)
    model = ("--model", "runs/choose")
    found = run("evaluate", *model, "--data", "choices.csv", "--json").stdout
    accuracy = metrics["best"]["val_accuracy"]
    assert json.loads(found)["metrics"] == {"accuracy": pytest.approx(accuracy)}
    out = run("predict", "choices.csv", *model, "--choices", "ending0,ending1").stdout
    row = json.loads(out.splitlines()[0])
    assert row["choice"] == ["is good", "is bad"][row["index"]]
    assert row["score"] == max(row["scores"])
    asked = run("choose", "a film", "is good", "is bad", *model, "--json").stdout
    assert json.loads(asked)["scores"] == pytest.approx(row["scores"], abs=1e-5)
    assert run("choose", "a film", "is good", "is bad", *model).stdout.count(row["choice"]) == 1
    (files / "lines.txt").write_text("a film\n")
    assert "needs several texts for each example" in error("predict", "lines.txt", *model)
    assert "at least two choices" in error("choose", "a film", "is", *model)


def test_evaluate_prints_metrics_and_writes_them(run, error, reviews, files):
    out = run(
        "evaluate", "--model", "runs/reviews", "--data", "reviews.tsv", "--out", "e.json"
    ).stdout
    assert "accuracy" in out
    assert "1.0000" in out
    written = json.loads((files / "e.json").read_text())
    assert (written["task"], written["examples"]) == ("classify", 48)
    assert written["metrics"]["accuracy"] == 1.0
    assert written["dropped"] == {"empty text": 1}
    assert sum(map(sum, written["confusion"]["counts"])) == 48
    (files / "words.tsv").write_text("only one column\n")
    message = error("evaluate", "--model", "runs/reviews", "--data", "words.tsv")
    assert "'words.tsv'" in message
    assert "'runs/reviews' is a SequenceClassifier, so the data must have labels" in message


def test_predict_reads_lines_tables_and_standard_input(run, reviews, files, monkeypatch):
    (files / "lines.txt").write_text("a good film\n\na bad film\n")
    assert "2 predictions in out/l.jsonl" in (
        run("predict", "lines.txt", "--model", "runs/reviews", "--out", "out/l.jsonl").stdout
    )
    rows = [json.loads(line) for line in (files / "out/l.jsonl").read_text().splitlines()]
    assert [(row["id"], row["text"], row["label"]) for row in rows] == [
        ("1", "a good film", "good"),
        ("3", "a bad film", "bad"),
    ]
    assert rows[0]["scores"]["good"] == rows[0]["score"] > 0.5
    out = run("predict", "reviews.tsv", "--model", "runs/reviews").stdout
    assert [json.loads(line)["id"] for line in out.splitlines()[:2]] == ["2", "3"]
    result = run("predict", "-", "--model", "runs/reviews", input='{"text": "a bad dog"}\n')
    assert json.loads(result.stdout)["label"] == "bad"


def test_predict_reads_lines_with_the_same_number_of_columns_as_a_table(run, error, reviews, files):
    model = ("--model", "runs/reviews")
    (files / "table.txt").write_text("label\ttext\nbad\ta good film\n")
    assert json.loads(run("predict", "table.txt", *model).stdout)["text"] == "a good film"
    (files / "bare.txt").write_text("bad\ta good film\ngood\ta bad film\n")
    for columns in ((), ("--text", 2)):  # detected and specified
        rows = run("predict", "bare.txt", *columns, *model).stdout.splitlines()
        assert [json.loads(row)["text"] for row in rows] == ["a good film", "a bad film"]
    (files / "bare.txt").write_text("bad\tx\ta good film\ngood\ty\ta bad film\n")
    assert "by their numbers" in error("predict", "bare.txt", *model)
    table = 'x,body\n1,"a ""bad"" dog"\n'
    read = run("predict", "-", "--text", "body", *model, input=table)
    assert json.loads(read.stdout)["text"] == 'a "bad" dog'
    assert "no file" in error("predict", "nowhere.txt", *model)


@pytest.mark.long
@pytest.mark.parametrize(
    ("task", "data", "text", "keys"),
    [
        ("regress", "scores.tsv", "a good film\n", {"id", "text", "score"}),
        ("tag", "words.conll", "the dog runs\n", {"id", "text", "tags"}),
        ("answer", "questions.jsonl", "what is it\n", {"id", "question", "answer", "score"}),
    ],
)
def test_the_other_tasks_work_from_training_data_to_predictions(
    run, error, files, task, data, text, keys
):
    folder = f"runs/{task}"
    run(
        *("finetune", task, "--train", data, "--dev", data, "--model", "bert"),
        *("--run-dir", folder, *SMALL, "--epochs", 1),
    )
    metrics = json.loads((files / folder / "metrics.json").read_text())
    expected = {"regress": "val_pearson", "tag": "val_accuracy", "answer": "val_f1"}
    assert metrics["monitor"] == expected[task]
    assert run("evaluate", "--model", folder, "--data", data).stdout
    (files / "ask.txt").write_text(text)
    (files / "about.txt").write_text("it is a dog")
    context = ("--context", "about.txt") if task == "answer" else ()
    row = json.loads(run("predict", "ask.txt", "--model", folder, *context).stdout)
    assert keys <= row.keys()
    if task == "tag":
        assert [(tag["word"], tag["start"]) for tag in row["tags"]] == [
            ("the", 0),
            ("dog", 4),
            ("runs", 8),
        ]
        (files / "words.txt").write_text((files / data).read_text())
        words = run("predict", "words.txt", "--model", folder).stdout
        assert len(json.loads(words.splitlines()[0])["words"]) == 4
    if task == "answer":
        (files / "ask.txt").write_text(text + "what is it " * 8)
        told = run("predict", "ask.txt", "--model", folder, *context)
        assert [json.loads(line)["answer"] is None for line in told.stdout.splitlines()] == [
            False,
            True,
        ]
        assert "Too long for a row, so the answer is null: 1 question, first" in told.stderr
        (files / "ask.txt").write_text(text)
        assert row["answer"] == "it is a dog"[row["start"] : row["end"]]
        assert "--context" in error("predict", "ask.txt", "--model", folder)
        # As after a run in which no answers scored best on the development data.
        metrics["best"]["val_null_threshold"] = -1e9
        (files / folder / "metrics.json").write_text(json.dumps(metrics))
        assert "has changed since it was written" in error("predict", "ask.txt", "--model", folder)
        (files / folder / "SHA256SUMS").unlink()
        ask = ("predict", "ask.txt", "--model", folder, *context)
        assert json.loads(run(*ask).stdout)["answer"] == ""
        assert json.loads(run(*ask, "--null-threshold", 1e9).stdout)["answer"]
        ask = ("answer", "what is it", "it is a dog", "--model", folder)
        assert "(no answer)" in run(*ask).stdout
        assert "(no answer)" not in run(*ask, "--null-threshold", 1e9).stdout


def test_a_stopped_run_prints_how_to_resume_and_can_be_resumed(run, files, monkeypatch):
    options = ("finetune", "classify", "--train", "few.tsv", "--dev", "few.tsv", "--model", "bert")
    options += ("--epochs", 1, "--batch-size", 2, "--learning-rate", 0.01, "--lora", 2)
    run(*options, "--run-dir", "runs/whole")
    fit, stopped = TaskModel.fit, []

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1 and not stopped:
                stopped.append(True)
                signal.raise_signal(signal.SIGINT)

    def stopping(self, *arguments, callbacks, **options):
        return fit(self, *arguments, callbacks=[*callbacks, Stop()], **options)

    with monkeypatch.context() as patch:
        patch.setattr(TaskModel, "fit", stopping)
        result = run(*options, "--run-dir", "runs/stopped", exit_code=130)
    assert "in epoch 1 of 1 after step 3 of 4; the state is saved." in result.stderr
    assert "Resume with: keras-bert-d2l finetune --resume runs/stopped" in result.stderr
    run("finetune", "--resume", "runs/stopped")
    adapter = "adapter/adapter_model.safetensors"
    for file in ("last/variables.safetensors", "metrics.jsonl", "best/model.safetensors", adapter):
        runs = [(files / "runs" / name / file).read_bytes() for name in ("whole", "stopped")]
        assert runs[0] == runs[1]


def test_every_command_accepts_a_run_folder_as_its_model(run, error, reviews):
    model = ("--model", "runs/reviews")
    assert "SequenceClassifier" in run("inspect", "runs/reviews").stdout
    assert "good" in run("classify", "a good film", *model).stdout
    for command in ("fill-mask", "perplexity", "embed", "tag"):
        assert "SequenceClassifier" in error(command, "a [MASK]", *model)
    assert "SequenceClassifier" in error("next-sentence", "a film", "it is good", *model)
    assert "already contains a run" in error("pretrain", "reviews.tsv", "--run-dir", "runs/reviews")
    assert "is a fine-tuning run. Resume with: keras-bert-d2l finetune" in error(
        "pretrain", "--resume", "runs/reviews"
    )


def test_peek_shows_the_data_without_training(run, files):
    reviews = ("--train", "reviews.tsv", "--model", "bert", "--held-out", 0.2)
    out = run("finetune", "classify", *reviews, "--peek").stdout
    assert "good" in out
    assert "[CLS]" in out
    assert "total 48" in " ".join(out.replace("│", " ").split())  # nothing is held out


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("classify", "--dropout 1", "--dropout must be a finite number of at least 0 and below 1"),
        ("classify", "--peek --max-len 25", "--max-len must be at most 24"),
        ("classify", "--class-weights good", "LABEL=WEIGHT"),
        ("classify", "--lora 2 --freeze-encoder", "exclude each other"),
        ("classify", "--dev few.tsv --monitor f2", "--monitor must be one of"),
        ("classify", "--train nowhere.tsv", "nowhere"),
        ("classify", "--config none.yaml", "error: There is no file 'none.yaml'.\n"),
        ("classify", "--run-dir runs/reviews", "already contains a run"),
        ("tag", "--long-texts mean", "is for the tasks 'classify', 'regress' and 'embed'"),
        ("tag", "--train words.conll --model runs/reviews", "TokenClassifier"),
        ("embed", "--micro-batches 2", "Received: --micro-batches 2, TASK 'embed'; omit it"),
        ("choose", "--long-texts mean", "Received: --long-texts 'mean', TASK 'choose'; omit it"),
        ("tag", "--mine-negatives", "--mine-negatives is for the task 'embed'"),
        ("", "", "TASK is missing: specify one of ('classify', "),
    ],
)
def test_wrong_options_give_a_one_line_error(error, reviews, task, options, message):
    given = ("--train", "few.tsv", "--model", "bert", "--run-dir", "x", *options.split())
    assert message in error("finetune", *task.split(), *given)


def test_a_run_of_another_kind_or_with_other_options_is_not_resumed(error, files, reviews):
    assert "--model is missing" in error("finetune", "classify", "--train", "few.tsv", "--peek")
    assert "--run-dir" in error("finetune", "classify", "--train", "few.tsv", "--model", "bert")
    assert "has --epochs 5" in error("finetune", "--resume", "runs/reviews", "--epochs", 2)
    (files / "pretrained").mkdir()
    for name in ("run.yaml", "config.json"):
        (files / "pretrained" / name).touch()
    assert "is a pretraining run" in error("finetune", "--resume", "pretrained")
    assert "`keras-bert-d2l finetune` first" in error("predict", "few.tsv", "--model", "bert")


@pytest.mark.long
def test_an_embedder_learns_from_pairs_with_mined_negatives_and_finds_texts(run, error, files):
    pairs = [f"a {name} is good\tthe {name}" for name in NAMES]
    (files / "pairs.tsv").write_text("\n".join(["anchor\tpositive", *pairs]) + "\n")
    data = ("--train", "pairs.tsv", "--dev", "pairs.tsv", "--model", "bert")
    peeked = run("finetune", "embed", *data, "--peek").stdout
    assert "pairs of similar texts" in peeked
    assert "[CLS] the film [SEP]" in " ".join(peeked.split())
    out = run(
        *("finetune", "embed", *data, "--run-dir", "runs/search", "--mine-negatives"),
        *("--epochs", 20, "--batch-size", 3, "--learning-rate", 0.01),
    ).stdout
    assert "Mining negatives" in out
    assert "keras-bert-d2l embed --file FILE --model runs/search" in out
    metrics = json.loads((files / "runs/search/metrics.json").read_text())
    assert metrics["monitor"] == "val_recall@1"
    assert metrics["best"]["val_recall@1"] == 1.0
    assert "finished: epoch 20 of 20" in run("finetune", "--resume", "runs/search").stdout
    out = run("evaluate", "--model", "runs/search", "--data", "pairs.tsv").stdout
    assert "mean_reciprocal_rank" in out
    found = run("similar", "a dog is good", "the cat", "the dog", "--model", "runs/search").stdout
    assert found.splitlines()[0].endswith("the dog")
    (files / "lines.txt").write_text("\n".join(pair.split("\t")[0] for pair in pairs) + "\n")
    teacher = ("--model", "runs/search", "--file", "lines.txt")
    run("distill-static", *teacher, "--num-hiddens", 8, "--out", "static")
    found = run("similar", "a dog is good", "the cat", "the dog", "--model", "static").stdout
    assert found.splitlines()[0].endswith("the dog")
    assert "Use `keras-bert-d2l embed`" in error("predict", "pairs.tsv", "--model", "runs/search")


@pytest.mark.long
def test_a_student_with_fewer_blocks_learns_from_a_task_model_or_a_bert(run, error, files):
    config = BERTConfig(len(WORDS), 8, 16, num_heads=2, num_blks=2, dropout=0.0, max_len=24)
    bert = BERTModel.from_bert_config(config)
    bert.tokenizer = Tokenizer(Vocab(WORDS))
    save_pretrained(bert, files / "teacher")
    save_pretrained(SequenceClassifier(bert, ["bad", "good"]), files / "films")
    (files / "lines.txt").write_text("a good film\nwhat a bad film\n")
    (files / "story.txt").write_text("the dog runs .\nit is good .\n\na cat .\nthe film runs .\n")
    small = ("--blocks", 2, "--epochs", 1, "--batch-size", 2, "--max-len", 16)
    films, taught = ("--model", "films", *small), []
    run("distill", *films, "--file", "lines.txt", "--out", "small/lines")
    run("distill", *films, "--train", "few.tsv", "--label-share", 0.5, "--out", "small/labels")
    options = ("--model", "teacher", *small, "--train", "story.txt", "--outputs-only")
    run("distill", *options, "--out", "small/bert")
    for name in ("lines", "labels", "bert"):
        taught.append(load_pretrained(files / "small" / name, verbose=False).model)
    assert [model.bert_config.num_blks for model in taught] == [1, 1, 1]
    assert [type(model) for model in taught] == [SequenceClassifier, SequenceClassifier, BERTModel]
    out = ("--out", "small/no")
    assert "--train FILE, or single texts with --file" in error("distill", *films, *out)
    wrong = ("distill", "--model", "films", "--file", "lines.txt", *out, "--blocks")
    assert "--blocks must be numbers separated by commas" in error(*wrong, "two")
    assert "--blocks must be numbers from 1 to 2" in error(*wrong, 3)


@pytest.mark.long
def test_lr_find_proposes_a_rate_and_creates_no_run(run, files):
    data = ("finetune", "classify", "--train", "reviews.tsv", "--model", "bert")
    out = run(*data, *SMALL[:4], "--lr-find", "rates.svg").stdout
    assert re.search(r"Proposed: --learning-rate \d\.\de-\d\d\. The loss falls from 0\.\d+ to", out)
    assert out.endswith("Plot: rates.svg\n")
    assert (files / "rates.svg").read_text().startswith("<svg")
    assert not (files / "run.yaml").exists()
