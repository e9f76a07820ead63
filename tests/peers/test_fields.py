"""`docs/fields.md` names every field that the classes of other programs read or write."""

import dataclasses
import importlib
import inspect
import json
import pkgutil
import re

import numpy as np
import pytest
import yaml

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.formats.huggingface.model_types import MODEL_TYPES
from tests.checkpoints.formats.test_model_garden import FOLDER as GARDEN
from tests.checkpoints.small import edit_config
from tests.fields import rows, scopes

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-peers")
transformers = pytest.importorskip("transformers", reason="needs transformers: make test-peers")
tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: make test-peers")
family = pytest.importorskip("tests.peers.test_family")

KINDS = ["WordPiece", "BPE", "Unigram"]
NAMED = re.compile(r"""(?:kwargs|config)(?:\.(?:pop|get|setdefault)\(|\[)"([a-z]\w+)\"""")
WITH_TOKENIZER = "Albert BertJapanese Bert Camembert DistilBert MPNet Roberta XLMRoberta".split()
# Arguments of functions that are not fields of files.
NO_FIELDS = set(
    "self args kwargs vocab merges unk_id gguf_file tokenizer tokenizer_object tokenizer_padding "
    "tokenizer_truncation post_processor commit_message repo_id token save_jinja_files "
    "_spm_precompiled_charsmap backbone preprocessor compile".split()
)
PAIR = [("a", 1), ("b", 2)]
SAMPLES = {"BertProcessing": PAIR, "RobertaProcessing": PAIR, "CharDelimiterSplit": ["a"]}
SAMPLES |= {"Replace": ["a", "b"], "Sequence": [[]], "Split": ["a", "isolated"]}
PARTS = {"normalizers": "normalizer", "pre_tokenizers": "pre_tokenizer", "models": "model"}
PARTS |= {"processors": "post_processor", "decoders": "decoder"}
SENTENCES = "Folders of sentence-transformers"
MODULES = "base sentence_transformer sparse_encoder cross_encoder multi_vector_encoder".split()


def on_page(section, known=(), scope=None, handling=None):
    """Return the fields of a table, or of those rows that are about a scope."""
    found = [row for row in rows(section) if scope is None or scope in scopes(row, known)]
    return [field for row in found if handling in (None, row.handling) for field in row.fields]


def missing(fields, *where):
    return {*fields} - {name for name, _ in on_page(*where)} - NO_FIELDS


def parameters(one):
    return {*inspect.signature(one.__init__).parameters}


@pytest.mark.parametrize("kind", MODEL_TYPES)
def test_every_field_of_a_configuration_is_on_the_page(kind):
    config = transformers.AutoConfig.for_model(kind)
    fields = {*config.to_dict(), *config.attribute_map, "per_layer_config", "torch_dtype"}
    fields |= {field.name for field in dataclasses.fields(config)}
    fields |= {*transformers.GenerationConfig._get_default_generation_params()}
    assert not missing(fields, "config.json", MODEL_TYPES, kind)


@pytest.mark.slow
@pytest.mark.parametrize("name", family.CLASSES)
def test_fields_without_effect_have_none_in_transformers_and_here(name, tmp_path):
    torch.manual_seed(0)
    transformers.AutoModel.from_config(family.their_config(name, "small")).save_pretrained(tmp_path)
    ids = np.arange(8)[None] + 5

    def outputs():
        theirs = transformers.AutoModel.from_pretrained(tmp_path, dtype=torch.float32).eval()
        return theirs(torch.tensor(ids))[0].detach().numpy()

    before = outputs()
    fields = dict(on_page("config.json", MODEL_TYPES, name, "no effect"))
    edit_config(tmp_path, **{k: x for k, x in fields.items() if k != "tokenizer_class"})
    np.testing.assert_allclose(outputs(), before, atol=1e-6)
    encoder = kb.load_pretrained(tmp_path, verbose=False).model.encoder
    np.testing.assert_allclose(encoder(ids, ids * 0, np.array([8])), before, atol=1e-5)


