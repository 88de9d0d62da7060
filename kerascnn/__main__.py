"""What builds of other programs ask: `python -m kerascnn --cmake-dir`."""

from __future__ import annotations

import argparse
from pathlib import Path

import kerascnn


def cmake_dir() -> str:
    """The folder with kerascnn's CMake package, for `find_package(kerascnn)`.

    Raises:
        FileNotFoundError: where the installed package has none.
    """
    folder = Path(kerascnn.__file__).resolve().parent / "share" / "cmake" / "kerascnn"
    if not (folder / "kerascnnConfig.cmake").is_file():
        raise FileNotFoundError(f"There is no CMake package in {folder}. Reinstall kerascnn.")
    return str(folder)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m kerascnn", description=__doc__)
    parser.add_argument(
        "--cmake-dir",
        action="store_true",
        help="print the folder for CMake: cmake -Dkerascnn_DIR=$(python -m kerascnn --cmake-dir)",
    )
    parser.add_argument("--version", action="version", version=kerascnn.__version__)
    if parser.parse_args(arguments).cmake_dir:
        print(cmake_dir())
    else:
        parser.print_help()


if __name__ == "__main__":
    main()
