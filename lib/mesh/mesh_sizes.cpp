#include "mesh/mesh_sizes.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "mesh/capped_product.h"

namespace automodel::mesh {
namespace {

using Size = std::int64_t;

struct Knob {
  std::string_view key;
  std::optional<Size> MeshRequest::*field;
};
constexpr Knob kDpKnob = {"dp_size", &MeshRequest::dp_size};
constexpr Knob kReplicateKnob = {"dp_replicate_size", &MeshRequest::dp_replicate_size};
constexpr Knob kTpKnob = {"tp_size", &MeshRequest::tp_size};
constexpr Knob kPpKnob = {"pp_size", &MeshRequest::pp_size};
constexpr Knob kCpKnob = {"cp_size", &MeshRequest::cp_size};
constexpr Knob kEpKnob = {"ep_size", &MeshRequest::ep_size};

enum class Rule { kWorldPositive, kDivides, kMultiplies, kDdpReplicates, kReplicateDivides, kExpertDivides };

/// Sizes with defaults filled in; dp is 0 if it cannot be inferred.
struct Wanted {
  Size pp, dp, replicate, cp, tp, ep;
  Size model = 1;      ///< pp cp tp
  Size per_stage = 0;  ///< dp cp tp
  std::vector<Rule> broken = {};
  bool breaks(Rule rule) const { return std::find(broken.begin(), broken.end(), rule) != broken.end(); }
};

Size or_one(const std::optional<Size>& size) {
  return size && *size > 0 ? *size : 1;
}

Wanted evaluate(const MeshRequest& request, Size world) {
  Wanted w{or_one(request.pp_size),           0,
           or_one(request.dp_replicate_size), or_one(request.cp_size),
           or_one(request.tp_size),           or_one(request.ep_size)};
  w.model = capped_product({w.pp, w.cp, w.tp});
  if (world < 1 || world > std::numeric_limits<int>::max()) {
    w.broken.push_back(Rule::kWorldPositive);
    return w;
  }
  if (request.dp_size && *request.dp_size > 0) {
    w.dp = *request.dp_size;
    if (capped_product({w.model, w.dp}) != world) w.broken.push_back(Rule::kMultiplies);
  } else if (world % w.model != 0) {
    w.broken.push_back(Rule::kDivides);
    return w;
  } else {
    w.dp = world / w.model;
  }
  w.per_stage = capped_product({w.dp, w.cp, w.tp});
  if (request.strategy == Strategy::kDdp) {
    if (w.replicate != 1 && w.replicate != w.dp) w.broken.push_back(Rule::kDdpReplicates);
    w.replicate = w.dp;
  } else if (w.dp % w.replicate != 0) {
    w.broken.push_back(Rule::kReplicateDivides);
  }
  if (w.per_stage % w.ep != 0) w.broken.push_back(Rule::kExpertDivides);
  return w;
}

/// Of sizes that break no rule.
MeshSizes sizes_of(const Wanted& w) {
  const auto narrow = [](Size size) { return static_cast<int>(size); };  // every factor divides the number of ranks
  return {narrow(w.pp), narrow(w.replicate), narrow(w.dp / w.replicate), narrow(w.cp), narrow(w.tp), narrow(w.ep)};
}

std::vector<Size> divisors(Size n) {
  std::vector<Size> out;
  for (Size d = 1; d <= n / d; ++d)
    if (n % d == 0) {
      out.push_back(d);
      if (d != n / d) out.push_back(n / d);
    }
  std::sort(out.begin(), out.end());
  return out;
}

/// On either side of `current`, the nearest candidate for which works() is true.
template <class Works>
std::vector<Size> neighbours(const std::vector<Size>& candidates, Size current, const Works& works) {
  std::vector<Size> out;
  const auto above = std::upper_bound(candidates.begin(), candidates.end(), current);
  for (auto it = std::lower_bound(candidates.begin(), candidates.end(), current); it != candidates.begin();)
    if (works(*--it)) {
      out.push_back(*it);
      break;
    }
  if (const auto it = std::find_if(above, candidates.end(), works); it != candidates.end()) out.push_back(*it);
  return out;
}

/// Collects "key: value" suggestions for the help text of one broken rule.
class Advice {
 public:
  Advice(const MeshRequest& request, Size world, Rule rule, const Suits& suits)
      : request_(request), world_(world), rule_(rule), suits_(suits) {}

