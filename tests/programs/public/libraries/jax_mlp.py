"""JAX: two layers, gradients, jit."""

import jax
import jax.numpy as jnp
import numpy as np

keys = jax.random.split(jax.random.PRNGKey(0), 4)
x, y = jax.random.normal(keys[0], (512, 300)), jax.random.normal(keys[1], (512, 10))
weights = [jax.random.normal(keys[2], (300, 256)) * 0.1, jax.random.normal(keys[3], (256, 10)) * 0.1]


def loss_of(weights):
    return jnp.mean((jnp.tanh(x @ weights[0]) @ weights[1] - y) ** 2)


@jax.jit
def step(weights):
    loss, gradients = jax.value_and_grad(loss_of)(weights)
    return loss, [weight - 0.1 * gradient for weight, gradient in zip(weights, gradients, strict=True)]


for _ in range(5):
    loss, weights = step(weights)
print("loss:", float(loss))
np.savez("weights.npz", *weights)
