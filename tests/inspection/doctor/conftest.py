import pytest

from keras_bert_d2l.inspection.doctor.evidence import of_run
from tests.cli.conftest import invoke as run_command
from tests.inspection.doctor import faults


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """The folder of a healthy pretraining run."""
    return faults.pretrain(tmp_path_factory.mktemp("healthy"))


@pytest.fixture(scope="session")
def task_run(run, tmp_path_factory):
    """The folder of a healthy fine-tuning run."""
    return faults.finetune(tmp_path_factory.mktemp("task"), run)


@pytest.fixture(scope="session")
def evidence(run):
    return of_run(run)


@pytest.fixture(scope="session")
def task_evidence(task_run):
    return of_run(task_run)


@pytest.fixture
def invoke():
    return run_command
