// The table of GPU kernels, and the one place that decides whether they are used.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/kernels/cuda/kernels.h"

namespace automodel::ops {

struct DeviceKernels {
  decltype(&cuda::norm_forward) norm_forward;
  decltype(&cuda::norm_parts) norm_parts;
  decltype(&cuda::norm_backward) norm_backward;
  decltype(&cuda::rope) rope;
  decltype(&cuda::gate_forward) gate_forward;
  decltype(&cuda::gate_backward) gate_backward;
  decltype(&cuda::paired_gate_forward) paired_gate_forward;
  decltype(&cuda::paired_gate_backward) paired_gate_backward;
  decltype(&cuda::cross_entropy) cross_entropy;
  decltype(&cuda::logit_statistics) logit_statistics;
  decltype(&cuda::logit_gradient) logit_gradient;
  decltype(&cuda::adam) adam;
  decltype(&cuda::square_parts) square_parts;
  decltype(&cuda::sum_of_squares) sum_of_squares;
  decltype(&cuda::embedding_backward) embedding_backward;
  decltype(&cuda::add_groups) add_groups;
  decltype(&cuda::dropout) dropout;
  decltype(&cuda::top_k) top_k;
  decltype(&cuda::sort_choices) sort_choices;
  decltype(&cuda::sum_rows) sum_rows;
  decltype(&cuda::sum_rows_backward) sum_rows_backward;
  decltype(&cuda::dequantize) dequantize;
  decltype(&cuda::float8_parts) float8_parts;
  decltype(&cuda::float8_cast) float8_cast;
  cuda::Stream (*stream)();  ///< the calling thread's current stream
  bool (*has_float8)();      ///< whether that thread's device has FP8 matmuls; null: no
  /// Whether its FP8 matmuls with row-wise scales may write rows that are apart; null: no.
  bool (*writes_float8_rows_apart)();
  bool (*has_grouped_product)();  ///< whether LibTorch's grouped matmul there never makes the host wait; null: no
};

/// The kernels to use for tensors like x. Null if CPU loops (has_kernel) or ATen operations are used instead: x is not
/// on a GPU, no kernels are loaded, or they do not support its dtype.
const DeviceKernels* device_kernels(const at::Tensor& x);

/// The kernels' name for the dtype of x, which must be one that device_kernels() supports.
cuda::Element element_of(const at::Tensor& x);

/// The kernels for GPUs; null until the program's CUDA half is loaded (cuda_half/cuda_half.h).
const DeviceKernels* loaded_kernels();
/// Sets loaded_kernels() for the rest of the process.
void use_kernels(const DeviceKernels& table);

/// For tests: from now on CPU tensors use this table; null: the CPU loops again.
void compute_on_host_with(const DeviceKernels* table);

}  // namespace automodel::ops
