#include "core/backend/cuda/runtime/cufft.h"

#include <utility>

#include "core/backend/cuda/runtime/opened_library.h"
#include "core/base/error.h"

namespace kerascnn::cuda {
namespace {

struct Cufft {
  decltype(&cufftCreate) create;
  decltype(&cufftDestroy) destroy;
  decltype(&cufftSetAutoAllocation) set_auto_allocation;
  decltype(&cufftMakePlanMany64) make_plan_many64;
  decltype(&cufftSetWorkArea) set_work_area;
  decltype(&cufftSetStream) set_stream;
  decltype(&cufftExecC2C) exec_c2c;
  decltype(&cufftExecR2C) exec_r2c;
  decltype(&cufftExecC2R) exec_c2r;
  decltype(&cufftExecZ2Z) exec_z2z;
  decltype(&cufftExecD2Z) exec_d2z;
  decltype(&cufftExecZ2D) exec_z2d;
  decltype(&cufftGetVersion) get_version;
};

Cufft open_cufft() {
  const OpenedLibrary library("cufft", CUFFT_VER_MAJOR, "there are no Fourier transforms on GPUs");
  Cufft cufft{};
  library.find("cufftCreate", cufft.create);
  library.find("cufftDestroy", cufft.destroy);
  library.find("cufftSetAutoAllocation", cufft.set_auto_allocation);
  library.find("cufftMakePlanMany64", cufft.make_plan_many64);
  library.find("cufftSetWorkArea", cufft.set_work_area);
  library.find("cufftSetStream", cufft.set_stream);
  library.find("cufftExecC2C", cufft.exec_c2c);
  library.find("cufftExecR2C", cufft.exec_r2c);
  library.find("cufftExecC2R", cufft.exec_c2r);
  library.find("cufftExecZ2Z", cufft.exec_z2z);
  library.find("cufftExecD2Z", cufft.exec_d2z);
  library.find("cufftExecZ2D", cufft.exec_z2d);
  library.find("cufftGetVersion", cufft.get_version);
  return cufft;
}

const Cufft& cufft() {
  static const Cufft functions = open_cufft();
  return functions;
}

// cuFFT has no function that names a status.
const char* name_of(cufftResult status) {
  switch (status) {
    case CUFFT_INVALID_PLAN:
      return "CUFFT_INVALID_PLAN";
    case CUFFT_ALLOC_FAILED:
      return "CUFFT_ALLOC_FAILED (not enough memory)";
    case CUFFT_INVALID_TYPE:
      return "CUFFT_INVALID_TYPE";
    case CUFFT_INVALID_VALUE:
      return "CUFFT_INVALID_VALUE";
    case CUFFT_INTERNAL_ERROR:
      return "CUFFT_INTERNAL_ERROR";
    case CUFFT_EXEC_FAILED:
      return "CUFFT_EXEC_FAILED";
    case CUFFT_SETUP_FAILED:
      return "CUFFT_SETUP_FAILED";
    case CUFFT_INVALID_SIZE:
      return "CUFFT_INVALID_SIZE";
    case CUFFT_UNALIGNED_DATA:
      return "CUFFT_UNALIGNED_DATA";
    case CUFFT_INVALID_DEVICE:
      return "CUFFT_INVALID_DEVICE";
    case CUFFT_NO_WORKSPACE:
      return "CUFFT_NO_WORKSPACE";
    case CUFFT_NOT_IMPLEMENTED:
      return "CUFFT_NOT_IMPLEMENTED";
    case CUFFT_NOT_SUPPORTED:
      return "CUFFT_NOT_SUPPORTED";
    default:
      return "of another kind";
  }
}

void check(cufftResult status, const std::string& op, const char* call) {
  if (status == CUFFT_SUCCESS) return;
  throw LibraryError(message(op, ": ", call, ": cuFFT error ", static_cast<int>(status), " ",
                             name_of(status), ", ", cufft_version()));
}

cufftResult execute(cufftType type, cufftHandle plan, void* input, void* output, int direction) {
  switch (type) {
    case CUFFT_C2C:
      return cufft().exec_c2c(plan, static_cast<cufftComplex*>(input),
                              static_cast<cufftComplex*>(output), direction);
    case CUFFT_R2C:
      return cufft().exec_r2c(plan, static_cast<cufftReal*>(input),
                              static_cast<cufftComplex*>(output));
    case CUFFT_C2R:
      return cufft().exec_c2r(plan, static_cast<cufftComplex*>(input),
                              static_cast<cufftReal*>(output));
    case CUFFT_Z2Z:
      return cufft().exec_z2z(plan, static_cast<cufftDoubleComplex*>(input),
                              static_cast<cufftDoubleComplex*>(output), direction);
    case CUFFT_D2Z:
      return cufft().exec_d2z(plan, static_cast<cufftDoubleReal*>(input),
                              static_cast<cufftDoubleComplex*>(output));
    case CUFFT_Z2D:
      return cufft().exec_z2d(plan, static_cast<cufftDoubleComplex*>(input),
                              static_cast<cufftDoubleReal*>(output));
    default:
      return CUFFT_INVALID_TYPE;
  }
}

}  // namespace

CufftPlan::CufftPlan(std::string op, cufftType type, int64_t length, int64_t lines)
    : op_(std::move(op)), type_(type) {
  check(cufft().create(&handle_), op_, "cufftCreate");
  try {
    // A plan uses the program's workspace instead of holding memory of its own.
    check(cufft().set_auto_allocation(handle_, 0), op_, "cufftSetAutoAllocation");
    long long int size = length;
    size_t bytes = 0;
    check(cufft().make_plan_many64(handle_, 1, &size, nullptr, 1, length, nullptr, 1, length, type,
                                   lines, &bytes),
          op_, message("cufftMakePlanMany64 for ", lines, " of length ", length).c_str());
    workspace_bytes_ = static_cast<int64_t>(bytes);
  } catch (...) {
    (void)cufft().destroy(handle_);
    throw;
  }
}

CufftPlan::~CufftPlan() { (void)cufft().destroy(handle_); }

void CufftPlan::run(void* input, void* output, bool inverse, void* workspace, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  check(cufft().set_stream(handle_, stream), op_, "cufftSetStream");
  if (workspace_bytes_ > 0) {
    check(cufft().set_work_area(handle_, workspace), op_, "cufftSetWorkArea");
  }
  check(execute(type_, handle_, input, output, inverse ? CUFFT_INVERSE : CUFFT_FORWARD), op_,
        "cufftExec");
}

std::string cufft_version() {
  int version = 0;
  try {
    if (cufft().get_version(&version) != CUFFT_SUCCESS) return "cuFFT of an unknown version";
  } catch (const LibraryError&) {
    return "no cuFFT";
  }
  return message("cuFFT ", version / 1000, ".", version % 1000 / 100, ".", version % 100);
}

}  // namespace kerascnn::cuda
