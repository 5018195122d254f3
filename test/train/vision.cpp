// Training with pictures against transformers 5.23 (test/golden/vlm): pixel values, and ten steps of tiny models with
// vision towers, everything trained or the tower frozen.
#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>

#include "checkpoint/format/root_folder.h"
#include "checkpoint/format/tensor_folder.h"
#include "golden_folder.h"
#include "ops/graph.h"
#include "parity/parity.h"
#include "pictures/decode.h"
#include "plan/vision_choice.h"
#include "rank_suite.h"
#include "sha256.h"
#include "train/gather.h"
#include "train/microbatches.h"
#include "train/pixel_values.h"
#include "train/saved_runs.h"
#include "train/start_point.h"
#include "train/trainer.h"

namespace automodel {
namespace {

using Json = nlohmann::json;

const std::string kFolder = automodel::golden_folder() + "/vlm";
/// Of float32, as recorded runs differ among themselves times ten: losses, and norms in relation to theirs.
constexpr double kLoss = 1e-4, kNorm = 2e-4;

Json read_json(const std::string& name) {
  std::ifstream file(kFolder + "/" + name);
  return Json::parse(file);
}

void check_near(const std::string& what, double ours, double theirs, double tolerance) {
  if (!(std::abs(ours - theirs) <= tolerance))
    test::rank_check_failed(__FILE__, __LINE__,
                            fmt::format("{}: {:.9g} against {:.9g}, apart {:.2e}, allowed {:.0e}", what, ours, theirs,
                                        std::abs(ours - theirs), tolerance));
}

/// A recorded row. Its labels are those of its own tokens.
data::Sample sample_of(const Json& row) {
  data::Sample out;
  out.input_ids = row["input_ids"].get<std::vector<std::int32_t>>();
  out.labels = row["labels"].get<std::vector<std::int32_t>>();
  out.labels.erase(out.labels.begin());
  out.labels.push_back(data::kIgnoredLabel);
  for (const auto& name : row["pictures"])
    out.pictures.push_back(pictures::read_picture(kFolder + "/llava/" + name.get<std::string>()));
  return out;
}

/// The rows of a recorded batch that are this rank's.
data::Batch batch_of(const Json& rows, const comm::World& world, std::int32_t pad = 397) {
  const auto own = rows.size() / static_cast<std::size_t>(world.size());
  std::vector<data::Sample> samples;
  for (std::size_t i = 0; i < own; ++i)
    samples.push_back(sample_of(rows[static_cast<std::size_t>(world.rank()) * own + i]));
  std::vector<std::int64_t> numbers(own, 0);
  return data::make_batch(samples, numbers, {.pad_id = pad});
}

struct Run {
  std::string name = "adamw";
  std::string sections = "";
  std::string strategy = "ddp";
  std::string family = "llava";
  std::string model = kFolder + "/" + family;
};

std::string recipe_of(const Run& run, int ranks, const test::fs::path& root, bool saves) {
  const bool clips = run.sections.find("clip_grad_norm") != std::string::npos;
  return fmt::format(
      "recipe: FinetuneRecipeForVLM\n"
      "model: {{_target_: nemo_automodel.NeMoAutoModelForImageTextToText.from_pretrained, "
      "pretrained_model_name_or_path: {0}, torch_dtype: float32}}\n"
      "dataset: {{_target_: chat, path_or_dataset_id: {1}/llava/samples.jsonl}}\n"
      "dataloader: {{shuffle: false}}\n"
      "step_scheduler: {{global_batch_size: 2, local_batch_size: {2}, max_steps: 10, num_epochs: null, "
      "ckpt_every_steps: 1}}\n"
      "optimizer: {{_target_: adamw, lr: 0.001, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.1}}\n"
      "checkpoint: {{enabled: {3}, checkpoint_dir: {4}}}\n"
      "distributed: {{strategy: {5}}}\n{6}{7}",
      run.model, kFolder, 2 / ranks, saves, root.native(), run.strategy, run.sections,
      clips ? "" : "clip_grad_norm: null\n");
}

/// The name in memory, transformers' and ours, of a weight as transformers writes it.
std::string own_name(const std::string& name) {
  if (name.starts_with("lm_head") || name.starts_with("model.language_model.") || name.starts_with("model.visual."))
    return name;
  if (name.starts_with("model.")) return "model.language_model." + name.substr(6);
  const std::string decoder = "language_model.";
  if (name.starts_with(decoder + "lm_head")) return name.substr(decoder.size());
  if (name.starts_with(decoder + "model.")) return "model." + decoder + name.substr(decoder.size() + 6);
  return "model." + name;
}

/// A model with the recorded weights.
class Session {
 public:
  Session(comm::World& world, const Run& run)
      : folder_(world),
        loaded_(test::load_recipe(recipe_of(run, world.size(), folder_ / "run", false))),
        setup_(loaded_, world),
        start_(train::find_start(setup_, nullptr)),
        runtime_(setup_.plan, world, start_.weights),
        trainer_(runtime_, start_.rates) {}
  train::Runtime& runtime() { return runtime_; }
  train::Trainer& trainer() { return trainer_; }
  /// The data set's rows of a step.
  data::Batch rows(std::int64_t step) {
    const auto plan = setup_.steps->plan(step);
    return setup_.loader->load(plan.epoch, plan.step_in_epoch).front();
  }
  /// A step on rows of the data set.
  train::StepResult step(std::int64_t step) {
    const auto plan = setup_.steps->plan(step);
    return trainer_.step(step, setup_.loader->load(plan.epoch, plan.step_in_epoch), false);
  }

