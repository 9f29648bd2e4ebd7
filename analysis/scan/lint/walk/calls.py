"""What a single call, assignment or comparison means: seeds, draws, thread settings, modes, operations,
training."""

from __future__ import annotations

import ast
import re
import sys

from analysis.scan.lint.vocabulary import (
    ALL,
    CHANGING,
    DRAWN,
    IF_GIVEN,
    MODEL,
    OWN_MODEL,
    SEEDS,
    SKLEARN_DRAWS,
    WORDS,
    generator_of,
    seeds_by_name,
)
from analysis.scan.lint.walk import evaluation, operations, settings
from analysis.scan.lint.walk.arguments import argument, constant, is_given, is_open
from analysis.scan.lint.walk.walk import Walk

OWN_GENERATORS = {  # rule VB102: name of the argument that seeds
    "random.Random": "x",
    "numpy.random.RandomState": "seed",
    "numpy.random.default_rng": "seed",
    "numpy.random.SeedSequence": "entropy",
    "numpy.random.PCG64": "seed",
    "numpy.random.MT19937": "seed",
}
SEARCHES = {  # of hyperparameters: name of the argument that seeds
    "optuna.create_study": "sampler",
    "optuna.samplers.TPESampler": "seed",
    "optuna.samplers.RandomSampler": "seed",
    "optuna.samplers.CmaEsSampler": "seed",
    "hyperopt.fmin": "rstate",
}
COUNTS_OF_THE_MACHINE = WORDS["counts_of_the_machine"]
TORCH_THREADS = frozenset(("torch.set_num_threads", "torch.set_num_interop_threads"))
TF_THREADS = re.compile(r"^tensorflow\.config\.threading\.set_(?:intra|inter)_op_parallelism_threads$")
SPLITS = WORDS["splits"]
NO_DATA = re.compile(r"port$|uuid|token$|nonce|(?:^|_)id$|suffix|colou?r|delay|jitter|backoff", re.IGNORECASE)
"""Names of what is drawn for other ends than data and models."""
WRITING = WORDS["writing"]
USUAL_METHODS = WORDS["usual_methods"]
"""Methods that are rarely those of a project's classes."""
RUNS_MAIN = frozenset(("tensorflow.app.run", "absl.app.run", "fire.Fire"))
COMMAND = re.compile(
    r"^(?:click|typer|hydra|sacred|fire|cyclopts|@\w+|[\w.]+\.\w+)\b.*?\b(?:command|automain)(?:\(\))?$|^hydra\.main"
)
ESTIMATOR = re.compile(
    r"^sklearn\.(?:ensemble|linear_model|tree|svm|neural_network|neighbors|naive_bayes|model_selection|pipeline|"
    r"gaussian_process|discriminant_analysis|multioutput|multiclass|cluster)\.|^(?:xgboost|lightgbm|catboost)\."
)
"""What is fitted, or chosen by fitting, of libraries without gradients."""
LOADERS = frozenset(
    ("torch.utils.data.DataLoader", "torch_geometric.loader.DataLoader", "torch_geometric.data.DataLoader")
)
GRADIENTS = frozenset(("jax.grad", "jax.value_and_grad", "flax.nnx.grad", "flax.nnx.value_and_grad"))
IN_PLACE = frozenset(
    ("normal_", "uniform_", "random_", "bernoulli_", "exponential_", "cauchy_", "log_normal_")
)
"""Methods of tensors that draw."""
TRAINERS = ("transformers.Trainer()", "transformers.Seq2SeqTrainer()", "ultralytics.YOLO()")
ELSEWHERE = WORDS["elsewhere"].union(sys.stdlib_module_names)
"""Packages that are no part of a project; those that seed are in SEEDS."""
FITS = WORDS["fits"]
NOT_MODELS = re.compile(
    r"^sklearn\.(?:preprocessing|feature_extraction|decomposition|impute|compose|feature_selection)\."
    r"|Tokenizer\(\)$|Scaler\(\)$|Encoder\(\)$|Vectorizer\(\)$|^torch\.(?:optim|fx)|^scipy\.|ImageDataGenerator\(\)$"
)
MODEL_NAME = re.compile(r"train|model|net|learn|cli|runner|estimator|classifier|clf|regressor|\(", re.I)
OWN_MODEL_NAME = re.compile(
    r"\.\w*(?:model|net|clf|classifier|regressor|learner|estimator|svm|forest)s?\.\w+$"
)
"""`self.model.fit`, of something that is not followed further."""
PARALLEL_WORK = re.compile(
    r"^torch\.(?:rand\w*|zeros|ones|matmul|mm|bmm|einsum|normal|jit\.\w+|nn\.functional\.\w+)$"
    r"|^tensorflow\.(?:constant|Variable|matmul|random\.\w+|zeros|ones|convert_to_tensor|data\.Dataset\.\w+|"
    r"reduce_\w+|Session|math\.\w+)$|^keras\.(?:Sequential|Model|models\.\w+|layers\.[A-Z]\w+|applications\.\w+)$"
)


