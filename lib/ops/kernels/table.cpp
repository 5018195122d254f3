// The kernels of one instruction set: this file is compiled once per set, with AUTOMODEL_ISA as the namespace that
// holds them (see lib/ops/CMakeLists.txt).
#include "ops/kernels/attention_loops.h"
#include "ops/kernels/conv_loops.h"
#include "ops/kernels/cross_entropy_loops.h"
#include "ops/kernels/gate_loops.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/norm_loops.h"
#include "ops/kernels/optimizer_loops.h"
#include "ops/kernels/rope_loops.h"

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

template <class T>
NormKernels<T> norm() {
  return {norm_forward<T>, norm_backward<T>};
}
template <class T>
RopeKernels<T> rope() {
  return {rope_rotate_with<T, 1>, rope_rotate_with<T, 2>};
}
template <class T>
GateKernels<T> gate() {
  return {gate_forward<T>, gate_backward<T>};
}
template <class T>
ConvKernels<T> conv() {
  return {conv_forward<T>, conv_backward<T>};
}

template <class T>
AttentionKernels<T> attention() {
  return {attention_weights<T>, attention_gradient<T>, attention_dot<T>, attention_narrow<T>, attention_scale};
}
template <class T>
CrossEntropyKernels<T> loss() {
  return {cross_entropy<T>, logit_statistics<T>, logit_gradient<T>};
}

}  // namespace

Kernels table(const char* name);
Kernels table(const char* name) {
  using B = c10::BFloat16;
  return {.norm_float = norm<float>(),
          .norm_double = norm<double>(),
          .norm_bfloat16 = norm<B>(),
          .rope_float = rope<float>(),
          .rope_double = rope<double>(),
          .rope_bfloat16 = rope<B>(),
          .gate_float = gate<float>(),
          .gate_double = gate<double>(),
          .gate_bfloat16 = gate<B>(),
          .conv_float = conv<float>(),
          .conv_double = conv<double>(),
          .conv_bfloat16 = conv<B>(),
          .cross_entropy_float = loss<float>(),
          .cross_entropy_double = loss<double>(),
          .cross_entropy_bfloat16 = loss<B>(),
          .attention_float = attention<float>(),
          .attention_bfloat16 = attention<B>(),
          .matmul_float = {},
          .matmul_bfloat16 = {},
          .optimizer_float = {adam<float>, sum_of_squares<float>},
          .optimizer_double = {adam<double>, sum_of_squares<double>},
          .instruction_set = name};
}

}  // namespace automodel::ops::AUTOMODEL_ISA
