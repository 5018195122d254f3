#include "train/generate.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include "base/random.h"
#include "ops/graph.h"
#include "train/tensor_types.h"

namespace automodel::train {
namespace {

std::int64_t draw(const at::Tensor& logits, double temperature, double uniform) {
  if (temperature <= 0) return logits.argmax().item<std::int64_t>();
  const auto shares = at::softmax(logits.to(at::kDouble) / temperature, 0).cpu();
  const double* p = shares.const_data_ptr<double>();
  double left = uniform;
  for (std::int64_t i = 0; i < shares.numel(); ++i)
    if ((left -= p[i]) < 0) return i;
  return shares.numel() - 1;
}

/// The stages one after the other; the last stage's rank returns the logits of token `last`.
at::Tensor forward(Runtime& runtime, const model::Microbatch& microbatch, std::int64_t last) {
  const auto& pipeline = *runtime.plan().pipeline;
  auto& group = *runtime.groups().pipeline;
  const int me = runtime.place().pp;
  at::Tensor hidden, logits;
  for (const auto& stage : pipeline.stages) {
    if (stage.pp_rank == me) {
      for (auto* local : runtime.stages()) {
        if (local->stage().number().value != stage.stage) continue;
        if (stage.part.has_head)
          logits = local->model().logits(microbatch, hidden).select(1, last)[0];
        else
          hidden = local->model().forward(microbatch, hidden, {}).contiguous();
        local->data_parallel().reshard();
      }
    }
    if (stage.stage + 1 == static_cast<int>(pipeline.stages.size())) break;
    const int next = pipeline.stages[static_cast<std::size_t>(stage.stage) + 1].pp_rank;
    if (next == stage.pp_rank) continue;
    if (me == stage.pp_rank) group.exchange({{hidden, next, 0}}, {})->wait();
    if (me == next) {
      hidden = at::empty(
          {1, microbatch.ids.size(1) / runtime.token_shares(), runtime.plan().model->spec.hidden},
          at::TensorOptions().dtype(scalar_type(runtime.plan().types.compute)).device(runtime.world().device()));
      group.exchange({}, {{hidden, stage.pp_rank, 0}})->wait();
    }
  }
  return logits;
}

}  // namespace

std::vector<std::int32_t> generate(Runtime& runtime, std::vector<std::int32_t> prompt, const GenerateOptions& options) {
  const ops::NoGraph guard;
  const RandomStream stream(options.seed, "generate");
  const int last_rank = runtime.plan().pipeline->stages.back().pp_rank;
  const auto begin = prompt.size();
  for (int i = 0; i < options.tokens; ++i) {
    const auto length = std::min<std::int64_t>(options.longest, static_cast<std::int64_t>(prompt.size()));
    std::vector<std::int64_t> context(prompt.end() - length, prompt.end());
    // Filled up for ranks that share the tokens; what comes last changes nothing before it.
    while (static_cast<std::int64_t>(context.size()) % runtime.place().tp_size != 0) context.push_back(0);
    const auto filled = static_cast<std::int64_t>(context.size());
    const auto device = runtime.world().device();
    model::Microbatch microbatch{.ids = at::tensor(context).unsqueeze(0).to(device),
                                 .positions = at::arange(filled).clamp_max(length - 1).unsqueeze(0).to(device),
                                 .length = filled};
    const auto logits = forward(runtime, microbatch, length - 1);
    auto token = at::empty({1}, at::kLong);
    if (logits.defined())
      token[0] = draw(logits, options.temperature, static_cast<double>(stream.uniform(static_cast<std::uint64_t>(i))));
    token = token.to(device);
    runtime.groups().pipeline->broadcast(token, last_rank)->wait();
    prompt.push_back(static_cast<std::int32_t>(token.item<std::int64_t>()));
    if (prompt.back() == options.end) break;
  }
  return {prompt.begin() + static_cast<std::ptrdiff_t>(begin), prompt.end()};
}

}  // namespace automodel::train
