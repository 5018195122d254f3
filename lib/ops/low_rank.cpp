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

#include "arch/adapters.h"
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

at::ScalarType product_type(const Parameter& weight) {
  return weight.matmul_type.value_or(weight.type());
}

/// Matmul in the parameter's product type; the result has the type of x.
at::Tensor times(const at::Tensor& x, const Parameter& weight, bool transposed) {
  const auto type = product_type(weight);
  const auto w = weight.dense().to(type);
  return at::mm(x.to(type), transposed ? w.t() : w).to(x.scalar_type());
}

/// out = beta out + scale x w, multiplied in `type`; in one kernel if that is out's.
void add_times(at::Tensor out, double beta, double scale, const at::Tensor& x, const at::Tensor& w,
               at::ScalarType type) {
  if (type == out.scalar_type()) {
    at::addmm_out(out, out, x, w, beta, scale);
    return;
  }
  const auto product = at::mm(x.to(type), w.to(type));
  // A narrower product (autocast) is widened while it is added: a head's copy would be as large as its logits.
  if (beta == 0)
    out.copy_(product).mul_(scale);
  else
    out.add_(product.element_size() < out.element_size() ? product : product.to(out.scalar_type()), scale);
}

/// A weight's term: its columns of the result, and of the low-rank vectors of all terms, which lie side by side.
struct Place {
  const LowRank& term;
  const Parameter& weight;
  std::int64_t column = 0, columns = 0;  ///< of the result
  std::int64_t low = 0;                  ///< first column of its vectors
  at::Tensor of_result(const at::Tensor& y) const { return y.narrow(1, column, columns); }
  at::Tensor of_vectors(const at::Tensor& vectors) const { return vectors.narrow(1, low, term.a->shape[0]); }
};

std::vector<Place> places_of(const Linear& layer) {
  std::vector<Place> out;
  std::int64_t column = 0, low = 0;
  for (std::size_t i = 0; i < layer.adapters.size(); ++i) {
    const auto& term = layer.adapters[i];
    const auto columns = layer.weights[i]->shape[layer.transposed ? 1 : 0];
    if (term) {
      out.push_back({term, *layer.weights[i], column, columns, low});
      low += term.a->shape[0];
    }
    column += columns;
  }
  return out;
}

/// Neighbouring terms of the same x whose A's are adjacent in memory (q, k and v; gate and up): one product with all of
/// these reads x once, and one adds to its gradient.
struct Stack {
  Place first;
  Parameters parameters;
  at::Tensor a = {};  ///< [sum of ranks, in]
  at::ScalarType type() const { return product_type(*first.term.a); }
  at::Tensor of_vectors(const at::Tensor& vectors) const { return vectors.narrow(1, first.low, a.size(0)); }
};

std::vector<Stack> stacks_of(const Linear& layer) {
  std::vector<Stack> out;
  for (const auto& place : places_of(layer)) {
    const auto& term = place.term;
    if (!out.empty()) {
      auto& stack = out.back();
      const auto& other = stack.first.term;
      auto parameters = stack.parameters;
      parameters.push_back(term.a);
      const auto a = joined_value(parameters);
      const bool same_x = !drops(term, layer, true) && !drops(other, layer, true);  // each term drops others
      if (a.defined() && same_x && term.scale == other.scale && product_type(*term.a) == stack.type()) {
        stack.parameters = std::move(parameters);
        stack.a = a;
        continue;
      }
    }
    out.push_back({place, {term.a}, term.a->value});
  }
  return out;
}

at::Tensor vectors_like(const at::Tensor& x, const Linear& layer) {
  std::int64_t ranks = 0;
  for (const auto& term : layer.adapters) ranks += term ? term.a->shape[0] : 0;
  return at::empty({x.size(0), ranks}, x.options());
}

/// scale A x of all terms [n, sum of ranks].
at::Tensor lowered(const at::Tensor& x, const Linear& layer) {
  auto out = vectors_like(x, layer);
  for (const auto& stack : stacks_of(layer))
    add_times(stack.of_vectors(out), 0, stack.first.term.scale, dropped(x, stack.first.term, layer, true), stack.a.t(),
              stack.type());
  return out;
}

/// True if the base matmul sees x without dropout while the magnitude's correction of it sees x with dropout.
bool apart(const LowRank& term, const Linear& layer) {
  return term.magnitude != nullptr && drops(term, layer, true);
}

/// The gradient of what is multiplied by m / length.
at::Tensor behind_magnitude(const at::Tensor& gradient, const LowRank& term) {
  return term.magnitude == nullptr ? gradient : gradient * term.factors.to(gradient.scalar_type());
}

