"""What draws from a generator, or comes from a service: rules VB101 to VB104, and VB107."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager

from analysis.scan.lint.facts import Event, spot
from analysis.scan.lint.syntax.arguments import (
    argument,
    attribute_of,
    constant,
    given_to,
    is_given,
    is_open,
    last,
)
from analysis.scan.lint.syntax.tree import nodes_in
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.lint.uses import seeding
from analysis.scan.lint.vocabulary import (
    ALL,
    DRAWS_TOO,
    FITS_SEQUENCE,
    FOR_A_SEED,
    IN_EVALUATION,
    MODEL,
    OF_GRAPHS,
    OWN_ENVIRONMENTS,
    OWN_SOURCE,
    OWN_VARIABLES,
    PERHAPS,
    RANDOM_VARIATES,
    SEEDING_TRAINERS,
    SEEDS_OF_VARIATES,
    SKLEARN_DRAWS,
    STABLE_BASELINES,
    estimator_of,
    generator_of,
    seeded_by,
    seeds_by_name,
)

SERVICE = re.compile(
    r"^(?:yfinance\.(?:download|Tickers?\(\)\.(?:history|download))"
    r"|pandas_datareader\.(?:data\.)?(?:DataReader|get_data_\w+|get_quote_\w+)"
    r"|(?:quandl|nasdaqdatalink)\.get|yahoo_fin\.stock_info\.get_\w+|nsepy\.get_\w+|FinanceDataReader\.\w+"
    r"|fredapi\.Fred\(\)\.get_series|(?:akshare|tushare|investpy)\.\w+|tushare\.pro_api\(\)\.\w+"
    r"|alpha_vantage\.\w+\.\w+\(\)\.get_\w+|binance\.(?:client\.)?Client\(\)\.get_\w+"
    r"|ccxt\.\w+\(\)\.fetch_\w+|pytrends\.request\.TrendReq\(\)\.\w+|newsapi\.NewsApiClient\(\)\.get_\w+"
    r"|wikipedia\.(?:page|summary|search)|meteostat\.(?:Hourly|Daily|Monthly)(?:\(\)\.fetch)?"
    r"|openai\.(?:\w+\(\)\.)?(?:\w+\.)*(?:create|parse|acreate)|anthropic\.(?:\w+\(\)\.)?messages\.create"
    r"|groq\.Groq\(\)\.chat\.completions\.create|google\.generativeai\.GenerativeModel\(\)\.generate_content"
    r"|google\.genai\.Client\(\)\.models\.generate_content)$"
)
"""Services that add to their data, change them or write another text, by the calls that ask them."""
COMPOSED = re.compile(r"^albumentations\.(?:\w+\.)*(?:Replay)?Compose$")
SEEDS_MONAI = frozenset(("monai.data.DataLoader", "monai.data.ThreadDataLoader"))
"""They seed transforms from PyTorch's generator."""
REGISTERS = re.compile(r"^(?:gym|gymnasium)\.(?:envs\.registration\.)?register$")
LAYER = re.compile(
    r"^(?:torch\.nn|keras\.layers|torch_geometric\.nn|tensorflow\.layers|detectron2\.engine)\."
)
FINE_TUNED = re.compile(
    r"fine-?_?tuned|sst-?2|squad|mnli|conll|sentiment|emotion|toxic|finbert|-ner\b", re.IGNORECASE
)
"""Names of checkpoints that have a head already."""
MUTUAL_INFORMATION = re.compile(r"^sklearn\.feature_selection\.mutual_info_\w+$")
OF_FILES = re.compile(r"^keras\.(?:[\w.]+\.)?(?:image|text|audio)_dataset_from_directory$")
"""Where no seed is given, they take one from NumPy."""
ONLY_SHUFFLED = {
    "keras.utils.split_dataset": ("shuffle", "python"),
    "keras.utils.timeseries_dataset_from_array": ("shuffle", "numpy"),
    "keras.preprocessing.timeseries_dataset_from_array": ("shuffle", "numpy"),
    "tensorflow_datasets.load": ("shuffle_files", "tensorflow"),
}
"""What draws where an argument says so, and from which generator."""
LOADED_METRICS = frozenset(("evaluate.load", "datasets.load_metric"))
BOOTSTRAPPED = "rouge"
"""A metric that is the median of samples drawn again, with a seed that is taken from NumPy's generator."""
PLACES_OF_SEEDS = (
    (re.compile(r"^(?:keras|tensorflow)\.(?:keras\.)?initializers\.(?:[Gg]lorot|[Hh]e|[Ll]ecun)_?\w+$"), 0),
    (re.compile(r"^tensorflow\.glorot_\w+_initializer$"), 0),
    (re.compile(r"^(?:keras|tensorflow)\.initializers\.[Oo]rthogonal$"), 1),
    (re.compile(r"^tensorflow\.orthogonal_initializer$"), 1),
    (re.compile(r"^tensorflow\.contrib\.layers\.xavier_initializer\w*$"), 1),
    (re.compile(r"^keras\.layers\.(?:Alpha)?Dropout$"), 2),
    (re.compile(r"^(?:keras|tensorflow)\.initializers\.(?:[Rr]andom|[Tt]runcated)_?\w+$"), 2),
    (re.compile(r"^tensorflow\.(?:random|truncated)_\w+_initializer$"), 2),
    (re.compile(r"^tensorflow\.nn\.dropout$"), 3),
    (re.compile(r"^(?:keras|tensorflow)\.initializers\.[Vv]ariance_?[Ss]caling$"), 3),
    (re.compile(r"^tensorflow\.(?:random\.)?(?:(?:random|truncated)_)?(?:normal|uniform)$"), 4),
)
"""Where the seed stands among the arguments of what draws from TensorFlow's generator."""
SPLITS_OF_FASTAI = re.compile(
    r"^fastai\.(?:[\w.]+\.)?(?:[A-Z]\w+DataLoaders\.from_\w+|RandomSplitter|TrainTestSplitter)$"
)
"""Their seed is PyTorch's: all that is drawn later follows from it."""
SEQUENCE = re.compile(r"^keras\.utils\.(?:\w+\.)*(?:Sequence|PyDataset)$")
NO_DATA = re.compile(
    r"(?<![a-z])port$|uuid|token$|nonce|(?:^|_)id$|suffix|colou?r|delay|backoff|rand(?:om)?_?key|(?:^|_)(?:run|exp|log)_?name$|"
    r"(?:^|_)(?:dummy|salt|sleep|wait|pause|timeout)",
    re.IGNORECASE,
)
"""Names of what is drawn for other ends than data and models."""
PAUSE = "pause"
NO_DATA_CALLS = frozenset(
    ("time.sleep", "asyncio.sleep", "builtins.print", "torch.jit.trace", "torch.onnx.export")
)
TENSORS = re.compile(
    r"^(?:torch|numpy\.random|tensorflow(?:\.random)?)\.(?:rand|normal|uniform|standard_normal)"
)
ONLY_WITH: dict[str, dict[str, tuple[object, ...]]] = {
    "Ridge": {"solver": ("sag", "saga")},
    "RidgeClassifier": {"solver": ("sag", "saga")},
    "ridge_regression": {"solver": ("sag", "saga")},
    "LogisticRegression": {"solver": ("sag", "saga")},
    "LogisticRegressionCV": {"solver": ("sag", "saga")},
    **{
        f"{task}{name}{search}": {"selection": ("random",)}
        for task in ("", "MultiTask")
        for name in ("Lasso", "ElasticNet")
        for search in ("", "CV")
    },
    "ClassifierChain": {"order": ("random",)},
    "RegressorChain": {"order": ("random",)},
    "IterativeImputer": {"sample_posterior": (True,), "imputation_order": ("random",)},
    "PCA": {"svd_solver": ("randomized", "arpack")},
    "KernelPCA": {"eigen_solver": ("randomized", "arpack")},
    "LocallyLinearEmbedding": {"eigen_solver": ("arpack",)},
    "SVC": {"probability": (True,)},
    "NuSVC": {"probability": (True,)},
    "DummyClassifier": {"strategy": ("stratified", "uniform")},
    "GaussianProcessClassifier": {"n_restarts_optimizer": tuple(range(1, 101))},
    "GaussianProcessRegressor": {"n_restarts_optimizer": tuple(range(1, 101))},
    "learning_curve": {"shuffle": (True,)},
    "MapieRegressor": {"cv": ("split", *range(2, 101))},
    "MapieClassifier": {"cv": ("split", *range(2, 101))},
}
"""Estimators that draw only with one of these arguments."""
IN_PLACE = frozenset(
    ("normal_", "uniform_", "random_", "bernoulli_", "exponential_", "cauchy_", "log_normal_")
)
"""Methods of tensors that draw."""
AUGMENTS = re.compile(r"^keras\.layers\.(?:Random(?!Fourier)\w+|AugMix|RandAugment|CutMix|MixUp)$")
DROPS = re.compile(r"^torch\.nn\.functional\.\w*dropout\w*$")
"""It draws where `training` is not given."""


