"""`Run`: what the files in the folder of a run say about it."""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar

from keras_bert_d2l.checks import check_path
from keras_bert_d2l.training.options import read_options
from keras_bert_d2l.training.run.run_folder import RunFolder
from keras_bert_d2l.types import PathLike

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Run:
    """A pretraining or fine-tuning run.

    Attributes:
        folder: Its folder.
        command: `"pretrain"` or `"finetune"`.
        options: Its options.
        metrics: The metrics of each evaluation, with NaN for values that are not finite.
        summary: The content of `metrics.json`; empty for pretraining.
        state: The progress in the training state; empty if there is none.
        starts: One record for each time the run was started or resumed.
        evaluations: The records of evaluations, by step.
    """

    folder: RunFolder
    command: str
    options: Mapping[str, Any]
    metrics: Sequence[Mapping[str, float]]
    summary: Mapping[str, Any]
    state: Mapping[str, Any]
    starts: Sequence[Mapping[str, Any]]
    evaluations: Mapping[int, Mapping[str, Any]]

    @classmethod
    def read(cls, path: PathLike) -> Self:
        """Read the files of a run, which may be running.

        Raises:
            ValueError: The folder is not that of a run, or a file is damaged.
        """
        check_path("run_dir", path)
        folder = RunFolder.for_reading(path)
        metrics = folder.metrics()
        if not metrics:
            raise ValueError(
                f"{os.fspath(path)!r} must be the folder of a run that has been evaluated. "
                f"Received: a path without metrics in {folder.metrics_file.name!r}."
            )
        records = folder.records()
        options = folder.options_file
        summary = folder.read_json(folder.summary_file)
        return cls(
            folder,
            "pretrain" if folder.config_file.is_file() else "finetune",
            read_options(options) if options.is_file() else summary.get("options", {}),
            metrics,
            summary,
            folder.read_json(folder.state_file),
            [record for record in records if "machine" in record],
            {record["step"]: record for record in records if "machine" not in record},
        )

    @property
    def title(self) -> str:
        """The end of the path of its folder."""
        return "/".join(self.folder.path.resolve().parts[-2:])

    @property
    def unit(self) -> str:
        """What the horizontal axis of its curves counts."""
        return "step" if self.command == "pretrain" else "epoch"

    @functools.cached_property
    def best(self) -> int:
        """The index of the evaluation whose checkpoint is in `best/`, or 0 if there is none."""
        if self.command == "finetune":
            return (self.summary.get("best_epoch") or 1) - 1
        steps = [metrics["step"] for metrics in self.metrics]
        best = self.state.get("best_step")
        return steps.index(best) if best in steps else 0

    def evaluation(self, index: int) -> Mapping[str, Any]:
        """Return the record of an evaluation, which is empty in a run of an earlier version."""
        return self.evaluations.get(int(self.metrics[index]["step"]), {})


def spread(values: Sequence[T], number: int) -> list[T]:
    """Return at most `number` of the values: the first, the last, and some at equal distances."""
    if len(values) <= number:
        return list(values)
    return [values[round(n * (len(values) - 1) / (number - 1))] for n in range(number)]
