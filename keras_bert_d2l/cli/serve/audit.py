"""`keras-bert-d2l audit`."""

from pathlib import Path

import keras_bert_d2l as kb

_FOUND = 1  # exit code


def audit(
    path: Path,
    /,
    *,
    server: str | None = None,
) -> int | None:
    """List the operations of a SavedModel that are unsupported or access files or the network.

    TensorFlow Serving cannot load a model with operations that it does not support. Operations that
    access files can read and write them with the rights of the server. The exit code
    is 1 if any are found.

    For example: `keras-bert-d2l audit saved_models/mine/1`

    Args:
        path: Folder with a `saved_model.pb`, exported by any program.
        server: Version of TensorFlow Serving: 2.12 or 2.20. [default: operations of all releases]
    """
    findings = kb.audit_saved_model(path, server=server)
    for finding in findings:
        print(finding)
    if findings:
        return _FOUND
    print("TensorFlow Serving supports all operations, and none accesses files or the network.")
    return None