def augmented(to: Walk, node: ast.Call) -> None:
    """`augmentation(pictures, training=True)`, of layers that draw in each use."""
    called = attribute_of(node.func)
    if called in to.augmenting and constant(argument(node, "training", 1)) is not False:
        to.event("augments", "", node, f"{called}()")


def drawn(to: Walk, node: ast.Call, name: str) -> None:
    """The generator that a call draws from; one of its own has to have a seed."""
    if SPLITS_OF_FASTAI.match(name) and is_open(node, "seed") is False:
        by_files = name.endswith(".from_folder") and not is_given(node, "valid_pct")
        seeding.seeded(to, node, () if by_files else ("torch",))
    generator = drawn_from(node, name)
    if to.without_seed and "seed" in to.target.lower():
        to.facts.flags.add(f"redrawn {to.target}")
        generator = None  # a seed for who gave none
    own = argument(node, "generator")
    is_own = own is not None and (to.names.resolve(own) or "").startswith("torch.Generator()")
    if is_own or (name.startswith("keras.layers.") and _is_initialized(to, node)):
        generator = None  # one that begins with a fixed seed, or is given one
    if generator == OWN_SOURCE:
        last = name.rpartition(".")[2]
        to.report("VB102", node, f"{last}() without a seed draws from a new generator of its own")
    elif generator is not None and (
        not NO_DATA.search(to.target)
        or (to.target == PAUSE and name.startswith("sklearn."))  # `print(cross_val_score(model, x, y))`
    ):
        to.facts.targets[spot(node)] = "" if to.target == PAUSE else to.target
        if to.target and AUGMENTS.match(name):
            to.augmenting.add(to.target)
        if TENSORS.match(name) and _is_written_out(node):
            to.facts.fixed.add(spot(node))
        for_seed = "seed" in to.target.lower()
        drops = DROPS.match(name) and len(node.args) < 3 and not is_given(node, "training")
        said = f" {FOR_A_SEED}" if for_seed else f" {IN_EVALUATION}" if drops else ""
        to.event("draw", generator, node, f"{name}{said}")
        if name in DRAWS_TOO:
            to.event("draw", DRAWS_TOO[name], node, name)
        if not to.scope and to.target:
            to.facts.made[spot(node)] = to.target
    if name in seeding.OWN_GENERATORS:
        seeding.own_generator(to, node, name)
    elif SERVICE.match(name):
        to.report("VB107", node, f"{name.replace('()', '')} returns what the service has when it is asked")
    elif name == "tensorflow.random.Generator.from_non_deterministic_state":
        to.report("VB102", node, "the generator begins in another state in each run")
    elif COMPOSED.match(name) and is_given(node, "seed"):
        seeding.seeded(to, node, ("albumentations",))
    elif name in SEEDS_MONAI:
        seeding.seeded(to, node, ("monai",))
    elif name == "torch.Generator().seed":
        to.report("VB104", node, "Generator.seed() takes a seed from the operating system")
    elif name in ("tensorflow.Variable", "tensorflow.get_variable"):
        to.facts.flags.add(OWN_VARIABLES)
    elif REGISTERS.match(name):
        to.facts.flags.add(OWN_ENVIRONMENTS)
    elif name == "random.SystemRandom":
        to.report("VB102", node, "random.SystemRandom cannot be seeded")
    elif STABLE_BASELINES.match(name):
        _of_stable_baselines(to, node, name)


