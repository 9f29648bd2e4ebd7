"""Which names mean what: generators and how they are seeded, libraries and the variables they read.

All names are qualified and canonical: see `canonical`."""

from __future__ import annotations

import re
import sys
import tomllib
from functools import cache
from pathlib import Path

ALL = ("python", "numpy", "torch", "tensorflow")
GENERATORS = {
    "python": ("random", "random.seed(seed)"),
    "numpy": ("numpy.random", "numpy.random.seed(seed)"),
    "torch": ("torch", "torch.manual_seed(seed)"),
    "tensorflow": ("tensorflow", "keras.utils.set_random_seed(seed)"),
    "gym": ("the environment", "env.reset(seed=seed)"),
    "action space": ("the action space", "env.action_space.seed(seed)"),
    "imgaug": ("imgaug", "imgaug.seed(seed)"),
    "paddle": ("paddle", "paddle.seed(seed)"),
    "mxnet": ("mxnet", "mxnet.random.seed(seed)"),
    "cupy": ("cupy.random", "cupy.random.seed(seed)"),
    "dynet": ("dynet", "dynet_config.set(random_seed=seed)"),
    "mindspore": ("mindspore", "mindspore.set_seed(seed)"),
    "graph_tool": ("graph_tool", "graph_tool.seed_rng(seed)"),
    "faker": ("faker", "faker.Faker.seed(seed)"),
    "polars": ("polars", "polars.set_random_seed(seed)"),
    "langdetect": ("langdetect", "langdetect.DetectorFactory.seed = seed"),
    "albumentations": ("albumentations", "Compose(..., seed=seed)"),
    "monai": ("MONAI's transforms", "monai.utils.set_determinism(seed)"),
}
"""By name: how a generator is called in texts, and what seeds it."""
NOT_BY_HELPERS = frozenset(("gym", "action space", "albumentations", "langdetect"))
"""Generators that a function of elsewhere cannot seed."""
SEEDED_BY = {"imgaug": "numpy"}
"""Generators that take their seed from another one unless they are seeded themselves."""

_SPELLINGS = (
    (re.compile(r"^(?:tensorflow_core\.(?:python\.)?keras|tensorflow\.contrib\.keras(?:\.python\.keras)?"
                r"|tensorflow\.(?:compat\.v[12]\.|python\.)?keras|tf_keras|keras\.api)(?=\.|$)"), "keras"),
    (re.compile(r"^(?:tensorflow_core|tensorflow\.compat\.v[12])(?=\.|$)"), "tensorflow"),
    (re.compile(r"^(?:pytorch_lightning|lightning\.pytorch|lightning[._]fabric)(?=\.|$)"), "lightning"),
    (re.compile(r"^(?:pennylane|autograd)\.numpy(?=\.|$)"), "numpy"),
    (re.compile(r"^torch\.nn\.modules\.\w+\.(?=[A-Z])"), "torch.nn."),
    (re.compile(r"^torch\.utils\.data\.(?:dataloader|sampler|dataset|distributed)\."), "torch.utils.data."),
    (re.compile(r"^lightning\.Trainer\.from_argparse_args(?=\(|$)"), "lightning.Trainer"),
    (re.compile(r"^keras\.(?:src\.)?layers\.(?:\w+\.)+(?=[A-Z])"), "keras.layers."),
)  # fmt: skip


@cache
def canonical(name: str) -> str:
    """One spelling for what has several: `tensorflow.keras.layers.Dense` is `keras.layers.Dense`."""
    for pattern, usual in _SPELLINGS:
        name = pattern.sub(usual, name)
    return name


_DATA = tomllib.loads((Path(__file__).parent / "data" / "vocabulary.toml").read_text(encoding="utf-8"))


def by_word(table: str) -> dict[str, str]:
    """The words of all lists of a table, each with the key of its list."""
    return {word: key for key, words in _DATA[table].items() for word in words.split()}


