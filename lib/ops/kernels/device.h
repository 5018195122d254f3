// The kernels of a device other than the CPU as a table, and the one place that decides whether they are used.
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
  decltype(&cuda::dropout) dropout;
  decltype(&cuda::top_k) top_k;
  decltype(&cuda::sort_choices) sort_choices;
  cuda::Stream (*stream)();       ///< that the calling thread computes on
  bool (*has_float8)();           ///< whether its device has products of 8-bit operands; null: none
  bool (*has_grouped_product)();  ///< whether LibTorch's grouped product never waits for its device; null: none
};

/// The kernels that compute on tensors like x, or null where the CPU's loops (has_kernel) or ATen's operations do: x is
/// on no GPU, no kernels were loaded, or they do not know its type.
const DeviceKernels* device_kernels(const at::Tensor& x);

/// The name of x's element type; x is one that device_kernels() knows.
cuda::Element element_of(const at::Tensor& x);

/// The kernels for GPUs; null before the program's CUDA half was loaded (cuda_half/cuda_half.h).
const DeviceKernels* loaded_kernels();
/// From now on loaded_kernels() is this table, for the rest of the process.
void use_kernels(const DeviceKernels& table);

/// For tests: from now on the table computes on the CPU's tensors; null: the loops do.
void compute_on_host_with(const DeviceKernels* table);

}  // namespace automodel::ops
