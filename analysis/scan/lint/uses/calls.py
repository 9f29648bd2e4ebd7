"""What a single call, assignment or comparison means: seeds, draws, thread settings, modes, operations,
training."""

from __future__ import annotations

import ast
import re

from analysis.scan.lint.facts import APPLIES, MAIN, TRIES, Event, spot
from analysis.scan.lint.syntax import defaults
from analysis.scan.lint.syntax.arguments import argument, called_on, constant, dotted, is_given, is_open, last
from analysis.scan.lint.syntax.tree import all_of
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.lint.uses import (
    chosen,
    counts,
    devices,
    draws,
    operations,
    pools,
    seeding,
    settings,
    tables,
    training,
)
from analysis.scan.lint.validation import evaluation
from analysis.scan.lint.vocabulary import ALL, IF_GIVEN, NO_DEFAULT, WORDS, is_own, seeded_by, seeds_by_name

INTEROP_THREADS = "torch.set_num_interop_threads"
TORCH_THREADS = frozenset(("torch.set_num_threads", INTEROP_THREADS))
TF_THREADS = re.compile(r"^tensorflow\.config\.threading\.set_(?:intra|inter)_op_parallelism_threads$")
SPLITS = WORDS["splits"]
WRITING = WORDS["writing"]
WRITER = re.compile(
    r"^(?:write|save|dump|store)_(?!model|check|ckpt|weight|fig|plot|conf|log|param|state|result|metric)"
)
OPTIONS = frozenset(("add_argument", "add_option", "option"))
SHOWING = WORDS["showing"]
SHOWS = re.compile(r"^(?:display|listen|play|show|plot|view|visuali[sz]e)(?:_|$)|^Audio$")
"""Functions that show something, by their names."""
LOADING = frozenset(("load_state_dict", "load_weights", "load_model", "load_from_checkpoint", "to_empty"))
"""Methods after which the weights are others than those that were drawn."""
LOADED_MODELS = frozenset(
    ("tensorflow.saved_model.load", "tensorflow.saved_model.loader.load", "torch.jit.load")
) | {"onnxruntime.InferenceSession"}
LOADED_WHOLE = frozenset(("torch.load", "joblib.load", "pickle.load", "dill.load"))
MODEL_TARGET = re.compile(
    r"(?:^|[._])(?:\w*model|net|network|clf|classifier|regressor|estimator)$", re.IGNORECASE
)
REPORTING = frozenset(("print", "info"))
TESTING = frozenset(("test", "validate"))
"""Methods of a trainer that report metrics."""
METRIC = re.compile(
    r"accura|\bacc\b|\bf1\b|\bf-?score|\bauc\b|\bauroc\b|recall|\bm?ap\b|\bmrr\b|hits?@|\bndcg|\brmse\b|\bmae\b|\bmse\b|"
    r"\bmape\b|\br2\b|\bfid\b|\bpsnr\b|\bssim\b|\bpesq\b|\bstoi\b|\b(?:si-?)?s[dn]ri?\b|\bbleu|\brouge|perplexity|\bm?iou\b|\bdice\b|\beer\b|\bwer\b|\bcer\b|"
    r"(?:val|test)\w*[ _]loss",
    re.IGNORECASE,
)
"""Words of what a program reports of a model."""
OF_A_TEST = re.compile(
    r"^\W*Testing (?!acc|loss|set|data|phase|model)[\w ]+(?:\.\.\.|:)?\W*$|\btests? (?:all )?(?:passed|ok)\b"
    r"|(?:self|quick|smoke|sanity)[ -](?:test|check)",
    re.IGNORECASE,
)
"""`Testing filters...`, `All tests passed`."""
USUAL_METHODS = WORDS["usual_methods"]
"""Methods that are rarely those of a project's classes."""
RUNS_MAIN = frozenset(("tensorflow.app.run", "absl.app.run", "fire.Fire"))
COMMAND = re.compile(
    r"^(?:click|typer|hydra|sacred|fire|cyclopts|@\w+|[\w.]+\.\w+)\b.*?\b(?:command|automain)(?:\(\))?$|^hydra\.main"
)
GROUP = re.compile(r"(?:click|cloup|^@\w+)\b.*\bgroup(?:\(\))?$|^typer\.Typer\(\)\.callback(?:\(\))?$")
"""What it decorates runs before any command does."""
CALLED_LATER = frozenset(("function", "func", "fn", "main", "objective", "target", "trainable"))
"""Keywords whose functions are called, as those of arguments without keywords are."""
RUNNING = re.compile(r"(?:Thread|Process)$")
"""Classes whose method `run` is called."""
REGISTERS = re.compile(r"^_*register(?!\w*serializable)|_register$", re.IGNORECASE)
REGISTERING = WORDS["registering"]
ENVIRONMENT = re.compile(r"(?:^|[._])env\w{0,9}(?:$|[.\[])", re.IGNORECASE)
ACTION_SPACE = re.compile(r"action_space(?:\(.*\)|\[.*\])?$")
"""It has a generator of its own, which `reset(seed=...)` of its environment does not seed."""
LOSS = re.compile(r"criterion|loss|ctc", re.IGNORECASE)
PARALLEL_WORK = re.compile(
    r"^torch\.(?:rand\w*|zeros|ones|matmul|mm|bmm|einsum|normal|jit\.\w+|nn\.functional\.\w+)$"
    r"|^tensorflow\.(?:constant|Variable|matmul|random\.\w+|zeros|ones|convert_to_tensor|data\.Dataset\.\w+|"
    r"reduce_\w+|Session|math\.\w+)$|^keras\.(?:Sequential|Model|models\.\w+|layers\.[A-Z]\w+|applications\.\w+)$"
)


