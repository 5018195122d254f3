#include "model/embedding_noise.h"

#include <span>
#include <string>

#include <ATen/ops/empty.h>

#include "base/random.h"
#include "ops/graph.h"

namespace automodel::model {

at::Tensor embedding_noise(const ops::DropoutDraw& draw, const at::Tensor& tokens, std::int64_t width, double magnitude,
                           const at::TensorOptions& options) {
  const ops::NoGraph guard;
  const auto own = tokens.cpu().contiguous();
  const auto* token = own.const_data_ptr<std::int64_t>();
  auto out = at::empty({tokens.size(0), tokens.size(1), width}, at::kFloat);
  auto* to = out.mutable_data_ptr<float>();
  const RandomStream stream(draw.seed, "embedding-noise/" + std::to_string(draw.step));
  const auto most = static_cast<float>(magnitude);
  for (std::int64_t i = 0; i < own.numel(); ++i, to += width) {
    const std::span values(to, static_cast<std::size_t>(width));
    stream.fill_uniform(static_cast<std::uint64_t>(token[i]) * static_cast<std::uint64_t>(width), values);
    for (auto& value : values) value = (2 * value - 1) * most;
  }
  return out.to(options);
}

}  // namespace automodel::model
