"""Write `tf_model_h5.zip` in the folder of `family.py` by transformers 4 in TensorFlow.

It converts models of `family.py`, so the weights are the same. `build.sh` of this folder runs this
script.
"""

import pathlib
import tempfile
import zipfile

import transformers

FOLDER = pathlib.Path(__file__).parents[2] / "tests/checkpoints/formats/originals/family"
MODELS = {
    "distilbert": "DistilBertForSequenceClassification",
    "electra": "ElectraForMultipleChoice",
    "roberta": "RobertaForSequenceClassification",
    "camembert": "CamembertForMaskedLM",
    "xlm-roberta": "XLMRobertaForTokenClassification",
    "mpnet": "MPNetForQuestionAnswering",
    "albert": "AlbertForPreTraining",
    "deberta": "DebertaForMaskedLM",
    "deberta-v2": "DebertaV2ForSequenceClassification",
}


def main() -> None:
    """Write the archive."""
    transformers.set_seed(0)  # for the pooler of MPNet, which the file of PyTorch lacks
    with (
        tempfile.TemporaryDirectory() as folder,
        zipfile.ZipFile(FOLDER / "tf_model_h5.zip", "w", zipfile.ZIP_LZMA) as archive,
    ):
        for model_type, name in MODELS.items():
            path = pathlib.Path(folder, model_type)
            ending = name[name.index("For") :]
            zipfile.ZipFile(FOLDER / f"{model_type}.zip").extractall(path)
            model = getattr(transformers, f"TF{name}").from_pretrained(path / ending)
            if model_type == "albert":  # the bias that is not stored twice in PyTorch
                model.predictions.decoder_bias.assign(model.predictions.bias)
            model.save_pretrained(path / "h5")
            for file in sorted((path / "h5").iterdir()):
                archive.write(file, f"{model_type}/{ending}/{file.name}")


if __name__ == "__main__":
    main()