DRAWS: dict[str, str] = {
    f"{prefix}.{name}": generator
    for generator, prefixes in _DATA["draws"].items()
    for prefix, names in prefixes.items()
    for name in names.split()
}
"""Calls that draw from a global generator: its name by theirs."""
ESTIMATORS: dict[tuple[str, str], str] = {
    (package, name): generator
    for generator, packages in _DATA["estimators"].items()
    for package, names in packages.items()
    for name in names.split()
}
"""What draws unless it is given a seed, by its package and last name: the generator, or OWN_SOURCE."""
OWN_SOURCE = "own"
SKLEARN_DRAWS = re.compile(
    r"^(?:sklearn|imblearn)\.\w+(?:\.\w+)*\.(?:KFold|StratifiedKFold|PCA|SVC|NuSVC|LogisticRegression|mutual_info_\w+|"
    r"KernelPCA|LocallyLinearEmbedding|DummyClassifier|GaussianProcess(?:Classifier|Regressor)|learning_curve|ridge_regression|"
    r"(?:Lasso|ElasticNet|LogisticRegression)CV|MultiTask(?:Lasso|ElasticNet)(?:CV)?|RegressorChain|"
    r"StratifiedGroupKFold|GroupKFold|HistGradientBoosting\w+|RandomForest\w+|ExtraTrees?\w+|GradientBoosting\w+|"
    r"Bagging\w+|AdaBoost\w+|DecisionTree\w+|MLP\w+|SGD\w+|PassiveAggressive\w+|RidgeClassifier|Ridge|Lasso|ElasticNet|"
    r"ClassifierChain|IterativeImputer|make_(?!scorer|pipeline|column|union|imb)\w+)$"
)
"""Those of which families of names, or only some with certain arguments, do."""

SEEDS = {name: tuple(seeded.split()) for name, seeded in by_word("seeds").items()}
SEEDING_TRAINERS = re.compile(
    r"^(?:transformers|trl|sentence_transformers|setfit)\.(?:\w+\.)*(?!TF)\w*Trainer$"
)
"""They seed with 42 when they are made, if nothing else is asked for."""


@cache
def seeded_by(name: str) -> tuple[str, ...]:
    """The generators that a call of this name seeds."""
    return ("python", "numpy", "torch") if SEEDING_TRAINERS.match(name) else SEEDS.get(name, ())


ASKS_WHETHER_TRAINED = "asks whether it is trained"
"""A flag of a file with `self.training`."""
OF_UNKNOWN = "of something unknown"
"""The text of a training whose model is not known."""
OWN_ENVIRONMENTS = "own environments"
"""A flag of a file that registers environments of the project: what they draw is seen where it is written."""
OWN_VARIABLES = "own variables"
"""A flag of a file that makes variables of TensorFlow: what they draw is seen where that is written."""
TENSORFLOW_1, KERAS_1 = "TensorFlow 1", "Keras 1"
"""Flags of a file that uses what later versions do not have."""
KERAS_ON_TORCH, KERAS_ON_JAX = "Keras on PyTorch", "Keras on JAX"
"""Flags of a file that sets KERAS_BACKEND."""
WITHOUT_TENSORFLOW = frozenset((KERAS_ON_TORCH, KERAS_ON_JAX))
OWN_MODEL = "own model"
"""Said of what seeds and then makes the model itself, such as LightningCLI: there is nothing before it."""
IF_GIVEN, DRAWN, WITHOUT_GPU, BY_WORKERS = "if given", "drawn from", "without a GPU", "by workers"
"""Said of seeds: set only where one was given; itself drawn from a generator; set only without a GPU; set in
workers of a loader."""
BY_OPTION = "by the option "
"""Said of seeds that are what an option is; where the user may leave it out, they are set only if given."""
NO_DEFAULT = "no default of "
"""With the name of such an option, a flag of a file."""
PERHAPS = "perhaps"
"""A draw, unless what a call gives to a parameter of the function is a seed."""
FITS_SEQUENCE = "fit() of a keras.utils.Sequence"
"""Said of the order of batches, which `fit` shuffles by default."""
IN_ORDER = "fits in order"
"""A flag of a file with `fit(shuffle=False)`."""
FOR_A_SEED = "(for a seed)"
"""Said of draws whose result is a seed."""
IN_EVALUATION = "(in evaluation too)"
"""Said of dropout that does not ask whether the model is trained."""
HELPER = "helper"
"""Said of calls of functions that seed by their names; after it the generator that the seed is drawn from."""
SEED_HELPER = re.compile(
    r"^_?(?:set|fix|init|setup|initiali[sz]e|same|control|apply)_?\w*seeds?(?:_\w+)?$"
    r"|seed_?(?:everything|all|everywhere|torch|rng)|determinis\w*seed|^(?:set|make|enable)_(?:all_)?(?:determinis|reprod)",
    re.IGNORECASE,
)


