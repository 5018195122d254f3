#include "against/structure.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "against/factors.h"

namespace automodel::against {
namespace {

using arch::Role;
using Members = std::vector<std::size_t>;  ///< indices of tensors

constexpr double kNothing = 1e-6;  // of a tensor's norm: what a cast to 16 bits leaves of zero is exactly zero

Members members(const std::vector<TensorState>& states, const std::function<bool(std::size_t)>& chosen) {
  Members out;
  for (std::size_t i = 0; i < states.size(); ++i)
    if (chosen(i)) out.push_back(i);
  return out;
}

Members differing(const std::vector<TensorState>& states) {
  return members(states, [&](std::size_t i) { return states[i].state != State::kEqual; });
}

double norm(const Values& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// Sums of squares for each index of a dimension.
struct Slices {
  Values theirs, ours, difference;
};
Slices slices(const Pair& pair, std::size_t dimension) {
  std::int64_t inner = 1;
  for (std::size_t d = dimension + 1; d < pair.shape.size(); ++d) inner *= pair.shape[d];
  const auto size = pair.shape[dimension];
  Slices out{Values(static_cast<std::size_t>(size)), Values(static_cast<std::size_t>(size)),
             Values(static_cast<std::size_t>(size))};
  for (std::size_t i = 0; i < pair.ours.size(); ++i) {
    const auto at = static_cast<std::size_t>(static_cast<std::int64_t>(i) / inner % size);
    const double a = pair.theirs[i], b = pair.ours[i];
    out.theirs[at] += a * a;
    out.ours[at] += b * b;
    out.difference[at] += (a - b) * (a - b);
  }
  return out;
}

/// Indices of a dimension that are zero while all others are equal; an index whose gradient is zero in both (a token
/// that the batch lacks) may be either, and is taken along where it lies between missing ones.
std::vector<std::int64_t> missing_indices(const Pair& pair, std::size_t dimension, double tolerance) {
  const auto sums = slices(pair, dimension);
  const double whole = std::accumulate(sums.ours.begin(), sums.ours.end(), 0.0);
  double kept = 0, rest = 0;
  std::vector<std::int64_t> missing;
  for (std::size_t i = 0; i < sums.ours.size(); ++i) {
    if (sums.ours[i] > kNothing * kNothing * whole && sums.theirs[i] <= kNothing * kNothing * sums.ours[i]) {
      missing.push_back(static_cast<std::int64_t>(i));
      continue;
    }
    kept += sums.ours[i];
    rest += sums.difference[i];
  }
  if (missing.empty() || kept == 0 || std::sqrt(rest) > tolerance * std::sqrt(whole)) return {};
  // A whole block of ranks' size, where what it has besides is zero in both.
  const auto size = std::ssize(sums.ours);
  const auto nothing_at = [&](std::int64_t index) {
    return sums.theirs[static_cast<std::size_t>(index)] <= kNothing * kNothing * whole / static_cast<double>(size);
  };
  for (std::int64_t parts = 16; parts > 1; parts /= 2) {
    const auto block = size / parts;
    if (size % parts != 0 || missing.front() / block != missing.back() / block) continue;
    std::vector<std::int64_t> all(static_cast<std::size_t>(block));
    std::iota(all.begin(), all.end(), missing.front() / block * block);
    if (std::ranges::all_of(all, nothing_at)) return all;
    break;  // of the smallest block with all of them
  }
  std::vector<std::int64_t> filled;
  for (const auto index : missing) {
    while (!filled.empty() && filled.back() + 1 < index) {
      bool nothing = true;
      for (auto k = filled.back() + 1; k < index; ++k) nothing = nothing && nothing_at(k);
      if (!nothing) break;
      for (auto k = filled.back() + 1; k < index; ++k) filled.push_back(k);
    }
    filled.push_back(index);
  }
  return filled;
}

TensorState state_of(const Pair& pair, double relative_difference, double least, double tolerance) {
  const double ours = norm(pair.ours), theirs = norm(pair.theirs);
  // An exact zero is no rounding, however small the gradient is beside others.
  const bool lost = theirs <= kNothing * ours && ours > kNothing * least;
  if (lost) return {.state = State::kZero, .factor = 0};
  if (relative_difference <= tolerance) return {};
  Products sums;
  sums.add(pair.theirs, pair.ours);
  const double factor = sums.ours == 0 ? 0 : sums.both / sums.ours;
  const double left = std::sqrt(std::max(0.0, sums.theirs - factor * sums.both));
  if (factor != 0 && left <= tolerance * std::max(std::abs(factor) * ours, least))
    return {.state = State::kScaled, .factor = factor};
  for (std::size_t d = 0; d < pair.shape.size(); ++d)
    if (auto missing = missing_indices(pair, d, tolerance); !missing.empty())
      return {.state = State::kShard, .dimension = d, .missing = std::move(missing)};
  return {.state = State::kOther};
}

std::set<std::int64_t> layers_of(const Evidence& evidence, const Members& which) {
  std::set<std::int64_t> out;
  for (const auto i : which) out.insert(evidence.pairs[i].layer);
  return out;
}

bool all_in(const std::vector<TensorState>& states, const Members& which, std::initializer_list<State> allowed) {
  return std::ranges::all_of(
      which, [&](std::size_t i) { return std::ranges::find(allowed, states[i].state) != allowed.end(); });
}

/// The common factor of scaled (or zero) tensors.
std::optional<double> common_factor(const std::vector<TensorState>& states, const Members& which, double tolerance) {
  if (!all_in(states, which, {State::kZero, State::kScaled})) return std::nullopt;
  const double first = states[which.front()].factor;
  for (const auto i : which)
    if (std::abs(states[i].factor - first) > 2 * tolerance * std::max(std::abs(first), kNothing)) return std::nullopt;
  return first;
}

/// Whether the layers differ as a whole: none of their tensors is equal but those whose gradients are noise.
bool whole_layers(const Evidence& evidence, const std::vector<TensorState>& states,
                  const std::set<std::int64_t>& layers) {
  const double least = evidence.tolerance.floor * norm_of_ours(evidence);
  for (std::size_t i = 0; i < states.size(); ++i)
    if (states[i].state == State::kEqual && layers.contains(evidence.pairs[i].layer) &&
        norm(evidence.pairs[i].ours) > kNothing * least)
      return false;
  return true;
}

std::string said_of_layers(const std::set<std::int64_t>& layers) {
  const std::vector<std::int64_t> sorted(layers.begin(), layers.end());
  return fmt::format("layer{} {}", sorted.size() == 1 ? "" : "s", ranges(sorted));
}

std::optional<Finding> layers_alone(const Evidence& evidence, const std::vector<TensorState>& states,
                                    const Members& different) {
  Members inside, outside;
  for (const auto i : different) (evidence.pairs[i].layer >= 0 ? inside : outside).push_back(i);
  if (inside.empty()) return std::nullopt;
  const auto layers = layers_of(evidence, inside);
  if (!whole_layers(evidence, states, layers)) return std::nullopt;
  const auto factor = common_factor(states, different, evidence.tolerance.relative);
  if (!factor) return std::nullopt;
  const bool below = std::ranges::all_of(outside, [&](std::size_t i) {
    return evidence.pairs[i].role == Role::kEmbedding || evidence.pairs[i].role == Role::kPositions;
  });
  const bool contiguous = *layers.rbegin() - *layers.begin() + 1 == std::ssize(layers);
  if (*factor == 0 && below && contiguous)
    return Finding{
        .id = FindingId::kMissingLayers,
        .text = fmt::format("{}{} {} no gradient; all others are right", said_of_layers(layers),
                            outside.empty() ? "" : " and the embedding", layers.size() == 1 ? "has" : "have"),
        .factor = 0};
  if (!outside.empty() || *factor == 0 || !contiguous) return std::nullopt;
  return Finding{.id = FindingId::kLayerFactor,
                 .text = fmt::format("every gradient of {} is {:.6g} times the right one; all others are right",
                                     said_of_layers(layers), *factor),
                 .factor = factor};
}

std::string said_of_shard(const Pair& pair, const TensorState& state) {
  const auto size = pair.shape[state.dimension];
  const auto count = std::ssize(state.missing);
  std::string share;
  for (const std::int64_t parts : {2, 4, 8, 16})
    if (count * parts == size) share = parts == 2 ? " (half)" : fmt::format(" (1 of {} parts)", parts);
  constexpr std::size_t kMost = 60;  // characters
  auto which = ranges(state.missing);
  if (which.size() > kMost) which = fmt::format("{} indices", count);
  return fmt::format("{} of dimension {} of size {}{}", which, state.dimension, size, share);
}

std::optional<Finding> shards_missing(const Evidence& evidence, const std::vector<TensorState>& states,
                                      const Members& different) {
  // A rank's shard may be a whole small tensor.
  if (!all_in(states, different, {State::kShard, State::kZero})) return std::nullopt;
  const auto first = std::ranges::find_if(different, [&](std::size_t i) { return states[i].state == State::kShard; });
  if (first == different.end()) return std::nullopt;
  const auto partial =
      std::ranges::count_if(different, [&](std::size_t i) { return states[i].state == State::kShard; });
  std::string text = fmt::format("part of {} weight{} has no gradient and the rest is right: of {} {}", partial,
                                 partial == 1 ? "" : "s", evidence.pairs[*first].name,
                                 said_of_shard(evidence.pairs[*first], states[*first]));
  if (partial > 1) text += ", of the others likewise";
  return Finding{.id = FindingId::kMissingShard, .text = text + ". A rank's shard is missing"};
}

/// The dump's embedding as a sum of what the head and what the look-up of tokens gives.
std::optional<Finding> tied_part(const Evidence& evidence, const Members& different, Laboratory& laboratory) {
  if (different.size() != 1 || !evidence.pairs[different[0]].tied) return std::nullopt;
  const auto& pair = evidence.pairs[different[0]];
  const auto head = laboratory.head_part();
  if (head.size() != pair.ours.size()) return std::nullopt;
  Values input = pair.ours;
  for (std::size_t i = 0; i < input.size(); ++i) input[i] -= head[i];
  Products both, by_head, by_input;
  both.add(head, input);
  by_head.add(pair.theirs, head);
  by_input.add(pair.theirs, input);
  const double hh = both.theirs, ii = both.ours, hi = both.both;
  const double determinant = hh * ii - hi * hi;
  if (determinant <= 1e-12 * hh * ii) return std::nullopt;
  const double of_head = (by_head.both * ii - by_input.both * hi) / determinant;
  const double of_input = (by_input.both * hh - by_head.both * hi) / determinant;
  double left = 0;
  for (std::size_t i = 0; i < head.size(); ++i) {
    const double rest = pair.theirs[i] - of_head * head[i] - of_input * input[i];
    left += rest * rest;
  }
  const double tolerance = evidence.tolerance.relative;
  if (std::sqrt(left) > tolerance * norm(pair.ours)) return std::nullopt;
  const auto zero = [&](double share, double square) {
    return std::abs(share) * std::sqrt(square) <= 4 * tolerance * norm(pair.ours);
  };
  if (std::abs(of_head - of_input) <= 4 * tolerance * std::abs(of_head)) return std::nullopt;  // a factor of both
  std::string text;
  if (zero(of_input, ii))
    text = "only the head's part is there, the look-up of input tokens is missing";
  else if (zero(of_head, hh))
    text = "only the look-up of input tokens is there, the head's part is missing";
  else
    text =
        fmt::format("the head's part counts {:.6g} times, the look-up of input tokens {:.6g} times", of_head, of_input);
  return Finding{.id = FindingId::kTiedPart,
                 .text = fmt::format("the embedding alone differs, which the head shares: {}", text)};
}

/// A kind of weights: its name and which tensors are of it.
struct Kind {
  std::string name;
  bool plural;
  std::function<bool(const Pair&)> holds;
};

/// The name without the layer: "self_attn.q_norm.weight".
std::string leaf_of(const Pair& pair) {
  if (pair.layer < 0) return pair.name;
  const auto number = "." + std::to_string(pair.layer) + ".";
  const auto at = pair.name.find(number);
  return at == std::string::npos ? pair.name : pair.name.substr(at + number.size());
}

/// From the narrowest kind to the widest.
std::vector<Kind> kinds_like(const Pair& pair) {
  const auto leaf = leaf_of(pair);
  const bool bias = pair.shape.size() == 1 && pair.role != Role::kNorm && leaf.ends_with("bias");
  std::vector<Kind> out = {
      {fmt::format("{} of each layer", leaf), false, [=](const Pair& p) { return leaf_of(p) == leaf; }}};
  if (pair.layer < 0) out[0].name = leaf;
  const auto of_role = [&](std::string name, std::initializer_list<Role> roles) {
    out.push_back({std::move(name), true, [list = std::vector<Role>(roles)](const Pair& p) {
                     return std::ranges::find(list, p.role) != list.end();
                   }});
  };
  switch (pair.role) {
    case Role::kNorm: of_role("norm weights", {Role::kNorm}); break;
    case Role::kRouter: of_role("routers", {Role::kRouter}); break;
    case Role::kExpert: of_role("experts", {Role::kExpert}); break;
    case Role::kSharedExpert: of_role("shared experts", {Role::kSharedExpert}); break;
    case Role::kAttention: of_role("attention weights", {Role::kAttention}); break;
    case Role::kMlp: of_role("MLP weights", {Role::kMlp}); break;
    case Role::kRecurrence: of_role("weights of recurrent mixers", {Role::kRecurrence}); break;
    case Role::kEmbedding:
    case Role::kPositions:
    case Role::kHead: of_role("embeddings", {Role::kEmbedding, Role::kPositions}); break;
    case Role::kLayerInputs: of_role("layer inputs", {Role::kLayerInputs}); break;
    case Role::kTower: of_role("the vision tower", {Role::kTower}); break;
    case Role::kStreams: of_role("weights of residual streams", {Role::kStreams}); break;
    case Role::kAdapter: break;
  }
  if (pair.role == Role::kHead) out.back() = {"the head", false, [](const Pair& p) { return p.role == Role::kHead; }};
  if (bias)
    out.push_back({"biases", true, [](const Pair& p) {
                     return p.shape.size() == 1 && p.role != Role::kNorm && p.name.ends_with("bias");
                   }});
  if (pair.shape.size() == 1)
    out.push_back({"norm weights and biases", true, [](const Pair& p) { return p.shape.size() == 1; }});
  if (pair.role == Role::kEmbedding || pair.role == Role::kPositions || pair.role == Role::kHead)
    out.push_back({"embedding and head", true, [](const Pair& p) {
                     return p.role == Role::kEmbedding || p.role == Role::kPositions || p.role == Role::kHead;
                   }});
  if (pair.role == Role::kExpert || pair.role == Role::kRouter || pair.role == Role::kSharedExpert)
    out.push_back({"experts and routers", true, [](const Pair& p) {
                     return p.role == Role::kExpert || p.role == Role::kRouter || p.role == Role::kSharedExpert;
                   }});
  return out;
}

}  // namespace

std::vector<TensorState> states(const Evidence& evidence) {
  const double least = evidence.tolerance.floor * norm_of_ours(evidence);
  const auto likeness = likenesses(evidence);
  std::vector<TensorState> out;
  for (std::size_t i = 0; i < evidence.pairs.size(); ++i)
    out.push_back(state_of(evidence.pairs[i], likeness[i].relative_difference, least, evidence.tolerance.relative));
  return out;
}

namespace {

/// A group of tensors: the factor that brings ours nearest to theirs.
struct Group {
  Members which = {};
  double factor = 1;
  bool differs = false;  ///< by more than the tolerance of sums
};

/// Groups by what `key` says; negative: of no group. `right`: factors of ours by tensor; `products` by tensor too.
std::vector<Group> groups(const Evidence& evidence, const std::vector<Products>& products, const Values& right,
                          const std::function<int(const Pair&)>& key) {
  std::map<int, std::pair<Group, Products>> sums;
  double whole = 0;
  for (std::size_t i = 0; i < evidence.pairs.size(); ++i) {
    const auto& pair = evidence.pairs[i];
    whole += products[i].ours;
    if (key(pair) < 0) continue;
    auto& [group, sum] = sums[key(pair)];
    group.which.push_back(i);
    sum.both += right[i] * products[i].both;
    sum.ours += right[i] * right[i] * products[i].ours;
  }
  const double least = evidence.tolerance.floor * std::sqrt(whole);
  std::vector<Group> out;
  for (auto& [number, each] : sums) {
    auto& [group, sum] = each;
    const double ours = std::sqrt(sum.ours);
    if (ours > 0) group.factor = sum.both / sum.ours;
    group.differs = std::abs(group.factor - 1) * ours > evidence.tolerance.of_sums() * std::max(ours, least);
    out.push_back(std::move(group));
  }
  return out;
}

}  // namespace

void mark_factors(const Evidence& evidence, std::vector<TensorState>& states) {
  using Key = std::function<int(const Pair&)>;
  // From the simplest: everything, layers, kinds of weights.
  const std::vector<Key> keys = {[](const Pair&) { return 0; }, [](const Pair& pair) { return pair.layer; },
                                 [](const Pair& pair) { return static_cast<int>(pair.role); }};
  std::vector<Products> products(states.size());
  for (std::size_t i = 0; i < states.size(); ++i) products[i].add(evidence.pairs[i].theirs, evidence.pairs[i].ours);
  const Values one(states.size(), 1.0);
  const auto differs = [](const Group& group) { return group.differs; };
  const auto explains = [&](const std::vector<Group>& found) {
    Values right = one;
    for (const auto& group : found)
      for (const auto i : group.which) right[i] = group.differs ? group.factor : 1;
    return std::ranges::none_of(
        keys, [&](const Key& key) { return std::ranges::any_of(groups(evidence, products, right, key), differs); });
  };
  std::vector<Group> chosen;
  for (const auto& key : keys) {
    auto found = groups(evidence, products, one, key);
    if (std::ranges::none_of(found, differs)) continue;
    chosen = std::move(found);  // the last, of single kinds, if none explains all
    if (explains(chosen)) break;
  }
  for (const auto& group : chosen)
    for (const auto i : group.which)
      if (group.differs) states[i] = {.state = State::kScaled, .factor = group.factor};
}

std::optional<Finding> explain_by_tensors(const Evidence& evidence, const std::vector<TensorState>& states,
                                          Laboratory& laboratory) {
  const auto different = differing(states);
  if (different.empty()) return std::nullopt;
  if (auto found = tied_part(evidence, different, laboratory)) return found;
  if (auto found = layers_alone(evidence, states, different)) return found;
  return shards_missing(evidence, states, different);
}

std::optional<Finding> explain_by_kind(const Evidence& evidence, const std::vector<TensorState>& states) {
  const auto different = differing(states);
  if (different.empty()) return std::nullopt;
  const auto kinds = kinds_like(evidence.pairs[different.front()]);
  const auto all_of = [&](const Kind& kind) {
    return members(states, [&](std::size_t i) { return kind.holds(evidence.pairs[i]); });
  };
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    const auto all = all_of(kinds[k]);
    if (!std::ranges::includes(all, different)) continue;
    if (all.size() == states.size()) return std::nullopt;  // everything is of this kind
    // Of two names for the same tensors the general one: "routers" for "mlp.gate.weight of each layer".
    const auto& kind = kinds[k == 0 && kinds.size() > 1 && all_of(kinds[1]) == all ? 1 : k];
    const bool complete = whole_layers(evidence, states, layers_of(evidence, different));
    Finding out{.id = FindingId::kKindOfWeight};
    const auto factor = common_factor(states, different, evidence.tolerance.relative);
    if (factor) out.factor = *factor;
    std::string how = kind.plural ? "differ" : "differs";
    if (factor && *factor == 0) how = kind.plural ? "have no gradient" : "has no gradient";
    if (factor && *factor != 0)
      how = fmt::format("{} {:.6g} times the right gradient", kind.plural ? "are" : "is", *factor);
    const auto layers = layers_of(evidence, different);
    const bool some = different.size() < all.size() && !complete;
    out.text = fmt::format("{} alone {}{}; all other gradients are right", kind.name, how,
                           some ? fmt::format(" ({} of {} tensors{})", different.size(), all.size(),
                                              *layers.begin() >= 0 ? ", in " + said_of_layers(layers) : "")
                                : "");
    return out;
  }
  return std::nullopt;
}

std::string described(const Evidence& evidence, const std::vector<TensorState>& states,
                      const std::vector<Likeness>& likenesses) {
  const auto different = differing(states);
  if (different.empty()) return "gradients agree, the loss does not";
  const auto worst =
      *std::ranges::max_element(different, {}, [&](std::size_t i) { return likenesses[i].relative_difference; });
  std::string out = fmt::format("{} of {} gradients differ, most {} (relative difference {:.2g}, cosine {:.4f})",
                                different.size(), states.size(), evidence.pairs[worst].name,
                                likenesses[worst].relative_difference, likenesses[worst].cosine);
  // A wrong backward pass of a layer leaves all above it right.
  std::set<std::int64_t> wrong, right;
  for (std::size_t i = 0; i < states.size(); ++i)
    if (evidence.pairs[i].layer >= 0)
      (states[i].state == State::kEqual ? right : wrong).insert(evidence.pairs[i].layer);
  if (wrong.empty() || right.empty() || *wrong.rbegin() > *right.rbegin()) return out;
  if (*wrong.rbegin() < *right.rbegin())
    out += fmt::format(
        ". Layers above {0} are right, from layer {0} down they are not: look at the backward pass of "
        "layer {0}",
        *wrong.rbegin());
  return out;
}

}  // namespace automodel::against
