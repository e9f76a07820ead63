# isort: skip_file
"""A complete BERT toolkit for Keras: from raw text to a served model.

This stub is the one list of public names. Type checkers and editors read it, and `__init__.py`
imports each name from the module given here when it is first used.
"""

from .checkpoints.adapters import load_adapter as load_adapter, save_adapter as save_adapter
from .checkpoints.loading import (
    Pretrained as Pretrained,
    load_pretrained as load_pretrained,
    load_tokenizer as load_tokenizer,
)
from .checkpoints.detection import (
    WeightSummary as WeightSummary,
    inspect_checkpoint as inspect_checkpoint,
)
from .checkpoints.saving import (
    convert_checkpoint as convert_checkpoint,
    save_pretrained as save_pretrained,
    save_tokenizer as save_tokenizer,
)
from .checkpoints.surgery import (
    add_tokens as add_tokens,
    resize_positions as resize_positions,
    keep_blocks as keep_blocks,
    stack_blocks as stack_blocks,
)
from .config import BERTConfig as BERTConfig
from .data.pretraining.dataset import pretraining_dataset as pretraining_dataset
from .data.pretraining.masking import (
    MaskedRows as MaskedRows,
    Masking as Masking,
    MaskTokens as MaskTokens,
    mask_tokens as mask_tokens,
)
from .data.store.beam import build_store_with_beam as build_store_with_beam
from .data.store.building import TokenStore as TokenStore, build_store as build_store
from .tasks.answer.examples import Answer as Answer, QuestionExamples as QuestionExamples
from .tasks.choose.examples import ChoiceExamples as ChoiceExamples
from .tasks.embed.examples import PairExamples as PairExamples
from .tasks.rerank.evaluation import ranking_metrics as ranking_metrics
from .tasks.rerank.examples import RankExamples as RankExamples
from .data.tasks.texts import TextExamples as TextExamples
from .tasks.tag.examples import WordExamples as WordExamples
from .data.tasks.read_examples import read_examples as read_examples
from .data.tasks.rows import TaskRows as TaskRows
from .data.tasks.examples import split_examples as split_examples
from .inference.calibration import Calibration as Calibration, calibrate as calibrate
from .inference.decisions import Decisions as Decisions
from .inference.evaluation import Evaluation as Evaluation, evaluate as evaluate
from .inference.evaluation import print_evaluation as print_evaluation
from .inference.heads import Prediction as Prediction, fill_mask as fill_mask
from .inference.sparse import SparseVector as SparseVector, embed_sparse as embed_sparse
from .inference.perplexity import MinimalPairs as MinimalPairs, minimal_pairs as minimal_pairs
from .inference.perplexity import Perplexity as Perplexity, pseudo_perplexity as pseudo_perplexity
from .inference.heads import next_sentence_score as next_sentence_score
from .tasks.answer.predictions import FoundAnswer as FoundAnswer, answer as answer
from .tasks.embed.predictions import Match as Match, embed as embed, similar as similar
from .tasks.embed.pairs import mine_negatives as mine_negatives
from .tasks.choose.predictions import Choice as Choice, choose as choose
from .tasks.classify.predictions import Classification as Classification, classify as classify
from .tasks.explanations import Attribution as Attribution, Explanation as Explanation
from .tasks.explanations import explain as explain
from .tasks.regress.predictions import Regression as Regression, regress as regress
from .tasks.rerank.predictions import Ranked as Ranked, rerank as rerank
from .tasks.tag.predictions import Entity as Entity, Tag as Tag, tag as tag
from .tasks.classify.predictions import zero_shot as zero_shot
from .pages import Page as Page
from .inspection.playground import playground as playground
from .training.report.report import run_report as run_report
from .layers.sublayers import MultiHeadAttention as MultiHeadAttention
from .layers.crf import CRF as CRF
from .layers.encoder import BERTEncoder as BERTEncoder
from .layers.heads import (
    MaskLM as MaskLM,
    NextSentencePred as NextSentencePred,
    ReplacedTokenPred as ReplacedTokenPred,
)
from .layers.sparse import SparsePooling as SparsePooling
from .layers.transformer import TransformerEncoderBlock as TransformerEncoderBlock
from .models.bert import BERTModel as BERTModel
from .models.embedding_losses import (
    ContrastiveLoss as ContrastiveLoss,
    MatryoshkaLoss as MatryoshkaLoss,
    RankingLoss as RankingLoss,
)
from .models.losses import WeightedCrossEntropy as WeightedCrossEntropy
from .models.pair_losses import (
    CosineLoss as CosineLoss,
    CoSENTLoss as CoSENTLoss,
    TripletLoss as TripletLoss,
)
from .models.ranking_losses import LambdaLoss as LambdaLoss, MarginMSELoss as MarginMSELoss
from .models.tasks.labeled_task import LabeledTask as LabeledTask
from .models.text_inputs import Preprocessor as Preprocessor
from .models.tasks.task_model import TaskModel as TaskModel
from .tasks.text_task import TextTask as TextTask
from .tasks.choose.model import MultipleChoice as MultipleChoice
from .tasks.answer.model import QuestionAnswerer as QuestionAnswerer
from .tasks.classify.model import SequenceClassifier as SequenceClassifier
from .tasks.regress.model import SequenceRegressor as SequenceRegressor
from .tasks.rerank.model import Reranker as Reranker
from .tasks.embed.model import TextEmbedder as TextEmbedder
from .tasks.tag.model import TokenClassifier as TokenClassifier
from .contract.task import register_task as register_task
from .contract.task import Sample as Sample, Task as Task
from .serving.beam import KerasBERTHandler as KerasBERTHandler
from .serving.client import ServingClient as ServingClient
from .serving.audit import audit_saved_model as audit_saved_model
from .serving.saved_model import export_saved_model as export_saved_model
from .serving.onnx_model import export_onnx as export_onnx
from .text.corpus import Corpus as Corpus
from .text.tokenizer.framing import frame_tokens as frame_tokens
from .text.tokenizer.framing import get_tokens_and_segments as get_tokens_and_segments
from .text.tokenizer.tokenizer import Tokenizer as Tokenizer
from .text.tokenizer.framing import answer_spans as answer_spans
from .text.vocab_learning import extend_vocab as extend_vocab
from .text.vocab_learning import learn_vocab as learn_vocab
from .text.vocab import Vocab as Vocab
from .training.distillation.distill import distill as distill
from .tasks.embed.static import distill_static as distill_static
from .training.finetuning.finetune import finetune_files as finetune_files
from .training.finetuning.finetune import FinetuningResult as FinetuningResult, finetune as finetune
from .training.optimization.optimizers import BERTAdamW as BERTAdamW, BERTMuon as BERTMuon
from .training.pretraining.pretrain import pretrain as pretrain
from .training.optimization.schedules import (
    WarmupCosineDecay as WarmupCosineDecay,
    WarmupLinearDecay as WarmupLinearDecay,
    WarmupStableDecay as WarmupStableDecay,
)

__version__: str
__all__: list[str]
