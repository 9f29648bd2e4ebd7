"""Keras's own `fit`, with its history in a CSV file."""

import os
import sys

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 3

images, labels = load_digits(return_X_y=True)
x = (images / 16).astype("float32").reshape(-1, 8, 8, 1)
x_train, y_train, x_test, y_test = x[:-400], labels[:-400], x[-400:], labels[-400:]

model = keras.Sequential(
    [
        layers.Input((8, 8, 1)),
        layers.Conv2D(16, 3, padding="same", activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(32, 3, padding="same", activation="relu"),
        layers.Flatten(),
        layers.Dense(10, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
os.makedirs("out", exist_ok=True)
model.fit(
    x_train,
    y_train,
    batch_size=64,
    epochs=EPOCHS,
    validation_data=(x_test, y_test),
    callbacks=[keras.callbacks.CSVLogger("out/history.csv")],
    verbose=2,
)
model.save_weights("out/model.weights.h5")
np.savez("out/predictions.npz", predictions=model.predict(x_test, verbose=0), y_true=y_test)
