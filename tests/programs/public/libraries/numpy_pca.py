"""numpy alone: a decomposition, and a product."""

import numpy as np

x = np.random.rand(1200, 400)
x -= x.mean(0)
_, values, axes = np.linalg.svd(x.T @ x)
print("variance of the first axis:", values[0] / values.sum())
np.savez("components.npz", axes=axes[:20])
