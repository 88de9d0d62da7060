"""Transfer learning: a network that knows ImageNet learns the classes of a folder of images.

    python examples/fine_tune.py --data FOLDER

The folder has a subfolder of images for each class. First only a new last layer is trained, on the
features that the network computes already. Then all of the network is trained, in small steps.

The published weights are downloaded once. Without a network, name a file with --weights; with
--weights none the network begins from random weights, and learns little from few images.
"""

from common import make_parser, set_up, stop

import kerascnn as keras
from kerascnn import layers


def read_folder(folder, size, batch_size, seed):
    """Images and class numbers of training and of validation, 4 to 1, and the classes' names."""
    train, validation = keras.utils.image_dataset_from_directory(
        folder,
        image_size=(size, size),
        batch_size=batch_size,
        validation_split=0.2,
        subset="both",
        seed=seed,
        verbose=False,
    )
    return train, validation, train.class_names


def make_model(weights, size, classes):
    """MobileNetV2 without its classifier, and a classifier for the new classes on top."""
    body = keras.applications.MobileNetV2(
        input_shape=(size, size, 3), include_top=False, pooling="avg", weights=weights
    )
    image = keras.Input((size, size, 3))
    x = layers.RandomFlip("horizontal")(image)
    x = keras.applications.mobilenet_v2.preprocess_input(x)
    # The statistics of batch normalization stay those of ImageNet, also when the rest is trained.
    x = body(x, training=False)
    x = layers.Dropout(0.2)(x)
    return keras.Model(image, layers.Dense(classes)(x)), body


def train(model, data, validation, learning_rate, epochs):
    # What is trainable is looked up by `compile`, so that each stage has its own.
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    trained = sum(weight.size for weight in model.trainable_weights)
    print(f"{trained:,} numbers are trained")
    model.fit(data, validation_data=validation, epochs=epochs)
    return model.evaluate(validation, verbose=0)[1]


def main():
    parser = make_parser(
        __doc__.splitlines()[0], batch_size=32, epochs=5, data="folder with a subfolder per class"
    )
    parser.add_argument("--size", type=int, default=160, help="side of the images; default 160")
    parser.add_argument(
        "--weights", default="imagenet", help="imagenet, none or a file; default imagenet"
    )
    parser.add_argument("--save", help="file to write the network to, such as mine.keras")
    args = parser.parse_args()
    if args.data is None:
        parser.error("--data is needed: a folder with a subfolder of images for each class")
    set_up(args)
    try:
        data, validation, names = read_folder(args.data, args.size, args.batch_size, args.seed)
    except (OSError, ValueError) as error:
        stop("--data", error)
    print(f"{len(names)} classes: {', '.join(names)}")
    try:
        weights = None if args.weights == "none" else args.weights
        model, body = make_model(weights, args.size, len(names))
    except (OSError, ValueError) as error:
        stop("--weights", error)

    body.trainable = False
    frozen = train(model, data, validation, 1e-3, args.epochs)
    body.trainable = True
    tuned = train(model, data, validation, 1e-5, args.epochs)
    print(f"Validation accuracy {frozen:.4f} with a new last layer, {tuned:.4f} after fine-tuning")
    if args.save:
        model.save(args.save)


if __name__ == "__main__":
    main()
