#include "train/dumped_step.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "against/likeness.h"
#include "arch/counts.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/proc_field.h"
#include "config/node.h"
#include "config/optimizer_basics.h"
#include "data/batch.h"
#include "estimate/estimated_plan.h"
#include "plan/lr_schedule.h"
#include "plan/vision_choice.h"
#include "train/gather.h"
#include "train/runtime.h"
#include "train/setup.h"
#include "train/trainer.h"
#include "train/weight_files.h"
#include "train/world_settings.h"

namespace automodel::train {
namespace {

namespace fs = std::filesystem;
using against::kIgnored;

constexpr double kSampleBytes = 1e9;         // of the rows' gradients that are kept
constexpr std::int64_t kAlwaysWhole = 4096;  // elements of a tensor that is never sampled

config::LoadedRecipe recipe_of(const fs::path& folder, std::int64_t rows, bool untie) {
  const auto text = fmt::format(
      "device: cpu\n"
      "model: {{pretrained_model_name_or_path: {}, torch_dtype: float64{}}}\n"
      "step_scheduler: {{global_batch_size: {}, local_batch_size: {}, max_steps: 1}}\n"
      "distributed: {{strategy: ddp}}\n",
      config::to_json(config::Value((folder / "model").native())), untie ? ", tie_word_embeddings: false" : "", rows,
      rows);
  return config::read_recipe(text, "automodel verify --against", {}, {});
}

/// Where the head of a tied model is read from, if it is computed apart.
parallel::WeightSource untied(std::shared_ptr<const WeightFiles> files, std::string head, std::string embedding) {
  return [=](const model::Weight& weight, std::int64_t first, const at::Tensor& out) {
    if (weight.info.fqn != head) return files->read(weight, first, out);
    auto as_embedding = weight;
    as_embedding.info.fqn = embedding;
    files->read(as_embedding, first, out);
  };
}

void check_memory(const arch::ModelSpec& spec, const fs::path& folder) {
  constexpr double kCopies = 6;  // weights, gradients, their copy, both sides of the comparison, an explanation
  const double needed = kCopies * 8 * static_cast<double>(arch::count_parameters(spec).total()) + kSampleBytes;
  const double there = proc_field("/proc/meminfo", "MemAvailable");
  if (there == 0 || needed <= there) return;
  throw Error(Diagnostic{"does-not-fit"}
                  .says("comparing this model in float64 takes {}, of which {} are free", format_bytes(needed),
                        format_bytes(there))
                  .hint("dump a step of a smaller model of the same kind: fewer layers, smaller vocabulary")
                  .at({folder.native(), 0, 0})
                  .exits(ExitCode::kEnvironment));
}

}  // namespace

/// Sums over some rows: of their losses, and of these losses' gradients, by parameter.
struct DumpedStep::Sums {
  std::int64_t labels = 0;
  double loss = 0;
  std::map<std::string, at::Tensor> gradients = {};
};

/// The model and what computes its gradients.
class DumpedStep::Computation {
 public:
  Computation(const fs::path& folder, comm::World& world, std::int64_t rows, bool untie)
      : loaded_(recipe_of(folder, rows, untie)), plan_(make_plan(world)) {
    const auto& model = *plan_.model;
    check_memory(model.spec, folder);
    Diagnostics problems;
    auto read_as = model;
    const auto head = model.layout.head + ".weight";
    std::string embedding = {};
    if (untie) {  // the files are those of the tied model
      const Computation tied(folder, world, rows);
      read_as = *tied.plan_.model;
      embedding = read_as.layout.head_tied_to;
    }
    const auto files = WeightFiles::open(model.folder, read_as, !untie, problems);
    if (!problems.empty()) throw Error(ExitCode::kBadInput, std::move(problems));
    runtime_ = std::make_unique<Runtime>(plan_, world, untie ? untied(files, head, embedding) : stored_values(files));
    const auto basics = config::basics_of(loaded_.recipe.optimizer());
    const auto rates = plan::make_lr_schedule({}, basics.lr, basics.weight_decay, 1, problems);
    trainer_ = std::make_unique<Trainer>(*runtime_, *rates);
  }

  const plan::ModelChoice& model() const { return *plan_.model; }

  Sums sums(const data::Batch& batch) {
    Sums out{.labels = batch.num_label_tokens};
    if (out.labels == 0) return out;
    const auto result = trainer_->gradients(0, {batch}, false);
    const auto labels = static_cast<double>(out.labels);
    out.loss = result.loss * labels;
    out.gradients = gather_gradients(*runtime_);
    for (auto& [name, gradient] : out.gradients) gradient.mul_(labels);
    return out;
  }

 private:
  /// The plan alone.
  Computation(const fs::path& folder, comm::World& world, std::int64_t rows)
      : loaded_(recipe_of(folder, rows, false)), plan_(make_plan(world)) {}

