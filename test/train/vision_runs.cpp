#include "train/vision_runs.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <span>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>

#include "checkpoint/format/tensor_folder.h"
#include "data/packed_dataset.h"
#include "data/picture_source.h"
#include "golden_folder.h"
#include "ops/graph.h"
#include "pictures/decode.h"
#include "plan/vision_choice.h"
#include "rank_suite.h"
#include "train/evaluate.h"
#include "train/feature_cache.h"
#include "train/generate.h"

namespace automodel::test {

const std::string& vision_folder() {
  static const std::string folder = golden_folder() + "/vlm";
  return folder;
}

Json read_json(const std::string& name) {
  std::ifstream file(vision_folder() + "/" + name);
  return Json::parse(file);
}

void check_near(const std::string& what, double ours, double theirs, double tolerance) {
  if (!(std::abs(ours - theirs) <= tolerance))
    rank_check_failed(__FILE__, __LINE__,
                      fmt::format("{}: {:.9g} against {:.9g}, apart {:.2e}, allowed {:.0e}", what, ours, theirs,
                                  std::abs(ours - theirs), tolerance));
}

namespace {

/// A recorded row. Its labels are those of its own tokens.
data::Sample sample_of(const Json& row) {
  data::Sample out;
  out.input_ids = row["input_ids"].get<std::vector<std::int32_t>>();
  out.labels = row["labels"].get<std::vector<std::int32_t>>();
  out.labels.erase(out.labels.begin());
  out.labels.push_back(data::kIgnoredLabel);
  for (const auto& name : row["pictures"]) {
    auto picture = *pictures::read_picture(vision_folder() + "/llava/" + name.get<std::string>());
    picture.content = data::content_of(picture);
    out.pictures.push_back(std::make_shared<const pictures::Picture>(std::move(picture)));
  }
  return out;
}

/// Rows in memory.
class GivenRows final : public data::Dataset {
 public:
  GivenRows(std::vector<data::Sample> rows, std::int32_t pad) : rows_(std::move(rows)), pad_(pad) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(rows_.size()); }
  void read(std::int64_t index, data::Sample& out) const override { out = rows_[static_cast<std::size_t>(index)]; }
  std::int64_t length(std::int64_t index) const override {
    return static_cast<std::int64_t>(rows_[static_cast<std::size_t>(index)].input_ids.size());
  }
  data::Padding padding() const override { return {.id = pad_}; }
  std::string summary() const override { return "rows in memory"; }

 private:
  std::vector<data::Sample> rows_;
  std::int32_t pad_;
};

/// All rows in one pack, with padding between them.
data::Sample packed(std::vector<data::Sample> rows, std::int32_t pad) {
  config::PackedSequenceConfig packing;
  packing.packed_sequence_size = 2048;
  packing.pad_to_multiple_of = 4;
  Diagnostics problems;
  const auto packs =
      data::pack(std::make_shared<GivenRows>(std::move(rows), pad), packing, 1, "packed_sequence", problems);
  RANK_CHECK(packs != nullptr);
  RANK_EQUAL(packs->size(), 1);
  data::Sample out;
  packs->read(0, out);
  return out;
}

}  // namespace

Run frozen(Run run) {
  run.name = "adamw_frozen_vision";
  run.sections += "freeze_config: {freeze_vision_tower: true}\n";
  return run;
}

Run frozen_whole(Run run) {
  run.name = "";
  run.sections += "freeze_config: {freeze_modules: [{glob: '*vision*'}, {glob: '*projector*'}]}\n";
  return run;
}

Run cached(Run run) {
  run.cached = true;
  return run;
}

Run adapted(Run run) {
  run.name = "lora";
  run.sections +=
      "peft: {dim: 4, alpha: 8, target_modules: ['*language_model*.q_proj', '*language_model*.k_proj', "
      "'*language_model*.v_proj', '*language_model*.o_proj', '*language_model*.gate_proj', '*language_model*.up_proj', "
      "'*language_model*.down_proj']}\n";
  return run;
}

Run tower_adapted(Run run, bool dora) {
  run.name = dora ? "tower dora" : "tower lora";
  run.sections += "peft: {dim: 4, alpha: 8, ";
  run.sections += dora ? "use_dora: true, target_modules: ['model.vision_*', 'model.visual.*', 'model.embed_vision.*', "
                         "'*multi_modal_projector*', '*language_model*.q_proj']}\n"
                       : "exclude_modules: ['*language_model*', '*lm_head*']}\n";
  return run;
}