 private:
  test::SharedFolder folder_;
  config::LoadedRecipe loaded_;
  train::Setup setup_;
  train::StartPoint start_;
  train::Runtime runtime_;
  train::Trainer trainer_;
};

/// Gives the adapters their recorded first matrices; the second ones begin at 0.
void set_adapters(Session& session, const std::string& family) {
  const ops::NoGraph guard;
  Diagnostics problems;
  const auto files = checkpoint::TensorFolder::open(kFolder + "/" + family, "lora", problems);
  RANK_CHECK(files.has_value());
  for (auto* stage : session.runtime().stages())
    for (const auto& tensor : files->tensors()) {
      const auto& info = *tensor.info;
      std::vector<float> values(info.bytes() / sizeof(float));
      tensor.file->read(info, 0, reinterpret_cast<char*>(values.data()), info.bytes());
      const auto name = info.name.starts_with("model.") ? info.name : own_name(info.name);
      auto* weight = stage->model().weights().parameter(name);
      if (weight == nullptr) test::rank_check_failed(__FILE__, __LINE__, fmt::format("no adapter {}", name));
      weight->value.copy_(at::from_blob(values.data(), info.shape, at::kFloat));
    }
}

void check_run(comm::World& world, const Run& run) {
  const auto recorded = read_json(run.family + "/reference.json");
  const auto& wanted = recorded["train"][run.name];
  const auto pad = recorded.value("pad_id", 397);
  Session session(world, run);
  if (run.name == "lora") set_adapters(session, run.family);
  for (std::size_t step = 0; step < 10; ++step) {
    const auto& rows = recorded["batches"][recorded["batch_of_step"][step].get<std::size_t>()];
    const auto result = session.trainer().step(static_cast<std::int64_t>(step), {batch_of(rows, world, pad)}, false);
    const auto what = fmt::format("{}, {}, {} on {}, step {}", run.family, run.name, run.strategy, world.size(), step);
    check_near(what + ", loss", result.loss, wanted["losses"][step].get<double>(), kLoss);
    const auto norm = wanted["grad_norms"][step].get<double>();
    check_near(what + ", gradient norm", result.grad_norm, norm, kNorm * norm);
  }
  for (std::size_t batch = 0; batch < recorded["batches"].size(); ++batch) {
    const auto after = session.trainer().gradients(0, {batch_of(recorded["batches"][batch], world, pad)}, false);
    check_near(fmt::format("{}, {}, batch {} after ten steps", run.family, run.name, batch), after.loss,
               wanted["final_losses"][batch].get<double>(), kLoss);
  }
  world.control().barrier()->wait();
}

const Run kFrozen{.name = "adamw_frozen_vision", .sections = "freeze_config: {freeze_vision_tower: true}\n"};
constexpr std::array kFamilies = {"gemma3",       "mistral3", "qwen2_5_vl", "qwen3_vl",
                                  "qwen3_vl_moe", "qwen3_5",  "qwen3_5_moe"};

void check_pixels(comm::World&) {
  const auto golden = read_json("processors.json");
  std::size_t checked = 0;
  for (const auto& wanted : golden["cases"]) {
    const auto file = wanted["file"].get<std::string>(), name = wanted["config"].get<std::string>();
    std::string why;
    const auto processor = pictures::parse_processor(golden["configs"][name].dump(), why);
    RANK_CHECK(processor.has_value());
    const auto picture = pictures::read_picture(kFolder + "/pictures/" + file);
    auto values = train::pixel_values(*picture, *processor).contiguous();
    if (processor->patches) {  // transformers' have all frames
      const int patch = processor->patches->patch, frames = processor->patches->frames;
      const auto [width, height] = processor->resized(picture->size);
      RANK_CHECK(Json({height / patch, width / patch}) == wanted["grid"]);
      if (processor->patches->longest_edge)  // transformers' are whole
        values = values.view({height / patch, width / patch, 3, patch, patch}).permute({2, 0, 3, 1, 4}).contiguous();
      else
        values = values.view({-1, 3, 1, patch * patch}).expand({-1, 3, frames, patch * patch}).flatten(1).contiguous();
    }
    const auto bytes = std::string_view(static_cast<const char*>(values.const_data_ptr()),
                                        static_cast<std::size_t>(values.numel()) * sizeof(float));
    if (test::sha256(bytes) != wanted["sha256"].get<std::string>())
      test::rank_check_failed(__FILE__, __LINE__, fmt::format("pixels of {} by {}", file, name));
    ++checked;
  }
  RANK_EQUAL(checked, std::size_t{294});
}

/// The norm of a recorded gradient. Stacked experts are matrices of their own here.
double norm_of(const std::map<std::string, at::Tensor>& gradients, const std::string& name) {
  if (const auto own = gradients.find(own_name(name)); own != gradients.end()) return own->second.norm().item<double>();
  const auto stacked = name.find(".experts.");
  RANK_CHECK(stacked != std::string::npos);
  const bool down = name.ends_with("down_proj");
  double sum = 0;
  for (const auto& [own, gradient] : gradients)
    if (own.starts_with(name.substr(0, stacked) + ".experts.") && own.ends_with("down_proj.weight") == down)
      sum += std::pow(gradient.norm().item<double>(), 2);
  return std::sqrt(sum);
}

void check_gradients(comm::World& world, const std::string& family) {
  const auto recorded = read_json(family + "/reference.json");
  Session session(world, {.family = family});
  const auto batch = batch_of(recorded["batches"][1], world, recorded.value("pad_id", 397));
  const auto result = session.trainer().gradients(0, {batch}, false);
  const auto gradients = train::gather_gradients(session.runtime());
  std::size_t checked = 0;
  for (const auto& [name, size] : recorded["grad_norms"].items()) {
    check_near("gradient norm of " + name, norm_of(gradients, name), size.get<double>(),
               kNorm * std::max(size.get<double>(), 1e-2 * result.grad_norm));
    ++checked;
  }
  RANK_EQUAL(checked, recorded["grad_norms"].size());
  world.control().barrier()->wait();
}

/// Places by time, row and column, of one picture and of several.
void check_axes(comm::World& world) {
  for (const std::string family : kFamilies) {
    const auto recorded = read_json(family + "/reference.json");
    if (recorded["position_ids"].empty()) continue;  // one axis
    Session session(world, {.family = family});
    const auto tokens = plan::picture_tokens(*session.runtime().plan().model);
    RANK_CHECK(tokens.has_value());
    for (const auto& [name, number] : {std::pair("first", 0), std::pair("second", 1)}) {
      const auto batch = batch_of(recorded["batches"][static_cast<std::size_t>(number)], world, recorded["pad_id"]);
      const auto axes = train::make_microbatches(batch, 2, at::kCPU, {}, &*tokens).front().axes;
      for (std::int64_t axis = 0; axis < 3; ++axis)
        for (std::int64_t row = 0; row < 2; ++row)
          for (std::int64_t t = 0; t < batch.length; ++t) {
            if (batch.segments[static_cast<std::size_t>(row * batch.length + t)] == 0) continue;
            const auto& wanted = recorded["position_ids"][name][static_cast<std::size_t>(axis)];
            RANK_EQUAL(axes[axis][row][t].item<std::int64_t>(),
                       wanted[static_cast<std::size_t>(row)][static_cast<std::size_t>(t)].get<std::int64_t>());
          }
    }
  }
}

/// A frozen tower of Qwen's takes its mergers with it, others leave the projector, as under NeMo AutoModel.
void check_frozen_names(comm::World& world) {
  for (const std::string family : kFamilies) {
    auto run = kFrozen;
    run.family = family;
    run.model = kFolder + "/" + family;
    Session session(world, run);
    const auto recorded = read_json(family + "/reference.json");
    std::set<std::string> wanted, frozen;
    for (const auto& name : recorded["frozen_on_disk"]) wanted.insert(own_name(name));
    for (const auto& parameter : session.runtime().plan().frozen->all)
      if (!parameter.trained()) frozen.insert(parameter.fqn);
    RANK_EQUAL(frozen, wanted);
  }
}

/// NeMo AutoModel's freeze freezes 55 of the 89 parameters of this model: all of the tower, which then has no gradients
/// and stays as it is to the last bit, while every other weight moves.
void check_frozen(comm::World& world) {
  Session session(world, kFrozen);
  const auto before = train::gather_values(session.runtime());
  session.step(0);
  const auto gradients = train::gather_gradients(session.runtime());
  const auto after = train::gather_values(session.runtime());
  std::size_t frozen = 0;
  for (const auto& [name, value] : after) {
    const bool tower = name.starts_with("model.vision_tower.");
    RANK_EQUAL(gradients.contains(name), !tower);
    RANK_EQUAL(at::equal(value, before.at(name)), tower);
    frozen += tower ? 1 : 0;
  }
  RANK_EQUAL(frozen, std::size_t{55});
  RANK_EQUAL(after.size(), std::size_t{89});
  world.control().barrier()->wait();
}

std::set<std::string> names_in(const test::fs::path& folder) {
  Diagnostics problems;
  const auto files = checkpoint::TensorFolder::open(folder, "model", problems);
  RANK_CHECK(files.has_value());
  std::set<std::string> out;
  for (const auto& tensor : files->tensors()) out.insert(tensor.info->name);
  return out;
}

/// A run that is resumed ends with the same bits; its weights have transformers' names, and are read again from the
/// folder that was saved, as a model.
void check_saved(comm::World& world) {
  const test::SharedFolder folder(world);
  const auto text = [&](const char* name) { return recipe_of({}, world.size(), folder / name, true); };
  const auto whole = test::train_to(world, text("whole"), 4);
  auto parts = test::train_to(world, text("parts"), 2, true);
  for (const double loss : test::train_to(world, text("parts"), 4, true)) parts.push_back(loss);
  RANK_CHECK(parts == whole);
  world.control().barrier()->wait();
  const auto saved = checkpoint::newest_checkpoint(folder / "parts") / "model";
  RANK_EQUAL(test::saved_tensors(folder / "parts"), test::saved_tensors(folder / "whole"));
  std::set<std::string> wanted;
  for (const auto& name : names_in(kFolder + "/llava")) wanted.insert(own_name(name));
  RANK_CHECK(names_in(saved) == wanted);
  Session trained(world, {});
  for (int step = 0; step < 4; ++step) RANK_EQUAL(trained.step(step).loss, whole[static_cast<std::size_t>(step)]);
  Session again(world, {.model = saved.native()});
  const auto values = train::gather_values(again.runtime());
  for (const auto& [name, value] : train::gather_values(trained.runtime()))
    if (!at::equal(value, values.at(name)))
      test::rank_check_failed(__FILE__, __LINE__, fmt::format("{} is read as another value", name));
  world.control().barrier()->wait();
}

/// From the file of conversations: rows, pictures and labels come through the data set.
void check_conversations(comm::World& world) {
  Session session(world, {});
  std::int64_t labels = 0;
  double last = 0;
  for (int step = 0; step < 5; ++step) {
    const auto result = session.step(step);
    RANK_CHECK(std::isfinite(result.loss) && result.loss > 0);
    labels += result.label_tokens;
    last = result.loss;
  }
  RANK_EQUAL(labels, std::int64_t{26});  // the toy tokenizer's stop is a space, with which most answers begin
  RANK_CHECK(last < 6.5);
  world.control().barrier()->wait();
}

void check_families(comm::World& world, const std::string& strategy) {
  for (const std::string family : kFamilies) {
    const auto model = kFolder + "/" + family;
    check_run(world, {.strategy = strategy, .family = family, .model = model});
    auto frozen = kFrozen;
    frozen.strategy = strategy;
    frozen.family = family;
    frozen.model = model;
    check_run(world, frozen);
  }
}

/// The file of conversations gives the recorded rows: expanded placeholders, and answers as labels.
void check_rows(comm::World& world) {
  for (const std::string family : kFamilies) {
    const auto recorded = read_json(family + "/reference.json");
    Session session(world, {.family = family});
    for (std::int64_t step = 0; step < 5; ++step) {
      const auto batch = session.rows(step);
      const auto& wanted = recorded["batches"][static_cast<std::size_t>(step)];
      for (std::size_t row = 0; row < 2; ++row) {
        auto ids = wanted[row]["input_ids"].get<std::vector<std::int64_t>>(),
             labels = wanted[row]["labels"].get<std::vector<std::int64_t>>();
        ids.pop_back();
        labels.erase(labels.begin());
        const auto part = [&](const std::vector<std::int64_t>& all) {
          const auto from = all.begin() + static_cast<std::ptrdiff_t>(row) * batch.length;
          return std::vector<std::int64_t>(from, from + std::ssize(ids));
        };
        RANK_EQUAL(part(batch.input_ids), ids);
        RANK_EQUAL(part(batch.labels), labels);
        RANK_EQUAL(batch.pictures[row].size(), wanted[row]["pictures"].size());
      }
    }
  }
}

/// Experts of Qwen3-VL are read as published, transposed, and saved joined, as transformers reads them; a resumed run
/// goes on with them.
void check_joined(comm::World& world) {
  const test::SharedFolder folder(world);
  const auto text = [&](const char* name) {
    return recipe_of({.strategy = "fsdp2", .family = "qwen3_vl_moe", .model = kFolder + "/qwen3_vl_moe"}, world.size(),
                     folder / name, true);
  };
  const auto whole = test::train_to(world, text("whole"), 3);
  auto parts = test::train_to(world, text("parts"), 1, true);
  for (const double loss : test::train_to(world, text("parts"), 3, true)) parts.push_back(loss);
  RANK_CHECK(parts == whole);
  world.control().barrier()->wait();
  const auto saved = checkpoint::newest_checkpoint(folder / "parts") / "model";
  RANK_CHECK(names_in(saved) == names_in(kFolder + "/qwen3_vl_moe"));
  Diagnostics problems;
  const auto files = checkpoint::TensorFolder::open(saved, "model", problems);
  const auto joined = files->find("model.language_model.layers.0.mlp.experts.gate_up_proj");
  RANK_CHECK(joined.info->shape == (std::vector<std::int64_t>{6, 32, 48}));
  Session again(world, {.family = "qwen3_vl_moe", .model = saved.native()});
  const auto values = train::gather_values(again.runtime());
  std::vector<float> stored(6 * 32 * 48);
  joined.file->read(*joined.info, 0, reinterpret_cast<char*>(stored.data()), stored.size() * sizeof(float));
  const auto all = at::from_blob(stored.data(), {6, 32, 48}, at::kFloat).to(at::kDouble);
  RANK_CHECK(
      at::equal(values.at("model.language_model.layers.0.mlp.experts.2.up_proj.weight"), all[2].narrow(0, 16, 16)));
  world.control().barrier()->wait();
}

/// Everything but the adapters of the decoder is frozen.
void check_adapters(comm::World& world) {
  for (const std::string family :
       {"llava", "gemma3", "mistral3", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"})
    check_run(world, {.name = "lora",
                      .sections = "peft: {dim: 4, alpha: 8, target_modules: ['*language_model*.q_proj', "
                                  "'*language_model*.k_proj', '*language_model*.v_proj', '*language_model*.o_proj', "
                                  "'*language_model*.gate_proj', '*language_model*.up_proj', "
                                  "'*language_model*.down_proj']}\n",
                      .family = family,
                      .model = kFolder + "/" + family});
}

/// Experts divided over the ranks, whose pictures differ.
void check_experts(comm::World& world) {
  for (const std::string family : {"qwen3_vl_moe", "qwen3_5_moe"})
    check_run(world, {.strategy = "fsdp2, ep_size: 2", .family = family, .model = kFolder + "/" + family});
}

const std::vector<test::RankCase> kCases = {
    {"rows from a file of conversations", check_rows, 1, 1},
    {"joined experts are saved as transformers reads them", check_joined},
    {"adapters of the decoder", check_adapters, 1, 1},
    {"experts over the ranks", check_experts, 2, 2},
    {"places of pictures' tokens by time, row and column", check_axes, 1, 1},
    {"gradients of every weight of other families' towers and decoders",
     [](comm::World& w) {
       for (const std::string family : kFamilies) check_gradients(w, family);
     },
     1, 1},
    {"their frozen towers are NeMo AutoModel's", check_frozen_names, 1, 1},
    {"ten steps of Gemma 3, Mistral 3, Qwen2.5-VL, Qwen3-VL and Qwen3.5, all trained or the tower frozen",
     [](comm::World& w) { check_families(w, "ddp"); }},
    {"the same under FSDP2", [](comm::World& w) { check_families(w, "fsdp2"); }},
    {"pixel values equal those of transformers bit for bit", check_pixels, 1, 1},
    {"gradients of every weight of tower, projector and decoder", [](comm::World& w) { check_gradients(w, "llava"); },
     1, 1},
    {"ten steps with everything trained", [](comm::World& w) { check_run(w, {}); }},
    {"ten steps with gradients clipped",
     [](comm::World& w) {
       check_run(w, {"adamw_clip1", "clip_grad_norm: {max_norm: 1.0}\n"});
     },
     1, 1},
    {"ten steps with a frozen tower", [](comm::World& w) { check_run(w, kFrozen); }},
    {"shards of a tower, also where a rank has no picture",
     [](comm::World& w) {
       check_run(w, {.strategy = "fsdp2"});
       auto frozen = kFrozen;
       frozen.strategy = "fsdp2";
       check_run(w, frozen);
     }},
    {"the frozen tower is NeMo AutoModel's, and stays as it is", check_frozen},
    {"a resumed run, and its weights as a model", check_saved},
    {"conversations from a file", check_conversations},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
