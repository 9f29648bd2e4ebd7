"""scikit-learn: a random forest on all cores."""

import numpy as np
from sklearn.ensemble import RandomForestClassifier

x = np.random.rand(1500, 20)
y = (x[:, 0] + x[:, 1] > 1).astype(int)
model = RandomForestClassifier(30, n_jobs=-1, oob_score=True).fit(x, y)
print("oob score:", model.oob_score_)
np.save("pred_probabilities.npy", model.predict_proba(x))