  estimate::EstimatedPlan make_plan(comm::World& world) {
    if (!loaded_.problems.empty()) throw Error(ExitCode::kBadInput, loaded_.problems);
    use_settings(world, loaded_.recipe);
    auto result = estimate::make_plan(loaded_, {.world_size = 1, .training = true});
    if (result.plan && result.plan->model)
      if (const auto refusal = plan::refuse_pictures(loaded_, *result.plan->model, "verify --against"))
        result.problems = {*refusal};
    if (!result.problems.empty()) throw Error(std::move(result.problems));
    return std::move(*result.plan);
  }

  config::LoadedRecipe loaded_;
  estimate::EstimatedPlan plan_;
  std::unique_ptr<Runtime> runtime_ = {};
  std::unique_ptr<Trainer> trainer_ = {};
};

namespace {

/// Rows [first, first + rows) of a batch. As transformers, positions that begin anew separate documents where no mask
/// is given, be it of ones.
data::Batch batch_of(const against::DumpedBatch& batch, std::int64_t first, std::int64_t rows,
                     const std::vector<std::int64_t>& targets) {
  std::vector<data::Sample> samples;
  for (std::int64_t row = first; row < first + rows; ++row) {
    auto& sample = samples.emplace_back();
    std::int32_t document = 1;
    bool apart = false;
    for (std::int64_t t = 0; t < batch.tokens; ++t) {
      const auto at = static_cast<std::size_t>(row * batch.tokens + t);
      sample.input_ids.push_back(static_cast<std::int32_t>(batch.ids[at]));
      sample.labels.push_back(static_cast<std::int32_t>(targets[at]));
      if (!batch.positions.empty()) sample.positions.push_back(static_cast<std::int32_t>(batch.positions[at]));
      if (!batch.positions.empty() && batch.mask.empty() && t > 0 &&
          batch.positions[at] != batch.positions[at - 1] + 1) {
        ++document;
        apart = true;
      }
      sample.segments.push_back(batch.real(row * batch.tokens + t) ? document : 0);
      apart = apart || sample.segments.back() == 0;
    }
    if (!apart) sample.segments.clear();
  }
  return data::make_batch(samples, std::vector<std::int64_t>(samples.size(), 0), {});
}

/// What each token predicts: the label of the next one.
std::vector<std::int64_t> targets_of(const against::DumpedBatch& batch) {
  std::vector<std::int64_t> out(batch.labels.size(), kIgnored);
  for (std::size_t i = 0; i + 1 < out.size(); ++i)
    if (static_cast<std::int64_t>(i + 1) % batch.tokens != 0) out[i] = batch.labels[i + 1];
  return out;
}

}  // namespace

DumpedStep::DumpedStep(fs::path folder, comm::World& world) : folder_(std::move(folder)), world_(world) {
  if (std::error_code error; !fs::is_regular_file(folder_ / "model" / "config.json", error))
    throw Error(Diagnostic{"missing-file"}
                    .says("there is no 'model/config.json'")
                    .hint("model/ is what save_pretrained writes; docs/verify-against.md shows a whole dump")
                    .at({folder_.native(), 0, 0}));
  use_threads(world);
  model_ = std::make_unique<Computation>(folder_, world_, 1, false);
  Diagnostics problems;
  const auto& model = model_->model();
  dump_ = against::Dump::open(folder_, model.spec, model.layout, problems);
  if (!dump_) throw Error(std::move(problems));
  if (model.spec.router_sums() == 0) return;
  rows_at_once_ = dump_->batch().rows;
  model_ = std::make_unique<Computation>(folder_, world_, rows_at_once_, false);
}

DumpedStep::~DumpedStep() = default;

DumpedStep::Sums DumpedStep::row_sums(Computation& computation, std::int64_t first, std::int64_t rows,
                                      const std::vector<std::int64_t>& targets) const {
  return computation.sums(batch_of(dump_->batch(), first, rows, targets));
}

against::Values DumpedStep::assembled(const Sums& sums, const against::DumpedGradient& gradient) const {
  against::Values out(static_cast<std::size_t>(gradient.stored.info->elements()), 0.0);
  if (sums.gradients.empty()) return out;
  for (const auto& part : gradient.parts) {
    const auto& from = sums.gradients.at(part.parameter.fqn);
    const auto* values = from.const_data_ptr<double>();
    std::copy_n(values, from.numel(), out.begin() + part.first);
  }
  return out;
}

namespace {

void add(against::Values& to, const against::Values& more, double factor = 1) {
  if (to.empty()) to.assign(more.size(), 0.0);
  for (std::size_t i = 0; i < more.size(); ++i) to[i] += factor * more[i];
}

void scale(against::Values& values, double factor) {
  for (auto& value : values) value *= factor;
}

/// Weights that are not finite would make everything equal to nothing.
void check_finite(const against::Evidence& evidence, const fs::path& folder) {
  bool finite = std::isfinite(evidence.our_loss);
  for (const auto& pair : evidence.pairs)
    finite = finite && std::ranges::all_of(pair.ours, [](double value) { return std::isfinite(value); });
  if (finite) return;
  throw Error(Diagnostic{"dump-not-finite"}
                  .says("with the weights in 'model' the loss or its gradients are not finite in float64")
                  .hint("save the weights with which the step was computed, before the optimizer changes them")
                  .at({(folder / "model").native(), 0, 0}));
}

}  // namespace

against::Evidence DumpedStep::evidence() {
  const auto& batch = dump_->batch();
  const auto& model = model_->model();
  const auto targets = targets_of(batch);
  against::Evidence out{.their_loss = dump_->loss(),
                        .row_count = batch.rows,
                        .tokens = batch.tokens,
                        .real_tokens = batch.real_tokens(),
                        .ids = batch.ids,
                        .batch_labels = batch.labels,
                        .mask = batch.mask};
  std::int64_t elements = 0, longest = std::max<std::int64_t>(batch.rows * batch.tokens, model.spec.vocab);
  for (const auto& gradient : dump_->gradients()) {
    const auto& info = *gradient.stored.info;
    const auto& parameter = gradient.parts.front().parameter;
    out.pairs.push_back({.name = info.name,
                         .shape = info.shape,
                         .role = parameter.role,
                         .layer = parameter.layer,
                         .tied = !model.layout.head_tied_to.empty() && parameter.fqn == model.layout.head_tied_to,
                         .theirs = dump_->read(gradient)});
    elements += info.elements();
    for (const auto size : info.shape) longest = std::max(longest, size);
  }
  const double kept = 8.0 * static_cast<double>(elements) * static_cast<double>(batch.rows);
  const auto stride = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(kept / kSampleBytes)));
  for (const auto& pair : out.pairs) out.strides.push_back(std::ssize(pair.theirs) <= kAlwaysWhole ? 1 : stride);
  double loss = 0;
  for (std::int64_t row = 0; row < batch.rows; row += rows_at_once_) {
    const auto sums = row_sums(*model_, row, rows_at_once_, targets);
    out.labels += sums.labels;
    loss += sums.loss;
    against::RowPart part{.labels = sums.labels, .loss = sums.loss};
    for (std::size_t i = 0; i < out.pairs.size(); ++i) {
      const auto whole = assembled(sums, dump_->gradients()[i]);
      add(out.pairs[i].ours, whole);
      part.gradients.push_back(against::sampled(whole, out.strides[i]));
    }
    if (rows_at_once_ == 1) out.rows.push_back(std::move(part));
  }
  const double divisor = dump_->reduction() == against::Reduction::kSum ? 1.0 : static_cast<double>(out.labels);
  for (auto& pair : out.pairs) scale(pair.ours, 1 / divisor);
  out.our_loss = loss / divisor;
  out.divisor = divisor;
  // A model that is kept in 16 bits was computed in them, whatever its gradients were converted to afterwards.
  auto type = dump_->type();
  Diagnostics none;
  if (const auto weights = checkpoint::TensorFolder::open(folder_ / "model", "model", none))
    for (const auto& stored : weights->tensors())
      if (checkpoint::is_weight_type(stored.info->type) &&
          against::roundoff(stored.info->type) > against::roundoff(type))
        type = stored.info->type;
  out.tolerance = against::tolerance_for(type, model.spec.layers, longest, model.spec.moe.has_value());
  const auto bfloat16 = [&](bool experts) {
    return against::tolerance_for(checkpoint::ElementType::kBF16, model.spec.layers, longest, experts).relative;
  };
  out.sixteen_bits = bfloat16(false);
  out.sixteen_bits_routed = bfloat16(model.spec.moe.has_value());
  check_finite(out, folder_);
  return out;
}

