"""A network that workers train together, with DistributedDataParallel over gloo. Started by `torchrun`:

    torchrun --standalone --nproc-per-node 4 tests/vbstudy/exact/distributed.py FOLDER THREADS THREADS ...

Each worker writes the hash of its weights into a file of its rank; it computes on the THREADS of its rank."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed
from torch.nn import functional as F  # noqa: N812 (its usual name)
from torch.nn.parallel import DistributedDataParallel

from guest.records.run import Optimizer
from guest.training.training import hash_arrays
from tests.vbstudy.exact.training import BATCH, build

STEPS = 10


def main(folder: Path, threads: list[int]) -> None:
    torch.distributed.init_process_group("gloo")
    rank, workers = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.set_num_threads(threads[rank])
    backend, data = build("lenet5", Optimizer.SGD)
    model = DistributedDataParallel(backend.model)  # type: ignore[attr-defined]
    order = np.random.default_rng(0)
    for _ in range(STEPS):
        mine = order.choice(len(data.train.y), BATCH, replace=False)[rank::workers]
        images = torch.from_numpy(data.train.x[mine]).permute(0, 3, 1, 2)
        backend.optimizer.zero_grad()  # type: ignore[attr-defined]
        F.cross_entropy(model(images), torch.from_numpy(data.train.y[mine])).backward()  # type: ignore[no-untyped-call]
        backend.optimizer.step()  # type: ignore[attr-defined]
    (folder / str(rank)).write_text(hash_arrays(backend.weights()), "utf-8")
    torch.distributed.barrier()  # one that ends first would cut off what the others still have to say
    # Threads of gloo end with the last user of the group; one that frees a tensor while Python ends aborts.
    del model
    gc.collect()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(count) for count in sys.argv[2:]])
