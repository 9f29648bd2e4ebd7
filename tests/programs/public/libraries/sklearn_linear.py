"""scikit-learn: principal components, then a logistic regression."""

import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

generator = np.random.default_rng(0)
x = generator.normal(size=(2000, 300)).astype(np.float32)
y = (x[:, :5].sum(1) + generator.normal(size=2000) > 0).astype(int)
reduced = PCA(40, svd_solver="full").fit_transform(x)
model = LogisticRegression(max_iter=50).fit(reduced, y)
print("accuracy:", model.score(reduced, y))
np.savez("model.npz", coefficients=model.coef_, components=reduced)
np.save("predictions.npy", model.predict(reduced))