std::string recipe_of(const Run& run, int ranks, const fs::path& root, bool saves) {
  const bool clips = run.sections.find("clip_grad_norm") != std::string::npos;
  return fmt::format(
      "recipe: {8}\n"
      "model: {{_target_: nemo_automodel.NeMoAutoModelForImageTextToText.from_pretrained, "
      "pretrained_model_name_or_path: {0}, torch_dtype: {11}}}\n"
      "dataset: {{_target_: chat, path_or_dataset_id: {1}/llava/samples.jsonl, cache_features: {9}, "
      "cache_dir: {10}}}\n"
      "dataloader: {{shuffle: false}}\n"
      "step_scheduler: {{global_batch_size: 2, local_batch_size: {2}, max_steps: 10, num_epochs: null, "
      "ckpt_every_steps: 1}}\n"
      "optimizer: {{_target_: adamw, lr: 0.001, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.1}}\n"
      "checkpoint: {{enabled: {3}, checkpoint_dir: {4}}}\n"
      "distributed: {{{5}}}\n{6}{7}",
      run.model, vision_folder(),
      run.rows != RunRows::kTogether ? 1 : 2 / (run.data_ranks > 0 ? run.data_ranks : ranks), saves, root.native(),
      run.mesh, run.sections, clips ? "" : "clip_grad_norm: null\n",
      run.sections.find("teacher_model") == std::string::npos ? "FinetuneRecipeForVLM"
                                                              : "KnowledgeDistillationRecipeForVLM",
      run.cached, (root.parent_path() / "features").native(), run.type);
}

std::string own_name(const std::string& name) {
  for (const char* same : {"lm_head", "model.language_model.", "model.visual.", "model.vision_", "model.embed_vision."})
    if (name.starts_with(same)) return name;
  if (name.starts_with("model.")) return "model.language_model." + name.substr(6);
  for (const auto& [published, own] : std::vector<std::pair<std::string, std::string>>{
           {"vit_large_projector.", "multi_modal_projector."},  // of Step 3.7, and of MiniMax-M3
           {"patch_merge_mlp.", "multi_modal_projector.merge_"},
           {"vision_tower.vision_model.embeddings.patch_embedding.", "vision_tower.embeddings.proj."},
           {"vision_tower.vision_model.encoder.", "vision_tower."},
           {"vision_tower.vision_model.", "vision_tower."}})
    if (name.starts_with(published)) return "model." + own + name.substr(published.size());
  const std::string decoder = "language_model.";
  if (name.starts_with(decoder + "lm_head")) return name.substr(decoder.size());
  if (name.starts_with(decoder + "model.")) return "model." + decoder + name.substr(decoder.size() + 6);
  return "model." + name;
}

namespace {

/// What was recorded of the run.
Json wanted_of(const Run& run, const Json& recorded) {
  const std::string tower = "tower ";
  if (!run.name.starts_with(tower)) return recorded["train"][run.name];
  return read_json("adapters.json")[run.family][run.name.substr(tower.size())];
}

/// With first matrices of adapters that follow from the recorded numbers of transformers' modules.
parallel::WeightSource numbered(const Json& modules, parallel::WeightSource rest) {
  return [modules, rest = std::move(rest)](const model::Weight& weight, std::int64_t first, const at::Tensor& out) {
    if (!weight.info.fqn.ends_with(".lora_A.weight")) return rest(weight, first, out);
    const auto found = modules.find(weight.info.adapts.substr(0, weight.info.adapts.rfind('.')));
    if (found == modules.end()) rank_check_failed(__FILE__, __LINE__, weight.info.fqn + " is not transformers'");
    std::vector<double> values(static_cast<std::size_t>(out.numel()));
    const auto columns = weight.full[1];
    for (const auto& run : model::runs(weight.slice, weight.full, first, out.numel()))
      for (std::int64_t i = 0; i < run.length; ++i) {
        const auto row = (run.full + i) / columns, column = (run.full + i) % columns;
        values[static_cast<std::size_t>(run.local - first + i)] =
            std::cos(static_cast<double>(1 + 3 * row + 7 * column + found->get<int>())) /
            std::sqrt(static_cast<double>(columns));
      }
    out.copy_(at::from_blob(values.data(), {out.numel()}, at::kDouble));
  };
}

/// The values that a run begins with.
parallel::WeightSource weights_of(const Run& run, parallel::WeightSource found) {
  if (!run.name.starts_with("tower ")) return found;
  return numbered(wanted_of(run, {})["modules"], std::move(found));
}

}  // namespace