def called(to: Walk, node: ast.Call, name: str | None) -> None:
    """One call; `name` is its qualified name, None where it is unknown."""
    function = node.func
    attribute = function.attr if isinstance(function, ast.Attribute) else ""
    name = training.followed(to, name)
    draws.augmented(to, node)
    if _may_be_mode(to, node, name, attribute):
        pass
    elif name is not None:
        if is_own(name):
            helper = seeds_by_name(name.rpartition(".")[2].lstrip("@"))
            to.event("call", name, node, seeding.of_helper(to, node) if helper else "")
        _by_name(to, node, name)
        operations.used(to, node, name)
    elif attribute:
        operations.method(to, node, attribute)
        if attribute not in USUAL_METHODS:
            to.event("method", attribute, node)
    elif isinstance(function, ast.Subscript | ast.Call) or last(function) == "getattr":
        chosen.called(to, node)
    elif isinstance(function, ast.Name) and seeds_by_name(function.id):
        seeding.of_helper(to, node)
        seeding.seeded(to, node, ALL, IF_GIVEN * bool(to.with_seed))  # of unknown origin: as its name says
    elif isinstance(function, ast.Name) and to.names.stars:
        to.event("call", f"*.{function.id}", node)
    if name is None and attribute not in ("seed", "manual_seed") and seeds_by_name(attribute):
        seeding.seeded(to, node, ALL)
    if attribute:
        _by_attribute(to, node, attribute, name)
    if attribute in ("predict", "detach"):
        to.facts.flags.add(APPLIES)
    method = last(function)
    is_printed = method == "print" and to.events is to.facts.scopes.get(MAIN)
    if is_printed and any(OF_A_TEST.search(str(constant(each))) for each in node.args):
        to.facts.flags.add(TRIES)
    if (
        method in LOADING
        or name in LOADED_MODELS
        or (name in LOADED_WHOLE and MODEL_TARGET.search(to.target))
    ):
        to.event("loaded", "", node)
        if name and method == "load_from_checkpoint" and is_own(name):
            to.event("call", name.removesuffix(f".{method}"), node)  # it makes one of the class
    elif (method in REPORTING and any(map(_names_metric, node.args))) or (
        attribute in TESTING and node.args and training.TRAINER.search(dotted(function))
    ):
        to.facts.flags.add("reports")
    elif method in SHOWING or (to.facts.is_notebook and not to.scope and SHOWS.search(method)):
        to.facts.shown.append(node.lineno)
    elif (
        attribute and method in WRITING and (method != "copy" or node.args)  # `table.copy()` is no file's
    ) or WRITER.match(method):
        to.facts.flags |= {"writes"} if method == "fit" else {"writes", "saves"}
        to.facts.written.append(node.lineno)
    if constant(argument(node, "do_sample")) is True:
        to.event("draw", "torch", node, f"{method}(do_sample=True)")
    for value in (*node.args, *(each.value for each in node.keywords if each.arg in CALLED_LATER)):
        if isinstance(value, ast.Name) and (given := to.names.resolve(value) or "").startswith("@"):
            to.event("call", given, value)  # `app.run(main)`, `agent(sweep, function=train)`: to be called
    if node.args and _is_on_cpu(to, node.args[0]) and LOSS.search(method):
        to.facts.flags.add("loss on the CPU")
    chosen.handed_on(to, node)
    counts.composed(to, node)
    devices.called(to, node, name or "", attribute)
    pools.inferred(to, node, name or "", attribute)
    defaults.of_call(to, node)
    evaluation.called(to, node, name, attribute)


