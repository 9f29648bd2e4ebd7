"""What is measured of a model's robustness, as it travels and as it is stored (`robustness/<run_id>.json`).
The vocabulary that `guest.training.perturbation`, the orchestrator and the analysis share."""

from __future__ import annotations

from dataclasses import dataclass

from guest.records.codec import RecordError, unseal
from guest.records.run import WorkloadSpec

ROBUSTNESS_VERSION = 1
STRENGTHS = (0.0, 0.01, 0.02, 0.05, 0.1)
NOISE_SEED = 20210


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """The last model of a run: its file, where the agent finds it, and the hash of its arrays
    (`guest.training.training.hash_arrays`, the run record's `hashes.weights`)."""

    run_id: str
    path: str
    weights: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustnessRequest:
    """Measure `model`, and try its adversarial examples on `targets`. `strengths` are in units of the
    pixels' range, 0 .. 1: the SD of the noise, the size of the attack's step."""

    workload: WorkloadSpec
    model: ModelFile
    targets: tuple[ModelFile, ...]
    strengths: tuple[float, ...] = STRENGTHS
    seed: int = NOISE_SEED
    data_folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The model on test samples perturbed with one strength. `changed` is the number of samples whose
    predicted class is no longer that without perturbation."""

    strength: float
    correct: int
    changed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Adversarial examples of the model tried on another. `made` are samples that both models classify
    correctly unperturbed and that the attack on the model made it misclassify; of these the other
    model misclassifies `transferred`."""

    run_id: str
    weights: str
    strength: float
    made: int
    transferred: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Robustness:
    """One model's result. Where there is nothing to perturb, `not_applicable` says why and the rest is
    empty."""

    run_id: str
    weights: str
    seed: int
    samples: int
    noise: tuple[Point, ...]
    fgsm: tuple[Point, ...]
    transfer: tuple[Transfer, ...]
    not_applicable: str = ""
    version: int = ROBUSTNESS_VERSION


def decode(text: str | bytes) -> Robustness:
    """Raises as `guest.records.codec.unseal`."""
    result = unseal(Robustness, text, "robustness", known=ROBUSTNESS_VERSION, version="version")
    if result.samples < 1 and not result.not_applicable:
        raise RecordError(f"robustness: was measured on {result.samples} samples")
    return result
