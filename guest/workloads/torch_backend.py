"""The PyTorch backend."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch._dynamo  # the optimisers import it at their first use, which takes a second
import torch.optim
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from guest.datasets.catalogue import DatasetInfo
from guest.machine import fingerprint
from guest.machine.tiers import INTEL, settles_mkl
from guest.records.run import Optimizer, Tier, WorkloadSpec
from guest.workloads import NO_GRADIENT, WorkloadError, in_batches, initial
from guest.workloads.torch_models import AddedEmbedding, construct
from vbstudy.exact import first_call


class TorchBackend:
    """Implements `guest.workloads.Backend`. `model` and `optimizer` are torch's own objects."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, kind: str) -> None:
        self.model = model
        self.optimizer = optimizer
        self._kind = kind

    def train_step(self, x: np.ndarray, y: np.ndarray) -> float:
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self.model(self._input(x)), torch.from_numpy(y))
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.item()

    def logits(self, x: np.ndarray) -> np.ndarray:
        self.model.eval()
        with torch.inference_mode():
            return in_batches(lambda part: self.model(self._input(part)).numpy(), x)

    def input_gradient(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if self._kind != "image":
            raise WorkloadError(NO_GRADIENT)
        self.model.eval()

        def gradient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            images = self._input(x).requires_grad_()
            # A sum, not a mean: no sample's gradient depends on how many there are.
            loss = F.cross_entropy(self.model(images), torch.from_numpy(y), reduction="sum")
            return torch.autograd.grad(loss, images)[0].numpy().transpose(0, 2, 3, 1)

        return in_batches(gradient, x, y)

    def weights(self) -> dict[str, np.ndarray]:
        return {name: value.detach().numpy().copy() for name, value in self.model.state_dict().items()}

    def load_weights(self, weights: dict[str, np.ndarray]) -> None:
        try:
            # The arrays are copied first: torch warns of arrays that cannot be written to.
            self.model.load_state_dict({name: torch.from_numpy(w.copy()) for name, w in weights.items()})
        except RuntimeError as error:
            raise WorkloadError(str(error)) from error

    def _input(self, x: np.ndarray) -> Tensor:
        """Images go from (n, height, width, channels) to (n, channels, height, width)."""
        if self._kind == "image":
            x = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
        return torch.from_numpy(x)


def build(
    spec: WorkloadSpec, info: DatasetInfo, initialisation: int, dropout: int, deterministic: bool, tier: Tier
) -> TorchBackend:
    """See `guest.workloads.build`."""
    torch.use_deterministic_algorithms(deterministic or tier is Tier.SWITCHES)
    # oneDNN's convolutions divide their sums by the thread count. On Intel, MKL's strict mode (the caller
    # sets MKL_CBWR) makes what replaces them independent of it; elsewhere nothing would be gained.
    without = (deterministic or tier is Tier.ENVIRONMENT) and fingerprint.cpu()["vendor"] == INTEL
    torch.backends.mkldnn.enabled = not without  # type: ignore[assignment]
    if deterministic or settles_mkl(tier):
        first_call.settle()
    if tier is Tier.EXACT:
        from vbstudy import exact

        exact.enable()
    model = construct(spec.model, info, torch.Generator().manual_seed(dropout))
    _initialise(model, initialisation)
    return TorchBackend(model, _optimizer(spec, model), info.kind)


def _optimizer(spec: WorkloadSpec, model: nn.Module) -> torch.optim.Optimizer:
    trained = [p for p in model.parameters() if p.requires_grad]
    if spec.optimizer == Optimizer.ADAM:
        return torch.optim.Adam(trained, lr=spec.learning_rate, weight_decay=spec.weight_decay)
    return torch.optim.SGD(
        trained, lr=spec.learning_rate, momentum=spec.momentum, weight_decay=spec.weight_decay
    )


@torch.no_grad()
def _initialise(model: nn.Module, seed: int) -> None:
    """Sets every weight from `guest.workloads.initial`, turned from Keras's layout into torch's. Raises
    WorkloadError for one that no case sets."""
    for weight in model.parameters():
        weight.fill_(math.nan)
    for path, layer in model.named_modules():
        match layer:
            case nn.Conv2d():
                _set(layer.weight.permute(2, 3, 1, 0), seed, f"{path}/kernel")
            case nn.Linear():
                _set(layer.weight.T, seed, f"{path}/kernel")
            case nn.Embedding():
                _set(layer.weight, seed, f"{path}/embeddings")
            case AddedEmbedding():
                _set(layer.embeddings, seed, f"{path}/embeddings")
            case nn.LSTM():
                _set(layer.get_parameter("weight_ih_l0").T, seed, f"{path}/kernel")
                _set(layer.get_parameter("weight_hh_l0").T, seed, f"{path}/recurrent_kernel")
                _set(layer.get_parameter("bias_ih_l0"), seed, f"{path}/bias")
                layer.get_parameter("bias_hh_l0").zero_()
            case nn.BatchNorm2d() | nn.LayerNorm():
                layer.reset_parameters()
        if isinstance(layer, (nn.Conv2d, nn.Linear)) and layer.bias is not None:
            layer.bias.zero_()
    for path, layer in model.named_modules():
        for name, weight in layer.named_parameters(path, recurse=False):
            if weight.isnan().any():
                raise WorkloadError(
                    f"{name}, of {type(layer).__name__}, gets no initial values from the seed: "
                    "add the layer's class to _initialise in guest/workloads/torch_backend.py"
                )


def _set(weight: Tensor, seed: int, name: str) -> None:
    """`weight` is a view in Keras's layout."""
    weight.copy_(torch.from_numpy(initial(seed, name, tuple(weight.shape))))
