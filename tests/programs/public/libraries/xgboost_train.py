"""XGBoost: boosted trees, with its own model file."""

import numpy as np
import xgboost

x = np.random.rand(20000, 20).astype(np.float32)
y = x[:, 0] * x[:, 1] + np.random.rand(20000) / 10
data = xgboost.DMatrix(x, y)
history = {}
options = {
    "max_depth": 5,
    "tree_method": "hist",
    "subsample": 0.8,
    "objective": "reg:squarederror",
    "seed": 4,
}
model = xgboost.train(options, data, 15, evals=[(data, "train")], evals_result=history, verbose_eval=5)
print("final rmse:", history["train"]["rmse"][-1])
model.save_model("model.ubj")
np.save("predictions.npy", model.predict(data))
