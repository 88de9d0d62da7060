#!/usr/bin/env bash
# Builds kerascnn with its CUDA backend and runs all tests, and training under compute-sanitizer where it is
# installed, on a machine with a GPU and no network.
#
#   tests/gpu/run_on_gpu.sh [pytest arguments, such as -n 16: workers share all GPUs]
#
# The machine has a Python with pip, scikit-build-core, nanobind, CMake, Ninja and pytest, an nvcc 13, and the
# CUDA libraries as wheels or in the system. What it lacks lies as wheels in the folder $WHEELS (default
# .whl): onednn-cpu-gomp, onednn-devel-cpu-gomp, nvidia-cudnn-frontend, keras and its dependencies. They and
# kerascnn are installed into the active Python environment. Logs go to $OUT (default build/gpu-logs).
set -euo pipefail
cd "$(dirname "$0")/../.."

out=${OUT:-build/gpu-logs}
wheels=${WHEELS:-.whl}
mkdir -p "$out"

{
  nvidia-smi
  python3 --version
  c++ --version | head -1
} | tee "$out/machine.log"

# wheels go to the environment's own prefix: with pip's --target the libraries in their data folders are lost
if compgen -G "$wheels/*.whl" >/dev/null; then
  python3 -m pip install --quiet --no-index --no-deps --no-compile "$wheels"/*.whl
fi

start=$SECONDS
# nproc follows OMP_NUM_THREADS, which may be set for the tests
KERASCNN_CUDA=ON CMAKE_BUILD_PARALLEL_LEVEL=$(nproc --all) python3 -m pip install --no-build-isolation --no-deps \
  --no-index --verbose . >"$out/build.log" 2>&1 || {
  tail -60 "$out/build.log"
  exit 1
}
grep 'kerascnn:' "$out/build.log" || true
echo "build: $((SECONDS - start)) s"

(cd "$out" && python3 -c 'import kerascnn; kerascnn.show_versions()') | tee "$out/versions.log"
# pytest-benchmark, where it is installed, warns beside pytest-xdist, and warnings are errors here
python3 -m pytest -p no:benchmark "$@" | tee "$out/pytest.log"
# alone on the GPU: beside other processes these tools take ten times as long
python3 -m pytest -p no:benchmark tests/gpu | tee "$out/sanitizer.log"