  void knob(const Knob& knob, Size current, const std::vector<Size>& candidates) {
    const auto broken_by = [&](Size value) {
      MeshRequest changed = request_;
      changed.*knob.field = value;
      return evaluate(changed, world_);
    };
    add(candidates, current, broken_by, [&](Size value) { return fmt::format("{}: {}", knob.key, value); });
  }
  void ranks(const std::vector<Size>& candidates) {
    add(
        candidates, world_, [&](Size world) { return evaluate(request_, world); },
        [](Size value) { return fmt::format("{} rank{}", value, value == 1 ? "" : "s"); });
  }
  /// "RULE; use a: 1, a: 4 or 8 ranks".
  std::string text(std::string_view rule) const {
    const auto& words = suiting_.empty() ? words_ : suiting_;
    std::string out(rule);
    for (std::size_t i = 0; i < words.size(); ++i) {
      out += i == 0 ? "; use " : i + 1 == words.size() ? " or " : ", ";
      out += words[i];
    }
    return out;
  }

 private:
  template <class Try, class Word>
  void add(const std::vector<Size>& candidates, Size current, const Try& attempt, const Word& word) {
    const auto suit = [&](Size value) {
      const Wanted wanted = attempt(value);
      return wanted.broken.empty() && suits_(sizes_of(wanted));
    };
    if (suits_)
      for (const Size value : neighbours(candidates, current, suit)) suiting_.push_back(word(value));
    for (const Size value : best(candidates, current, attempt)) words_.push_back(word(value));
  }

  /// Values that satisfy every rule or, if no single change can do that, values that satisfy this rule.
  template <class Try>
  std::vector<Size> best(const std::vector<Size>& candidates, Size current, const Try& attempt) const {
    auto out = neighbours(candidates, current, [&](Size value) { return attempt(value).broken.empty(); });
    if (out.empty())
      out = neighbours(candidates, current, [&](Size value) {
        const auto wanted = attempt(value);
        return !wanted.breaks(rule_) && !wanted.breaks(Rule::kDivides) && !wanted.breaks(Rule::kWorldPositive);
      });
    return out;
  }