def _of_stable_baselines(to: Walk, node: ast.Call, name: str) -> None:
    """A model seeds everything, and a maker of environments these, where they are given a seed; a model
    without one leaves the environment unseeded that it makes by a name."""
    is_maker = name.rpartition(".")[2].startswith("make_")
    if is_open(node, "seed") is False:
        seeding.seeded(to, node, ("gym", "action space") if is_maker else (*ALL, "gym", "action space"))
    elif (
        generator_of(name)
        and isinstance(constant(argument(node, "env", 1)), str)
        and not is_given(node, "seed")
    ):
        to.event("draw", "gym", node, name)


def module_ends(to: Walk) -> None:
    """An estimator or generator that is given its seed after it was made draws from no other one."""
    for events in to.facts.scopes.values() if to.reseeded else ():
        events[:] = [
            event
            for event in events
            if event.kind not in ("draw", PERHAPS)
            or to.facts.targets.get(event.spot) not in to.reseeded
            or not (event.name == OWN_SOURCE or estimator_of(event.text) or SKLEARN_DRAWS.match(event.text))
        ]


@contextmanager
def of_no_data(to: Walk, name: str | None) -> Iterator[None]:
    """While the arguments of a call are looked at of which no data come: a pause, something to read, a
    seed."""
    outer = to.target
    if name in NO_DATA_CALLS:
        to.target = PAUSE
    elif (
        name
        and "seed" in (called := name.rpartition(".")[2].lstrip("@"))
        and (seeded_by(name) or seeds_by_name(called))
    ):
        to.target = "seed"
    yield
    to.target = outer


