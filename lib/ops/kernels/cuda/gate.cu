// Gated activations: one thread per pack of adjacent elements of a row.
#include "ops/kernels/cuda/device.h"

namespace automodel::ops::cuda {
namespace {

template <class C>
struct Value {
  C value, slope;
};

template <Gate gate, class C>
__device__ Value<C> activate(C x) {
  if constexpr (gate == Gate::kSilu) {
    const C s = C(1) / (C(1) + exp(-x));
    return {x * s, s * (C(1) + x * (C(1) - s))};
  } else if constexpr (gate == Gate::kGeluTanh) {
    constexpr C kScale = static_cast<C>(0.7978845608028654), kCubic = static_cast<C>(0.044715);
    const C t = tanh(kScale * (x + kCubic * x * x * x));
    return {C(0.5) * x * (C(1) + t),
            C(0.5) * (C(1) + t) + C(0.5) * x * (C(1) - t * t) * kScale * (C(1) + C(3) * kCubic * x * x)};
  } else if constexpr (gate == Gate::kGelu) {
    const C below = C(0.5) * (C(1) + erf(x * static_cast<C>(0.7071067811865476)));
    return {x * below, below + x * static_cast<C>(0.3989422804014327) * exp(C(-0.5) * x * x)};
  } else if constexpr (gate == Gate::kRelu) {
    return {x > C(0) ? x : C(0), x > C(0) ? C(1) : C(0)};
  } else {
    return {x > C(0) ? x * x : C(0), x > C(0) ? C(2) * x : C(0)};
  }
}

template <class T, int N, Gate gate>
__global__ void forward_packs(const T* x, T* out, std::int64_t packs, std::int64_t columns) {
  const std::int64_t pack = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const std::int64_t row = pack * N / columns, c = pack * N % columns;
  const T* gates = x + row * 2 * columns + c;
  auto values = read<N>(gates);
  const auto ups = read<N>(gates + columns);
  for (int i = 0; i < N; ++i) values.at[i] = narrow<T>(activate<gate>(widen(values.at[i])).value * widen(ups.at[i]));
  write<N>(out + row * columns + c, values);
}

template <class T, int N, Gate gate>
__global__ void backward_packs(const T* dout, const T* x, T* dx, std::int64_t packs, std::int64_t columns) {
  const std::int64_t pack = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const std::int64_t row = pack * N / columns, c = pack * N % columns, at = row * 2 * columns + c;
  auto gates = read<N>(x + at), ups = read<N>(x + at + columns);
  const auto gradients = read<N>(dout + row * columns + c);
  for (int i = 0; i < N; ++i) {
    const auto gradient = widen(gradients.at[i]);
    const auto result = activate<gate>(widen(gates.at[i]));
    gates.at[i] = narrow<T>(gradient * widen(ups.at[i]) * result.slope);
    ups.at[i] = narrow<T>(gradient * result.value);
  }
  write<N>(dx + at, gates);
  write<N>(dx + at + columns, ups);
}

template <class C>
struct Pair {
  C gate, up, sigmoid;
  bool gate_free, up_free;  ///< not clamped by the limit
};
template <class T>
__device__ Pair<Compute<T>> pair_of(const Pack<T, 2>& values, Compute<T> alpha, Compute<T> limit) {
  using C = Compute<T>;
  C gate = widen(values.at[0]), up = widen(values.at[1]);
  const bool bounded = limit > C(0);
  const bool gate_free = !bounded || gate <= limit, up_free = !bounded || (up <= limit && up >= -limit);
  if (!gate_free) gate = limit;
  if (!up_free) up = up > C(0) ? limit : -limit;
  return {gate, up, C(1) / (C(1) + exp(-alpha * gate)), gate_free, up_free};
}

template <class T>
__global__ void forward_pairs(const T* x, T* out, std::int64_t pairs, Compute<T> alpha, Compute<T> limit) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= pairs) return;
  const auto in = pair_of(read<2>(x + 2 * i), alpha, limit);
  out[i] = narrow<T>((in.up + 1) * in.gate * in.sigmoid);
}

template <class T>
__global__ void backward_pairs(const T* dout, const T* x, T* dx, std::int64_t pairs, Compute<T> alpha,
                               Compute<T> limit) {
  using C = Compute<T>;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= pairs) return;
  const auto in = pair_of(read<2>(x + 2 * i), alpha, limit);
  const C gradient = widen(dout[i]);
  const C slope = in.sigmoid * (C(1) + alpha * in.gate * (C(1) - in.sigmoid));
  Pack<T, 2> out;
  out.at[0] = narrow<T>(in.gate_free ? gradient * (in.up + C(1)) * slope : C(0));
  out.at[1] = narrow<T>(in.up_free ? gradient * in.gate * in.sigmoid : C(0));
  write<2>(dx + 2 * i, out);
}

/// Calls run with the gate as a constant.
template <class Run>
void for_gate(Gate gate, const Run& run) {
  switch (gate) {
    case Gate::kSilu: return run(std::integral_constant<Gate, Gate::kSilu>());
    case Gate::kGeluTanh: return run(std::integral_constant<Gate, Gate::kGeluTanh>());
    case Gate::kGelu: return run(std::integral_constant<Gate, Gate::kGelu>());
    case Gate::kRelu: return run(std::integral_constant<Gate, Gate::kRelu>());
    case Gate::kRelu2: return run(std::integral_constant<Gate, Gate::kRelu2>());
  }
}

}  // namespace

void gate_forward(Element element, const void* x, void* out, std::int64_t rows, std::int64_t columns, Gate gate,
                  Stream stream) {
  for_element(element, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for_width<T>(columns, {x, out}, [&](auto width) {
      for_gate(gate, [&](auto kind) {
        const auto packs = rows * columns / width;
        launch(forward_packs<T, decltype(width)::value, decltype(kind)::value>, divided_up(packs, kThreads), 0, stream,
               static_cast<const T*>(x), static_cast<T*>(out), packs, columns);
      });
    });
  });
}

void gate_backward(Element element, const void* dout, const void* x, void* dx, std::int64_t rows, std::int64_t columns,
                   Gate gate, Stream stream) {
  for_element(element, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for_width<T>(columns, {dout, x, dx}, [&](auto width) {
      for_gate(gate, [&](auto kind) {
        const auto packs = rows * columns / width;
        launch(backward_packs<T, decltype(width)::value, decltype(kind)::value>, divided_up(packs, kThreads), 0, stream,
               static_cast<const T*>(dout), static_cast<const T*>(x), static_cast<T*>(dx), packs, columns);
      });
    });
  });
}

void paired_gate_forward(Element element, const void* x, void* out, std::int64_t rows, std::int64_t columns,
                         const PairedGate& gate, Stream stream) {
  for_element(element, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    launch(forward_pairs<T>, divided_up(rows * columns, kThreads), 0, stream, static_cast<const T*>(x),
           static_cast<T*>(out), rows * columns, static_cast<Compute<T>>(gate.alpha),
           static_cast<Compute<T>>(gate.limit));
  });
}

void paired_gate_backward(Element element, const void* dout, const void* x, void* dx, std::int64_t rows,
                          std::int64_t columns, const PairedGate& gate, Stream stream) {
  for_element(element, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    launch(backward_pairs<T>, divided_up(rows * columns, kThreads), 0, stream, static_cast<const T*>(dout),
           static_cast<const T*>(x), static_cast<T*>(dx), rows * columns, static_cast<Compute<T>>(gate.alpha),
           static_cast<Compute<T>>(gate.limit));
  });
}

}  // namespace automodel::ops::cuda
