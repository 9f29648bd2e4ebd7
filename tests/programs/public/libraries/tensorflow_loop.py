"""TensorFlow: a training loop with a gradient tape."""

import numpy as np
import tensorflow as tf

x = tf.random.normal((256, 200))
y = tf.random.uniform((256,), 0, 10, tf.int32)
weights = [tf.Variable(tf.random.normal((200, 300)) * 0.1), tf.Variable(tf.random.normal((300, 10)) * 0.1)]


@tf.function
def step():
    with tf.GradientTape() as tape:
        logits = tf.nn.relu(x @ weights[0]) @ weights[1]
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
    for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
        weight.assign_sub(0.1 * gradient)
    return loss


for i in range(5):
    print("iteration", i, "loss:", float(step()))
np.savez("weights.npz", *[weight.numpy() for weight in weights])