def test_every_field_of_a_tokenizer_is_on_the_page():
    base, backend = transformers.PreTrainedTokenizerBase, transformers.TokenizersBackend
    names = [NAMED.findall(inspect.getsource(x.__init__)) for x in (base, backend)]
    names += [parameters(getattr(transformers, f"{name}Tokenizer")) for name in WITH_TOKENIZER]
    names.append(NAMED.findall(inspect.getsource(base.save_pretrained)))
    assert not missing(set().union(*names), "tokenizer_config.json")
    special = {*base.SPECIAL_TOKENS_ATTRIBUTES, "extra_special_tokens"}
    assert not missing(special, "special_tokens_map.json")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding()
    tokenizer.add_tokens([tokenizers.AddedToken("a")])
    fields = json.loads(tokenizer.to_str())
    assert not missing(fields, "tokenizer.json")
    for name in ("truncation", "padding", "added_tokens"):
        known = {"id"}.union(*(value for n, value in on_page("tokenizer.json") if n == name))
        inner = fields[name][0] if name == "added_tokens" else fields[name]
        assert inner.keys() <= known


@pytest.mark.parametrize(("module", "part"), PARTS.items())
def test_every_component_of_a_tokenizer_is_on_the_page(module, part):
    for name, component in vars(getattr(tokenizers, module)).items():
        if not isinstance(component, type) or component.__base__ is object:
            continue
        try:
            fields = json.loads(component(*SAMPLES.get(name, ())).__getstate__()).keys()
        except TypeError:  # Precompiled needs a table
            fields = {"type", *inspect.signature(component).parameters} - NO_FIELDS
        for kind in KINDS if part in ("normalizer", "pre_tokenizer") else ():
            values = [value for n, value in on_page("tokenizer.json", KINDS, kind) if n == part]
            is_usual = (kind, name) == ("WordPiece", "BertPreTokenizer")
            assert is_usual or name in {value["type"] for value in values}, (kind, name)
        values = [value for n, value in on_page("tokenizer.json") if n == part]
        assert fields <= set().union(*(value for value in values if value["type"] == name))


def test_every_field_of_peft_is_on_the_page():
    peft = pytest.importorskip("peft", reason="needs peft: make test-peers")
    fields = {field.name for field in dataclasses.fields(peft.LoraConfig)}
    assert not missing(fields, "adapter_config.json")


def test_every_module_and_field_of_sentence_transformers_is_on_the_page():
    library = pytest.importorskip("sentence_transformers", reason="needs it: make test-peers")
    base, found = importlib.import_module("sentence_transformers.base.modules").Module, {}
    for kind in MODULES:
        package = importlib.import_module(f"sentence_transformers.{kind}.modules")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            classes = filter(inspect.isclass, vars(importlib.import_module(module.name)).values())
            found |= {one.__name__: one for one in classes if issubclass(one, base)}
    refused = {value.rpartition(".")[2] for name, value in on_page(SENTENCES) if name == "type"}
    supported = {"Transformer", "Pooling", "Dense", "Normalize", "Dropout"}
    assert found.keys() <= {*refused, *supported, "StaticEmbedding", "Module", "InputModule"}
    fields = set().union(*(found[name].config_keys for name in supported))
    for one in {*library.SentenceTransformer.__mro__[:2], *library.CrossEncoder.__mro__[:2]}:
        source = inspect.getsource(one._get_model_config)
        fields |= {*re.findall(r'"(\w+)"(?::|\])', source)}
    assert not missing(fields, SENTENCES) - {"sentence_transformers", "transformers", "pytorch"}


def test_every_field_of_keras_hub_and_of_the_model_garden_is_on_the_page():
    model = yaml.safe_load((GARDEN / "pretraining/params.yaml").read_text())["task"]["model"]
    fields = {*model["encoder"]["bert"], *(f"task.model.{name}" for name in model)}
    assert missing(fields, "params.yaml") == {"task.model.encoder"}
    keras_hub = pytest.importorskip("keras_hub", reason="needs KerasHub: make test-peers")
    for name in {row.scope for row in rows("Presets of KerasHub")} - {"all"}:
        for one in getattr(keras_hub.models, name).__mro__[:2]:
            assert not missing(parameters(one), "Presets of KerasHub")
