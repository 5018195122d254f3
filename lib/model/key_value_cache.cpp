#include "model/key_value_cache.h"

#include <algorithm>

#include <ATen/ops/empty.h>

namespace automodel::model {

/// Capacity grows by doubling, so that a long text is copied only a few times.
at::Tensor KeyValueCache::put(at::Tensor& kept, const at::Tensor& added) const {
  constexpr std::int64_t kFirst = 128;  // tokens
  const auto wanted = tokens_ + added.size(1);
  if (!kept.defined() || kept.size(1) < wanted) {
    auto sizes = added.sizes().vec();
    sizes[1] = std::max({wanted, kFirst, kept.defined() ? 2 * kept.size(1) : 0});
    const auto larger = at::empty(sizes, added.options());
    if (kept.defined() && tokens_ > 0) larger.narrow(1, 0, tokens_).copy_(kept.narrow(1, 0, tokens_));
    kept = larger;
  }
  kept.narrow(1, tokens_, added.size(1)).copy_(added);
  return kept.narrow(1, 0, wanted);
}

std::pair<at::Tensor, at::Tensor> KeyValueCache::extend(int layer, const at::Tensor& k, const at::Tensor& v) {
  auto& kept = layers_[layer];
  auto keys = put(kept.k, k);
  return {std::move(keys), put(kept.v, v)};
}

std::int64_t KeyValueCache::bytes() const {
  std::int64_t sum = 0;
  for (const auto& [layer, kept] : layers_)
    for (const auto* each : {&kept.k, &kept.v}) sum += each->numel() * static_cast<std::int64_t>(each->itemsize());
  return sum;
}

}  // namespace automodel::model