def called(to: Walk, node: ast.Call, name: str | None) -> None:
    """One call; `name` is its qualified name, None where it is unknown."""
    function = node.func
    attribute = function.attr if isinstance(function, ast.Attribute) else ""
    if name is not None:
        if name.startswith("@"):
            to.event("call", name, node)
        elif name.partition(".")[0] not in ELSEWHERE:
            to.event("call", name, node, "helper" if seeds_by_name(name.rpartition(".")[2]) else "")
        _by_name(to, node, name)
        operations.used(to, node, name)
    elif attribute:
        operations.method(to, node, attribute)
        if attribute not in USUAL_METHODS:
            to.event("method", attribute, node)
    elif isinstance(function, ast.Name) and seeds_by_name(function.id):
        _seeded(to, node, ALL)  # of unknown origin: as its name says
    elif isinstance(function, ast.Name) and to.names.stars:
        to.event("call", f"*.{function.id}", node)
    if name is None and attribute not in ("seed", "manual_seed") and seeds_by_name(attribute):
        _seeded(to, node, ALL)
    if attribute:
        _by_attribute(to, node, attribute, name)
    for value in node.args:
        if isinstance(value, ast.Name) and (given := to.names.resolve(value) or "").startswith("@"):
            to.event("call", given, value)  # `app.run(main)`, `Engine(train_step)`: it is given to be called
    evaluation.called(to, node, name, attribute)


def given(to: Walk, node: ast.Name | ast.Attribute) -> None:
    """A name that is no call: where it is one of a function, something may call that."""
    name = to.names.resolve(node)
    if name and "()" not in name and (name.startswith("@") or name.partition(".")[0] not in ELSEWHERE):
        to.event("value", name, node)


def is_command(to: Walk, decorator: ast.expr) -> bool:
    """Whether what it decorates runs from a command line."""
    return bool(COMMAND.search(to.names.resolve(decorator) or ""))


def _by_name(to: Walk, node: ast.Call, name: str) -> None:
    top = name.partition(".")[0]
    if name.endswith("().train") and name.startswith(TRAINERS):
        to.event("train", "Trainer.train()", node)
        to.facts.flags.add("trainer")
    if name in SEEDS:
        _seed(to, node, name)
        return
    generator = generator_of(name)
    if generator == "tensorflow" and is_open(node, "seed") is False:
        generator = None
    if generator is None and top == "sklearn" and SKLEARN_DRAWS.match(name):
        generator = "numpy" if not is_given(node, "random_state") and _shuffles(node, name) else None
    elif generator == "torch" and _is_loaded(node, name):
        generator = None
    if name == "tensorflow.get_variable" and not is_given(node, "initializer"):
        generator = "tensorflow"
    if to.without_seed and "seed" in to.target:
        generator = None  # a seed for who gave none
    if generator is not None and not NO_DATA.search(to.target):
        to.event("draw", generator, node, f"{name} (for a seed)" if "seed" in to.target else name)
    if name in OWN_GENERATORS:
        _own_generator(to, node, name)
    elif name in SEARCHES and not is_given(node, SEARCHES[name]):
        to.report(
            "VB102", node, f"{name}() without {SEARCHES[name]} draws what it tries from a new generator"
        )
    elif name == "tensorflow.random.Generator.from_non_deterministic_state":
        to.report("VB102", node, "the generator begins in another state in each run")
    elif name == "random.SystemRandom":
        to.report("VB102", node, "random.SystemRandom cannot be seeded")
    elif name in LOADERS:
        _loader(to, node)
    elif name in SPLITS:
        if not is_given(node, "generator"):
            to.event("draw", "torch", node, name)
            to.report(
                "VB202", node, f"what {name.rpartition('.')[2]} gives depends on all that was drawn before"
            )
    elif name in TORCH_THREADS or TF_THREADS.match(name):
        to.facts.flags.add("threads")
        to.event("threads" if not to.loops else "-", name, node)
        if _of_machine(to, node):
            to.report(
                "VB405", node, "the thread count is that of the machine, and the trained model depends on it"
            )
    elif settings.mode(to, node, name):
        pass
    elif name in RUNS_MAIN and not node.args:
        to.event("call", "@main", node)
    elif name == "tensorflow.GradientTape":
        to.event("train", "a gradient tape", node)
    elif name in GRADIENTS:
        to.event("train", name, node)
    elif name in ("jax.random.PRNGKey", "jax.random.key") and node.args:
        _changing(to, node, node.args[0], name)
    elif name == "lightning.Trainer":
        deterministic = constant(argument(node, "deterministic", 99))
        if deterministic:
            to.facts.modes.add("warn" if deterministic == "warn" else "torch")
        if constant(argument(node, "benchmark", 99)) is True:
            to.report("VB504", node, "Trainer(benchmark=True) lets cuDNN choose by measuring")
    if PARALLEL_WORK.match(name):
        to.event("work", top if top != "keras" else "tensorflow", node, name)


