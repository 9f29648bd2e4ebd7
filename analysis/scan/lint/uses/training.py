"""What a call trains, and how."""

from __future__ import annotations

import ast
import re

from analysis.scan.lint.facts import Event, spot
from analysis.scan.lint.syntax.arguments import argument, constant, dotted, is_given, is_open, last
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.lint.vocabulary import KERAS_1, OF_UNKNOWN, WORDS, is_own

ESTIMATOR = re.compile(
    r"^(?:sklearn|imblearn|cuml|sktime|skmultilearn)\.(?:ensemble|linear_model|tree|svm|neural_network|neighbors|naive_bayes|model_selection|pipeline|"
    r"gaussian_process|discriminant_analysis|multioutput|multiclass|cluster|mixture|"
    r"semi_supervised|calibration|isotonic|kernel_ridge|cross_decomposition|adapt|classification|regression)\."
    r"|^(?:xgboost|lightgbm|catboost|ngboost|implicit|surprise|hmmlearn|lightfm|tslearn|pyod|sklearn_extra|kmodes|fcmeans|"
    r"skopt|boruta|sklearn_crfsuite|gplearn|tpot|flaml|autosklearn|econml|river|skmultiflow|capymoa|h2o|pygam|lifelines|sksurv|cuml|mapie)\."
)
"""What is fitted, or chosen by fitting, of libraries without gradients."""
SEARCHES = re.compile(
    r"^(?:keras_tuner|kerastuner)\.(?:\w+\.)*(?:RandomSearch|Hyperband|BayesianOptimization|GridSearch|Tuner)$"
)
KEEPING = {
    re.compile(r"^tensorflow\.(?:\w+\.)*(?:\w*Estimator|DNN\w+|Linear\w+|RunConfig)$"): "model_dir",
    re.compile(r"^tensorflow\.train\.MonitoredTrainingSession$"): "checkpoint_dir",
    re.compile(
        r"^tensorflow\.train\.Supervisor$|^(?:tf_slim|tensorflow\.contrib\.slim)\.learning\.train$"
    ): "logdir",
}
"""What goes on from the last checkpoint of a folder, and the argument that gives the folder."""
GRADIENTS = frozenset(("jax.grad", "jax.value_and_grad", "flax.nnx.grad", "flax.nnx.value_and_grad"))
TRAINERS = re.compile(
    r"^(?:transformers|trl|detectron2\.engine|sentence_transformers|setfit|adapters|flair|super_gradients|unsloth)\."
    r"(?:\w+\.)*\w*Trainer\(\)|^ultralytics\.(?:\w+\.)*(?:YOLO\w*|RTDETR|SAM|FastSAM|NAS)\(\)"
    r"|^mmengine\.(?:\w+\.)*Runner(?:\.from_cfg)?\(\)|^fastNLP\.(?:\w+\.)*Trainer\(\)"
    r"|^ray\.(?:rllib|train)\.[\w.]+\(\)(?:\.\w+\(\))*|^tensorflow\.estimator\.\w+\(\)|^rfdetr\.\w+\(\)"
)
FITS = WORDS["fits"]
NOT_MODELS = re.compile(
    r"^sklearn\.(?:preprocessing|feature_extraction|decomposition|impute|compose|feature_selection)\."
    r"|Tokenizer\(\)$|Scaler\(\)$|Encoder\(\)$|Vectorizer\(\)$|^torch\.(?:optim|fx)|^scipy\.|ImageDataGenerator\(\)$"
)
TRAINS = re.compile(
    r"^(?:xgboost|lightgbm|catboost)\.(?:train|cv)$|^sklearn\.model_selection\.cross_val\w+$"
    r"|^gensim\.models\.(?:\w+\.)*(?:Word2Vec|Doc2Vec|FastText|LdaModel|LdaMulticore|HdpModel)$"
    r"|^skfuzzy\.(?:\w+\.)*cmeans$|^pycaret\.\w+\.(?:create_model|compare_models|tune_model)$|^deap\.algorithms\.ea\w+$"
    r"|^fasttext\.train_(?:un)?supervised$|^nltk\.(?:\w+\.)*\w*(?:Classifier|Tagger|Trainer)(?:\(\))?\.train\w*$"
    r"|^pycrfsuite\.Trainer\(\)\.train$|^scipy\.optimize\.(?:minimize|basinhopping|dual_annealing|"
    r"differential_evolution|shgo|fmin\w*)$|^tianshou\.trainer\.(?:\w+_trainer|\w+Trainer\(\)\.run)$"
    r"|^mm\w+\.apis\.(?:\w+\.)*train_\w+$|^pennylane\.\w*Optimizer\(\)\.step(?:_and_cost)?$"
    r"|^qiskit\w*\.(?:\w+\.)*optimizers\.(?:\w+\.)*\w+\(\)\.minimize$"
    r"|^(?:tf_slim|tensorflow\.contrib\.slim)\.(?:learning\.)?(?:train|create_train_op)$"
    r"|^tensorflow\.contrib\.(?:training\.(?:train|create_train_op)|layers\.optimize_loss)$"
    r"|^(?:lightning|jsonargparse)\.(?:\w+\.)*LightningCLI$|^simpletransformers\.[\w.]+\(\)\.train_model$"
    r"|^sentence_transformers\.(?:\w+\.)*(?:CrossEncoder|SentenceTransformer)\(\)\.(?:old_)?fit$"
    r"|^spacy\.(?:blank|load)\(\)\.update$|^tf_agents\.agents\.[\w.]+\(\)\.train$|^pykeen\.pipeline\.pipeline$|^recbole\.[\w.]*run_recbole$"
)
"""Functions of libraries that train."""
LOADED_FIT = re.compile(
    r"^keras\.(?:models|saving)\.(?:\w+\.)?(?:load_model|model_from_\w+|clone_model)\(\)\.fit$"
)
"""Its layers are not known, but it is fitted in an order that is drawn."""
OF_ESTIMATORS = re.compile(
    r"^(?:xgboost|lightgbm|catboost|sklearn|gensim|spacy|fasttext|nltk|pycrfsuite|scipy|qiskit\w*|pennylane|skfuzzy|pycaret|deap)\."
)
LIBRARIES_OF_MODELS = re.compile(
    r"^(?:keras|tensorflow|lightning|tflearn|skorch|fastai|autokeras|rl|flair|setfit|tsai|keras_\w+|deepctr\w*|spektral|"
    r"stellargraph|segmentation_models|sentence_transformers|simpletransformers|pytorch_tabnet|autogluon|darts|"
    r"neuralforecast|gluonts|pyod|qiskit_machine_learning|tf_agents|tensorflow_recommenders|ludwig|"
    r"transformers\.(?:models\.(?:\w+\.)+)?TF[A-Z]\w+)\."
)
OF_KERAS = frozenset(
    ("epochs", "validation_data", "validation_split", "callbacks", "steps_per_epoch", "verbose")
)
"""Arguments of its `fit`."""
MODEL_NAME = re.compile(r"train|model|net|learn|cli|runner|estimator|classifier|clf|regressor|\(", re.I)
NOT_MODEL_NAME = re.compile(
    r"(?:scaler|vectori[sz]er|tokeni[sz]er|imputer|binari[sz]er|normali[sz]er|label_?encoder|one_?hot\w*|(?:^|[._])(?:ohe|le|"
    r"lb|mlb|enc|pca|umap|tsne|tfidf\w*)|selector|reducer|data_?gen\w*|preprocessor)$",
    re.IGNORECASE,
)
OWN_MODEL_NAME = re.compile(
    r"\.\w*(?:model|net|clf|classifier|regressor|learner|estimator|svm|forest)s?\.\w+$"
)
"""`self.model.fit`, of something that is not followed further."""
MAKERS = ("hydra.", "mmengine.", "mmcv.", "fastai.")
"""What comes from them is made by a configuration file, or is a trainer itself."""
TRAINER = re.compile(r"(?:^|[._])(?:\w*_)?(?:trainer|learner|solver|runner)\w{0,2}$", re.IGNORECASE)
"""Names of what trains, of something that is not followed further: `trainer.train()`."""
OF_SKLEARN = re.compile(
    r"(?:estimator|clf|classifier|regressor|svm|forest|knn|kmeans|pca|gmm|probe)s?$", re.IGNORECASE
)
UPDATING = re.compile(r"(?:^|[._])(?:\w*optim\w*|opt|(?:\w*_)?trainer)$", re.IGNORECASE)