Session::Session(comm::World& world, const Run& run)
    : folder_(world),
      loaded_(load_recipe(recipe_of(run, world.size(), folder_ / "run", false))),
      setup_(loaded_, world),
      start_(train::find_start(setup_, nullptr)),
      runtime_(setup_.plan, world, weights_of(run, start_.weights),
               {.features = train::cache_features(setup_, start_.weights).store}),
      trainer_(runtime_, start_.rates) {}

std::vector<data::Batch> Session::batches_of(const Json& rows, std::int32_t pad, RunRows how) const {
  const auto own = rows.size() / static_cast<std::size_t>(runtime_.place().dp_size);
  std::vector<data::Sample> samples;
  for (std::size_t i = 0; i < own; ++i)
    samples.push_back(sample_of(rows[static_cast<std::size_t>(runtime_.place().dp) * own + i]));
  if (how == RunRows::kPacked) samples = {packed(std::move(samples), pad)};
  std::vector<data::Batch> out;
  const std::size_t together = how == RunRows::kTogether ? own : 1;
  for (std::size_t first = 0; first < samples.size(); first += together)
    out.push_back(data::make_batch(std::span(samples).subspan(first, together), std::vector<std::int64_t>(together, 0),
                                   {.pad_id = pad, .multiple = setup_.plan.batch.multiple}));
  return out;
}

data::Batch Session::rows(std::int64_t step) {
  const auto plan = setup_.steps->plan(step);
  return setup_.loader->load(plan.epoch, plan.step_in_epoch).front();
}

double Session::evaluated() {
  return train::evaluate(runtime_, *setup_.loader)->loss;
}

double Session::validated() {
  return train::evaluate(runtime_, *setup_.validation.front().second)->loss;
}

train::StepResult Session::step(std::int64_t step) {
  const auto plan = setup_.steps->plan(step);
  return trainer_.step(step, setup_.loader->load(plan.epoch, plan.step_in_epoch), false);
}

namespace {

/// All of transformers' modules have adapters.
void check_names(Session& session, const Json& modules) {
  std::size_t found = 0;
  for (auto* stage : session.runtime().stages())
    for (const auto& weight : stage->model().weights().all()) found += weight->info.fqn.ends_with(".lora_A.weight");
  if (session.runtime().plan().pipeline->stages.size() == 1) RANK_EQUAL(found, modules.size());
}

/// Gives the adapters their recorded first matrices; the second ones begin at 0.
void set_adapters(Session& session, const std::string& family) {
  const ops::NoGraph guard;
  Diagnostics problems;
  const auto files = checkpoint::TensorFolder::open(vision_folder() + "/" + family, "lora", problems);
  RANK_CHECK(files.has_value());
  std::size_t found = 0;
  for (auto* stage : session.runtime().stages())
    for (const auto& tensor : files->tensors()) {
      const auto& info = *tensor.info;
      std::vector<float> values(info.bytes() / sizeof(float));
      tensor.file->read(info, 0, reinterpret_cast<char*>(values.data()), info.bytes());
      const auto name = info.name.starts_with("model.") ? info.name : own_name(info.name);
      auto* weight = stage->model().weights().parameter(name);
      if (weight == nullptr) continue;  // another stage's
      weight->value.copy_(at::from_blob(values.data(), info.shape, at::kFloat));
      ++found;
    }
  if (session.runtime().plan().pipeline->stages.size() == 1) RANK_EQUAL(found, files->tensors().size());
}

}  // namespace

