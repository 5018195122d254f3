// The kernels of this directory as a table.
#pragma once

#include "ops/kernels/device.h"

namespace automodel::ops::cuda {

inline DeviceKernels table(Stream (*stream)()) {
  return {.norm_forward = norm_forward,
          .norm_parts = norm_parts,
          .norm_backward = norm_backward,
          .rope = rope,
          .gate_forward = gate_forward,
          .gate_backward = gate_backward,
          .paired_gate_forward = paired_gate_forward,
          .paired_gate_backward = paired_gate_backward,
          .cross_entropy = cross_entropy,
          .logit_statistics = logit_statistics,
          .logit_gradient = logit_gradient,
          .adam = adam,
          .square_parts = square_parts,
          .sum_of_squares = sum_of_squares,
          .embedding_backward = embedding_backward,
          .add_groups = add_groups,
          .dropout = dropout,
          .top_k = top_k,
          .sort_choices = sort_choices,
          .sum_rows = sum_rows,
          .sum_rows_backward = sum_rows_backward,
          .dequantize = dequantize,
          .float8_parts = float8_parts,
          .float8_cast = float8_cast,
          .stream = stream,
          .has_float8 = nullptr,
          .writes_float8_rows_apart = nullptr,
          .has_grouped_product = nullptr};
}

/// The table for GPUs; defined only in builds that link the CUDA runtime.
const DeviceKernels& kernels();

}  // namespace automodel::ops::cuda