def _by_attribute(to: Walk, node: ast.Call, attribute: str, name: str | None) -> None:
    facts = to.facts
    if attribute in WRITING:
        facts.flags.add("writes")
    if attribute in ("map", "interleave", "parallel_interleave", "apply"):
        settings.ordered(to, node, attribute)
    if attribute == "run" and is_open(node, "max_epochs") is False:
        facts.flags.add("loop")  # of ignite
    if attribute == "seed" and node.args:
        to.reseeded.add(_dotted(node.func))
    elif attribute in IN_PLACE and "torch" in facts.flags and not (name or "").startswith("torch.nn.init"):
        to.event("draw", "torch", node, f"Tensor.{attribute}")
    elif attribute == "shuffle" and name is None and "tensorflow" in facts.flags and _is_buffer(node):
        to.event("draw", "tensorflow", node, "Dataset.shuffle")
    elif attribute in ("flow_from_directory", "flow_from_dataframe") and is_open(node, "seed") is True:
        if constant(argument(node, "shuffle", 99)) is not False:
            to.event("draw", "numpy", node, attribute)
    elif attribute == "add_argument" and _says_seed(node):
        if is_open(node, "default") is True and not is_given(node, "required"):
            facts.flags.add("seed_by_choice")
    elif attribute == "backward":
        to.event("train", "backward()", node)
        to.event("work", "torch", node, "backward()")
        if to.loops:
            facts.flags.add("loop")
    elif attribute == "apply_gradients":
        facts.flags.add("optimizes")
        to.event("train", "apply_gradients()", node)
    elif attribute == "minimize" and name and name.startswith("@"):
        facts.flags.add("optimizes")
    elif attribute == "minimize" and (name or "tensorflow").startswith(("tensorflow", "keras")) and node.args:
        facts.flags.add("optimizes")
        if name is not None or facts.flags & {"session"}:
            to.event("train", "minimize()", node)
    elif attribute in FITS and not NOT_MODELS.search((name or "").removesuffix(f".{attribute}")):
        if (
            (name is None and _is_model(to, node))
            or (name and name.startswith("@") and OWN_MODEL_NAME.search(name))
            or (name or "").startswith(("keras", "tensorflow", "lightning"))
            or ESTIMATOR.match(name or "")
        ):
            to.event("train", f"{attribute}()", node)
            to.event("work", "tensorflow", node, f"{attribute}()")
    elif attribute in ("load_state_dict", "load_weights"):
        to.event("loaded", "", node)
    elif attribute == "cuda" or (attribute in ("to", "device") and _says_cuda(node)):
        facts.flags.add("cuda")
    elif (
        attribute == "sample"
        and name is None
        and is_given(node, "frac")
        and not is_given(node, "random_state")
    ):
        to.event("draw", "numpy", node, "DataFrame.sample")


def _is_loaded(node: ast.Call, name: str) -> bool:
    """Whether the weights of a model of torchvision come from a file."""
    weights = next((k.value for k in node.keywords if k.arg in ("pretrained", "weights")), None)
    return bool(MODEL.match(name)) and constant(weights or argument(node, "pretrained", 0)) not in (
        (...,) if weights is None else (None, False)
    )


def _is_buffer(node: ast.Call) -> bool:
    """Whether what is given is the size of a buffer, not a list to shuffle."""
    if is_open(node, "seed") is False:
        return False
    size = argument(node, "buffer_size", 0)
    named = size.id if isinstance(size, ast.Name) else size.attr if isinstance(size, ast.Attribute) else ""
    return (
        isinstance(constant(size), int)
        or bool(re.search("buffer|size|len|num", named, re.I))
        or isinstance(size, ast.Call)
    )