  const MeshRequest& request_;
  Size world_;
  Rule rule_;
  const Suits& suits_;
  std::vector<std::string> words_ = {};    ///< within the rules of a mesh
  std::vector<std::string> suiting_ = {};  ///< those that the caller accepts too
};

/// How many multiples on either side are tried as rank counts.
constexpr Size kReach = 256;

std::vector<Size> multiples_near(Size unit, Size target) {
  std::vector<Size> out;
  const Size middle = target / unit;
  for (Size k = std::max<Size>(1, middle - kReach); k <= middle + kReach; ++k)
    if (capped_product({unit, k}) <= std::numeric_limits<int>::max()) out.push_back(unit * k);
  return out;
}

std::string key_of(std::string_view key) {
  return fmt::format("distributed.{}", key);
}

Diagnostic indivisible_world(const MeshRequest& request, const Wanted& w, Size world, const Suits& suits) {
  Advice advice(request, world, Rule::kDivides, suits);
  const auto candidates = divisors(world);
  const std::array<std::pair<const Knob*, Size>, 3> factors = {{{&kTpKnob, w.tp}, {&kPpKnob, w.pp}, {&kCpKnob, w.cp}}};
  const Knob* culprit = nullptr;
  for (const auto& [knob, size] : factors) {
    if (size == 1) continue;
    advice.knob(*knob, size, candidates);
    if (culprit == nullptr || world % size != 0) culprit = knob;
  }
  if (w.model <= std::numeric_limits<int>::max()) advice.ranks(multiples_near(w.model, world));
  return Diagnostic{"indivisible"}
      .says("{} rank{} cannot be divided by pp_size {} x cp_size {} x tp_size {} = {}", world, world == 1 ? "" : "s",
            w.pp, w.cp, w.tp, w.model)
      .hint(advice.text("pp_size x cp_size x tp_size must divide the number of ranks"))
      .of(key_of(culprit->key));
}

Diagnostic mismatch(const MeshRequest& request, const Wanted& w, Size world, const Suits& suits) {
  Advice advice(request, world, Rule::kMultiplies, suits);
  const auto candidates = divisors(world);
  advice.knob(kDpKnob, w.dp, candidates);
  if (w.tp > 1) advice.knob(kTpKnob, w.tp, candidates);
  if (w.pp > 1) advice.knob(kPpKnob, w.pp, candidates);
  if (w.cp > 1) advice.knob(kCpKnob, w.cp, candidates);
  const Size product = capped_product({w.model, w.dp});
  if (product <= std::numeric_limits<int>::max()) advice.ranks({product});
  return Diagnostic{"world-size-mismatch"}
      .says("pp_size {} x dp_size {} x cp_size {} x tp_size {} = {}, but there {} {} rank{}", w.pp, w.dp, w.cp, w.tp,
            product, world == 1 ? "is" : "are", world, world == 1 ? "" : "s")
      .hint(advice.text("the sizes must multiply to the number of ranks (without dp_size it is inferred)"))
      .of(key_of(kDpKnob.key));
}

Diagnostic describe(Rule rule, const MeshRequest& request, const Wanted& w, Size world, const Suits& suits) {
  Advice advice(request, world, rule, suits);
  switch (rule) {
    case Rule::kWorldPositive:
      return Diagnostic{"bad-value"}
          .says("{} is not a number of ranks", world)
          .hint("it must be at least 1 and below 2^31");
    case Rule::kDivides: return indivisible_world(request, w, world, suits);
    case Rule::kMultiplies: return mismatch(request, w, world, suits);
    case Rule::kDdpReplicates:
      return Diagnostic{"bad-value"}
          .says("dp_replicate_size {} with strategy ddp and dp_size {}", *request.dp_replicate_size, w.dp)
          .hint(
              "ddp replicates over all data-parallel ranks; leave dp_replicate_size out, or use "
              "dp_replicate_size: {}",
              w.dp)
          .of(key_of(kReplicateKnob.key));
    case Rule::kReplicateDivides:
      advice.knob(kReplicateKnob, w.replicate, divisors(w.dp));
      return Diagnostic{"indivisible"}
          .says("dp_size {} is not a multiple of dp_replicate_size {}", w.dp, w.replicate)
          .hint(advice.text("dp_replicate_size must divide dp_size"))
          .of(key_of(kReplicateKnob.key));
    case Rule::kExpertDivides: break;
  }
  advice.knob(kEpKnob, w.ep, divisors(w.per_stage));
  return Diagnostic{"indivisible"}
      .says(
          "the {} ranks of a pipeline stage (dp_size {} x cp_size {} x tp_size {}) are not a multiple of "
          "ep_size {}",
          w.per_stage, w.dp, w.cp, w.tp, w.ep)
      .hint(advice.text("ep_size must divide the number of ranks of a stage"))
      .of(key_of(kEpKnob.key));
}

}  // namespace

std::optional<MeshSizes> resolve_sizes(const MeshRequest& request, std::int64_t world_size, Diagnostics& problems,
                                       const Suits& suits) {
  const Wanted w = evaluate(request, world_size);
  for (const Rule rule : w.broken) problems.push_back(describe(rule, request, w, world_size, suits));
  if (!w.broken.empty()) return std::nullopt;
  return sizes_of(w);
}

}  // namespace automodel::mesh
