"""Data sets composed of steps that run when their elements are asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kerascnn import seed_generators, trees
from kerascnn.data import cardinality, elements, passes
from kerascnn.data.cardinality import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, check_size
from kerascnn.ops import dispatch

# As a buffer size or a number of threads, this value leaves the choice to the library.
AUTOTUNE = -1
_PREFETCHED = 2


class Dataset:
    """Elements one after the other, prepared on the host by steps that are put together.

    Each method returns a new data set, and nothing is computed before somebody iterates. `fit`,
    `evaluate`, `predict` and the `adapt` of layers take one whose elements are batches. Names and
    meaning are those of `tf.data.Dataset`; elements are NumPy arrays (text is an array of Python's
    strings), nested in tuples and dictionaries, or what a function given to `map` returns. Arrays
    that iterating gives have a method `numpy` too, as the tensors of `tf.data` have.

    Make one with `from_tensor_slices`, `from_generator`, `range` or functions such as
    `keras.utils.image_dataset_from_directory`.

    Attributes:
        class_names: The names of the classes where a folder has them, else None.

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> x = np.arange(10.0, dtype="float32")
    >>> dataset = keras.data.Dataset.from_tensor_slices((x, x > 4))
    >>> dataset = dataset.map(lambda x, y: (x / 2, y)).batch(4)
    >>> [len(y) for x, y in dataset]
    [4, 4, 2]
    >>> dataset.element_spec[0]
    TensorSpec(shape=(None,), dtype='float32')
    """

    class_names: list[str] | None = None

    # What subclasses implement ------------------------------------------------------------------

    def _begin(self) -> Iterator[Any]:
        """Starts a pass; closing it stops its threads."""
        raise NotImplementedError

    def _begin_at(self, first: int) -> Iterator[Any]:
        """Starts a pass with element `first`; those before are made and left out, as a rule."""
        items = self._begin()
        for _ in zip(range(first), items, strict=False):
            pass
        return items

    def _generators(self) -> list[np.random.Generator]:
        """Returns what the orders of passes are drawn from, also of data sets within this one."""
        return []

    def cardinality(self) -> int:
        """How many elements there are, or `INFINITE_CARDINALITY` or `UNKNOWN_CARDINALITY`."""
        return UNKNOWN_CARDINALITY

    @property
    def element_spec(self) -> Any:
        """Shapes and dtypes of an element, a structure of `TensorSpec`.

        Where only the elements themselves know them, the first one is made to find out.
        """
        return elements.spec_of(self._first())

    def _first(self) -> Any:
        with passes.opened(self) as items:
            for item in items:
                return item
        raise ValueError("The data set is empty: nothing is known of its elements.")

    def _derived(self, begin: Callable[[Dataset], Iterator[Any]], *about: Any) -> Dataset:
        """Makes a data set of this one, by the arguments of `Derived`."""
        from kerascnn.data.derived import Derived

        return Derived(self, begin, *about)

    # Iteration ----------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        return passes.handed_out(self._begin())

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        count = self.cardinality()
        words = {INFINITE_CARDINALITY: "endless", UNKNOWN_CARDINALITY: "unknown"}
        return f"<keras.data.Dataset, number of elements: {words.get(count, count)}>"

    def __len__(self) -> int:
        count = self.cardinality()
        if count < 0:
            kind = "infinite" if count == INFINITE_CARDINALITY else "unknown"
            raise TypeError(f"The length of this data set is {kind}: cardinality() is {count}.")
        return count

    def as_numpy_iterator(self) -> Iterator[Any]:
        """The elements of a pass, with arrays where a function returned tensors."""

        def on_host(leaf: Any) -> Any:
            return np.asarray(leaf) if dispatch.is_tensor(leaf) else leaf

        with passes.opened(self) as items:
            for item in items:
                yield trees.map_structure(on_host, item)

    # Where elements come from -------------------------------------------------------------------

    @staticmethod
    def from_tensor_slices(tensors: Any, name: str | None = None) -> Dataset:
        """The rows of arrays of one length.

        Args:
            tensors: An array or a list, or tuples and dictionaries of them.
            name: Without effect, as for all methods.

        Raises:
            ValueError: for arrays of different lengths, or without an axis.
        """
        from kerascnn.data.indexed import ArraySamples, IndexedDataset

        return IndexedDataset(ArraySamples(elements.as_arrays(tensors)))

    @staticmethod
    def from_tensors(tensors: Any, name: str | None = None) -> Dataset:
        """One element: the arrays as they are."""
        from kerascnn.data.derived import Source

        element = elements.as_arrays(tensors)
        return Source(lambda: iter([element]), 1)

    @staticmethod
    def from_generator(
        generator: Callable[..., Any],
        output_types: Any = None,
        output_shapes: Any = None,
        args: tuple[Any, ...] | None = None,
        output_signature: Any = None,
        name: str | None = None,
    ) -> Dataset:
        """Makes a data set of what a generator yields.

        Args:
            generator: A function that returns an iterable; it is called for each pass.
            output_types: Without effect: elements keep the types that they have.
            output_shapes: The same.
            args: Arguments of the function.
            output_signature: Without effect.
            name: Without effect.
        """
        from kerascnn.data.derived import Source

        if not callable(generator):
            raise TypeError(
                "`generator` must be a function that returns an iterable, so that each pass has a "
                f"new one. Received: {type(generator).__name__}"
            )
        return Source(lambda: iter(generator(*(args or ()))), UNKNOWN_CARDINALITY)

    @staticmethod
    def from_tar(
        shards: Any,
        keys: Any = None,
        *,
        index_file: str | os.PathLike[str] | None = None,
        on_error: str = "raise",
    ) -> Dataset:
        """The samples in tar archives, as WebDataset lays them out: a dictionary for each.

        It has the sample's name under "__key__", and what its files hold by their endings: pixels
        (uint8, of shape (height, width, 3)) for .jpg, .jpeg, .png, .webp, .gif and .bmp, a number
        or a name for .cls, text for .txt, arrays for .npy, Python's objects for .json, and bytes
        for others. The ending is all that comes after the first dot; .seg.png is an image too.

        Samples have numbers, so `shuffle(None)` shuffles them as a whole. For images with labels
        `keras.utils.image_dataset_from_tar` makes batches at once.

        Args:
            shards: A path, a folder, a pattern such as `"train-{000..012}.tar"` or
                `"train-*.tar"`, or a list of them.
            keys: The endings to read; by default those of the first sample.
            index_file: A file to keep the archives' index in, so that their headers are read once.
            on_error: "raise", or "skip" to leave out samples that lack a file and what comes after
                damage in an archive.

        Raises:
            FileNotFoundError: where an archive is missing, or a pattern stands for none.
            ValueError: for damaged archives and samples without a file that is asked for; while
                iterating, for files that are not what their ending says.

        Example:

        >>> import kerascnn as keras
        >>> import numpy as np
        >>> samples = [{"__key__": "a", "npy": np.arange(3)}, {"__key__": "b", "npy": np.ones(3)}]
        >>> paths = keras.utils.write_tar_shards(samples, "arrays-%d.tar")
        >>> for sample in keras.data.Dataset.from_tar("arrays-0.tar"):
        ...     sample["__key__"], sample["npy"].tolist()
        ('a', [0, 1, 2])
        ('b', [1.0, 1.0, 1.0])
        """
        from kerascnn.data.tar_samples import dataset_of

        return dataset_of(shards, keys, index_file, on_error)

    @staticmethod
    def range(*args: int, output_type: Any = "int64", name: str | None = None) -> Dataset:
        """Numbers, as Python's `range` has them.

        >>> import kerascnn as keras
        >>> [int(x) for x in keras.data.Dataset.range(1, 6, 2)]
        [1, 3, 5]
        """
        return Dataset.from_tensor_slices(np.arange(*args).astype(output_type))

    @staticmethod
    def zip(*args: Any, datasets: Any = None, name: str | None = None) -> Dataset:
        """Elements of several data sets side by side, as long as all of them have one.

        Args:
            args: Data sets, or one structure of them.
            datasets: The same by name.
            name: Without effect.

        >>> import kerascnn as keras
        >>> numbers = keras.data.Dataset.range(2)
        >>> [(int(a), int(b)) for a, b in keras.data.Dataset.zip(numbers, numbers.skip(1))]
        [(0, 1)]
        """
        from kerascnn.data.derived import Zipped

        structure = datasets if datasets is not None else args[0] if len(args) == 1 else args
        return Zipped(structure)

    # Which elements -----------------------------------------------------------------------------

    def take(self, count: int, name: str | None = None) -> Dataset:
        """The first `count` elements, all of them where it is negative."""
        return self._derived(lambda s: passes.take(s, count), lambda n: cardinality.taken(n, count))

    def skip(self, count: int, name: str | None = None) -> Dataset:
        """All but the first `count` elements, none where it is negative."""
        return self._derived(
            lambda s: passes.skip(s, count), lambda n: cardinality.skipped(n, count)
        )

    def shard(self, num_shards: int, index: int, name: str | None = None) -> Dataset:
        """One of `num_shards` parts: each such element, from `index` on."""
        if not 0 <= index < num_shards:
            raise ValueError(f"index must be from 0 to {num_shards - 1}. Received: index={index}")
        return self._derived(
            lambda s: passes.shard(s, num_shards, index),
            lambda n: cardinality.sharded(n, num_shards, index),
        )

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> Dataset:
        """The elements for which `predicate` returns True."""
        return self._derived(
            lambda s: passes.filter_(s, predicate), lambda n: n and UNKNOWN_CARDINALITY
        )

    def repeat(self, count: int | None = None, name: str | None = None) -> Dataset:
        """The elements `count` times over, without end for None and -1."""
        times = -1 if count is None else count
        return self._derived(
            lambda s: passes.repeat(s, times), lambda n: cardinality.repeated(n, times)
        )

    def concatenate(self, dataset: Dataset, name: str | None = None) -> Dataset:
        """The elements of this data set, and then those of another."""
        from kerascnn.data.derived import Joined

        return Joined(self, dataset)

    # What becomes of them -----------------------------------------------------------------------

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Applies a function to each element.

        Args:
            map_func: Gets the parts of a tuple as arguments, anything else as one. It is called
                with values each time, so layers and everything of Python can be used in it; a
                random layer draws anew.
            num_parallel_calls: How many threads call it; `AUTOTUNE` for a number that fits the
                machine. Only functions that wait or leave Python gain from that.
            deterministic: Without effect: the order stays.
            name: Without effect.
        """
        workers = min(8, os.cpu_count() or 1) if num_parallel_calls == AUTOTUNE else 1
        if num_parallel_calls not in (None, AUTOTUNE):
            workers = int(num_parallel_calls)
        from kerascnn.data.derived import Mapped

        return Mapped(self, lambda s: passes.map_(s, map_func, workers))

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Several elements as one, with an axis for them in front.

        Args:
            batch_size: How many.
            drop_remainder: Whether the last batch is left out where it would be smaller.
            num_parallel_calls: Without effect.
            deterministic: Without effect.
            name: Without effect.

        Raises:
            ValueError: while iterating, for elements of different shapes.
        """
        size = check_size("batch_size", batch_size)
        return self._derived(
            lambda s: passes.batch(s, size, drop_remainder, elements.stacked),
            lambda n: cardinality.batched(n, size, drop_remainder),
            lambda spec: elements.with_leading(spec, size if drop_remainder else None),
        )

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """As `batch`, for elements of different sizes: they are filled up at their ends.

        Args:
            batch_size: How many.
            padded_shapes: The shape of an element, in a structure like it; None or -1 stand for
                the largest size in a batch, as no shape at all does.
            padding_values: What they are filled up with, a number or a structure of them; by
                default 0 or empty text.
            drop_remainder: As for `batch`.
            name: Without effect.
        """
        size = check_size("batch_size", batch_size)

        def stack(chunk: list[Any]) -> Any:
            return elements.padded(chunk, padded_shapes, padding_values)

        return self._derived(
            lambda s: passes.batch(s, size, drop_remainder, stack),
            lambda n: cardinality.batched(n, size, drop_remainder),
            None,
        )

    def unbatch(self, name: str | None = None) -> Dataset:
        """The rows of batches one by one."""
        return self._derived(
            passes.unbatch,
            lambda n: n if n <= 0 else UNKNOWN_CARDINALITY,
            elements.without_leading,
        )

    def rebatch(self, batch_size: int, drop_remainder: bool = False) -> Dataset:
        """Batches of another size."""
        return self.unbatch().batch(batch_size, drop_remainder)

    def shuffle(
        self,
        buffer_size: int | None,
        seed: int | None = None,
        reshuffle_each_iteration: bool = True,
        name: str | None = None,
    ) -> Dataset:
        """A random order: each element comes from a window over those that are next.

        Args:
            buffer_size: How many elements the window holds; as many as there are, or None, for an
                order in which all are equally probable.
            seed: Of the orders; by default one that `keras.utils.set_random_seed` determines.
            reshuffle_each_iteration: Whether each pass has another order.
            name: Without effect.
        """
        size = 2**62 if buffer_size is None else check_size("buffer_size", buffer_size)
        seed = seed_generators.make_default_seed() if seed is None else seed
        return self._derived(passes.Shuffled(size, seed, reshuffle_each_iteration))

    def prefetch(self, buffer_size: int, name: str | None = None) -> Dataset:
        """The same elements, made by a thread while those before are used.

        Args:
            buffer_size: How many may be ready, `AUTOTUNE` for a few, 0 for no thread.
            name: Without effect.
        """
        size = _PREFETCHED if buffer_size in (None, AUTOTUNE) else buffer_size
        return self._derived(lambda s: passes.prefetch(s, size)) if size else self

    def cache(self, filename: str | os.PathLike[str] = "", name: str | None = None) -> Dataset:
        """The same elements, made once and kept: in memory, or in a file.

        All passes have the order of the first one; shuffle behind it. Of files in folders and tar
        archives each sample is kept as soon as it is made, whatever order later steps ask for.
        Elements of other data sets are kept from the end of the first whole pass on.

        Args:
            filename: The file; empty for memory. It appears when all elements are there, and later
                data sets use it. Where it was made of other files, of files that have changed, or
                by other arguments, they say so; of functions given to `map` and of generators
                nothing can be known: remove the file where these change. Where several processes
                train, each keeps what it reads itself, until one has everything.
            name: Without effect.

        Raises:
            OSError: for a file that cannot be read, or written (on a full disk, say); names it.
            TypeError: while iterating, for elements that are no arrays, numbers or text, with a
                file.
            ValueError: for a file that is damaged, has something else, or was made of another
                source.

        Example:

        >>> import kerascnn as keras
        >>> squares = keras.data.Dataset.range(4).map(lambda x: print("made", x) or x * x)
        >>> squares = squares.cache("squares.cache")
        >>> [int(x) for x in squares]
        made 0
        made 1
        made 2
        made 3
        [0, 1, 4, 9]
        >>> sorted(int(x) for x in squares.shuffle(None))
        [0, 1, 4, 9]
        """
        from kerascnn.data.cached import CachedDataset

        return CachedDataset(self, filename)

    def enumerate(self, start: int = 0, name: str | None = None) -> Dataset:
        """Elements with their numbers: `(number, element)`."""

        def spec(inner: Any) -> Any:
            return elements.TensorSpec((), "int64"), inner

        return self._derived(lambda s: passes.enumerate_(s, start), None, spec)

    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """The result of a function of the data set."""
        return transformation_func(self)

    def reduce(self, initial_state: Any, reduce_func: Callable[..., Any]) -> Any:
        """A state that a function `(state, element) -> state` carries through all elements.

        >>> import kerascnn as keras
        >>> int(keras.data.Dataset.range(4).reduce(0, lambda state, x: state + x))
        6
        """
        state = initial_state
        with passes.opened(self) as items:
            for item in items:
                state = reduce_func(state, item)
        return state

    def get_single_element(self) -> Any:
        """The only element.

        Raises:
            ValueError: where there are more or none.
        """
        found = list(self.take(2))
        if len(found) != 1:
            raise ValueError("The data set must have exactly one element.")
        return found[0]