def drawn_from(node: ast.Call, name: str) -> str | None:
    if name == "tensorflow.get_variable":
        return None if is_given(node, "initializer") else "tensorflow"
    is_seeded = any(is_given(node, each) for each in SEEDS_OF_VARIATES)
    if estimator := estimator_of(name) or ("numpy" if SKLEARN_DRAWS.match(name) else None):
        return None if is_seeded or not _shuffles(node, name) else estimator
    if name in ONLY_SHUFFLED:
        option, source = ONLY_SHUFFLED[name]
        shuffles = constant(argument(node, option)) is True
        return source if shuffles and not is_given(node, "seed") else None
    if OF_FILES.search(name):
        return None if is_given(node, "seed") or constant(argument(node, "shuffle")) is False else "numpy"
    if name in LOADED_METRICS and constant(argument(node, "path", 0)) == BOOTSTRAPPED:
        return None if is_given(node, "seed") else "numpy"
    generator = generator_of(name)
    if generator == "tensorflow" and (is_open(node, "seed") is False or _is_seeded_by_place(node, name)):
        return None
    if is_seeded and (RANDOM_VARIATES.match(name) or OF_GRAPHS.match(name)):
        return None
    if (STABLE_BASELINES.match(name) and is_given(node, "seed")) or _is_loaded(node, name):
        return None
    return generator


def _is_initialized(to: Walk, node: ast.Call) -> bool:
    """`Dense(9, kernel_initializer=he_normal(seed))`."""
    given = argument(node, "kernel_initializer")
    return isinstance(given, ast.Call) and _is_seeded_by_place(given, to.names.resolve(given.func) or "")


def _is_seeded_by_place(node: ast.Call, name: str) -> bool:
    """`glorot_normal(seed)`."""
    place = next((place for pattern, place in PLACES_OF_SEEDS if pattern.match(name)), -1)
    seed = argument(node, "seed", place)
    return seed is not None and constant(seed) is not None


def _is_written_out(node: ast.Call) -> bool:
    """`torch.rand(1, 3, 8, 8)`: with numbers alone."""
    given = given_to(node)
    unknown = (isinstance(part, ast.Name | ast.Attribute | ast.Call) for part in nodes_in(given))
    return bool(given) and not any(unknown)


def inherited(to: Walk, scope: str, base: ast.expr, name: str) -> None:
    """A class derived from a layer: making one draws its weights."""
    generator = generator_of(name)
    if generator is not None and LAYER.match(name):
        events = to.facts.scopes.setdefault(scope, [])
        events += [Event("draw", each, spot(base), name) for each in (generator, DRAWS_TOO.get(name)) if each]
    if SEQUENCE.match(name):
        to.facts.scopes.setdefault(scope, []).append(Event("draw", "python", spot(base), FITS_SEQUENCE))
    if SEEDING_TRAINERS.match(name):
        events = to.facts.scopes.setdefault(scope, [])
        events += [Event("seed", each, spot(base)) for each in seeded_by(name)]


