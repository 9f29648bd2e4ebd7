"""Which names mean what: generators and how they are seeded, libraries and the variables they read.

All names are qualified and canonical: see `canonical`."""

from __future__ import annotations

import re
from functools import cache

ALL = ("python", "numpy", "torch", "tensorflow")
GENERATORS = {"python": "random", "numpy": "numpy.random", "torch": "torch", "tensorflow": "tensorflow"}
SEED_CALLS = {
    "python": "random.seed(seed)",
    "numpy": "numpy.random.seed(seed)",
    "torch": "torch.manual_seed(seed)",
    "tensorflow": "keras.utils.set_random_seed(seed)",
}

_ALIASES = (
    ("tensorflow.compat.v1.keras", "keras"),
    ("tensorflow.compat.v2.keras", "keras"),
    ("tensorflow.python.keras", "keras"),
    ("tensorflow.keras", "keras"),
    ("tensorflow.compat.v1", "tensorflow"),
    ("tensorflow.compat.v2", "tensorflow"),
    ("tf_keras", "keras"),
    ("keras.api", "keras"),
    ("pytorch_lightning", "lightning"),
    ("lightning.pytorch", "lightning"),
    ("lightning_fabric", "lightning"),
    ("lightning.fabric", "lightning"),
)
_INNER = (
    (re.compile(r"^torch\.nn\.modules\.\w+\.(?=[A-Z])"), "torch.nn."),
    (re.compile(r"^torch\.utils\.data\.(?:dataloader|sampler|dataset|distributed)\."), "torch.utils.data."),
    (re.compile(r"^keras\.layers\.\w+\.(?=[A-Z])"), "keras.layers."),
)


@cache
def canonical(name: str) -> str:
    """One spelling for what has several: `tensorflow.keras.layers.Dense` is `keras.layers.Dense`."""
    for alias, usual in _ALIASES:
        if name.startswith(alias) and name[len(alias) : len(alias) + 1] in ("", "."):
            name = usual + name[len(alias) :]
            break
    for pattern, usual in _INNER:
        name = pattern.sub(usual, name)
    return name


def _names(prefix: str, names: str) -> frozenset[str]:
    return frozenset(f"{prefix}.{name}" for name in names.split())


PYTHON_DRAWS = _names(
    "random",
    "random randint randrange choice choices shuffle sample uniform triangular gauss normalvariate lognormvariate "
    "betavariate expovariate gammavariate paretovariate vonmisesvariate weibullvariate getrandbits randbytes",
)
NUMPY_DRAWS = _names(
    "numpy.random",
    "rand randn randint random random_sample ranf sample choice shuffle permutation bytes normal uniform binomial "
    "poisson exponential beta gamma standard_normal multivariate_normal laplace lognormal geometric dirichlet "
    "multinomial logistic gumbel pareto rayleigh weibull zipf triangular vonmises chisquare random_integers",
)
_LAYERS = (
    "Linear Bilinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LSTM GRU RNN LSTMCell "
    "GRUCell RNNCell Embedding EmbeddingBag MultiheadAttention Transformer TransformerEncoderLayer "
    "TransformerDecoderLayer LazyLinear LazyConv1d LazyConv2d LazyConv3d Dropout Dropout1d Dropout2d Dropout3d "
    "AlphaDropout FeatureAlphaDropout RReLU"
)
TORCH_DRAWS = (
    _names("torch", "rand randn randint randperm rand_like randn_like randint_like normal bernoulli multinomial poisson")
    | _names("torch.nn", _LAYERS)
    | _names("torch.nn.functional", "dropout dropout1d dropout2d dropout3d alpha_dropout rrelu gumbel_softmax")
    | _names(
        "torch.nn.init",
        "uniform_ normal_ trunc_normal_ xavier_uniform_ xavier_normal_ kaiming_uniform_ kaiming_normal_ orthogonal_ "
        "sparse_ xavier_uniform xavier_normal kaiming_uniform kaiming_normal orthogonal uniform normal",
    )
)
KERAS_DRAWS = (
    _names(
        "keras.layers",
        "Dense Conv1D Conv2D Conv3D Convolution2D Conv2DTranspose Conv3DTranspose DepthwiseConv2D SeparableConv2D LSTM "
        "GRU SimpleRNN Embedding MultiHeadAttention Dropout SpatialDropout1D SpatialDropout2D GaussianNoise "
        "GaussianDropout AlphaDropout RandomFlip RandomRotation RandomZoom RandomCrop RandomTranslation",
    )
    | _names(
        "tensorflow.random", "normal uniform truncated_normal shuffle categorical gamma poisson"
    )
    | _names("tensorflow", "random_normal random_uniform truncated_normal random_shuffle random_crop")
    | _names("tensorflow.image", "random_flip_left_right random_flip_up_down random_crop random_brightness "
             "random_contrast random_hue random_saturation")
)  # fmt: skip
SKLEARN_DRAWS = re.compile(
    r"^sklearn\.\w+(?:\.\w+)*\.(?:train_test_split|shuffle|resample|KFold|StratifiedKFold|ShuffleSplit|"
    r"StratifiedShuffleSplit|GroupShuffleSplit|RandomForest\w+|ExtraTrees\w+|GradientBoosting\w+|Bagging\w+|AdaBoost\w+|"
    r"DecisionTree\w+|MLP\w+|SGD\w+|Perceptron|KMeans|MiniBatchKMeans|GaussianMixture|TSNE|RandomizedSearchCV|"
    r"make_classification|make_regression|make_blobs|make_moons|make_circles)$"
)

