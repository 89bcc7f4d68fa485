"""One outer step of the published code on given tasks, for another Python than ours: see `inner.py`.

Usage: PYTHON _published_step.py CHECKOUT GIVEN.npz FOUND.npy. Saves the gradient of the encoder, prints a
line, then takes steps for as many CPU seconds as a line it reads says and prints their median. Settings
are those of the command for 3D Shapes in the checkout's README, but for the penalty's share, which is given.
"""

import os
import sys
import time
from types import SimpleNamespace

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
sys.path.insert(0, os.path.join(sys.argv[1], "sparsemeta"))

import haiku as hk
import jax
import numpy as np
from sparse_bi_level_regression import SparseBiLevelRegression

given = np.load(sys.argv[2])
n_outputs = given["encoder"].shape[1]


@hk.without_apply_rng
@hk.transform_with_state
def encoder(inputs, is_training):
    features = hk.Linear(n_outputs, with_bias=False)(inputs)
    norm = hk.BatchNorm(create_scale=False, create_offset=False, decay_rate=0.9)
    return norm(features, is_training=is_training)


learner = SparseBiLevelRegression(
    encoder,
    maxiter_inner=1000,
    l1reg=float(given["share"]),
    tol=1e-3,
    inner_solver="pcd",
    use_plam=True,
    inner_outer_split=False,
)
half = given["features"].shape[1] // 2
parts = [
    SimpleNamespace(inputs=given["features"][:, own], targets=given["targets"][:, own, 0])
    for own in (slice(None, half), slice(half, None))
]
params, state = encoder.init(jax.random.PRNGKey(0), parts[0].inputs[0], True)
params = {name: {"w": given["encoder"]} for name in params}


@jax.jit
def gradient(params, state, inputs, targets):
    def outer(params):
        def one(x, y, other_x, other_y):
            own = SimpleNamespace(inputs=x, targets=y), SimpleNamespace(inputs=other_x, targets=other_y)
            return learner.outer_loss(params, state, *own, (True,))[0]

        return jax.vmap(one)(inputs[0], targets[0], inputs[1], targets[1]).mean()

    return jax.grad(outer)(params)


inputs, targets = [part.inputs for part in parts], [part.targets for part in parts]
once = jax.block_until_ready(gradient(params, state, inputs, targets))
np.save(sys.argv[3], np.asarray(next(iter(once.values()))["w"]))
print("ready", flush=True)
for turn in sys.stdin:
    times = []
    while sum(times) < float(turn):
        start = time.process_time()
        jax.block_until_ready(gradient(params, state, inputs, targets))
        times.append(time.process_time() - start)
    print(np.median(times), flush=True)
