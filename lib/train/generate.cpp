#include "train/generate.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>

#include "base/error.h"
#include "base/random.h"
#include "data/batch.h"
#include "model/rope_table.h"
#include "ops/graph.h"
#include "plan/vision_choice.h"
#include "train/microbatches.h"

namespace automodel::train {
namespace {

/// Whether cached keys of a text of `before` tokens remain valid in a longer one: not if the length of the text changes
/// RoPE's frequencies.
bool keys_stay(const arch::ModelSpec& spec, std::int64_t before, std::int64_t now) {
  const auto same = [&](const arch::Rope& rope) {
    return model::length_class(rope, spec.max_positions, before) == model::length_class(rope, spec.max_positions, now);
  };
  return same(spec.rope) && (!spec.sliding_rope || same(*spec.sliding_rope));
}

/// logits [vocabulary]; `uniform` in [0, 1).
std::int64_t draw(const at::Tensor& logits, const GenerateOptions& options, double uniform) {
  if (options.temperature <= 0) return logits.argmax().item<std::int64_t>();
  // In double, so that the sum over a large vocabulary does not depend on the order of its small terms.
  const auto shares = at::softmax(logits.to(at::kDouble) / options.temperature, 0).cpu();
  const auto [sorted, order] = at::sort(shares, /*dim=*/0, /*descending=*/true);
  const double* p = sorted.const_data_ptr<double>();
  auto count = sorted.numel();
  if (options.top_k > 0) count = std::min<std::int64_t>(count, options.top_k);
  double sum = 0;
  std::int64_t kept = 0;
  while (kept < count && (kept == 0 || sum < options.top_p)) sum += p[kept++];
  double left = uniform * sum;
  std::int64_t place = 0;
  while (place + 1 < kept && (left -= p[place]) >= 0) ++place;
  return order[place].item<std::int64_t>();
}

}  // namespace

Generator::Generator(Runtime& runtime, bool use_cache)
    : runtime_(runtime),
      picture_tokens_(plan::picture_tokens(*runtime.plan().model)),
      stages_(runtime.world().group(runtime.groups().pipeline->ranks(), "generated tokens", comm::kHostTensors)) {
  bool keeps = use_cache;
  for (auto* stage : runtime.stages()) keeps = keeps && stage->model().keeps_keys();
  // Stages are on several ranks, and all of them must make the same choice.
  auto all = at::full({1}, keeps ? 1 : 0, at::TensorOptions().dtype(at::kLong));
  runtime.world().control().all_reduce(all, comm::ReduceOp::kMin)->wait();
  if (all.item<std::int64_t>() == 1) cache_ = std::make_shared<model::KeyValueCache>();
}

void Generator::set_pictures(std::vector<pictures::PicturePtr> pictures) {
  AUTOMODEL_CHECK(pictures.empty() || picture_tokens_, "pictures are for a model that takes them");
  pictures_ = std::move(pictures);
  held_.clear();
}

std::int64_t Generator::pictures_end(const std::vector<std::int32_t>& text) const {
  std::int64_t left = 0;
  for (const auto& picture : pictures_) left += picture_tokens_->placeholders(picture->size);
  if (left == 0) return 0;
  for (std::size_t t = 0; t < text.size(); ++t)
    if (text[t] == picture_tokens_->placeholder && --left == 0) return static_cast<std::int64_t>(t) + 1;
  AUTOMODEL_CHECK(false, "a text holds its pictures whole");
  return 0;
}

model::Microbatch Generator::microbatch(const std::vector<std::int32_t>& text, std::int64_t begin,
                                        std::int64_t first) const {
  // With pictures, the places of tokens follow from the whole text.
  const std::int64_t skipped = pictures_.empty() ? 0 : begin;
  data::Sample sample{.input_ids = {text.begin() + begin - skipped, text.end()}, .pictures = pictures_};
  sample.labels.assign(sample.input_ids.size(), data::kIgnoredLabel);
  sample.positions.resize(sample.input_ids.size());
  std::iota(sample.positions.begin(), sample.positions.end(), static_cast<std::int32_t>(first - skipped));
  // Padded because tensor-parallel ranks split the tokens; padding at the end does not affect earlier tokens.
  const std::int64_t count = std::ssize(text) - begin, tp = runtime_.place().tp_size;
  const auto filled = (count + tp - 1) / tp * tp;
  const bool padding_is_picture = picture_tokens_ && picture_tokens_->placeholder == 0;
  const auto batch = data::make_batch(std::span(&sample, 1), {0},
                                      {.pad_id = padding_is_picture ? 1 : 0, .shortest = skipped + filled});
  auto input = runtime_.picture_input();
  input.wanted = input.wanted && skipped == 0;
  auto out = std::move(
      make_microbatches(batch, 1, runtime_.world().device(), {}, picture_tokens_ ? &*picture_tokens_ : nullptr, input)
          .front());
  out.length = filled;
  if (skipped == 0) return out;
  out.pictures = {};
  out.pictures_at.reset();
  for (auto* each : {&out.ids, &out.labels, &out.positions, &out.axes, &out.real})
    if (each->defined()) *each = each->narrow(-1, skipped, filled);
  return out;
}

at::Tensor Generator::logits(const std::vector<std::int32_t>& text, std::int64_t longest) {
  const auto length = static_cast<std::int64_t>(text.size());
  const bool cached = cache_ && length <= longest;
  AUTOMODEL_CHECK(pictures_.empty() || length <= longest, "a text holds its pictures whole");
  std::int64_t begin = std::max<std::int64_t>(0, length - longest);
  if (cached) {
    const auto apart = std::mismatch(held_.begin(), held_.end(), text.begin(), text.end() - 1).first;
    begin = apart - held_.begin();
    if (!keys_stay(runtime_.plan().model->spec, static_cast<std::int64_t>(held_.size()), length)) begin = 0;
    if (begin < pictures_end(text)) begin = 0;  // their tokens are embedded together, and may see each other
    cache_->set_tokens(begin);
  }
  // A truncated text starts at position 0 again.
  auto part = microbatch(text, begin, cached ? begin : 0);
  if (cached) part.cache = cache_;
  runtime_.set_generation(part.length);
  const auto out = runtime_.pipeline().logits(part, length - begin - 1);
  if (cached) {
    cache_->set_tokens(length);
    held_ = text;
  }
  return out.defined() ? out.select(0, 0).select(0, 0) : out;
}

std::vector<double> Generator::next_logits(const std::vector<std::int32_t>& text) {
  const ops::NoGraph guard;
  const auto behind = logits(text, std::numeric_limits<std::int64_t>::max());
  auto all = at::empty({runtime_.plan().model->spec.vocab}, at::kDouble);
  if (behind.defined()) all.copy_(behind.narrow(0, 0, all.numel()));
  stages_->broadcast(all, runtime_.plan().pipeline->stages.back().pp_rank)->wait();
  return {all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel()};
}

std::vector<std::int32_t> Generator::continue_text(std::vector<std::int32_t> text, const GenerateOptions& options) {
  const ops::NoGraph guard;
  const RandomStream stream(options.seed, "generate");
  const int last_rank = runtime_.plan().pipeline->stages.back().pp_rank;
  AUTOMODEL_CHECK(!text.empty(), "there is nothing to continue");
  const auto begin = static_cast<std::ptrdiff_t>(text.size());
  for (int i = 0; i < options.tokens; ++i) {
    const auto behind = logits(text, options.longest);
    auto token = at::empty({1}, at::kLong);
    if (behind.defined())
      token[0] = draw(behind, options, static_cast<double>(stream.uniform(static_cast<std::uint64_t>(i))));
    stages_->broadcast(token, last_rank)->wait();
    const auto chosen = token.item<std::int64_t>();
    text.push_back(static_cast<std::int32_t>(chosen));
    if (options.on_token) options.on_token(text.back());
    if (std::find(options.ends.begin(), options.ends.end(), chosen) != options.ends.end()) break;
  }
  return {text.begin() + begin, text.end()};
}

}  // namespace automodel::train