def _is_loaded(node: ast.Call, name: str) -> bool:
    """Whether the weights of a model of torchvision or timm come from a file."""
    if name == "timm.create_model":
        classes = argument(node, "num_classes")  # its last layer is new
        is_new = classes is not None and constant(classes) != 0
        return constant(argument(node, "pretrained", 1)) is True and not is_new
    if name.startswith("keras.") and "applications." in name:
        return constant(argument(node, "weights", 1)) is not None
    if name.startswith("transformers.") and name.endswith(".from_pretrained"):
        return bool(FINE_TUNED.search(str(constant(argument(node, "pretrained_model_name_or_path", 0)))))
    weights = next((k.value for k in node.keywords if k.arg in ("pretrained", "weights")), None)
    return bool(MODEL.match(name)) and constant(weights or argument(node, "pretrained", 0)) not in (
        (...,) if weights is None else (None, False)
    )


def given(to: Walk, node: ast.Name | ast.Attribute) -> None:
    """`SelectKBest(mutual_info_classif)`, `texts.map(detect)`: a function is given that draws."""
    name = to.names.resolve(node) or ""
    if MUTUAL_INFORMATION.match(name):
        to.event("draw", "numpy", node, name)
    elif name.startswith("langdetect.") and (generator := generator_of(name)):
        to.event("draw", generator, node, name)


def of_spark(to: Walk, node: ast.Call, attribute: str) -> None:
    """`rows.randomSplit([0.8, 0.2])`: Spark draws a seed in each run."""
    if attribute == "randomSplit" and len(node.args) < 2 and not is_given(node, "seed"):
        to.report("VB102", node, "randomSplit() without a seed draws a new one in each run")


def of_data_set(to: Walk, node: ast.Call, attribute: str, name: str | None) -> str:
    """`data.train_test_split(test_size=0.2)`, `data.shuffle()` of Hugging Face: they take a seed from NumPy's
    generator. What draws, or "" for what does not."""
    if name is not None and not name.startswith("datasets."):
        return ""
    if is_given(node, "generator") or is_given(node, "random_state") or id(node) in to.discarded:
        return ""  # shuffled is what it gives
    splits = attribute == "train_test_split" and constant(argument(node, "shuffle", 2)) is not False
    shuffles = attribute == "shuffle" and not node.args and "datasets" in to.facts.flags
    return f"Dataset.{attribute}()" if splits or shuffles else ""  # at once; TensorFlow's is later


def is_buffer(node: ast.Call) -> bool:
    """Whether what is given is the size of a buffer, not a list to shuffle."""
    if is_open(node, "seed") is False:
        return False
    if any(keyword.arg == "buffer_size" for keyword in node.keywords):
        return True
    size = argument(node, "buffer_size", 0)
    return (
        isinstance(constant(size), int)
        or bool(re.search("buffer|size|len|num", last(size), re.I))
        or isinstance(size, ast.Call)
    )


def _shuffles(node: ast.Call, name: str) -> bool:
    """Whether an object of scikit-learn that takes a random_state uses it."""
    last = name.rpartition(".")[2]
    if constant(argument(node, "solver")) == "liblinear" or last == "LinearSVC":
        return _draws_in_liblinear(node, last)
    if last in ONLY_WITH:
        return any(constant(argument(node, key)) in values for key, values in ONLY_WITH[last].items())
    if last in ("KFold", "StratifiedKFold", "GroupKFold", "StratifiedGroupKFold"):
        return constant(argument(node, "shuffle", 1)) is True
    return constant(argument(node, "shuffle")) is not False


def _draws_in_liblinear(node: ast.Call, name: str) -> bool:
    """Whether coordinates are taken in an order that is drawn: all but the primal problem with an l2 penalty,
    for which logistic regression is set unless another is asked for."""
    is_dual = constant(argument(node, "dual")) if is_given(node, "dual") else name == "LinearSVC"
    penalty = constant(argument(node, "penalty", 0)) if is_given(node, "penalty") or node.args else "l2"
    return is_dual is not False or penalty == "l1"
