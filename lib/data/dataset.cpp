#include "data/dataset.h"

#include <algorithm>

namespace automodel::data {

void Dataset::attention_mask(std::int64_t index, std::vector<std::int32_t>& out) const {
  Sample sample;
  read(index, sample);
  out.assign(sample.input_ids.size(), 1);
  for (std::size_t t = 0; t < sample.segments.size(); ++t) out[t] = sample.segments[t] == 0 ? 0 : 1;
}

std::int64_t Dataset::longest() const {
  std::int64_t out = 1;
  for (const auto& part : parts())
    for (std::int64_t i = 0; i < part.rows->size(); ++i) out = std::max(out, part.rows->length(i));
  return out;
}

}  // namespace automodel::data
