"""What processes that train one model compare before they begin."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from kerascnn import config, versions
from kerascnn.distribution import replicas
from kerascnn.models.weights_file import named_variables

if TYPE_CHECKING:
    from kerascnn.training.machinery import StepMachinery


def description_for_peers(
    model: StepMachinery, feed: Any, epochs: int, steps_per_epoch: int | None
) -> dict[str, str]:
    """Returns what has to be the same in all processes, a text for each subject.

    Args:
        model: the model.
        feed: the training data.
        epochs: the number of the last epoch.
        steps_per_epoch: how many batches an epoch has, where that was asked for.
    """
    layer: Any = model
    optimizer = model.optimizer
    together = replicas.active()
    found = {
        "the version of kerascnn": versions.__version__,
        "keras.config.floatx()": config.floatx(),
        "the number of epochs": str(epochs),
        "the number of batches of an epoch": str(feed.length_for_peers(steps_per_epoch)),
        "the form of the training data": feed.form_for_peers(),
        "the optimizer": "none" if optimizer is None else type(optimizer).__name__,
        "whether Python runs the steps": str(model.run_eagerly),
        "DataParallel(shard_optimizer_state)": str(together is not None and together.shares_state),
        "DataParallel(reduce_dtype)": str(replicas.reduce_dtype()),
    }
    variables: list[tuple[str, Any]] = [
        (f"the weight '{name}'", variable) for name, variable, _ in named_variables(layer)
    ]
    if optimizer is not None and optimizer.built:
        own = {id(variable) for variable in optimizer._local_sums()}
        state = optimizer._owned_state()
        variables += [
            (f"the optimizer's variable {i} ({variable.name})", variable)
            for i, (variable, owner) in enumerate(state)
            if owner is None and id(variable) not in own
        ]
        owners = [owner for _, owner in state]
        found["which process has which part of the optimizer's state"] = str(owners)
    for name, variable in variables:
        values = variable.numpy()
        digest = hashlib.sha256(values.tobytes()).hexdigest()[:16]
        found[name] = f"{values.dtype.name} {values.shape} with checksum {digest}"
    return found
