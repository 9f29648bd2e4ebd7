"""How a trained model bears perturbed images: Gaussian noise, and the fast gradient sign method (FGSM;
Goodfellow et al., Explaining and harnessing adversarial examples, 2015), with the transfer of adversarial
examples to other models.

Every model sees the same noise, drawn from a fixed seed, at every strength the same draw times the
strength; every model is evaluated by the same thread setting. What differs comes from the models. Images
stay within the pixels' range. FGSM takes one step along the sign of the loss's gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from guest.datasets.catalogue import DatasetInfo
from guest.records.robustness import ModelFile, Point, Robustness, RobustnessRequest, Transfer
from guest.records.run import Seeds, WorkloadSpec
from guest.workloads import Backend, WorkloadError

if TYPE_CHECKING:
    import numpy as np

    from guest.datasets.datasets import Split

EVALUATION_SEEDS = Seeds(initialisation=0, data_order=0, augmentation=0, dropout=0)  # weights are loaded


def not_applicable(info: DatasetInfo) -> str:
    """Why there is nothing to perturb in this data; empty where there is."""
    if info.kind == "image":
        return ""
    return f"{info.name} is {info.kind} data: words have no neighbourhood in which to perturb them"


class Pixels:
    """The range of normalised pixels, rounded as `guest.datasets.datasets` rounds them, so that an
    unperturbed
    image stays the same to the bit; and the size of a step of 1 (black to white) in each channel."""

    def __init__(self, info: DatasetInfo) -> None:
        import numpy as np

        mean = np.array(info.mean, np.float32) * np.float32(255)
        deviation = np.array(info.std, np.float32) * np.float32(255)
        self.low = (np.float32(0) - mean) / deviation
        self.high = (np.float32(255) - mean) / deviation
        self.unit = np.float32(255) / deviation

    def moved(self, x: np.ndarray, direction: np.ndarray, strength: float) -> np.ndarray:
        """float32, shape of x: `strength` steps along `direction`, within the range."""
        import numpy as np

        if strength == 0:
            return x
        step: np.ndarray = np.float32(strength) * self.unit * direction
        moved: np.ndarray = np.clip(x + step, self.low, self.high)
        return moved


def noise(shape: Sequence[int], seed: int) -> np.ndarray:
    """Standard normal float32 values: equal for equal shapes and seeds, on every machine."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(seed)).standard_normal(shape, np.float32)


def assess(
    request: RobustnessRequest,
    backend: Backend,
    test: Split,
    info: DatasetInfo,
    load: Callable[[ModelFile], None],
) -> Robustness:
    """All numbers of one model. `load(file)` gives the backend its weights. Raises WorkloadError for data
    that cannot be perturbed."""
    import numpy as np

    reason = not_applicable(info)
    if reason:
        raise WorkloadError(reason)
    pixels, x, y = Pixels(info), test.x, test.y
    load(request.model)
    clean = _classes(backend, x)
    drawn = noise(x.shape, request.seed)
    direction = np.sign(backend.input_gradient(x, y))
    noisy = [_point(s, _classes(backend, pixels.moved(x, drawn, s)), clean, y) for s in request.strengths]
    attacked = {s: pixels.moved(x, direction, s) for s in request.strengths}
    fooled = {s: _classes(backend, images) for s, images in attacked.items()}
    transfer = []
    for target in request.targets:
        load(target)
        right = (clean == y) & (_classes(backend, x) == y)
        for strength in request.strengths:
            if strength > 0:
                made = right & (fooled[strength] != y)
                wrong = made & (_classes(backend, attacked[strength]) != y)
                transfer.append(
                    Transfer(
                        run_id=target.run_id,
                        weights=target.weights,
                        strength=strength,
                        made=int(made.sum()),
                        transferred=int(wrong.sum()),
                    )
                )
    return Robustness(
        run_id=request.model.run_id,
        weights=request.model.weights,
        seed=request.seed,
        samples=len(y),
        noise=tuple(noisy),
        fgsm=tuple(_point(s, classes, clean, y) for s, classes in fooled.items()),
        transfer=tuple(transfer),
    )


def _classes(backend: Backend, x: np.ndarray) -> np.ndarray:
    classes: np.ndarray = backend.logits(x).argmax(axis=1)
    return classes


def _point(strength: float, classes: np.ndarray, clean: np.ndarray, y: np.ndarray) -> Point:
    return Point(strength=strength, correct=int((classes == y).sum()), changed=int((classes != clean).sum()))


class Assessor:
    """Answers requests one after another; keeps the data and the network of the last workload."""

    def __init__(self) -> None:
        self._workload: WorkloadSpec | None = None

    def assess(self, request: RobustnessRequest) -> Robustness:
        """Raises WorkloadError, DatasetError, or ValueError for weights that are not those announced."""
        from guest import workloads
        from guest.datasets import datasets

        spec = request.workload
        if self._workload != spec:
            self._workload = None  # what fails below leaves data and network of two workloads
            data = datasets.load(spec.dataset, request.data_folders, spec.train_samples, spec.test_samples)
            self._info, self._test = data.info, data.test
            self._backend = workloads.build(spec, data.info, EVALUATION_SEEDS, deterministic=False)
            self._workload = spec
        return assess(request, self._backend, self._test, self._info, self._load)

    def _load(self, file: ModelFile) -> None:
        from safetensors.numpy import load_file

        from guest.training.training import hash_arrays

        weights = load_file(file.path)
        if hash_arrays(weights) != file.weights:
            raise ValueError(f"{file.run_id}: its weights are not those that its record names")
        self._backend.load_weights(weights)