def _may_be_mode(to: Walk, node: ast.Call, name: str | None, attribute: str) -> bool:
    """`self.model.train()`, of something that is not followed: a mode if it has `self.model.eval()` too, else
    a method of the project."""
    if attribute == "eval" and not node.args:
        to.facts.evaluated.add(dotted(node.func))
    if (
        attribute != "train"
        or node.args
        or node.keywords
        or (name or "@").partition("@")[0]
        or "()" in str(name)
        or dotted(node.func) == "self"
    ):
        return False
    event = Event("method", attribute, spot(node)) if name is None else Event("call", name, spot(node))
    to.facts.perhaps_modes.append((dotted(node.func), to.events, event))
    return True


def module_ends(to: Walk) -> None:
    """What was no mode of training is a call."""
    for owner, events, event in to.facts.perhaps_modes:
        if owner not in to.facts.evaluated:
            events.append(event)


def _names_metric(value: ast.expr) -> bool:
    """`"Accuracy: %f"`, `f"RMSE {error}"`."""
    return any(
        isinstance(part.value, str) and METRIC.search(part.value) for part in all_of(ast.Constant, value)
    )


def _is_on_cpu(to: Walk, value: ast.expr) -> bool:
    """`predictions.cpu()`, or a name that was given such a value last."""
    if isinstance(value, ast.Name):
        return value.id in to.facts.on_cpu
    return called_on(value, ("cpu",)) is not None


def moved(to: Walk, target: ast.Name, value: ast.expr) -> None:
    (to.facts.on_cpu.add if _is_on_cpu(to, value) else to.facts.on_cpu.discard)(target.id)


def given(to: Walk, node: ast.Name | ast.Attribute) -> None:
    """A name that is no call: where it is one of a function, something may call that."""
    devices.named(to, node)
    draws.given(to, node)
    if isinstance(node, ast.Name) and node.id == "self":
        return  # which is no use of its class
    name = to.names.resolve(node)
    if name and "()" not in name and is_own(name):
        to.event("value", name, node)
    elif name is None and to.names.stars and isinstance(node, ast.Name) and node.id[0].isupper():
        to.event("value", f"*.{node.id}", node)  # a class of a file of which all was imported


def inherited(to: Walk, class_name: str, base: ast.expr, name: str) -> None:
    """A class derived from one of a library: it may be a layer, or train."""
    draws.inherited(to, f"{class_name}.__init__", base, name)
    operations.inherited(to, base, name)
    training.inherited(to, class_name, base, name)
    devices.of_library(to, name)
    if RUNNING.search(name):
        run = Event("value", f"@{class_name}.run", spot(base))
        to.facts.scopes.setdefault(f"{class_name}.__init__", []).append(run)


def is_command(to: Walk, decorator: ast.expr) -> bool:
    """Whether what it decorates runs from a command line."""
    return bool(COMMAND.search(to.names.resolve(decorator) or ""))


def is_group(to: Walk, decorator: ast.expr) -> bool:
    """Whether what it decorates runs before the command that was asked for."""
    return bool(GROUP.search(to.names.resolve(decorator) or ""))


def is_registered(decorator: ast.expr) -> bool:
    """`@app.post("/train")`, `@celery.task`: a service calls what it decorates."""
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    return isinstance(decorator, ast.Attribute) and decorator.attr in REGISTERING


def registers(decorator: ast.expr) -> bool:
    """`@MODELS.register_module()`, `@register_model("unet")`: something makes it by a name."""
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    return bool(REGISTERS.search(last(decorator)))


def _by_name(to: Walk, node: ast.Call, name: str) -> None:
    top = name.partition(".")[0]
    training.by_name(to, node, name)
    pools.called(to, node, name)
    settings.of_library(to, node, name)
    if seeded_by(name):
        seeding.seed(to, node, name)
        return
    draws.drawn(to, node, name)
    chosen.unseeded(to, node, name)
    chosen.by_parameter(to, node, name)
    chosen.offered(to, node, name)
    settings.queued(to, node, name)
    if name in settings.LOADERS:
        counts.loader(to, node, name)
    elif name in SPLITS:
        if not is_given(node, "generator"):
            to.event("draw", "torch", node, name)
            to.report(
                "VB202", node, f"what {name.rpartition('.')[2]} gives depends on all that was drawn before"
            )
    elif name in TORCH_THREADS or TF_THREADS.match(name):
        if name != INTEROP_THREADS:  # which operations share, and none is split by
            to.facts.flags.add("threads")
        to.event("threads" if not to.loops else "-", name, node)
        counts.threads(to, node)
    elif settings.mode(to, node, name):
        pass
    elif name in RUNS_MAIN and not node.args:
        given_main = argument(node, "main")
        to.event("call", (given_main and to.names.resolve(given_main)) or "@main", node)
    elif name in ("jax.random.PRNGKey", "jax.random.key") and node.args:
        seeding.changing(to, node, node.args[0], name)
    elif name == "lightning.Trainer":
        settings.of_trainer(to, node)
        if constant(argument(node, "benchmark")) is True:
            to.report("VB504", node, "Trainer(benchmark=True) lets cuDNN choose by measuring")
    if PARALLEL_WORK.match(name):
        to.event("work", top if top != "keras" else "tensorflow", node, name)


