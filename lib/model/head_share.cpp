#include "model/head_share.h"

#include <algorithm>

#include <ATen/ops/cat.h>

#include "base/error.h"
#include "ops/split.h"

namespace automodel::model {

HeadShare::HeadShare(ContextSeam& context, const Microbatch& microbatch) : context_(context) {
  if (microbatch.whole()) return;
  shares_ = context.size();
  share_ = context.rank();
}

std::pair<std::int64_t, std::int64_t> HeadShare::range(std::int64_t count) const {
  if (count % shares_ == 0) return {share_ * (count / shares_), count / shares_};
  AUTOMODEL_CHECK(shares_ % count == 0, "heads do not divide among the ranks");
  return {share_ / (shares_ / count), 1};
}

at::Tensor HeadShare::gather(const std::vector<std::pair<at::Tensor, std::int64_t>>& parts) const {
  std::vector<at::Tensor> wide;
  for (const auto& [part, count] : parts) {
    const auto batch = part.size(0), tokens = part.size(1);
    // A group that several ranks need is sent to each of them; their gradients are summed.
    wide.push_back(count % shares_ == 0
                       ? part.reshape({batch, tokens, shares_, -1})
                       : part.reshape({batch, tokens, count, -1}).repeat_interleave(shares_ / count, 2));
  }
  return context_.heads_for_tokens(wide.size() == 1 ? wide.front() : at::cat(wide, 3)).squeeze(2);
}

std::array<at::Tensor, 3> HeadShare::gather(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
  if (!divided()) return {q, k, v};
  const auto heads = of(q.size(2)), groups = of(k.size(2));
  const auto all = gather({{q.flatten(2), q.size(2)}, {k.flatten(2), k.size(2)}, {v.flatten(2), v.size(2)}});
  const auto parts = ops::split(all, {heads * q.size(3), groups * k.size(3), groups * v.size(3)});
  return {parts[0].unflatten(2, {heads, q.size(3)}), parts[1].unflatten(2, {groups, k.size(3)}),
          parts[2].unflatten(2, {groups, v.size(3)})};
}

ops::ParameterRows HeadShare::rows(ops::Parameter& parameter, std::int64_t first, std::int64_t rows,
                                   std::int64_t count) const {
  const auto [begin, own] = range(count);
  return {&parameter, first + rows / count * begin, rows / count * own};
}

ops::ParameterRows HeadShare::rows(ops::Parameter& parameter, std::int64_t count) const {
  if (!divided()) return {&parameter};
  const auto dim = std::ranges::find_if(parameter.shape, [](std::int64_t size) { return size > 1; });
  auto out = rows(parameter, 0, *dim, count);
  out.dim = dim - parameter.shape.begin();
  return out;
}

ops::ShortConv HeadShare::part(ops::ShortConv conv,
                               const std::vector<std::pair<std::int64_t, std::int64_t>>& sections) const {
  if (!divided()) return conv;
  for (auto* list : {&conv.weights, &conv.biases}) {
    if (list->empty()) continue;
    std::vector<ops::ParameterRows> own;
    const bool joined = list->size() < sections.size();
    std::int64_t first = 0;
    for (std::size_t i = 0; i < sections.size(); ++i) {
      const auto [channels, count] = sections[i];
      own.push_back(rows(*(*list)[joined ? 0 : i].parameter, first, channels, count));
      if (joined) first += channels;
    }
    *list = std::move(own);
  }
  return conv;
}

at::Tensor HeadShare::heads(const at::Tensor& x) const {
  const auto [first, own] = range(x.size(0));
  return x.narrow(0, first, own);
}

}  // namespace automodel::model