def by_name(to: Walk, node: ast.Call, name: str) -> None:
    """A call of a library whose name says that it trains."""
    if name == "tensorflow.estimator.train_and_evaluate" or (
        name.endswith("().train") and TRAINERS.match(name)
    ):
        to.event("train", "Trainer.train()", node)
    elif TRAINS.match(name):
        to.event("train", "estimator" if OF_ESTIMATORS.match(name) else f"{name.rpartition('.')[2]}()", node)
    _goes_on(to, node, name)
    if LOADED_FIT.match(name) and constant(argument(node, "shuffle")) is not False:
        to.event("draw", "tensorflow", node, "fit(shuffle=True) of a model that was loaded")
    if name == "tensorflow.GradientTape":
        to.event("train", "a gradient tape", node)
    elif name in GRADIENTS:
        to.event("train", name, node)


def _goes_on(to: Walk, node: ast.Call, name: str) -> None:
    """Rule VB106, of a library that asks nobody whether something of an earlier run is there."""
    if SEARCHES.match(name):
        if is_open(node, "overwrite") is True or constant(argument(node, "overwrite")) is False:
            to.report("VB106", node, "the search goes on from trials in its folder: pass overwrite=True")
    elif name in ("optuna.create_study", "optuna.study.create_study"):
        if constant(argument(node, "load_if_exists")) is True and is_given(node, "storage"):
            to.report("VB106", node, "load_if_exists=True: the search goes on from trials that are stored")
    elif (folder := next((folder for what, folder in KEEPING.items() if what.match(name)), "")) and (
        is_open(node, folder) is False
    ):
        to.report("VB106", node, f"training goes on from the last checkpoint in {folder} if there is one")


