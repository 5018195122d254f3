#include "ops/low_rank.h"

#include <algorithm>
#include <span>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "base/random.h"
#include "ops/element_type.h"
#include "ops/graph.h"
#include "ops/kernels/device.h"
#include "ops/linear.h"

namespace automodel::ops {
namespace {

/// Name of a term's random stream in a step.
std::string stream_of(const LowRank& term, const DropoutDraw& draw) {
  return "dropout/" + std::to_string(draw.step) + "/" + term.a->name;
}

/// The dropout mask [rows, columns]: 0 for dropped elements, else 1 / (1 - share).
at::Tensor mask_of(const LowRank& term, const DropoutDraw& draw, std::int64_t columns,
                   const at::TensorOptions& options) {
  const RandomStream stream(draw.seed, stream_of(term, draw));
  const auto rows = static_cast<std::int64_t>(draw.tokens.size());
  auto mask = at::zeros({rows, columns}, at::kFloat);
  auto* out = mask.mutable_data_ptr<float>();
  const auto share = static_cast<float>(term.dropout), kept = static_cast<float>(1 / (1 - term.dropout));
  for (std::int64_t row = 0; row < rows; ++row) {
    auto* to = out + row * columns;
    const auto begin = draw.tokens[static_cast<std::size_t>(row)] * term.width;
    for (const auto& [first, last] : term.features) {
      const std::span values(to, static_cast<std::size_t>(last - first));
      stream.fill_uniform(static_cast<std::uint64_t>(begin + first), values);
      for (auto& value : values) value = value >= share ? kept : 0.0F;
      to += last - first;
    }
  }
  return mask.to(options);
}

/// x with dropout, by the device's kernel; undefined if there is none, or it does not support so many runs of features.
at::Tensor dropped_on_device(const at::Tensor& x, const LowRank& term, const DropoutDraw& draw) {
  const auto* device = device_kernels(x);
  cuda::FeatureRuns runs;
  if (device == nullptr || term.features.size() > cuda::FeatureRuns::kMost) return {};
  for (const auto& [first, last] : term.features) {
    const auto run = static_cast<std::size_t>(runs.count++);
    runs.first[run] = first;
    runs.begin[run + 1] = runs.begin[run] + last - first;
  }
  const auto in = x.contiguous();
  auto out = at::empty_like(in);
  device->dropout(element_of(in),
                  {.x = in.const_data_ptr(),
                   .out = out.mutable_data_ptr(),
                   .rows = in.size(0),
                   .columns = in.size(1),
                   .width = term.width,
                   .tokens = draw.tokens_on(x.device()).const_data_ptr<std::int64_t>(),
                   .seed = draw.seed,
                   .stream = stream_hash(stream_of(term, draw)),
                   .share = term.dropout,
                   .features = runs},
                  device->stream());
  return out;
}

/// True if dropout acts in this pass at this place: on x (`first`) or on the term.
bool drops(const LowRank& term, const Linear& layer, bool first) {
  return layer.draw && term.dropout > 0 && term.dropout_first == first;
}

/// x [n, columns], with dropout if it acts at this place.
at::Tensor dropped(const at::Tensor& x, const LowRank& term, const Linear& layer, bool first) {
  if (!drops(term, layer, first)) return x;
  AUTOMODEL_CHECK(static_cast<std::int64_t>(layer.draw->tokens.size()) == x.size(0), "dropout is drawn for other rows");
  const auto out = dropped_on_device(x, term, *layer.draw);
  return out.defined() ? out : x * mask_of(term, *layer.draw, x.size(1), x.options());
}

/// Matmul in the parameter's product type; the result has the type of x.
at::Tensor times(const at::Tensor& x, const Parameter& weight, bool transposed) {
  const auto type = weight.matmul_type.value_or(weight.type());
  const auto w = weight.dense().to(type);
  return at::mm(x.to(type), transposed ? w.t() : w).to(x.scalar_type());
}

/// scale A x [n, rank].
at::Tensor lowered(const at::Tensor& x, const LowRank& term, const Linear& layer) {
  return times(dropped(x, term, layer, true), *term.a, true).mul_(term.scale);
}

/// Calls use(term, first column, columns, weight) for every weight that has an adapter.
template <class Use>
void for_each_term(const Linear& layer, Use&& use) {
  std::int64_t column = 0;
  for (std::size_t i = 0; i < layer.adapters.size(); ++i) {
    const auto columns = layer.weights[i]->shape[layer.transposed ? 1 : 0];
    if (layer.adapters[i]) use(layer.adapters[i], column, columns, *layer.weights[i]);
    column += columns;
  }
}

/// True if the base matmul sees x without dropout while the magnitude's correction of it sees x with dropout.
bool apart(const LowRank& term, const Linear& layer) {
  return term.magnitude != nullptr && drops(term, layer, true);
}

/// The gradient of what is multiplied by m / length.
at::Tensor behind_magnitude(const at::Tensor& gradient, const LowRank& term) {
  return term.magnitude == nullptr ? gradient : gradient * term.factors.to(gradient.scalar_type());
}

/// scale B A x [n, out], with dropout.
at::Tensor result(const at::Tensor& x, const LowRank& term, const Linear& layer) {
  return dropped(times(lowered(x, term, layer), *term.b, true), term, layer, false);
}

/// Squared lengths of the rows of W + scale B A, in the type of computation.
at::Tensor squared_lengths(const LowRank& term, const Parameter& weight, bool transposed) {
  constexpr std::int64_t kRows = 1024;  // at a time: the whole sum would take the memory of a second weight
  const auto whole = transposed ? weight.dense().t() : weight.dense();
  const auto type = compute_type(whole.scalar_type());
  auto out = at::empty({whole.size(0)}, whole.options().dtype(type));
  for (std::int64_t first = 0; first < whole.size(0); first += kRows) {
    const auto rows = std::min(kRows, whole.size(0) - first);
    const auto delta = at::mm(term.b->value.narrow(0, first, rows), term.a->value).to(whole.scalar_type());
    const auto sum = (whole.narrow(0, first, rows) + delta.mul_(term.scale)).to(type);
    out.narrow(0, first, rows).copy_(sum.square().sum(1));
  }
  return out;
}

}  // namespace

const at::Tensor& DropoutDraw::tokens_on(at::Device device) const {
  if (!placed_.defined() || placed_.device() != device) {
    auto own = at::empty({static_cast<std::int64_t>(tokens.size())}, at::TensorOptions().dtype(at::kLong));
    std::copy(tokens.begin(), tokens.end(), own.mutable_data_ptr<std::int64_t>());
    placed_ = own.to(device);
  }
  return placed_;
}

bool has_magnitudes(const Linear& layer) {
  return std::any_of(layer.adapters.begin(), layer.adapters.end(),
                     [](const LowRank& term) { return term && term.magnitude != nullptr; });
}

bool has_lengths(const Linear& layer) {
  return std::all_of(layer.adapters.begin(), layer.adapters.end(),
                     [](const LowRank& term) { return !term || term.magnitude == nullptr || term.lengths.defined(); });
}

Linear with_lengths(const Linear& layer, const std::function<void(const at::Tensor&)>& sum) {
  auto out = layer;
  const NoGraph guard;
  for (std::size_t i = 0; i < out.adapters.size(); ++i) {
    auto& term = out.adapters[i];
    if (!term || term.magnitude == nullptr) continue;
    const auto squares = squared_lengths(term, *layer.weights[i], layer.transposed);
    if (sum) sum(squares);
    // In the type of the weights, as in NeMo AutoModel: m is initialised to exactly these.
    term.lengths = squares.sqrt().to(layer.weights[i]->type());
    term.lengths.masked_fill_(term.lengths == 0, 1);  // rows that pad a vocabulary
    term.factors = term.magnitude->value / term.lengths;
  }
  return out;
}

at::Tensor base_gradient(const at::Tensor& gradient, const Linear& layer) {
  if (!has_magnitudes(layer)) return gradient;
  auto out = gradient.clone();
  for_each_term(layer, [&](const LowRank& term, std::int64_t column, std::int64_t columns, const Parameter&) {
    if (!apart(term, layer))
      out.narrow(1, column, columns).copy_(behind_magnitude(gradient.narrow(1, column, columns), term));
  });
  return out;
}

void add_low_rank(at::Tensor y, const at::Tensor& x, const Linear& layer) {
  for_each_term(layer, [&](const LowRank& term, std::int64_t column, std::int64_t columns, const Parameter& weight) {
    auto part = y.narrow(1, column, columns);
    if (term.magnitude != nullptr) {
      const auto factors = term.factors.to(y.scalar_type());
      const auto low = result(x, term, layer);
      if (apart(term, layer))
        part.add_(times(dropped(x, term, layer, true), weight, !layer.transposed) * (factors - 1) + low * factors);
      else
        part.add_(low).mul_(factors);
      return;
    }
    const auto low = lowered(x, term, layer);
    if (!term.b->matmul_type && !drops(term, layer, false))
      at::addmm_out(part, part, low, term.b->value.t());
    else
      part.add_(dropped(times(low, *term.b, true), term, layer, false));
  });
}

void add_low_rank_input_gradient(at::Tensor dx, const at::Tensor& gradient, const Linear& layer) {
  for_each_term(layer, [&](const LowRank& term, std::int64_t column, std::int64_t columns, const Parameter& weight) {
    const auto mine = gradient.narrow(1, column, columns);
    const auto arriving = dropped(behind_magnitude(mine, term), term, layer, false);
    const auto low = times(arriving, *term.b, false).mul_(term.scale);
    if (apart(term, layer)) {
      const auto changed = mine * (term.factors.to(mine.scalar_type()) - 1);
      dx.add_(dropped(times(low, *term.a, false) + times(changed, weight, layer.transposed), term, layer, true));
      return;
    }
    if (!term.a->matmul_type && !drops(term, layer, true))
      at::addmm_out(dx, dx, low, term.a->value);
    else
      dx.add_(dropped(times(low, *term.a, false), term, layer, true));
  });
}

void low_rank_gradients(const at::Tensor& gradient, const at::Tensor& x, const Linear& layer) {
  for_each_term(layer, [&](const LowRank& term, std::int64_t column, std::int64_t columns, const Parameter& weight) {
    const auto mine = gradient.narrow(1, column, columns);
    if (term.magnitude != nullptr && term.magnitude->trained()) {
      const auto base = times(dropped(x, term, layer, true), weight, !layer.transposed);
      const auto type = compute_type(mine.scalar_type());
      const auto sums = (mine.to(type) * base.add_(result(x, term, layer)).to(type)).sum(0);
      accumulate(*term.magnitude, sums / term.lengths.to(type));
    }
    if (!term.a->trained() && !term.b->trained()) return;
    const auto arriving = dropped(behind_magnitude(mine, term), term, layer, false);
    weight_gradient({term.b}, arriving, lowered(x, term, layer));
    weight_gradient({term.a}, times(arriving, *term.b, false).mul_(term.scale), dropped(x, term, layer, true));
  });
}

}  // namespace automodel::ops