@cache
def seeds_by_name(function: str) -> bool:
    """Whether a function of elsewhere seeds, as far as its name tells."""
    return bool(SEED_HELPER.search(function))


CHANGING: frozenset[str] = frozenset(_DATA["words"]["changing"].split())
"""Calls whose value is another one in each run."""

SETTINGS = {name: tuple(readers.split()) for name, readers in by_word("settings").items()}
"""Variables of the environment, and the libraries that read them when they are imported (those of the word
`at_first_use` when they first compute). Of these the first that a program imports at all decides; for those
after it the variable is no use any more."""

MODES = {tuple(name.split(".")): said.partition(" ")[::2] for name, said in by_word("modes").items()}
"""Functions of libraries that turn a mode on, by package and last name: the mode, the argument that asks."""

THREAD_SETTINGS = frozenset(name for name in SETTINGS if name.endswith("_THREADS"))
WORDS: dict[str, frozenset[str]] = {k: frozenset(words.split()) for k, words in _DATA["words"].items()}
"""Sets of names that rules ask for."""
ELSEWHERE = WORDS["elsewhere"].union(sys.stdlib_module_names)
"""Packages that are no part of a project; those that seed are in SEEDS."""
LOADS = by_word("loads")
"""Packages that import another one of interest."""

MODEL = re.compile(r"^torchvision\.models\.(?:\w+\.)?(?:(?!get_)[a-z]+\w*\d\w*|alexnet|googlenet|get_model)$")
"""Makers of models, whose weights are drawn: `torchvision.models.resnet18`."""
RANDOM_TRANSFORM = re.compile(
    r"^torchvision\.transforms\.(?:v2\.)?(?:Rand|ColorJitter|AutoAugment|TrivialAugment|AugMix|ElasticTransform|"
    r"MixUp|CutMix|GaussianBlur|GaussianNoise|ScaleJitter)|^torchaudio\.transforms\.(?:FrequencyMasking|TimeMasking|SpecAugment)"
    r"|^torchaudio\.functional\.mask_along_axis|^torch_audiomentations\.(?!Compose$|Identity$)[A-Z]"
)
LAYERS = re.compile(
    r"^timm\.create_model$|^segmentation_models_pytorch\.(?:Unet\w*|UnetPlusPlus|FPN|PSPNet|DeepLabV3\w*|Linknet|MAnet|PAN|create_model)$"
    r"|^efficientnet_pytorch\.EfficientNet\.from_name$|^monai\.networks\.nets\.(?:\w+\.)?[A-Z]\w+$"
    r"|^transformers\.(?!TF|Flax)\w+\.(?:_from_config|from_config)$"
    r"|^transformers\.(?!TF|Flax)\w+For(?:(?:Sequence|Token|Image|Audio|Video)Classification|MultipleChoice|"
    r"QuestionAnswering|SemanticSegmentation|AudioFrameClassification|NextSentencePrediction)\.from_pretrained$"
    r"|^transformers\.(?:models\.[\w.]+\.)?(?!TF|Flax|Auto|Data)[A-Z]\w*(?:Model|For[A-Z]\w+)$"
    r"|^(?:stable_baselines3|sb3_contrib)\.(?:\w+\.)*(?:PPO|A2C|DQN|SAC|TD3|DDPG|HER|TQC|QRDQN|TRPO|ARS|RecurrentPPO|"
    r"MaskablePPO|CrossQ)$"
    r"|^fastai\.(?:[\w.]+\.)?(?:(?:vision|cnn|unet|tabular|collab|language_model|text_classifier)_learner|create_cnn)$"
    r"|^tianshou\.utils\.net\.\w+\.\w*(?:Net|MLP|Actor\w*|Critic\w*|Recurrent)$|^x_transformers\.[A-Z]\w+$"
    r"|^(?:vit_pytorch|escnn\.nn|e3nn\.nn|kan|pytorch_tcn|diffusers)\.(?:\w+\.)*(?:ViT|\w+Conv\w*|KAN|TCN|UNet\w*Model)$"
    r"|^(?:torch_geometric\.nn|dgl\.nn)\.(?:\w+\.)*(?:\w+Conv|GCN|GAT|GraphSAGE|GIN|PNA|EdgeCNN|Node2Vec|MLP|Linear|SchNet|"
    r"DimeNet\w*|\w*Attention\w*|GAE|VGAE|DeepGraphInfomax|MetaPath2Vec|SAGPooling|TopKPooling|ASAPooling)$"
    r"|^torch_geometric\.(?:utils\.(?:negative_sampling|dropout_\w+|train_test_split_edges|structured_negative_sampling|"
    r"batched_negative_sampling|random_walk\w*|(?:erdos_renyi|barabasi_albert|stochastic_blockmodel)_graph)|"
    r"loader\.(?:(?:Link)?NeighborLoader|HGTLoader|GraphSAINT\w+|RandomNodeLoader|ShaDowKHopSampler|ImbalancedSampler)|"
    r"transforms\.(?:Random\w+|FixedPoints|SamplePoints|AddTrainValTestMask|AddRandomWalkPE))$"
    r"|^kornia\.augmentation\.(?:\w+\.)*(?:Random\w+|ColorJ\w+|CenterCrop3D)$|^torchio\.(?:transforms\.)?(?:Random\w+|OneOf)$"
    r"|^torchaudio\.(?:prototype\.)?models\.(?:\w+\.)*[a-zA-Z]\w+$|^peft\.(?:\w+\.)*(?:get_peft_model|inject_adapter_in_model)$"
    r"|^transformers\.(?:\w+\.)*DataCollatorFor(?:LanguageModeling|WholeWordMask|PermutationLanguageModeling)$"
    r"|^(?:ctgan|sdv\.\w+)\.(?:\w+\.)*(?:CTGAN|TVAE|CTGANSynthesizer|TVAESynthesizer|CopulaGANSynthesizer)$"
    r"|^torch_cluster\.random_walk$|^torch\.nn\.utils\.(?:parametrizations\.)?spectral_norm$"
    r"|^torchsampler\.(?:\w+\.)*ImbalancedDatasetSampler$|^fastai\.(?:[\w.]+\.)?(?:RandomSplitter|TrainTestSplitter)$"
    r"|^simpletransformers\.(?:\w+\.)*\w+Model$|^flair\.models\.(?:\w+\.)*[A-Z]\w+$"
    r"|^pytorch_forecasting\.(?:[\w.]+\.)?[A-Z]\w+\.from_dataset$"
    r"|^detectron2\.engine\.(?:defaults\.)?DefaultTrainer$"
    r"|^monai\.networks\.(?:blocks|layers)\.(?:\w+\.)?[A-Z]\w+$|^torchvision\.ops\.(?:MLP|DropBlock2d|StochasticDepth)$"
)
"""What makes new weights, of libraries of PyTorch."""
DRAWS_TOO = {
    "node2vec.Node2Vec": "python",
    "detectron2.engine.DefaultTrainer": "numpy",
    "detectron2.engine.defaults.DefaultTrainer": "numpy",
}
"""What draws from a second generator."""
OF_FASTAI = re.compile(
    r"^fastai\.(?:[\w.]+\.)?(?:[A-Z]\w+DataLoaders(?:\.from_\w+)?|DataBlock|TabularPandas)$"
)
"""Its loaders shuffle by a generator whose seed Python's gives."""
STABLE_BASELINES = re.compile(r"^(?:stable_baselines3?|sb3_contrib)\.")
KERAS_MODELS = re.compile(
    r"^keras\.(?:[\w.]+\.)?applications\.(?:\w+\.)?[A-Z]\w+$|^segmentation_models\.(?:Unet|FPN|Linknet|PSPNet)$"
    r"|^transformers\.TF\w+For(?:Sequence|Token|Image)Classification\.from_pretrained$"
    r"|^(?:tf_agents\.(?:networks|agents)|spektral\.layers)\.(?:\w+\.)*(?:\w+Network|\w+Agent|\w+Conv)$"
    r"|^tensorflow_probability\.(?:python\.)?(?:layers\.\w+|distributions\.\w+\(\)\.sample)$"
    r"|^keras_cv\.(?:\w+\.)*(?:Random\w+|RandAugment|AugMix|CutMix|MixUp|GridMask|Mosaic|AutoContrast|FourierMix)$"
    r"|^stable_baselines\.(?:\w+\.)*(?:PPO[12]|A2C|DQN|SAC|TD3|DDPG|ACER|ACKTR|TRPO|GAIL)$"
)
AUGMENTING = re.compile(
    r"^(?:Augmentor\.Pipeline|nlpaug\.augmenter\.[\w.]+\.[A-Z]\w+|textaugment\.[A-Z]\w+|volumentations\.[A-Z]\w+)$"
    r"|^audiomentations\.(?:\w+\.)*(?!Compose$|Normalize$|Resample$|Lambda$)[A-Z]\w+$"
    r"|^torchtext\.(?:legacy\.)?data\.(?:BucketIterator|Iterator)(?:\.splits)?$"
    r"|^igraph\.Graph\.(?:Erdos_Renyi|Barabasi|Watts_Strogatz|SBM|Forest_Fire|GRG|K_Regular|Static_\w+|"
    r"Degree_Sequence)$"
    r"|^timm\.data\.(?:\w+\.)*(?:RandomErasing|(?:rand_augment|auto_augment|augment_and_mix)_transform)$"
)
ALBUMENTATIONS = re.compile(
    r"^albumentations\.(?:\w+\.)*(?!Compose$|ReplayCompose$|Sequential$|Resize$|Normalize$|ToTensor|ToFloat$|FromFloat$|"
    r"\w*MaxSize$|Pad$|PadIfNeeded$|CenterCrop$|Crop$|Lambda$|NoOp$|\w*Params$|\w*Transform$|\w*Processor$)[A-Z]\w+$"
)
"""Nearly all draw whether they are applied at all."""
MONAI = re.compile(r"^monai\.transforms\.(?:\w+\.)*Rand[A-Z]\w+$")
"""Each has a state of its own; a loader of MONAI seeds it from PyTorch's generator."""
ENVIRONMENTS = re.compile(r"^(?:gym|gymnasium)\.(?:make|make_vec|vector\.make)$")
RANDOM_VARIATES = re.compile(
    r"^scipy\.stats\.\w+(?:\(\))?\.rvs$|^skimage\.util\.(?:\w+\.)?random_noise$|^scipy\.sparse\.(?:random|rand)$"
    r"|^scipy\.optimize\.(?:differential_evolution|dual_annealing|basinhopping)$|^scipy\.cluster\.vq\.kmeans2?$"
    r"|^umap\.(?:\w+\.)*UMAP$"
    r"|^node2vec\.Node2Vec$|^batchgenerators\.transforms\.(?:\w+\.)*\w*Transform$|^tsaug\.[A-Z]\w+$"
    r"|^pytorch_metric_learning\.samplers\.\w+$|^timm\.data\.(?:mixup\.)?(?:FastCollate)?Mixup$|^scipy\.stats\.(?:bootstrap|permutation_test|monte_carlo_test)$"
)
OF_GRAPHS = re.compile(
    r"^networkx\.(?:\w+\.)*(?:\w*random\w*graph\w*|\w*gnp\w*|gnm\w*|erdos_renyi_graph|barabasi_albert_graph|"
    r"\w*watts_strogatz_graph|stochastic_block_model|powerlaw_cluster_graph|random_\w+|louvain_communities|"
    r"asyn_lpa_communities|asyn_fluidc|kernighan_lin_bisection)$"
)
SEEDS_OF_VARIATES = (
    "random_state",
    "seed",
    "rng",
    "random_seed",
    "session_id",
    "np_random_state",
    "random_state_seed",
)
DISTRIBUTION = re.compile(r"^torch\.distributions\.[\w.]+\(\)\.r?sample$")
PIPELINE = re.compile(
    r"^tensorflow\.data\.[\w.()]+\.(?:shuffle|shuffle_and_repeat|(?:sample|choose)_from_datasets)$"
)
OF_IMGAUG = re.compile(r"^imgaug\.augmenters\.(?:\w+\.)*(?!Sequential|Resize|Noop|Identity|meta$)[A-Z]\w+$")
DEFERRED = re.compile(
    RANDOM_TRANSFORM.pattern + r"|^(?:kornia\.augmentation|torchio|audiomentations|volumentations|nlpaug|"
    r"torch_geometric\.(?:transforms|utils|loader)|monai\.transforms|umap|node2vec|"
    r"torch_audiomentations|batchgenerators|timm\.data|tsaug|keras_cv|pytorch_metric_learning|faker|torchtext)\."
    r"|^albumentations\.|^gym(?:nasium)?\.|^DataLoader|^torch\.nn\.(?:\w*Dropout\w*|RReLU)$"
    r"|^keras\.layers\.(?:\w*Dropout\w*|Random\w+|Gaussian\w+)$|^fit\(\) of"
    r"|^(?:sklearn|imblearn|gym|gymnasium|scipy|imgaug|torchaudio)\.[\w.]*\.[A-Z]\w+$|for a seed"
    rf"|(?<!random)(?<!utils)\.shuffle$|{OF_FASTAI.pattern}"
    rf"|^(?:{'|'.join(sorted({package for package, _ in ESTIMATORS}))})\.(?:\w+\.)*[A-Z]\w+$"
)
"""What draws when it is used, not when it is made."""
DRAWING = (
    *(("torch", pattern) for pattern in (RANDOM_TRANSFORM, MODEL, DISTRIBUTION, LAYERS)),
    ("python", AUGMENTING),
    ("albumentations", ALBUMENTATIONS),
    ("monai", MONAI),
    ("gym", ENVIRONMENTS),
    ("imgaug", OF_IMGAUG),
    ("numpy", RANDOM_VARIATES),
    ("python", OF_GRAPHS),
    ("tensorflow", KERAS_MODELS),
    ("tensorflow", PIPELINE),
    ("python", OF_FASTAI),
)
"""The generators that families of names draw from; the first counts."""