/// The gradient of scale B A x.
at::Tensor arriving(const at::Tensor& gradient, const Place& place, const Linear& layer) {
  return dropped(behind_magnitude(place.of_result(gradient), place.term), place.term, layer, false);
}

/// scale B A x [n, out] with dropout, from scale A x of all terms.
at::Tensor result(const at::Tensor& low, const Place& place, const Linear& layer) {
  return dropped(times(place.of_vectors(low), *place.term.b, true), place.term, layer, false);
}

/// The gradient of m: of every feature, the sum over rows of its gradient times what m multiplies.
at::Tensor magnitude_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& vectors,
                              const Place& place, const Linear& layer) {
  // At a time: all products at once would take seven times the memory of the result.
  const auto most = std::max<std::int64_t>(1, arch::kMagnitudeProducts / place.columns);
  const auto& term = place.term;
  const auto type = compute_type(gradient.scalar_type());
  const auto in = dropped(x, term, layer, true);
  const auto added = drops(term, layer, false) ? result(vectors, place, layer) : at::Tensor();
  auto sums = at::zeros({place.columns}, gradient.options().dtype(type));
  for (std::int64_t first = 0; first < x.size(0); first += most) {
    const auto rows_of = [&](const at::Tensor& all) { return all.narrow(0, first, std::min(most, x.size(0) - first)); };
    auto base = times(rows_of(in), place.weight, !layer.transposed);
    base.add_(added.defined() ? rows_of(added) : times(rows_of(place.of_vectors(vectors)), *term.b, true));
    sums += (rows_of(place.of_result(gradient)).to(type) * base.to(type)).sum(0);
  }
  return sums / term.lengths.to(type);
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
  for (const auto& place : places_of(layer))
    if (place.term.magnitude != nullptr && !apart(place.term, layer))
      place.of_result(out).mul_(place.term.factors.to(gradient.scalar_type()));
  return out;
}

void add_low_rank(at::Tensor y, const at::Tensor& x, const Linear& layer) {
  if (layer.adapters.empty()) return;
  const auto low = lowered(x, layer);
  for (const auto& place : places_of(layer)) {
    const auto& term = place.term;
    auto part = place.of_result(y);
    if (term.magnitude != nullptr) {
      const auto factors = term.factors.to(y.scalar_type());
      const auto added = result(low, place, layer);
      if (apart(term, layer))
        part.add_(times(dropped(x, term, layer, true), place.weight, !layer.transposed) * (factors - 1) +
                  added * factors);
      else
        part.add_(added).mul_(factors);
    } else if (drops(term, layer, false)) {
      part.add_(result(low, place, layer));
    } else {
      add_times(part, 1, 1, place.of_vectors(low), term.b->value.t(), product_type(*term.b));
    }
  }
}

at::Tensor lowered_gradient(const at::Tensor& gradient, const Linear& layer) {
  if (layer.adapters.empty()) return {};
  auto out = vectors_like(gradient, layer);
  for (const auto& place : places_of(layer))
    add_times(place.of_vectors(out), 0, place.term.scale, arriving(gradient, place, layer), place.term.b->value,
              product_type(*place.term.b));
  return out;
}

void add_low_rank_input_gradient(at::Tensor dx, const at::Tensor& gradient, const at::Tensor& low,
                                 const Linear& layer) {
  for (const auto& stack : stacks_of(layer)) {
    const auto& term = stack.first.term;
    const auto mine = stack.of_vectors(low);
    if (!drops(term, layer, true)) {
      add_times(dx, 1, 1, mine, stack.a, stack.type());
      continue;
    }
    auto part = times(mine, *term.a, false);
    if (apart(term, layer)) {
      const auto changed = stack.first.of_result(gradient) * (term.factors.to(gradient.scalar_type()) - 1);
      part.add_(times(changed, stack.first.weight, layer.transposed));
    }
    dx.add_(dropped(part, term, layer, true));
  }
}

void low_rank_gradients(const at::Tensor& gradient, const at::Tensor& low, const at::Tensor& x, const Linear& layer) {
  if (layer.adapters.empty() || !any_trained(layer)) return;
  const auto vectors = lowered(x, layer);
  for (const auto& place : places_of(layer)) {
    const auto& term = place.term;
    if (term.magnitude != nullptr && term.magnitude->trained())
      accumulate(*term.magnitude, magnitude_gradient(gradient, x, vectors, place, layer));
    weight_gradient({term.b}, arriving(gradient, place, layer), place.of_vectors(vectors));
  }
  const auto low_gradient = low.defined() ? low : lowered_gradient(gradient, layer);
  for (const auto& stack : stacks_of(layer))
    weight_gradient(stack.parameters, stack.of_vectors(low_gradient), dropped(x, stack.first.term, layer, true));
}

}  // namespace automodel::ops
