// RMS normalisation along rows. Each thread keeps HELD vectors of LENGTH elements of a row in registers. The rest of a
// longer row is read twice by the same block, the second time from the L2 cache.
#include "../building_blocks/rows.cuh"

// One block per row.
template <class T, class W, int LENGTH, int HELD, int MOST_THREADS>
__global__ void __launch_bounds__(MOST_THREADS, 1) rms_norm_kernel(
    const T* __restrict__ x, const W* __restrict__ weight, T* __restrict__ out, float* __restrict__ rstds,
    long long x_row_stride, long long n_cols, float eps) {
  const int n_vectors = n_cols / LENGTH;
  const int beyond = threadIdx.x + HELD * blockDim.x;
  const long long row = blockIdx.x;
  const auto* x_row = vectors<LENGTH>(x + row * x_row_stride);  // [n_vectors]
  const auto* weights = vectors<LENGTH>(weight);                // [n_vectors]
  auto* out_row = vectors<LENGTH>(out + row * n_cols);          // [n_vectors]

  Vector<T, LENGTH> held[HELD];
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    const int at = threadIdx.x + i * blockDim.x;
    if (at < n_vectors) held[i] = x_row[at];
  }
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    if (threadIdx.x + i * blockDim.x < n_vectors) {
      for (int lane = 0; lane < LENGTH; ++lane) squares += held[i][lane] * held[i][lane];
    }
  }
#pragma unroll 4
  for (int at = beyond; at < n_vectors; at += blockDim.x) {
    const Vector<T, LENGTH> values = x_row[at];
    for (int lane = 0; lane < LENGTH; ++lane) squares += values[lane] * values[lane];
  }
  const float rstd = rsqrtf(reduce_block<Sum>(squares) / n_cols + eps);
  if (threadIdx.x == 0) rstds[row] = rstd;

#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    const int at = threadIdx.x + i * blockDim.x;
    if (at >= n_vectors) break;
    const Vector<W, LENGTH> factors = weights[at];
    for (int lane = 0; lane < LENGTH; ++lane) held[i].set(lane, held[i][lane] * rstd * factors[lane]);
    out_row[at] = held[i];
  }
#pragma unroll 4
  for (int at = beyond; at < n_vectors; at += blockDim.x) {
    Vector<T, LENGTH> values = x_row[at];
    const Vector<W, LENGTH> factors = weights[at];
    for (int lane = 0; lane < LENGTH; ++lane) values.set(lane, values[lane] * rstd * factors[lane]);
    out_row[at] = values;
  }
}

// One block for several rows. It sums the weight gradient in registers, and the rest in memory, where each element is
// owned by one thread.
template <class T, class W, int LENGTH, int HELD, int MOST_THREADS>
__global__ void __launch_bounds__(MOST_THREADS, 1) rms_norm_grad_kernel(
    const T* __restrict__ x, const W* __restrict__ weight, const float* __restrict__ rstds,
    const T* __restrict__ grad_out, T* __restrict__ grad_x, float* __restrict__ grad_weight_shares,
    long long x_row_stride, long long n_rows, long long n_cols) {
  const int n_vectors = n_cols / LENGTH;
  const int beyond = threadIdx.x + HELD * blockDim.x;
  const auto* weights = vectors<LENGTH>(weight);                                // [n_vectors]
  auto* share = vectors<LENGTH>(grad_weight_shares + blockIdx.x * n_cols);      // [n_vectors]
  float grad_weight[HELD][LENGTH] = {};
  for (long long row = blockIdx.x; row < n_rows; row += gridDim.x) {
    const auto* x_row = vectors<LENGTH>(x + row * x_row_stride);          // [n_vectors]
    const auto* grad_out_row = vectors<LENGTH>(grad_out + row * n_cols);  // [n_vectors]
    auto* grad_x_row = vectors<LENGTH>(grad_x + row * n_cols);            // [n_vectors]
    const float rstd = rstds[row];

    Vector<T, LENGTH> held_x[HELD];
    Vector<T, LENGTH> held_grad[HELD];
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
      const int at = threadIdx.x + i * blockDim.x;
      if (at < n_vectors) {
        held_x[i] = x_row[at];
        held_grad[i] = grad_out_row[at];
      }
    }
    float products = 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
      const int at = threadIdx.x + i * blockDim.x;
      if (at >= n_vectors) break;
      const Vector<W, LENGTH> factors = weights[at];
      for (int lane = 0; lane < LENGTH; ++lane) products += held_grad[i][lane] * factors[lane] * held_x[i][lane];
    }
#pragma unroll 1  // more would spill
    for (int at = beyond; at < n_vectors; at += blockDim.x) {
      const Vector<T, LENGTH> xs = x_row[at];
      const Vector<T, LENGTH> grads = grad_out_row[at];
      const Vector<W, LENGTH> factors = weights[at];
      for (int lane = 0; lane < LENGTH; ++lane) products += grads[lane] * factors[lane] * xs[lane];
    }
    // the mean over the row of grad_out * weight * normed, where normed = x * rstd
    const float mean = reduce_block<Sum>(products) * rstd / n_cols;

#pragma unroll
    for (int i = 0; i < HELD; ++i) {
      const int at = threadIdx.x + i * blockDim.x;
      if (at >= n_vectors) break;
      keep_packed(held_x[i]);
      keep_packed(held_grad[i]);
      const Vector<W, LENGTH> factors = weights[at];
      for (int lane = 0; lane < LENGTH; ++lane) {
        const float normed = held_x[i][lane] * rstd;
        grad_weight[i][lane] += held_grad[i][lane] * normed;
        held_grad[i].set(lane, (held_grad[i][lane] * factors[lane] - normed * mean) * rstd);
      }
      grad_x_row[at] = held_grad[i];
    }
#pragma unroll 1  // more would spill
    for (int at = beyond; at < n_vectors; at += blockDim.x) {
      const Vector<T, LENGTH> xs = x_row[at];
      Vector<T, LENGTH> grads = grad_out_row[at];
      const Vector<W, LENGTH> factors = weights[at];
      Vector<float, LENGTH> sums = {};
      if (row != blockIdx.x) sums = share[at];
      for (int lane = 0; lane < LENGTH; ++lane) {
        const float normed = xs[lane] * rstd;
        sums.lanes[lane] += grads[lane] * normed;
        grads.set(lane, (grads[lane] * factors[lane] - normed * mean) * rstd);
      }
      share[at] = sums;
      grad_x_row[at] = grads;
    }
  }
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    const int at = threadIdx.x + i * blockDim.x;
    if (at >= n_vectors) break;
    Vector<float, LENGTH> sums;
    for (int lane = 0; lane < LENGTH; ++lane) sums.lanes[lane] = grad_weight[i][lane];
    share[at] = sums;
  }
}
