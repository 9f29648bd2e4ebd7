"""TensorFlow: a loop with a gradient tape, and an operation that changes a variable in place."""

import tensorflow as tf

x, y = tf.random.normal((64, 28, 28, 1)), tf.random.uniform((64,), 0, 10, tf.int32)
kernel = tf.Variable(tf.random.normal((3, 3, 1, 16)) * 0.1)
bias = tf.Variable(tf.zeros(16))
weight = tf.Variable(tf.random.normal((26 * 26 * 16, 10)) * 0.01)


@tf.function
def step():
    with tf.GradientTape() as tape:
        hidden = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "VALID"), bias))
        logits = tf.reshape(hidden, (64, -1)) @ weight
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
    variables = [kernel, bias, weight]
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=0.1, delta=gradient)
    return loss


for _ in range(3):
    print("loss:", float(step()))
