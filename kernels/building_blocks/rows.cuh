// Vector loads and block reductions for kernels with a block of threads per row.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int WARP = 32;

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__half value) { return __half2float(value); }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class T>
__device__ T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) { return value; }
template <>
__device__ inline __half from_float<__half>(float value) { return __float2half_rn(value); }
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) { return __float2bfloat16_rn(value); }

// Adjacent elements of a row, loaded and stored in up to 16 bytes.
template <class T, int LENGTH>
struct alignas(sizeof(T) * LENGTH < 16 ? sizeof(T) * LENGTH : 16) Vector {
  T lanes[LENGTH];

  __device__ float operator[](int lane) const { return to_float(lanes[lane]); }
  __device__ void set(int lane, float value) { lanes[lane] = from_float<T>(value); }
};

// Forces later conversions to float, so that elements are not kept in registers in both types.
template <class T, int LENGTH>
__device__ void keep_packed(Vector<T, LENGTH>& vector) {
  auto* words = reinterpret_cast<unsigned*>(&vector);
#pragma unroll
  for (int word = 0; word < static_cast<int>(sizeof(vector) / sizeof(unsigned)); ++word) asm volatile("" : "+r"(words[word]));
}

// Views a row as vectors.
template <int LENGTH, class T>
__device__ const Vector<T, LENGTH>* vectors(const T* row) {
  return reinterpret_cast<const Vector<T, LENGTH>*>(row);
}
template <int LENGTH, class T>
__device__ Vector<T, LENGTH>* vectors(T* row) {
  return reinterpret_cast<Vector<T, LENGTH>*>(row);
}

struct Sum {
  __device__ static float identity() { return 0.0f; }
  __device__ static float of(float a, float b) { return a + b; }
};

struct Max {
  __device__ static float identity() { return -__int_as_float(0x7f800000); }  // minus infinity
  __device__ static float of(float a, float b) { return fmaxf(a, b); }
};

template <class Operation>
__device__ float reduce_warp(float value) {
#pragma unroll
  for (int distance = WARP / 2; distance > 0; distance /= 2) {
    value = Operation::of(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

// Returns the result to every thread, in a deterministic order. All threads of the block must call it, in whole warps.
template <class Operation>
__device__ float reduce_block(float value) {
  __shared__ float of_warps[WARP];
  const int lane = threadIdx.x % WARP;
  value = reduce_warp<Operation>(value);
  if (lane == 0) of_warps[threadIdx.x / WARP] = value;
  __syncthreads();
  value = reduce_warp<Operation>(lane < blockDim.x / WARP ? of_warps[lane] : Operation::identity());
  __syncthreads();  // the next reduction reuses the buffer
  return value;
}
