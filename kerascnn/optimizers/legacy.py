"""The names of Keras 2's optimizers, which say what to use in their place."""

from typing import Any, NoReturn


class LegacyOptimizer:
    """Keras 3 has no legacy optimizers, and neither has kerascnn.

    Raises:
        ImportError: whenever one is made.

    >>> keras.optimizers.legacy.SGD()
    Traceback (most recent call last):
    ...
    ImportError: keras.optimizers.legacy is that of Keras 2; use keras.optimizers.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ImportError("keras.optimizers.legacy is that of Keras 2; use keras.optimizers.")


Adagrad = LegacyOptimizer
Adam = LegacyOptimizer
Ftrl = LegacyOptimizer
Optimizer = LegacyOptimizer
RMSprop = LegacyOptimizer
SGD = LegacyOptimizer