std::optional<against::Relabelled> DumpedStep::with_targets(const std::vector<std::int64_t>& targets) {
  against::Relabelled out;
  const auto& batch = dump_->batch();
  out.gradients.resize(dump_->gradients().size());
  for (std::int64_t row = 0; row < batch.rows; row += rows_at_once_) {
    const auto sums = row_sums(*model_, row, rows_at_once_, targets);
    if (sums.labels == 0) continue;
    out.labels += sums.labels;
    out.loss += sums.loss;
    for (std::size_t i = 0; i < out.gradients.size(); ++i)
      add(out.gradients[i], assembled(sums, dump_->gradients()[i]));
  }
  if (out.labels == 0) return std::nullopt;
  out.loss /= static_cast<double>(out.labels);
  for (auto& gradient : out.gradients) scale(gradient, 1 / static_cast<double>(out.labels));
  return out;
}

against::Values DumpedStep::head_part() {
  const auto& batch = dump_->batch();
  const auto targets = targets_of(batch);
  Computation apart(folder_, world_, rows_at_once_, true);
  against::Values out;
  std::int64_t labels = 0;
  for (std::int64_t row = 0; row < batch.rows; row += rows_at_once_) {
    const auto sums = row_sums(apart, row, rows_at_once_, targets);
    if (sums.labels == 0) continue;
    labels += sums.labels;
    const auto& head = sums.gradients.at(apart.model().layout.head + ".weight");
    add(out, against::Values(head.const_data_ptr<double>(), head.const_data_ptr<double>() + head.numel()));
  }
  scale(out, 1 / (dump_->reduction() == against::Reduction::kSum ? 1.0 : static_cast<double>(labels)));
  return out;
}

}  // namespace automodel::train
