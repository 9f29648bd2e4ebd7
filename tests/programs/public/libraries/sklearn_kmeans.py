"""scikit-learn: k-means, which sums in the threads of OpenMP."""

import numpy as np
from sklearn.cluster import KMeans

x = np.random.rand(20000, 16).astype(np.float32)
model = KMeans(8, n_init=1).fit(x)
print("inertia:", model.inertia_)
np.save("model_centers.npy", model.cluster_centers_)
