"""A program of somebody's, in Keras: sets no seed. `train_keras.py THREADS MODEL...` trains one after the
other and prints the SHA-256 of the weights of each."""

import hashlib
import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers


def lenet5():
    return keras.Sequential([
        layers.Conv2D(6, 5, padding="same", activation="relu"), layers.MaxPool2D(),
        layers.Conv2D(16, 5, activation="relu"), layers.MaxPool2D(), layers.Flatten(),
        layers.Dense(120, activation="relu"), layers.Dropout(0.2), layers.Dense(84, activation="relu"),
        layers.Dense(10),
    ])  # fmt: skip


def resnet20():
    inputs = keras.Input((16, 16, 1))
    x = layers.ReLU()(
        layers.BatchNormalization()(layers.Conv2D(16, 3, padding="same", use_bias=False)(inputs))
    )
    for filters in (16, 32, 64):
        for i in range(3):
            stride = 2 if i == 0 and filters > 16 else 1
            y = layers.Conv2D(filters, 3, stride, padding="same", use_bias=False)(x)
            y = layers.ReLU()(layers.BatchNormalization()(y))
            y = layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same", use_bias=False)(y))
            shortcut = x if stride == 1 else layers.Conv2D(filters, 1, 2, use_bias=False)(x)
            x = layers.ReLU()(layers.Add()([y, shortcut]))
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def lstm():
    return keras.Sequential(
        [layers.Embedding(50, 32), layers.LSTM(64), layers.Dropout(0.2), layers.Dense(10)]
    )


def train(name):
    model = {"lenet5": lenet5, "resnet20": resnet20, "lstm": lstm}[name]()
    x = (
        np.random.randint(50, size=(128, 12))
        if name == "lstm"
        else tf.random.uniform((128, 16, 16, 1)).numpy()
    )
    y = np.random.default_rng().integers(10, size=128)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss)
    model.fit(x, y, batch_size=32, epochs=2, verbose=0)
    total = hashlib.sha256()
    for value in model.get_weights():
        total.update(value.tobytes())
    return total.hexdigest()


if __name__ == "__main__":
    threads = int(sys.argv[1])
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    for name in sys.argv[2:]:
        print(name, train(name), flush=True)