SEEDS: dict[str, tuple[str, ...]] = {
    "random.seed": ("python",),
    "numpy.random.seed": ("numpy",),
    "torch.manual_seed": ("torch",),
    "torch.random.manual_seed": ("torch",),
    "torch.seed": ("torch",),
    "tensorflow.random.set_seed": ("tensorflow",),
    "tensorflow.set_random_seed": ("tensorflow",),
    "tensorflow.random.set_random_seed": ("tensorflow",),
    "keras.utils.set_random_seed": ALL,
    "lightning.seed_everything": ALL,
    "lightning.utilities.seed.seed_everything": ALL,
    "transformers.set_seed": ALL,
    "transformers.trainer_utils.set_seed": ALL,
    "transformers.TrainingArguments": ALL,  # Trainer seeds with its `seed`, 42 by default
    "transformers.Seq2SeqTrainingArguments": ALL,
    "accelerate.utils.set_seed": ALL,
    "ignite.utils.manual_seed": ALL,
    "monai.utils.set_determinism": ALL,
    "tensorflow.keras.utils.set_random_seed": ALL,
}
SEED_HELPER = re.compile(
    r"^_?(?:set|fix|init|setup|initiali[sz]e|same|control|apply)_?\w*seeds?(?:_\w+)?$"
    r"|seed_?(?:everything|all|everywhere|torch|rng)|determinis\w*seed|^(?:set|make|enable)_(?:all_)?(?:determinis|reprod)",
    re.IGNORECASE,
)
"""Functions of elsewhere that seed, as far as their name tells."""

CHANGING = frozenset(
    ("time.time", "time.time_ns", "time.perf_counter", "os.getpid", "os.urandom", "datetime.datetime.now",
     "datetime.datetime.now()", "secrets.randbits", "uuid.uuid4")
)  # fmt: skip
"""Calls whose value is another one in each run."""

KNOBS: dict[str, tuple[str, ...]] = {
    "OMP_NUM_THREADS": ("torch", "tensorflow", "numpy"),
    "OMP_WAIT_POLICY": ("torch",),
    "OMP_DYNAMIC": ("torch",),
    "KMP_AFFINITY": ("torch",),
    "KMP_BLOCKTIME": ("torch",),
    "GOMP_CPU_AFFINITY": ("torch",),
    "MKL_NUM_THREADS": ("torch", "numpy"),
    "MKL_CBWR": ("torch", "numpy"),
    "OPENBLAS_NUM_THREADS": ("numpy",),
    "ATEN_CPU_CAPABILITY": ("torch",),
    "TF_ENABLE_ONEDNN_OPTS": ("tensorflow",),
    "TF_NUM_INTRAOP_THREADS": ("tensorflow",),
    "TF_NUM_INTEROP_THREADS": ("tensorflow",),
    "NUMEXPR_NUM_THREADS": ("numexpr",),
}
"""Variables of the environment, and the libraries that read them when they are imported. Of these the first
that a program imports at all decides; for those after it the variable is no use any more."""

THREAD_KNOBS = frozenset(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
)  # fmt: skip

LOADS = {"keras": "tensorflow", "lightning": "torch", "torchvision": "torch", "torchtext": "torch",
         "torchaudio": "torch", "transformers": "torch", "pandas": "numpy", "scipy": "numpy", "sklearn": "numpy",
         "timm": "torch"}  # fmt: skip
"""Packages that import another one of interest."""

RELEVANT = re.compile(
    r"torch|tensorflow|keras|numpy|random|sklearn|lightning|transformers|listdir|scandir|glob|iterdir|"
    r"\bset\(|\bhash\(|as_completed|imap_unordered|environ|putenv|THREADS"
)
"""A file without any of these words has nothing that a rule could find."""


@cache
def generator_of(name: str) -> str | None:
    """The generator that a call of this name draws from."""
    if name in PYTHON_DRAWS:
        return "python"
    if name in NUMPY_DRAWS:
        return "numpy"
    if name in TORCH_DRAWS or name.startswith(("torchvision.transforms.Random", "torchvision.transforms.v2.Random")):
        return "torch"
    if name in KERAS_DRAWS:
        return "tensorflow"
    return None