void check_run(comm::World& world, const Run& run) {
  const auto recorded = read_json(run.family + "/reference.json");
  const auto wanted = wanted_of(run, recorded);
  const auto pad = recorded.value("pad_id", 397);
  Session session(world, run);
  if (run.name == "lora") set_adapters(session, run.family);
  if (wanted.contains("modules")) check_names(session, wanted["modules"]);
  for (std::size_t step = 0; step < 10; ++step) {
    const auto& rows = recorded["batches"][recorded["batch_of_step"][step].get<std::size_t>()];
    const auto result =
        session.trainer().step(static_cast<std::int64_t>(step), session.batches_of(rows, pad, run.rows), false);
    const auto what = fmt::format("{}, {}, {} on {}, step {}", run.family, run.name, run.mesh, world.size(), step);
    check_near(what + ", loss", result.loss, wanted["losses"][step].get<double>(), kLoss);
    const auto norm = wanted["grad_norms"][step].get<double>();
    check_near(what + ", gradient norm", result.grad_norm, norm, kNorm * norm);
  }
  double sum = 0, labels = 0;
  for (std::size_t batch = 0; batch < recorded["batches"].size(); ++batch) {
    const auto after =
        session.trainer().gradients(0, session.batches_of(recorded["batches"][batch], pad, run.rows), false);
    check_near(fmt::format("{}, {}, batch {} after ten steps", run.family, run.name, batch), after.loss,
               wanted["final_losses"][batch].get<double>(), kLoss);
    sum += after.loss * static_cast<double>(after.label_tokens);
    labels += static_cast<double>(after.label_tokens);
  }
  if (run.family != "llava")  // whose data set has other rows
    check_near(run.family + ", " + run.mesh + ", evaluation", session.evaluated(), sum / labels, kLoss);
  world.control().barrier()->wait();
}

void check_generation(comm::World& world, const Run& run) {
  const auto recorded = read_json(run.family + "/reference.json");
  Session session(world, run);
  auto& runtime = session.runtime();
  const auto tokens = plan::picture_tokens(*runtime.plan().model);
  train::Generator cached(runtime), whole(runtime, /*use_cache=*/false);
  std::size_t shown = 0;
  for (const auto& row : recorded["batches"][1]) {
    const auto sample = sample_of(row);
    shown += sample.pictures.size();
    for (auto* generator : {&cached, &whole}) generator->set_pictures(sample.pictures);
    const train::GenerateOptions options{.tokens = 6, .temperature = 0};
    RANK_CHECK(cached.continue_text(sample.input_ids, options) == whole.continue_text(sample.input_ids, options));
    auto more = sample.input_ids, earlier = sample.input_ids;
    more.insert(more.end(), {tokens->placeholder, tokens->placeholder, more.back()});
    earlier.insert(earlier.begin() + 1, earlier.back());  // in front of the pictures
    for (const auto& [text, what] : {std::pair(more, "placeholders of the model's own"), {earlier, "a changed text"}}) {
      const auto a = cached.next_logits(text), b = whole.next_logits(text);
      double apart = 0;
      for (std::size_t i = 0; i < a.size(); ++i) apart = std::max(apart, std::abs(a[i] - b[i]));
      check_near(fmt::format("{} on {}: logits behind {}", run.family, run.mesh, what), apart, 0, kLoss);
    }
  }
  RANK_CHECK(shown > 0);
  world.control().barrier()->wait();
}

void check_teacher(comm::World& world, Run run) {
  const auto recorded = read_json(run.family + "/reference.json");
  run.sections += fmt::format(
      "teacher_model: {{_target_: nemo_automodel.NeMoAutoModelForImageTextToText.from_pretrained, "
      "pretrained_model_name_or_path: {}, torch_dtype: float32}}\nkd_ratio: 0.5\n",
      run.model);
  Session session(world, run);
  const auto step = [&](std::int64_t number) {
    const auto& rows = recorded["batches"][recorded["batch_of_step"][number].get<std::size_t>()];
    return session.trainer().step(number, session.batches_of(rows, recorded.value("pad_id", 397), run.rows), false);
  };
  const auto first = step(0);
  check_near(run.family + ", loss without the teacher", *first.ce_loss,
             recorded["train"][run.name]["losses"][0].get<double>(), kLoss);
  check_near(run.family + ", divergence from itself", *first.kd_loss, 0, 1e-6);
  const auto second = step(1);
  if (!(*second.kd_loss > 1e-4))
    rank_check_failed(__FILE__, __LINE__, fmt::format("{}: the divergence is {}", run.family, *second.kd_loss));
  world.control().barrier()->wait();
}

}  // namespace automodel::test
