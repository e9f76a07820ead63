"""`keras-bert-d2l audit`."""

from pathlib import Path

import keras_bert_d2l as kb

_FOUND = 1  # exit code


def audit(
    path: Path,
    /,
) -> int | None:
    """List the operations of a SavedModel that TensorFlow Serving does not support.

    The exit code is 1 if any are found.

    For example: `keras-bert-d2l audit saved_models/mine/1`

    Args:
        path: Folder with a `saved_model.pb`, exported by any program.
    """
    findings = kb.audit_saved_model(path)
    for finding in findings:
        print(finding)
    if findings:
        return _FOUND
    print("TensorFlow Serving supports all operations.")
    return None
