// Softmax along rows, forward and backward, with one block per row. Each thread keeps HELD vectors of LENGTH elements in
// registers. The rest of a longer row is read twice by the same block, the second time from the L2 cache.
#include "../building_blocks/rows.cuh"

template <class T, int LENGTH, int HELD, int MOST_THREADS>
__global__ void __launch_bounds__(MOST_THREADS, 1) softmax_kernel(
    const T* __restrict__ x, T* __restrict__ out, long long x_row_stride, long long n_rows, long long n_cols) {
  const int n_vectors = n_cols / LENGTH;
  const int beyond = threadIdx.x + HELD * blockDim.x;
  for (long long row = blockIdx.x; row < n_rows; row += gridDim.x) {
    const auto* x_row = vectors<LENGTH>(x + row * x_row_stride);  // [n_vectors]
    auto* out_row = vectors<LENGTH>(out + row * n_cols);          // [n_vectors]

    Vector<T, LENGTH> held[HELD];
    float held_max = Max::identity();
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
      const int at = threadIdx.x + i * blockDim.x;
      if (at < n_vectors) held[i] = x_row[at];
    }
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
      if (threadIdx.x + i * blockDim.x < n_vectors) {
        for (int lane = 0; lane < LENGTH; ++lane) held_max = fmaxf(held_max, held[i][lane]);
      }
    }
    // rest of the row: maximum and sum in one pass
    float beyond_max = Max::identity();
    float sum = 0.0f;
#pragma unroll 4
    for (int at = beyond; at < n_vectors; at += blockDim.x) {
      const Vector<T, LENGTH> values = x_row[at];
      float new_max = beyond_max;
      for (int lane = 0; lane < LENGTH; ++lane) new_max = fmaxf(new_max, values[lane]);
      // avoid exp(-inf + inf) in a thread with only -inf
      const float anchor = new_max == Max::identity() ? 0.0f : new_max;
      sum *= __expf(beyond_max - anchor);
      for (int lane = 0; lane < LENGTH; ++lane) sum += __expf(values[lane] - anchor);
      beyond_max = new_max;
    }

    const float row_max = reduce_block<Max>(fmaxf(held_max, beyond_max));
    sum *= __expf(beyond_max - row_max);
    float exps[HELD][LENGTH];
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
      if (threadIdx.x + i * blockDim.x < n_vectors) {
        keep_packed(held[i]);
        for (int lane = 0; lane < LENGTH; ++lane) sum += exps[i][lane] = __expf(held[i][lane] - row_max);
      }
    }
    const float factor = 1.0f / reduce_block<Sum>(sum);

#pragma unroll
    for (int i = 0; i < HELD; ++i) {
      const int at = threadIdx.x + i * blockDim.x;
      if (at >= n_vectors) break;
      for (int lane = 0; lane < LENGTH; ++lane) held[i].set(lane, exps[i][lane] * factor);
      out_row[at] = held[i];
    }
#pragma unroll 4
    for (int at = beyond; at < n_vectors; at += blockDim.x) {
      Vector<T, LENGTH> values = x_row[at];
      for (int lane = 0; lane < LENGTH; ++lane) values.set(lane, __expf(values[lane] - row_max) * factor);
      out_row[at] = values;
    }
  }
}

template <class T, int LENGTH, int HELD, int MOST_THREADS>
__global__ void __launch_bounds__(MOST_THREADS, 1) softmax_grad_kernel(
    const T* __restrict__ out, const T* __restrict__ grad_out, T* __restrict__ grad_x, long long n_rows,
    long long n_cols) {
  const int n_vectors = n_cols / LENGTH;
  const int beyond = threadIdx.x + HELD * blockDim.x;
  for (long long row = blockIdx.x; row < n_rows; row += gridDim.x) {
    const auto* out_row = vectors<LENGTH>(out + row * n_cols);            // [n_vectors]
    const auto* grad_out_row = vectors<LENGTH>(grad_out + row * n_cols);  // [n_vectors]
    auto* grad_x_row = vectors<LENGTH>(grad_x + row * n_cols);            // [n_vectors]

    Vector<T, LENGTH> held_out[HELD];
    Vector<T, LENGTH> held_grad[HELD];
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
      const int at = threadIdx.x + i * blockDim.x;
      if (at < n_vectors) {
        held_out[i] = out_row[at];
        held_grad[i] = grad_out_row[at];
      }
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
      if (threadIdx.x + i * blockDim.x < n_vectors) {
        for (int lane = 0; lane < LENGTH; ++lane) sum += held_out[i][lane] * held_grad[i][lane];
      }
    }
#pragma unroll 4
    for (int at = beyond; at < n_vectors; at += blockDim.x) {
      const Vector<T, LENGTH> outs = out_row[at];
      const Vector<T, LENGTH> grads = grad_out_row[at];
      for (int lane = 0; lane < LENGTH; ++lane) sum += outs[lane] * grads[lane];
    }
    sum = reduce_block<Sum>(sum);

#pragma unroll
    for (int i = 0; i < HELD; ++i) {
      const int at = threadIdx.x + i * blockDim.x;
      if (at >= n_vectors) break;
      keep_packed(held_out[i]);
      keep_packed(held_grad[i]);
      for (int lane = 0; lane < LENGTH; ++lane) {
        held_grad[i].set(lane, held_out[i][lane] * (held_grad[i][lane] - sum));
      }
      grad_x_row[at] = held_grad[i];
    }
#pragma unroll 4
    for (int at = beyond; at < n_vectors; at += blockDim.x) {
      const Vector<T, LENGTH> outs = out_row[at];
      Vector<T, LENGTH> grads = grad_out_row[at];
      for (int lane = 0; lane < LENGTH; ++lane) grads.set(lane, outs[lane] * (grads[lane] - sum));
      grad_x_row[at] = grads;
    }
  }
}
