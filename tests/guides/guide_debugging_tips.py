"""Debugging: calling layers on values, looking into steps, gradients of gradients.

Keras' guide nests one `GradientTape` in another; for Keras on PyTorch, `autograd.grad` does the
same.
"""

import numpy as np
from guide_tools import from_history, images, main, start_from


def try_a_layer(keras):
    """Calls a custom layer on numbers, alone and in a model."""

    class Antirectifier(keras.layers.Layer):
        def build(self, input_shape):
            self.kernel = self.add_weight(
                shape=(input_shape[-1] * 2, input_shape[-1]), name="kernel", trainable=True
            )

        def call(self, inputs):
            ops = keras.ops
            inputs = inputs - ops.mean(inputs, axis=-1, keepdims=True)
            halves = [ops.relu(inputs), ops.relu(-inputs)]
            mixed = ops.concatenate(halves, axis=-1)
            return ops.matmul(ops.normalize(mixed, axis=-1), self.kernel)

    layer = Antirectifier()
    x = np.random.default_rng(71).standard_normal((4, 6)).astype("float32")
    layer(x)
    start_from(layer)
    model = keras.Sequential([keras.Input((6,)), layer])
    return {
        "alone": keras.ops.convert_to_numpy(layer(x)),
        "in a model": model.predict(x, verbose=0),
        "parameters": model.count_params(),
    }


def slopes(keras, compute, weights):
    """Returns the loss, its gradients, and the gradients of their sum."""
    if hasattr(keras, "GradientTape"):
        with keras.GradientTape() as tape2:
            with keras.GradientTape() as tape1:
                loss, y_pred = compute()
            dl_dw = tape1.gradient(loss, weights)
        return loss, y_pred, dl_dw, tape2.gradient(dl_dw, weights)
    import torch

    loss, y_pred = compute()
    values = [weight.value for weight in weights]
    dl_dw = torch.autograd.grad(loss, values, create_graph=True)
    d2l_dw2 = torch.autograd.grad(sum(g.sum() for g in dl_dw), values)
    return loss.detach(), y_pred.detach(), [g.detach() for g in dl_dw], d2l_dw2


def apply(keras, optimizer, found, weights):
    """Applies an update; PyTorch must not differentiate it."""
    if hasattr(keras, "GradientTape"):
        optimizer.apply_gradients(zip(found, weights, strict=True))
    else:
        import torch

        with torch.no_grad():
            optimizer.apply_gradients(zip(found, weights, strict=True))


def model_with(keras, share, seen=None):
    """Returns a classifier that mixes gradients of first and second order."""

    class Own(keras.Model):
        def train_step(self, data):
            inputs, targets = data
            weights = self.trainable_variables

            def compute():
                y_pred = self(inputs, training=True)
                return self.compute_loss(y=targets, y_pred=y_pred), y_pred

            loss, y_pred, dl_dw, d2l_dw2 = slopes(keras, compute, weights)
            if seen is not None:  # This needs values, so the model runs with run_eagerly.
                seen.append([float(keras.ops.max(keras.ops.abs(g))) for g in d2l_dw2])
            pairs = zip(d2l_dw2, dl_dw, strict=True)
            apply(keras, self.optimizer, [share * b + (1 - share) * a for b, a in pairs], weights)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(targets, y_pred)
            return {m.name: m.result() for m in self.metrics}

    inputs = keras.Input((48,))
    hidden = keras.layers.Dense(16, activation="relu")(inputs)
    return start_from(Own(inputs, keras.layers.Dense(4, activation="softmax")(hidden)))


def second_order(keras):
    x, y = images(73, 96, (8, 6, 1), 4)
    x = x.reshape(96, 48)
    results = {}
    for name, share, optimizer, eagerly in (
        ("half", 0.5, keras.optimizers.SGD(1e-2), False),
        ("a fifth", 0.2, keras.optimizers.Adam(1e-3), False),
        ("looked into", 0.2, keras.optimizers.SGD(1e-2), True),
    ):
        seen = [] if eagerly else None
        model = model_with(keras, share, seen)
        model.compile(
            optimizer=optimizer,
            loss="sparse_categorical_crossentropy",
            metrics=["accuracy"],
            run_eagerly=eagerly,
        )
        history = model.fit(x, y, epochs=2, batch_size=32, shuffle=False, verbose=0)
        results |= from_history(name, history)
        results[f"{name}: weights"] = np.concatenate([w.ravel() for w in model.get_weights()])
        if eagerly:
            results["sizes"] = np.array(seen)
    return results


def run(keras):
    return try_a_layer(keras) | second_order(keras)


if __name__ == "__main__":
    main(run)
