"""LightGBM: boosted trees."""

import lightgbm
import numpy as np

x = np.random.rand(20000, 20)
y = x[:, 0] * x[:, 1] + np.random.rand(20000) / 10
model = lightgbm.train({"objective": "regression", "verbose": -1, "seed": 4}, lightgbm.Dataset(x, y), 20)
scores = model.predict(x)
print("mse:", float(((scores - y) ** 2).mean()))
np.save("pred_scores.npy", scores)
model.save_model("model.txt")
