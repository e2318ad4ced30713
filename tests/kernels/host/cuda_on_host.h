// CUDA C++ as C++: the threads of a block run in turns on one CPU thread, as fibers that change places at each barrier
// and shuffle. Included before a .cu file, in place of what NVRTC brings along.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <utility>

#define __global__
#define __device__
#define __launch_bounds__(...)
#define __shared__ static  // blocks run one after another

struct Dim {
  unsigned x;
};
inline Dim threadIdx, blockIdx, blockDim, gridDim;

inline float __expf(float value) { return __builtin_expf(value); }
inline float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
inline float rsqrtf(float value) { return 1.0f / __builtin_sqrtf(value); }
inline float __int_as_float(int bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

struct Fiber {
  ucontext_t context;
  char stack[64 * 1024];
  bool is_done;
  unsigned n_shuffles;
};
inline Fiber fibers[1024];
inline ucontext_t scheduler;
inline void** arguments;

inline void __syncthreads() { swapcontext(&fibers[threadIdx.x].context, &scheduler); }

inline float __shfl_xor_sync(unsigned, float value, int distance) {
  // two buffers: a thread that is one shuffle ahead must not overwrite what another has still to read
  static float buffers[2][1024];
  float* values = buffers[fibers[threadIdx.x].n_shuffles++ % 2];
  values[threadIdx.x] = value;
  __syncthreads();
  return values[threadIdx.x ^ distance];
}

template <class... Types, size_t... I>
void call(void (*kernel)(Types...), std::index_sequence<I...>) {
  kernel(*static_cast<Types*>(arguments[I])...);
}

template <class... Types>
void call(void (*kernel)(Types...)) {
  call(kernel, std::index_sequence_for<Types...>());
}

template <auto KERNEL>
void run_thread() {
  call(KERNEL);
  fibers[threadIdx.x].is_done = true;
  __syncthreads();
}

template <auto KERNEL>
void run_block() {
  for (unsigned thread = 0; thread < blockDim.x; ++thread) {
    Fiber& fiber = fibers[thread];
    fiber.is_done = false;
    fiber.n_shuffles = 0;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = sizeof fiber.stack;
    makecontext(&fiber.context, run_thread<KERNEL>, 0);
  }
  for (unsigned n_done = 0; n_done < blockDim.x;) {
    for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) {
      swapcontext(&scheduler, &fibers[threadIdx.x].context);
      n_done += fibers[threadIdx.x].is_done;
    }
    if (n_done != 0 && n_done != blockDim.x) {
      fprintf(stderr, "%u of %u threads ended where the others wait at a barrier\n", n_done, blockDim.x);
      abort();
    }
  }
}

template <auto KERNEL>
void launch_on_host(unsigned grid, unsigned block, void** given) {
  gridDim.x = grid;
  blockDim.x = block;
  arguments = given;
  for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) run_block<KERNEL>();
}
