import json
import random
import signal

import keras
import pytest
import yaml

import keras_bert_d2l as kb
from keras_bert_d2l.models.tasks.task_model import TaskModel

pytestmark = pytest.mark.slow

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] good bad film a what is it ##s the dog cat runs".split()
NAMES = ["film", "it", "the", "dog", "cat", "runs"]
SMALL = ("--epochs", 2, "--batch-size", 8, "--learning-rate", 0.01)


@pytest.fixture(scope="session")
def files(folder):
    """A folder with a BERT and data files."""
    keras.utils.set_random_seed(0)
    config = kb.BERTConfig(len(WORDS), 16, 24, num_heads=2, num_blks=1, dropout=0.0, max_len=24)
    tokenizer = kb.Tokenizer(kb.Vocab(WORDS))
    kb.save_pretrained(kb.BERTModel.from_bert_config(config), folder / "bert", tokenizer=tokenizer)
    draw = random.Random(0)
    rows = []
    for _ in range(48):
        label = draw.choice(["good", "bad"])
        rows.append((label, f"a {label} {draw.choice(NAMES)} is {draw.choice(NAMES)}"))
    lines = [f"{label}\t{text}" for label, text in rows]
    (folder / "reviews.tsv").write_text("\n".join(["label\ttext", *lines, "bad\t "]) + "\n")
    few = [f"{label}\t{text}" for label, text in rows[:8]]
    (folder / "few.tsv").write_text("\n".join(["label\ttext", *few]) + "\n")
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
    options = yaml.safe_load((run / "run.yaml").read_text())
    assert (options["task"], options["epochs"]) == ("classify", 5)
    assert options["train"] == str(run.parents[1] / "reviews.tsv")
    assert "Accuracy" in (run / "report.html").read_text()
    assert f"Best epoch: {metrics['best_epoch']}, accuracy 1.0000" in out


def test_evaluate_prints_metrics_as_a_table_and_as_json(run, error, reviews, files):
    evaluate = ("evaluate", "--model", "runs/reviews", "--data", "reviews.tsv")
    out = run(*evaluate).stdout
    assert "accuracy" in out
    assert "1.0000" in out
    written = json.loads(run(*evaluate, "--json").stdout)
    assert (written["task"], written["examples"]) == ("classify", 48)
    assert written["metrics"]["accuracy"] == 1.0
    assert written["dropped"] == {"empty text": 1}
    assert sum(map(sum, written["confusion"]["counts"])) == 48
    (files / "words.tsv").write_text("only one column\n")
    assert "'words.tsv'" in error("evaluate", "--model", "runs/reviews", "--data", "words.tsv")


def test_predict_writes_the_labels_of_lines(run, reviews, files):
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


@pytest.mark.long
def test_spans_of_an_annotation_tool_are_learned_predicted_and_evaluated(run, files):
    texts = [["the dog runs", {"entities": [[4, 7, "PET"]]}], ["it is a film", {"entities": []}]]
    (files / "ner.json").write_text(json.dumps({"classes": ["PET"], "annotations": texts * 8}))
    data, model = ("--train", "ner.json", "--dev", "ner.json"), ("--model", "runs/ner")
    long = ("--model", "bert", "--run-dir", "runs/ner", *SMALL[2:], "--epochs", 10)
    said = run("finetune", "tag", *data, *long).stdout
    assert "read spans of characters as BIO tags" in said
    lines = run("predict", "ner.json", *model, "--aggregate", "first").stdout.splitlines()[:2]
    assert [len(json.loads(line)["entities"]) for line in lines] == [1, 0]
    assert '"f1": 1.0' in run("evaluate", "--data", "ner.json", *model, "--json").stdout


