import pathlib
import re

import keras_bert_d2l

ROOT = pathlib.Path(keras_bert_d2l.__file__).parent
QUESTION = re.compile(
    r"isinstance\([^)]*(Sequence|Token)?(Classifier|Regressor|Answerer|MultipleChoice|Embedder)\b"
    r"|isinstance\([^)]*(Word|Question|Choice|Pair)Examples\b"
    r"|\btask (==|!=|in|not in) [\"(]"
)


def test_only_the_folders_of_the_tasks_ask_for_the_name_or_the_class_of_a_task():
    asking = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).parts[0] != "tasks"
        for line in path.read_text().splitlines()
        if QUESTION.search(line)
    ]
    assert asking == []
