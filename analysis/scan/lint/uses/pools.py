"""Estimators that add in an order which their threads decide, and networks that compute what estimators learn
from: what they learn depends on the thread count."""

from __future__ import annotations

import ast
import re

from analysis.scan.lint.syntax.arguments import argument, constant, is_given
from analysis.scan.lint.syntax.keywords import written_out
from analysis.scan.lint.syntax.walk import Walk

THREADED = re.compile(
    r"^lightgbm\.(?:sklearn\.|dask\.)?(?:(?:Dask)?LGBM\w*(?:Classifier|Regressor|Ranker|Model)|train|cv)$"
    r"|^sklearn\.(?:cluster\.(?:\w+\.)?(?:MiniBatchKMeans|KMeans|BisectingKMeans|k_means)"
    r"|ensemble\.(?:\w+\.)?HistGradientBoosting\w+)$"
)
"""CatBoost and the forests of scikit-learn learn the same on any number of threads. So does XGBoost: version
3.2 on one and two threads in all of 14 settings (objectives, tree methods, up to a million rows)."""
OF_BLAS = re.compile(
    r"^sklearn\.(?:neural_network\.(?:\w+\.)?MLP\w+|mixture\.(?:\w+\.)?GaussianMixture"
    r"|gaussian_process\.(?:\w+\.)?GaussianProcess\w+)$"
)
"""Whose products of matrices the threads of BLAS share. With scikit-learn 1.9 at one and two threads MLP
and GaussianMixture differed on two of four data sets, Gaussian processes on all. Not: PCA, FastICA, linear
regressions, support vector machines; on one only: LogisticRegression, NMF, TruncatedSVD."""
FORESTS = re.compile(r"^sklearn\.ensemble\.(?:\w+\.)?(?:RandomForest|ExtraTrees)Regressor$")
"""Whose threads add what the trees say, each when it has it."""
WORD_VECTORS = re.compile(
    r"^gensim\.models\.(?:\w+\.)*(?:Word2Vec|Doc2Vec|FastText|LdaMulticore)$|^fasttext\.train_\w+$"
    r"|^(?:node2vec|karateclub)\.(?:\w+\.)*(?:Node2Vec|DeepWalk)$"
)
COUNTS = frozenset(
    ("n_jobs", "nthread", "nthreads", "num_thread", "num_threads", "n_threads", "thread_count")
)
STATES_COUNT = "states a thread count"
"""A flag of a file, which may be for what gets its options from elsewhere."""
OPEN = "options of elsewhere"
LIMITS = re.compile(
    r"^threadpoolctl\.(?:threadpool_limits|ThreadpoolController\(\)\.(?:limit|wrap))$|^numba\.set_num_threads$"
)


def called(to: Walk, node: ast.Call, name: str) -> None:
    if WORD_VECTORS.match(name):
        _raced(to, node, name)
    if LIMITS.match(name):
        to.facts.flags.add("threads")
    if FORESTS.match(name):
        jobs = argument(node, "n_jobs")
        if isinstance(jobs, ast.UnaryOp):  # -1
            to.event("pool", name, node)
    if OF_BLAS.match(name):  # which have no argument for that
        to.event("pool", name, node)
    if not THREADED.match(name):
        return
    options = node.keywords
    if name.endswith((".train", ".cv")) and node.args:  # their first argument is a dictionary
        given = ast.Call(func=node.func, args=[], keywords=[ast.keyword(arg=None, value=node.args[0])])
        options = [*options, *written_out(to, given).keywords]
    if not any(_settles(option) for option in options):
        to.event("pool", name, node, OPEN if any(option.arg is None for option in options) else "")


def _raced(to: Walk, node: ast.Call, name: str) -> None:
    """Word vectors: several workers change them at once. gensim has three by default, fastText twelve."""
    workers = next((option.value for option in node.keywords if option.arg in ("workers", "thread")), None)
    is_alone = constant(workers) == 1 or (workers is None and not name.startswith(("gensim.", "fasttext.")))
    if not is_alone and all(option.arg for option in node.keywords):
        last = name.rpartition(".")[2]
        to.report("VB203", node, f"the workers of {last} change what it learns at once, in any order")


def stored(to: Walk, key: ast.expr | None, value: ast.expr | None) -> None:
    """`{"n_jobs": 4}`, `options["nthread"] = 4`."""
    if constant(key) in COUNTS and not _is_all(value):
        to.facts.flags.add(STATES_COUNT)


def _settles(option: ast.keyword) -> bool:
    """Whether an argument states the count, makes it of no matter, or computes elsewhere."""
    if option.arg in COUNTS:
        return not _is_all(option.value)
    said = constant(option.value)
    if option.arg in ("device", "device_type", "tree_method"):
        return str(said).startswith(("cuda", "gpu"))
    return option.arg == "deterministic" and said is True


def _is_all(value: ast.expr | None) -> bool:
    """-1, 0 or None: as many as the machine has."""
    if isinstance(value, ast.UnaryOp):
        return True
    return isinstance(value, ast.Constant) and value.value in (None, 0)


COMPUTES = re.compile(
    r"^(?:sentence_transformers|FlagEmbedding|InstructorEmbedding|angle_emb|gritlm)\.(?:\w+\.)*\w+\(\)\."
    r"(?:encode\w*|get_text_embedding\w*)$"
    r"|^(?:langchain\w*|llama_index)\.(?:\w+\.)*HuggingFace\w*Embeddings?\(\)\.(?:embed\w*|get_text_embedding\w*)$"
    r"|^keras\.(?:[\w.]+\.)?applications\.(?:\w+\.)?[A-Z]\w+\(\)\.predict$"
)
"""What a network computes, by the name of a call."""
OF_SENTENCES = frozenset(("normalize_embeddings", "convert_to_numpy", "convert_to_tensor"))
"""Arguments that `encode` of sentence_transformers alone has."""
NETWORKS = re.compile(
    r"^keras\.(?:[\w.]+\.)?applications\.(?:\w+\.)?[A-Z]\w+$|^torchvision\.models\.(?:\w+\.)?[a-z]\w+$|^timm\.create_model$"
    r"|^transformers\.(?:AutoModel|(?:models\.[\w.]+\.)?[A-Z]\w+Model)\.from_pretrained$|^facenet_pytorch\.InceptionResnetV1$"
)
"""Networks that come with weights."""


def inferred(to: Walk, node: ast.Call, name: str, attribute: str) -> None:
    of_sentences = attribute == "encode" and any(is_given(node, each) for each in OF_SENTENCES)
    if COMPUTES.match(name) or of_sentences:
        to.event("infers", name or attribute, node)
    elif NETWORKS.match(name) and constant(argument(node, "weights", 1)) is not None:
        to.event("infers", name, node)