def followed(to: Walk, name: str | None) -> str | None:
    """`transformers.Trainer().train` of `@Learner.trainer.train`, where that attribute is such a trainer."""
    owner, _, method = (name or "").rpartition(".")
    maker = to.attributes().get(owner) if method == "train" and owner.startswith("@") else None
    made = f"{to.names.resolve(maker)}().train" if maker is not None else ""
    return made if TRAINERS.match(made) else name


def by_attribute(to: Walk, node: ast.Call, attribute: str, name: str | None) -> bool:
    """A call of a method that may train, `loss.backward()`, `model.fit(...)`; True if it was one."""
    facts = to.facts
    if attribute == "backward":
        to.event("train", "backward()", node)
        to.event("work", "torch", node, "backward()")
        if to.loops:
            facts.flags.add("loop")
    elif attribute == "apply_gradients":
        facts.flags.add("optimizes")
        to.event("train", "apply_gradients()", node)
    elif attribute == "minimize" and is_own(name or "@") and "x0" in {k.arg for k in node.keywords}:
        to.event("train", "estimator", node)  # from a start, without gradients
    elif attribute == "minimize" and name and name.startswith("@"):
        facts.flags.add("optimizes")
        if "tensorflow" in facts.flags and UPDATING.search(dotted(node.func)):
            to.event("train", "minimize()", node)
    elif (
        attribute == "minimize"
        and (name or "tensorflow").startswith(("tensorflow", "keras"))
        and (node.args or is_given(node, "loss"))
    ):
        facts.flags.add("optimizes")
        if name is not None or facts.flags & {"session"}:
            to.event("train", "minimize()", node)
    elif (
        attribute in ("train", "fit", "learn")
        and (name or "hydra.").startswith(MAKERS)
        and TRAINER.search(dotted(node.func))
    ):
        to.event("train", f"trainer.{attribute}()", node)
    elif attribute == "learn" and (name or "").startswith(("stable_baselines", "sb3_contrib")):
        to.event("train", "learn()", node)
        facts.flags.add("torch")
    elif attribute in FITS and not NOT_MODELS.search((name or "").removesuffix(f".{attribute}")):
        _fits(to, node, attribute, name)
    else:
        return False
    return True