@pytest.mark.long
def test_the_threshold_of_a_run_decides_which_questions_have_an_answer(run, error, files):
    model = ("--model", "runs/answer")
    data = ("--train", "questions.jsonl", "--dev", "questions.jsonl", "--model", "bert")
    run("finetune", "answer", *data, "--run-dir", "runs/answer", *SMALL, "--epochs", 1)
    (files / "ask.txt").write_text("what is it\n")
    (files / "about.txt").write_text("it is a dog")
    assert "--context" in error("predict", "ask.txt", *model)
    predict = ("predict", "ask.txt", *model, "--context", "about.txt")
    found = json.loads(run(*predict).stdout)
    assert found["answer"] == "it is a dog"[found["start"] : found["end"]]
    # As after a run in which no answers scored best on the development data.
    metrics = files / "runs/answer/metrics.json"
    recorded = json.loads(metrics.read_text())
    recorded["best"]["val_null_threshold"] = -1e9
    metrics.write_text(json.dumps(recorded))
    assert "has changed since it was written" in error(*predict)
    (metrics.parent / "SHA256SUMS").unlink()
    answer = ("predict", "what is it", "it is a dog", *model)
    for more, is_answered in (((), False), (("--null-threshold", 1e9), True)):
        assert (
            bool(json.loads(run(*predict, *more).stdout.splitlines()[0])["answer"]) == is_answered
        )
        assert ("(no answer)" in run(*answer, *more).stdout) != is_answered


def test_a_stopped_run_prints_how_to_resume_and_can_be_resumed(run, files, monkeypatch):
    options = ("finetune", "classify", "--train", "few.tsv", "--dev", "few.tsv", "--model", "bert")
    options += ("--epochs", 1, "--batch-size", 2, "--learning-rate", 0.01, "--lora", 2)
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
    assert "Stopped at epoch 1/1, step 3/4; the state is saved." in result.stderr
    assert "Resume with: keras-bert-d2l finetune --resume runs/stopped" in result.stderr
    run("finetune", "--resume", "runs/stopped")
    assert (files / "runs/stopped/best/model.safetensors").exists()
    assert (files / "runs/stopped/adapter/adapter_model.safetensors").exists()


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("classify", "--max-len 25", "--max-len must be from 1 to 24"),
        ("classify", "--lora 2 --freeze-encoder", "exclude each other"),
        ("classify", "--run-dir runs/reviews", "already contains a run"),
        ("tag", "--long-texts mean", "must be omitted for the task 'tag'"),
        ("", "", "TASK is missing: specify one of ('classify', "),
    ],
)
def test_wrong_options_give_a_one_line_error(error, reviews, task, options, message):
    given = ("--train", "few.tsv", "--model", "bert", "--run-dir", "x", *options.split())
    assert message in error("finetune", *task.split(), *given)


def test_a_run_of_another_kind_or_with_other_options_is_not_resumed(error, reviews):
    assert "has --epochs 5" in error("finetune", "--resume", "runs/reviews", "--epochs", 2)
    assert "run.yaml': Unknown option" in error("pretrain", "--resume", "runs/reviews")


@pytest.mark.long
def test_a_student_with_fewer_blocks_learns_from_a_task_model_or_a_bert(run, error, files):
    config = kb.BERTConfig(len(WORDS), 8, 16, num_heads=2, num_blks=2, dropout=0.0, max_len=24)
    bert = kb.BERTModel.from_bert_config(config)
    bert.tokenizer = kb.Tokenizer(kb.Vocab(WORDS))
    kb.save_pretrained(bert, files / "teacher")
    kb.save_pretrained(kb.SequenceClassifier(bert, ["bad", "good"]), files / "films")
    (files / "lines.txt").write_text("a good film\nwhat a bad film\n")
    (files / "story.txt").write_text("the dog runs .\nit is good .\n\na cat .\nthe film runs .\n")
    small = ("--blocks", 2, "--epochs", 1, "--batch-size", 2, "--max-len", 16)
    for model, kind, data in (
        ("films", kb.SequenceClassifier, ("--file", "lines.txt")),
        ("films", kb.SequenceClassifier, ("--train", "few.tsv")),
        ("teacher", kb.BERTModel, ("--train", "story.txt")),
    ):
        run("distill", "--model", model, *small, *data, "--out", "small")
        student = kb.load_pretrained(files / "small", verbose=False).model
        assert (type(student), student.bert_config.num_blks) == (kind, 1)
    wrong = ("distill", "--model", "films", "--out", "no", "--blocks")
    assert "--train FILE, or single texts with --file" in error(*wrong, 2)
    assert "--blocks must be numbers separated by commas" in error(*wrong, "two")