def is_own(name: str) -> bool:
    """Whether a name may be one of the project: of this file, or of a module that is no known library."""
    return name.startswith("@") or name.partition(".")[0] not in ELSEWHERE


@cache
def generator_of(name: str) -> str | None:
    """The generator that a call of this name draws from."""
    found = (generator for generator, pattern in DRAWING if pattern.match(name))
    return next(found, DRAWS.get(name))


def estimator_of(name: str) -> str | None:
    """The generator of what draws unless it is given a seed."""
    return ESTIMATORS.get((name.partition(".")[0], name.rpartition(".")[2]))


WEIGHTS = re.compile(
    r"^(?:torch\.nn|keras\.(?:layers|initializers)|tf_slim|sonnet|tflearn|"
    r"tensorflow\.(?:layers|nn|initializers|contrib|get_variable|\w+_initializer))\b"
)
NO_WEIGHTS = (
    *(f"torch_geometric.{name}." for name in ("utils", "transforms", "loader")),
    "kornia.",
    "torchio.",
)
"""Beginnings of names whose draws are of data."""


@cache
def makes_weights(name: str) -> bool:
    """Whether what a call of this name draws are the weights of a model, or what happens inside one."""
    if name.startswith(NO_WEIGHTS):
        return False
    return any(each.match(name) for each in (WEIGHTS, MODEL, LAYERS, KERAS_MODELS))
