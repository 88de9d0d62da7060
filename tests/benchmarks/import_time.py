"""Measures how long `import kerascnn` takes, beside the import of NumPy, which it needs.

    python tests/benchmarks/import_time.py

Prints medians of processor time in seconds, each measured in fresh interpreters.
"""

import argparse
import statistics
import subprocess
import sys

CODE = (
    "from time import process_time as now; start = now(); import numpy; between = now(); "
    "import kerascnn; print(between - start, now() - between)"
)

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--repeats", type=int, default=11, help="interpreters; default 11")
repeats = parser.parse_args().repeats
rows = []
for _ in range(repeats):
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    rows.append([float(seconds) for seconds in done.stdout.split()])
numpy_seconds, own_seconds = (statistics.median(column) for column in zip(*rows, strict=True))
print(f"numpy {numpy_seconds:.3f} s, kerascnn {own_seconds:.3f} s more")
