// Marks functions that CPU and GPU code share.
#pragma once

#ifndef KERASCNN_HOST_DEVICE
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KERASCNN_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define KERASCNN_HOST_DEVICE inline
#endif
#endif
