"""Keras: a small convolutional network, compiled and fitted."""

import keras
import numpy as np

images = np.random.rand(64, 28, 28, 1).astype("float32")
labels = np.random.randint(0, 10, 64)
model = keras.Sequential([
    keras.layers.Conv2D(16, 3, activation="relu"), keras.layers.MaxPooling2D(),
    keras.layers.Flatten(), keras.layers.Dense(10),
])  # fmt: skip
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(images, labels, epochs=3, batch_size=32, verbose=2)
