"""Planted faults: how many of them the doctor finds, and how often it raises a false alarm.

Trains healthy runs with different seeds, texts and options: pretraining and fine-tuning. Examines
every run as it is, and again with each fault planted in it. Prints a Markdown table: the healthy
numbers, those of the healthy runs and of the runs with the fault, how many faults were found, and
the alarms in healthy runs. The runs and their results stay in the folder, so that the benchmark can
be interrupted.
"""

import argparse
import json
import pathlib
import tempfile

from keras_bert_d2l.inspection.doctor.doctor import diagnose
from keras_bert_d2l.inspection.doctor.evidence import of_run
from tests.inspection.doctor import faults

VARIANTS = (
    {},
    {"short_seq_prob": 0.3, "schedule": "cosine"},
    {"rows": "padded"},
    {"optimizer": "muon", "schedule": "wsd"},
    {"masking": "whole_word", "mask_rate": 0.3},
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="for the healthy runs")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--only", nargs="+", metavar="CHECK", help="plant only these faults")
    options = parser.parse_args()
    results = []
    for seed in range(options.runs):
        folder = options.folder / str(seed)
        if not (folder / "task" / "best").exists():
            folder.mkdir(parents=True)
            faults.pretrain(folder, seed, **VARIANTS[seed % len(VARIANTS)])
            faults.finetune(folder, folder / "run", seed)
        if options.only:
            results += examine_both(folder, options.only)
            continue
        if not (folder / "results.json").exists():
            (folder / "results.json").write_text(json.dumps(examine_both(folder)))
        results += json.loads((folder / "results.json").read_text())
    print_table(results)


def examine_both(folder, only=None) -> list[dict]:
    """Examine the runs of a folder with all faults, or only with some."""
    results = []
    for name, planted in (("run", faults.PRETRAINING_FAULTS), ("task", faults.TASK_FAULTS)):
        some = {fault: plant for fault, plant in planted.items() if fault in (only or planted)}
        evidence = of_run(folder / name)
        found = examine(evidence, some)
        results += [one for one in found if one["name"] in (only or [one["name"]])]
    return results


def examine(evidence, planted) -> list[dict]:
    results = [record(finding, "healthy") for finding in diagnose(evidence).findings]
    for name, plant in planted.items():
        with tempfile.TemporaryDirectory() as folder:
            found = faults.diagnosis_of(plant, evidence, pathlib.Path(folder))
        [finding] = [one for one in found.findings if one.name == name]
        results.append(record(finding, "planted"))
    return results


def record(finding, kind) -> dict:
    fields = {"name": finding.name, "number": finding.number, "limits": finding.limits}
    return {**fields, "kind": kind, "is_fault": finding.is_fault}


def print_table(results) -> None:
    print("| check | healthy numbers | healthy runs | runs with the fault | found | false alarms |")
    print("|---|---|---|---|---|---|")
    for name, limits in {one["name"]: one["limits"] for one in results}.items():
        columns = {
            kind: [one for one in results if (one["name"], one["kind"]) == (name, kind)]
            for kind in ("healthy", "planted")
        }
        spans = " | ".join(map(span, columns.values()))
        alarms, hits = (sum(one["is_fault"] for one in some) for some in columns.values())
        checked, planted = map(len, columns.values())
        print(f"| {name} | {limits} | {spans} | {hits} of {planted} | {alarms} of {checked} |")


def span(some) -> str:
    numbers = sorted(one["number"] for one in some)
    return f"{numbers[0]:.3g} to {numbers[-1]:.3g}" if numbers else ""


if __name__ == "__main__":
    main()
