"""Keras: compile, fit, evaluate, save."""

import keras
import numpy as np

images = np.random.rand(128, 28, 28, 1).astype("float32")
labels = np.random.randint(0, 10, 128)
model = keras.Sequential([
    keras.layers.Conv2D(16, 3, activation="relu"), keras.layers.MaxPooling2D(),
    keras.layers.Flatten(), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10),
])  # fmt: skip
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, metrics=["accuracy"])
model.fit(images, labels, epochs=2, batch_size=32, verbose=2)
print("test loss:", model.evaluate(images, labels, verbose=0)[0])
model.save_weights("model.weights.h5")