def _by_attribute(to: Walk, node: ast.Call, attribute: str, name: str | None) -> None:
    facts = to.facts
    draws.of_spark(to, node, attribute)
    if attribute == "import_module" and (module := to.names.resolve(node)) and "()" not in module:
        to.event("import", module, node)
    if (attribute == "eval" and not node.args) or (
        attribute == "train" and constant(argument(node, "mode", 0)) is False
    ):
        to.event("evaluates", "", node)
    if attribute == "add_argument":
        for option in defaults.of_command_line(to, node):
            counts.remembered(to, option, argument(node, "default"))
    if attribute == "compile":
        operations.compiled(to, node)
    if attribute == "set_random_state":
        seeding.seeded(to, node, ("monai",))
    settings.shuffled(to, node, attribute, name)
    if attribute in ("map", "interleave", "parallel_interleave", "apply", "map_and_batch"):
        settings.ordered(to, node, attribute)
        settings.mapped(to, node)
    if attribute == "run" and is_open(node, "max_epochs") is False:
        facts.flags.add("loop")  # of ignite
    if attribute.startswith("step") or (
        attribute in ("update", "zero_grad") and training.UPDATING.search(dotted(node.func))
    ):
        facts.flags.add("steps")
    if attribute == "set_params" and any((k.arg or "").endswith("random_state") for k in node.keywords):
        to.reseeded.add(dotted(node.func))
    if attribute == "reset" and is_open(node, "seed") is False:
        seeding.seeded(to, node, ("gym",))
    if attribute == "seed" and node.args:
        to.reseeded.add(dotted(node.func))
        if ACTION_SPACE.search(dotted(node.func)):
            seeding.seeded(to, node, ("action space",))
        elif ENVIRONMENT.search(dotted(node.func)):
            seeding.seeded(to, node, ("gym",))
    elif (
        attribute in draws.IN_PLACE
        and "torch" in facts.flags
        and not (name or "").startswith("torch.nn.init")
    ):
        to.event("draw", "torch", node, f"Tensor.{attribute}")
    elif (
        attribute == "shuffle"
        and (name is None or is_own(name))
        and "tensorflow" in facts.flags
        and draws.is_buffer(node)
        and id(node) not in to.discarded
    ):
        to.event("draw", "tensorflow", node, "Dataset.shuffle")
    elif (text := draws.of_data_set(to, node, attribute, name)) and is_open(node, "seed") is True:
        to.event("draw", "numpy", node, text)
    elif (
        attribute in ("flow_from_directory", "flow_from_dataframe")
        or (attribute == "flow" and (name or "").endswith("ImageDataGenerator().flow"))
    ) and is_open(node, "seed") is True:
        if constant(argument(node, "shuffle")) is not False:
            to.event("draw", "numpy", node, attribute)
    elif attribute in OPTIONS and _option(node):
        default = argument(node, "default")
        seeding.changing(to, node, default, f"the option {_option(node)}")
        is_minus = isinstance(default, ast.UnaryOp) and settings.is_minus(default)
        if is_minus or (is_open(node, "default") is True and not is_given(node, "required")):
            name = _option(node).lstrip("-").replace("-", "_")
            facts.flags |= {"seed_by_choice"} if is_minus else {"seed_by_choice", f"{NO_DEFAULT}{name}"}
    elif training.by_attribute(to, node, attribute, name):
        pass
    elif attribute == "restore" and "session" in facts.flags:
        to.event("loaded", "", node)
    elif attribute == "cuda" or (
        attribute in ("to", "device") and any(devices.is_gpu(constant(each)) for each in node.args)
    ):
        facts.flags.add("cuda")
    elif attribute == "sample" and ACTION_SPACE.search(dotted(node.func)):
        to.event("draw", "action space", node, f"{dotted(node.func)}.sample")
    elif attribute == "sample" and tables.is_of_table(to, node, name):
        to.event("draw", "numpy", node, tables.DRAWN)
    elif attribute == "sample":
        tables.sampled(to, node)


def _option(node: ast.Call) -> str:
    """`--seed` of `add_argument("-s", "--seed")`; "" for an option of something else."""
    return next(
        (text for a in node.args if isinstance(text := constant(a), str) and "seed" in text.lower()), ""
    )