def inherited(to: Walk, class_name: str, base: ast.expr, name: str) -> None:
    """A class derived from one that trains."""
    if TRAINERS.match(f"{name}()") or name == "keras.Model":
        method = "fit" if name == "keras.Model" else "train"
        event = Event("train", f"{name}.{method}()", spot(base))
        to.facts.scopes.setdefault(f"{class_name}.{method}", []).append(event)


RATE = re.compile(r"(?:^|_)(?:lr|eta|alpha|learning_?rate|learn_rate|step_size|rate)$", re.IGNORECASE)


def descended(to: Walk, target: ast.expr, node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> None:
    """`weights -= rate * gradient`, `w = w - rate * gradient`, `table[state] += rate * error`."""
    value = node.value
    if isinstance(node, ast.AugAssign):
        sign: ast.operator = node.op
    elif isinstance(value, ast.BinOp) and ast.dump(value.left) == ast.dump(target).replace(
        "Store()", "Load()"
    ):
        sign, value = value.op, value.right
    else:
        return
    is_step = isinstance(sign, ast.Sub) or (isinstance(sign, ast.Add) and isinstance(target, ast.Subscript))
    if is_step and value is not None and _is_scaled(value):
        to.event("train", "descent", node)


def _is_scaled(value: ast.expr) -> bool:
    """Whether a product has the rate of learning as a factor."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult | ast.Div):
        return _is_scaled(value.left) or _is_scaled(value.right)
    return bool(RATE.search(last(value)))


def kept(to: Walk, target: ast.Attribute, value: ast.expr) -> None:
    """`self.model = RandomForestClassifier()`."""
    if isinstance(value, ast.Call) and ESTIMATOR.match(to.names.resolve(value.func) or ""):
        to.facts.estimators.add(to.names.resolve(target) or "")


def _fits(to: Walk, node: ast.Call, attribute: str, name: str | None) -> None:
    """`model.fit(...)`: of a library's model, or of what a function of the project made."""
    facts = to.facts
    maker = (name or "").removesuffix(f".{attribute}")
    is_known = LIBRARIES_OF_MODELS.match(name or "") or ESTIMATOR.match(name or "")
    is_class = _is_capital(maker)
    is_unknown = name is None or (_is_made(to, maker) and not (is_class and is_known))
    if not (
        is_known
        or (is_unknown and _is_model(to, node))
        or (name and is_own(name) and OWN_MODEL_NAME.search(name))
    ):
        return
    is_estimator = (
        ESTIMATOR.match(name or "")
        or maker in facts.estimators
        or ("estimators" in facts.flags and OF_SKLEARN.search(dotted(node.func)))
    )
    if any(keyword.arg == "nb_epoch" for keyword in node.keywords):
        facts.flags.add(KERAS_1)
    is_of_keras = "tensorflow" in facts.flags and len(OF_KERAS & {each.arg for each in node.keywords}) > 1
    text = (OF_UNKNOWN + maker.removesuffix("()") * is_class) * (is_unknown and not is_of_keras)
    to.event("train", "estimator" if is_estimator else f"{attribute}()", node, text)
    to.event("work", "tensorflow", node, f"{attribute}()")


def _is_made(to: Walk, name: str) -> bool:
    """Whether something is the result of a function of the project: of what kind it is, is not known. What a
    class makes has that class's methods."""
    made = name.removesuffix("()")
    return made != name and is_own(name) and made.rpartition(".")[2].removeprefix("@") not in to.facts.classes


def _is_capital(name: str) -> bool:
    """Whether something of another file is one of a class, by its name: it may be of a function too."""
    return not name.startswith("@") and name.rpartition(".")[2][:1].isupper()


def _is_model(to: Walk, node: ast.Call) -> bool:
    """Whether what is fitted, of unknown origin, is what is trained. Beside PyTorch, a `baseline.fit(...)` or
    `scaler.fit(...)` is a part of something else."""
    what = dotted(node.func)
    if what.startswith("super(") or NOT_MODEL_NAME.search(what.partition("(")[0]):
        return False  # the first is looked at itself
    if "torch" not in to.facts.flags or to.facts.flags & {"tensorflow", "sklearn", "fastai", "skorch"}:
        return True
    return bool(MODEL_NAME.search(what))