def _says_seed(node: ast.Call) -> bool:
    return any("seed" in text for a in node.args if isinstance(text := constant(a), str))


def _is_model(to: Walk, node: ast.Call) -> bool:
    """Whether what is fitted, of unknown origin, is what is trained. Beside PyTorch, a `baseline.fit(...)` or
    `scaler.fit(...)` is a part of something else."""
    if _dotted(node.func).startswith("super("):
        return False  # which is looked at itself
    if "torch" not in to.facts.flags or to.facts.flags & {"tensorflow", "sklearn", "fastai", "skorch"}:
        return True
    return bool(MODEL_NAME.search(_dotted(node.func)))


def _own_generator(to: Walk, node: ast.Call, name: str) -> None:
    if to.without_seed:
        return  # the caller may give one
    seed = argument(node, OWN_GENERATORS[name], 0)
    if constant(seed) is None or (seed is None and is_open(node, OWN_GENERATORS[name]) is True):
        to.unseeded.append((to.target, node, f"{name}() takes its seed from the operating system"))
    elif seed is not None:
        _changing(to, node, seed, name)


def _seed(to: Walk, node: ast.Call, name: str) -> None:
    value = (
        node.args[0]
        if node.args
        else next((k.value for k in node.keywords if k.arg in ("seed", "a", "x")), None)
    )
    if name == "torch.seed":
        to.report("VB104", node, "torch.seed() draws a seed from the operating system")
    elif value is None or (isinstance(value, ast.Constant) and value.value is None):
        if name in ("random.seed", "numpy.random.seed"):
            to.report("VB104", node, f"{name}() without a seed takes one from the operating system")
            return
    else:
        _changing(to, node, value, name)
        source = to.names.resolve(value) or ""
        if source.endswith("()") and (generator := generator_of(source[:-2])):
            _seeded(to, node, SEEDS[name], f"{DRAWN} {generator}")
            return
    if to.with_seed:
        _seeded(to, node, SEEDS[name], IF_GIVEN)
    else:
        _seeded(to, node, SEEDS[name], OWN_MODEL if name.endswith("LightningCLI") else "")


def _changing(to: Walk, node: ast.Call, value: ast.expr, name: str) -> None:
    for inner in ast.walk(value):
        if isinstance(inner, ast.Call):
            what = to.names.resolve(inner.func)
        elif isinstance(inner, ast.Name):
            what = (to.names.resolve(inner) or "").removesuffix("()")
        else:
            continue
        if what in CHANGING:
            to.report("VB104", node, f"{name} gets its seed from {what}()")


def _seeded(to: Walk, node: ast.AST, generators: tuple[str, ...], text: str = "") -> None:
    for generator in generators:
        to.event("seed", generator, node, text)


def _loader(to: Walk, node: ast.Call) -> None:
    if constant(argument(node, "shuffle", 2)) is True and not is_given(node, "generator"):
        to.event("draw", "torch", node, "DataLoader(shuffle=True)")
    workers = argument(node, "num_workers", 5)
    if workers is None or constant(workers) == 0:
        return
    if (
        evaluation.is_for_training(to, node)
        and not is_given(node, "generator")
        and not is_given(node, "worker_init_fn")
    ):
        why = (
            "the workers' seeds come from the global generator, so they depend on all that was drawn before; "
            "before PyTorch 1.9, NumPy's generator was the same in each worker"
        )
        to.report("VB201", node, why)
    if _of_machine(to, workers) and evaluation.is_for_training(to, node):
        to.report(
            "VB405", node, "which worker's generator augments a sample depends on the number of workers"
        )


def _of_machine(to: Walk, node: ast.AST) -> str:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            name = to.names.resolve(inner.func)
            if name in COUNTS_OF_THE_MACHINE:
                return name
        elif (
            isinstance(inner, ast.Name)
            and (to.names.resolve(inner) or "").removesuffix("()") in COUNTS_OF_THE_MACHINE
        ):
            return inner.id
    return ""


def _shuffles(node: ast.Call, name: str) -> bool:
    """Whether an object of scikit-learn that takes a random_state uses it."""
    last = name.rpartition(".")[2]
    if last in ("KFold", "StratifiedKFold"):
        return constant(argument(node, "shuffle", 1)) is True
    return constant(argument(node, "shuffle", 99)) is not False


def _dotted(function: ast.expr) -> str:
    """`self.rng` of `self.rng.seed`."""
    return ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""


def _says_cuda(node: ast.Call) -> bool:
    return any(
        isinstance(a, ast.Constant) and isinstance(a.value, str) and a.value.startswith("cuda")
        for a in node.args
    )
