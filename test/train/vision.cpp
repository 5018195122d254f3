// Training with pictures against transformers 5.23 (test/golden/vlm): pixel values, and ten steps of tiny models with
// vision towers, everything trained or the tower frozen.
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include "checkpoint/format/adapter.h"
#include "checkpoint/format/export.h"
#include "checkpoint/format/root_folder.h"
#include "checkpoint/format/tensor_folder.h"
#include "pictures/decode.h"
#include "plan/vision_choice.h"
#include "rank_suite.h"
#include "sha256.h"
#include "train/feature_cache.h"
#include "train/gather.h"
#include "train/microbatches.h"
#include "train/pixel_values.h"
#include "train/saved_runs.h"
#include "train/vision_runs.h"

namespace automodel {
namespace {

using test::adapted, test::tower_adapted, test::cached, test::frozen_whole, test::Json, test::Session, test::Run,
    test::check_near, test::check_run, test::frozen, test::kFamilies, test::kLoss, test::kNorm, test::own_name,
    test::read_json, test::recipe_of, test::vision_folder;

void check_pixels(comm::World&) {
  const auto golden = read_json("processors.json");
  std::size_t checked = 0;
  for (const auto& wanted : golden["cases"]) {
    const auto file = wanted["file"].get<std::string>(), name = wanted["config"].get<std::string>();
    std::string why;
    const auto processor = pictures::parse_processor(golden["configs"][name].dump(), why);
    RANK_CHECK(processor.has_value());
    const auto picture = pictures::read_picture(vision_folder() + "/pictures/" + file);
    auto values = train::pixel_values(*picture, *processor).contiguous();
    if (processor->patches) {  // transformers' have all frames
      const int patch = processor->patches->patch, frames = processor->patches->frames;
      const auto [width, height] = processor->resized(picture->size);
      RANK_CHECK(Json({height / patch, width / patch}) == wanted["grid"]);
      if (const auto& tokens = processor->patches->soft_tokens) {  // transformers' are in raster order, and filled up
        const int merge = processor->patches->merge, columns = width / patch / merge;
        const auto raster = values.view({-1, columns, merge, merge, 3 * patch * patch}).transpose(1, 2).flatten(0, 3);
        values = at::zeros({*tokens * merge * merge, 3 * patch * patch});
        values.narrow(0, 0, raster.size(0)).copy_(raster);
      } else if (processor->patches->grid_tokens) {  // in raster order, each patch once a frame
        const int merge = processor->patches->merge, columns = width / patch / merge;
        values = values.view({-1, columns, merge, merge, 1, 3 * patch * patch})
                     .transpose(1, 2)
                     .expand({-1, merge, columns, merge, frames, 3 * patch * patch})
                     .reshape({-1, frames * 3 * patch * patch});
      } else if (processor->patches->longest_edge)  // transformers' are whole
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
  RANK_EQUAL(checked, std::size_t{458});
}

/// Step 3.7 cuts pictures: sizes of many shapes, pixels, and the tokens that stand for them.
void check_parts(comm::World&) {
  const auto golden = read_json("step3p7/pictures.json");
  std::vector<pictures::PictureTokens> tokens;
  for (const auto& config : golden["configs"]) {
    std::string why;
    tokens.push_back({.processor = pictures::parse_processor(config.dump(), why)});
    if (!tokens.back().processor) test::rank_check_failed(__FILE__, __LINE__, why);
  }
  for (const auto& row : golden["cuts"]) {
    const auto wanted = row.get<std::vector<int>>();
    const auto& own = tokens[static_cast<std::size_t>(wanted[0])];
    const auto parts = own.processor->patches->cut({wanted[1], wanted[2]});
    RANK_EQUAL((std::vector<int>{wanted[0], wanted[1], wanted[2], parts.reduced.width, parts.reduced.height,
                                 parts.cut.width, parts.cut.height, parts.side, parts.columns, parts.rows}),
               wanted);
    const int part = wanted[0] == 0 ? 81 : 9, whole = wanted[0] == 0 ? 169 : 16, count = parts.columns * parts.rows;
    RANK_EQUAL(own.placeholders({wanted[1], wanted[2]}), count * part + whole);
    RANK_EQUAL(own.count({wanted[1], wanted[2]}), count * (part + 2) + whole + 2 + std::max(parts.rows - 1, 0));
    const bool nothing = parts.reduced.width == 0 || parts.reduced.height == 0;
    RANK_EQUAL(own.processor->refusal({wanted[1], wanted[2]}).empty(), !nothing);
  }
  for (const auto& wanted : golden["pixels"]) {
    const auto& processor = *tokens[wanted["config"].get<std::size_t>()].processor;
    const auto& settings = *processor.patches;
    auto picture = *pictures::read_picture(vision_folder() + "/" + wanted["file"].get<std::string>());
    const int scale = wanted["scale"];
    const auto small = at::from_blob(picture.rgb.data(), {picture.size.height, picture.size.width, 3}, at::kByte);
    const auto large = small.repeat_interleave(scale, 0).repeat_interleave(scale, 1).contiguous();
    picture.rgb.assign(large.const_data_ptr<std::uint8_t>(), large.const_data_ptr<std::uint8_t>() + large.numel());
    picture.size = {picture.size.width * scale, picture.size.height * scale};
    const auto patches = train::pixel_values(picture, processor);
    std::string bytes;
    std::int64_t first = 0;
    const auto add = [&](int count, int pixels) {
      const std::int64_t side = pixels / settings.patch;
      const auto squares = patches.narrow(0, first, count * side * side)
                               .view({count, side, side, 3, settings.patch, settings.patch})
                               .permute({0, 3, 1, 4, 2, 5})
                               .contiguous();
      bytes.append(static_cast<const char*>(squares.const_data_ptr()),
                   static_cast<std::size_t>(squares.numel()) * sizeof(float));
      first += count * side * side;
    };
    add(settings.cut(picture.size).count(), settings.parts->part);
    add(1, settings.parts->whole);
    RANK_EQUAL(first, patches.size(0));
    RANK_EQUAL(test::sha256(bytes), wanted["sha256"].get<std::string>());
  }
}

/// The norm of a recorded gradient. Stacked experts are matrices of their own here.
double norm_of(const std::map<std::string, at::Tensor>& gradients, const std::string& name) {
  if (const auto own = gradients.find(own_name(name)); own != gradients.end()) return own->second.norm().item<double>();
  double sum = 0;
  if (const auto stack = name.find(".moe."); stack != std::string::npos) {  // Step 3.7's, each matrix by itself
    const auto layer = own_name(name.substr(0, stack + 5));
    for (const auto& [own, gradient] : gradients)
      if (own.starts_with(layer + "experts.") && own.ends_with(name.substr(stack + 4)))
        sum += std::pow(gradient.norm().item<double>(), 2);
    return std::sqrt(sum);
  }
  const auto stacked = name.find(".experts.");
  if (stacked == std::string::npos) test::rank_check_failed(__FILE__, __LINE__, name + " has no gradient");
  const bool down = name.ends_with("down_proj");
  for (const auto& [own, gradient] : gradients)
    if (own.starts_with(name.substr(0, stacked) + ".experts.") && own.ends_with("down_proj.weight") == down)
      sum += std::pow(gradient.norm().item<double>(), 2);
  return std::sqrt(sum);
}

void check_gradients(comm::World& world, const std::string& family) {
  const auto recorded = read_json(family + "/reference.json");
  Session session(world, {.family = family});
  const auto batch = session.batches_of(recorded["batches"][1], recorded.value("pad_id", 397));
  const auto result = session.trainer().gradients(0, batch, false);
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
      const auto batch =
          session.batches_of(recorded["batches"][static_cast<std::size_t>(number)], recorded["pad_id"]).front();
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

/// A frozen tower of Qwen's takes its mergers with it, others leave the projector, as under NeMo AutoModel. Weights of
/// an index are always frozen here.
void check_frozen_names(comm::World& world) {
  for (const std::string family : kFamilies) {
    Session session(world, frozen({.family = family}));
    const auto recorded = read_json(family + "/reference.json");
    std::set<std::string> wanted, own;
    for (const auto& name : recorded["frozen_on_disk"]) wanted.insert(own_name(name));
    for (const auto& parameter : session.runtime().plan().frozen->all)
      if (parameter.trainable && !parameter.trained() && !arch::is_of_index(parameter.part)) own.insert(parameter.fqn);
    RANK_EQUAL(own, wanted);
  }
}

/// NeMo AutoModel's freeze freezes 55 of the 89 parameters of this model: all of the tower, which then has no gradients
/// and stays as it is to the last bit, while every other weight moves.
void check_frozen(comm::World& world) {
  Session session(world, frozen({}));
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
  for (const auto& name : names_in(vision_folder() + "/llava")) wanted.insert(own_name(name));
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

/// The adapters of four steps, in `folder`, are merged with a folder that may spell the modules otherwise.
void check_merged(comm::World& world, const Run& run, const test::SharedFolder& folder, std::size_t modules) {
  if (world.rank() == 0)
    RANK_EQUAL(checkpoint::export_model(folder / "parts", folder / "merged", {.merge = true}).merged, modules);
  world.control().barrier()->wait();
  Session adapters(world, run), merged(world, {.family = run.family, .model = (folder / "merged").native()});
  for (int step = 0; step < 4; ++step) adapters.step(step);
  const double before = Session(world, {.family = run.family}).evaluated(), after = adapters.evaluated();
  check_near(run.family + ", merged", merged.evaluated(), after, 1e-5);
  RANK_CHECK(std::abs(after - before) > 1e-3);
  world.control().barrier()->wait();
}

/// A resumed run of a tower's adapters ends with the same bits; they have the names of the PEFT library.
void check_saved_adapters(comm::World& world) {
  for (const std::string family : {"llava", "gemma4", "qwen3_vl", "step3p7"})
    for (const bool dora : {false, true}) {
      const test::SharedFolder folder(world);
      auto run = tower_adapted({.mesh = "strategy: fsdp2", .family = family}, dora);
      run.name = "";  // with the program's own first matrices
      const auto text = [&](const char* name) { return recipe_of(run, world.size(), folder / name, true); };
      const auto whole = test::train_to(world, text("whole"), 4);
      auto parts = test::train_to(world, text("parts"), 2, true);
      for (const double loss : test::train_to(world, text("parts"), 4, true)) parts.push_back(loss);
      RANK_CHECK(parts == whole);
      world.control().barrier()->wait();
      RANK_EQUAL(test::saved_tensors(folder / "parts"), test::saved_tensors(folder / "whole"));
      Diagnostics problems;
      const auto model = checkpoint::newest_checkpoint(folder / "parts") / "model";
      const auto found = checkpoint::adapted_modules(model, problems);
      std::set<std::string> wanted;
      const auto modules = read_json("adapters.json")[family][dora ? "dora" : "lora"]["modules"];
      for (const auto& [name, number] : modules.items()) wanted.insert(name);
      RANK_EQUAL(std::set<std::string>(found.begin(), found.end()), wanted);
      check_merged(world, run, folder, wanted.size());
    }
}

/// A new Gemma 4's linear modules have no limits, which are infinite numbers in its weights.
void check_limits(comm::World& world) {
  const test::SharedFolder folder(world);
  auto text = recipe_of({.family = "gemma4"}, world.size(), folder / "run", true);
  const auto model = "pretrained_model_name_or_path: " + vision_folder() + "/gemma4",
             from = "from_pretrained, " + model;
  text.replace(text.find(from), from.size(), "from_config, config: {" + model + "}");
  test::train_to(world, text, 1);
  Diagnostics problems;
  const auto files =
      checkpoint::TensorFolder::open(checkpoint::newest_checkpoint(folder / "run") / "model", "model", problems);
  RANK_CHECK(files.has_value());
  const auto limit = files->find("model.vision_tower.encoder.layers.0.mlp.up_proj.output_max");
  RANK_CHECK(limit.info != nullptr && limit.info->shape.empty());
  float value = 0;
  limit.file->read(*limit.info, 0, reinterpret_cast<char*>(&value), sizeof(value));
  RANK_CHECK(std::isinf(value) && value > 0);
}

/// Gemma 4's pictures whose tokens see each other in layers with a window, but not in those without, of which one is
/// not the last: losses of the batches before training.
void check_both_ways(comm::World& world) {
  const auto recorded = read_json("gemma4/reference.json");
  const test::SharedFolder folder(world);
  test::fs::copy(vision_folder() + "/gemma4", folder / "model");
  auto config = read_json("gemma4/config.json");
  config["text_config"]["use_bidirectional_attention"] = "vision";
  config["text_config"]["sliding_window"] = 96;  // so that answers see pictures in the layers behind
  std::ofstream(folder / "model/config.json") << config;
  Session session(world, {.family = "gemma4", .model = (folder / "model").native()});
  for (std::size_t batch = 0; batch < 5; ++batch) {
    const auto result = session.trainer().gradients(0, session.batches_of(recorded["batches"][batch], 0), false);
    check_near(fmt::format("loss of batch {}", batch), result.loss, recorded["both_ways"][batch].get<double>(), kLoss);
  }
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
    check_run(world, {.mesh = "strategy: " + strategy, .family = family});
    check_run(world, frozen({.mesh = "strategy: " + strategy, .family = family}));
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
    return recipe_of({.mesh = "strategy: fsdp2", .family = "qwen3_vl_moe"}, world.size(), folder / name, true);
  };
  const auto whole = test::train_to(world, text("whole"), 3);
  auto parts = test::train_to(world, text("parts"), 1, true);
  for (const double loss : test::train_to(world, text("parts"), 3, true)) parts.push_back(loss);
  RANK_CHECK(parts == whole);
  world.control().barrier()->wait();
  const auto saved = checkpoint::newest_checkpoint(folder / "parts") / "model";
  RANK_CHECK(names_in(saved) == names_in(vision_folder() + "/qwen3_vl_moe"));
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

/// Saved under the published names, which transformers reads, and read again.
void check_published(comm::World& world, const std::string& family) {
  const test::SharedFolder folder(world);
  const Run run{.mesh = "strategy: fsdp2", .family = family};
  test::train_to(world, recipe_of(run, world.size(), folder / "run", true), 2);
  const auto saved = checkpoint::newest_checkpoint(folder / "run") / "model";
  RANK_CHECK(names_in(saved) == names_in(vision_folder() + "/" + family));
  Session trained(world, run);
  for (int step = 0; step < 2; ++step) trained.step(step);
  Session again(world, {.mesh = run.mesh, .family = run.family, .model = saved.native()});
  const auto values = train::gather_values(again.runtime());
  for (const auto& [name, value] : train::gather_values(trained.runtime()))
    if (!at::equal(value, values.at(name)))
      test::rank_check_failed(__FILE__, __LINE__, fmt::format("{} is read as another value", name));
  world.control().barrier()->wait();
}

/// Everything but the adapters of the decoder is frozen.
void check_adapters(comm::World& world) {
  check_run(world, adapted({}));
  for (const std::string family : kFamilies) check_run(world, adapted({.family = family}));
}

/// Adapters of all linear modules of a tower and its projector, which have transformers' names.
void check_tower_adapters(comm::World& world) {
  for (const std::string family : test::kTowerAdapted)
    for (const bool dora : {false, true})
      for (const std::string strategy : {"ddp", "fsdp2"})
        check_run(world, tower_adapted({.mesh = "strategy: " + strategy, .family = family}, dora));
}

/// Rows of a batch in one sequence, which do not see each other and whose places begin at 0.
void check_packs(comm::World& world) {
  std::vector<std::string> families = {"llava"};
  families.insert(families.end(), kFamilies.begin(), kFamilies.end());
  for (const auto& family : families) check_run(world, {.family = family, .rows = test::RunRows::kPacked});
}

void check_distillation(comm::World& world) {
  for (const auto& family : kFamilies) test::check_teacher(world, {.mesh = "strategy: fsdp2", .family = family});
}

/// Experts divided over the ranks, whose pictures differ.
void check_experts(comm::World& world) {
  for (const std::string family : {"gemma4_moe", "qwen3_vl_moe", "qwen3_5_moe", "step3p7", "minimax_m3_vl"})
    check_run(world, {.mesh = "strategy: fsdp2, ep_size: 2", .family = family});
}

void check_answers(comm::World& world) {
  std::vector<std::string> families = {"llava"};
  families.insert(families.end(), kFamilies.begin(), kFamilies.end());
  for (const auto& family : families) test::check_generation(world, {.family = family});
}

std::vector<std::string> all_families() {
  std::vector<std::string> out = {"llava"};
  out.insert(out.end(), kFamilies.begin(), kFamilies.end());
  return out;
}

/// Losses and gradients with a cache are those without it: to the last bit where a pass of the tower has one picture,
/// as the cache's have, and otherwise as matmuls of more rows are rounded. And no rank has the tower.
void check_cached(comm::World& world) {
  int alone = 0;
  for (const auto& family : all_families()) {
    std::vector<Run> runs = {frozen({.family = family}), adapted({.family = family})};
    if (family == "llava" || family == "gemma3" || family == "mistral3")
      runs.push_back(frozen_whole({.family = family}));
    if (family == "muse_glimmer")  // whose projector is two modules, frozen with the tower
      for (const char* more : {"", ", {glob: '*vision_adapter*'}"})
        runs.push_back(
            {.name = "",
             .sections = fmt::format("freeze_config: {{freeze_modules: [{{glob: '*vision_tower*'}}{}]}}\n", more),
             .family = family});
    if (!family.starts_with("qwen") && family != "gemma3")  // projectors that have linear modules
      runs.push_back({.name = "",
                      .sections = "peft: {dim: 4, alpha: 8, target_modules: ['*multi_modal_projector*', "
                                  "'*embed_vision*', '*vision_adapter*', '*vision_projection*']}\n",
                      .family = family});
    for (auto& run : runs) {
      run.rows = test::RunRows::kApart;
      const auto recorded = read_json(family + "/reference.json");
      Session plain(world, run), once(world, cached(run));
      RANK_CHECK(!plain.runtime().plan().features->cached && once.runtime().plan().features->cached);
      for (auto* stage : once.runtime().stages())
        for (const auto& weight : stage->model().weights().all())
          RANK_CHECK(!weight->info.fqn.starts_with("model.vision_tower") &&
                     !weight->info.fqn.starts_with("model.visual") &&
                     !weight->info.fqn.starts_with("model.vision_model"));
      for (const auto& rows : recorded["batches"]) {
        const auto pad = recorded.value("pad_id", 397);
        const auto batches = plain.batches_of(rows, pad, run.rows);
        const bool bits = std::ranges::all_of(
            batches, [](const auto& batch) { return batch.pictures.empty() || batch.pictures.front().size() < 2; });
        const auto a = plain.trainer().gradients(0, batches, false), b = once.trainer().gradients(0, batches, false);
        const auto what = family + ", " + run.name;
        check_near(what + ", loss", b.loss, a.loss, bits ? 0 : 1e-6 * a.loss);
        check_near(what + ", norm", b.grad_norm, a.grad_norm, bits ? 0 : 1e-5 * a.grad_norm);
        const auto wanted = train::gather_gradients(plain.runtime());
        const auto gradients = train::gather_gradients(once.runtime());
        RANK_EQUAL(gradients.size(), wanted.size());
        for (const auto& [name, gradient] : wanted)
          check_near(what + ", gradient of " + name, (gradients.at(name) - gradient).norm().item<double>(), 0,
                     bits ? 0 : 1e-4 * gradient.norm().item<double>() + 1e-6 * a.grad_norm);
        alone += bits ? 1 : 0;
      }
    }
  }
  RANK_CHECK(alone > 20);
}

/// In bfloat16, where a matmul of more rows may be rounded otherwise.
void check_cached_half(comm::World& world) {
  for (const auto& family : all_families()) {
    const auto recorded = read_json(family + "/reference.json");
    auto run = frozen({.family = family});
    run.type = "bfloat16";
    Session plain(world, run), once(world, cached(run));
    for (const auto& rows : recorded["batches"]) {
      const auto pad = recorded.value("pad_id", 397);
      const auto a = plain.trainer().gradients(0, plain.batches_of(rows, pad), false);
      const auto b = once.trainer().gradients(0, once.batches_of(rows, pad), false);
      check_near(family + ", loss", b.loss, a.loss, 2e-2);
    }
  }
}

/// Opens a run's cache, and says how many pictures it has for the run, and how many were computed.
std::string opened_cache(comm::World& world, const std::string& text) {
  const auto loaded = test::load_recipe(text);
  const train::Setup setup(loaded, world);
  const auto start = train::find_start(setup, nullptr);
  const auto made = train::cache_features(setup, start.weights);
  const auto found = made.line.find(": ");
  const auto what = made.line.substr(found + 2, made.line.find(" in ", found) - found - 2);
  const std::string before = "features  ";
  RANK_CHECK(made.line.starts_with(before));
  return fmt::format("{}, {}", made.line.substr(before.size(), made.line.find(',') - before.size()), what);
}

/// Changes a value of the first tensor whose name has the word.
void change_weight(const test::fs::path& folder, const std::string& word) {
  Diagnostics problems;
  const auto files = checkpoint::TensorFolder::open(folder, "model", problems);
  std::string name;
  for (const auto& tensor : files->tensors())
    if (name.empty() && tensor.info->name.find(word) != std::string::npos) name = tensor.info->name;
  std::fstream file(folder / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  std::uint64_t size = 0;
  file.read(reinterpret_cast<char*>(&size), sizeof size);
  std::string header(size, ' ');
  file.read(header.data(), static_cast<std::streamsize>(size));
  const auto at = Json::parse(header)[name]["data_offsets"][0].get<std::uint64_t>() + size + sizeof size;
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

/// What outputs depend on gives them another name, and nothing else does.
void check_cache_key(comm::World& world) {
  const test::SharedFolder folder(world);
  const std::string computed = "10 pictures, 10 computed", kept = "10 pictures, all from an earlier run";
  const auto text = [&](const Run& run) { return recipe_of(cached(run), world.size(), folder / "run", false); };
  const auto changed = [&](std::string recipe, const std::string& from, const std::string& to) {
    return recipe.replace(recipe.find(from), from.size(), to);
  };
  if (world.rank() == 0)
    for (const char* name : {"a", "b", "c"}) test::fs::copy(vision_folder() + "/qwen2_5_vl", folder / name);
  if (world.rank() == 0) {
    change_weight(folder / "b", "visual");
    change_weight(folder / "c", "embed_tokens");
  }
  world.control().barrier()->wait();
  const auto of = [&](const char* name) { return frozen({.family = "qwen2_5_vl", .model = (folder / name).native()}); };
  RANK_EQUAL(opened_cache(world, text(of("a"))), computed);
  RANK_EQUAL(opened_cache(world, text(of("a"))), kept);
  RANK_EQUAL(opened_cache(world, text(of("b"))), computed);  // another weight of the tower
  RANK_EQUAL(opened_cache(world, text(of("c"))), kept);      // another weight of the decoder
  RANK_EQUAL(opened_cache(world, text(adapted(of("a")))), kept);
  auto processed = of("a");
  processed.sections += "processor: {max_pixels: 2048}\n";
  RANK_EQUAL(opened_cache(world, text(processed)), computed);
  auto half = of("a");
  half.type = "bfloat16";
  RANK_EQUAL(opened_cache(world, text(half)), computed);
  // Random weights follow from the seed.
  const auto from = "from_pretrained, pretrained_model_name_or_path: " + (folder / "a").native();
  const auto random = changed(text(of("a")), from,
                              "from_config, config: {pretrained_model_name_or_path: " + (folder / "a").native() + "}");
  RANK_EQUAL(opened_cache(world, random), computed);
  RANK_EQUAL(opened_cache(world, random), kept);
  RANK_EQUAL(opened_cache(world, random + "seed: 43\n"), computed);
  world.control().barrier()->wait();
}

/// A file that was cut is computed again; one whose rows changed ends the run.
void check_damaged_cache(comm::World& world) {
  const test::SharedFolder folder(world);
  const auto text = recipe_of(cached(frozen({.family = "gemma3"})), world.size(), folder / "run", false);
  const auto losses = test::train_to(world, text, 2);
  const auto each_file = [&](const std::function<void(const test::fs::path&)>& act) {
    world.control().barrier()->wait();
    if (world.rank() == 0)
      for (const auto& file : test::fs::directory_iterator(folder / "features")) act(file.path());
    world.control().barrier()->wait();
  };
  each_file([](const auto& file) { test::fs::resize_file(file, test::fs::file_size(file) - 1); });
  RANK_EQUAL(opened_cache(world, text), "10 pictures, 10 computed");
  RANK_CHECK(test::train_to(world, text, 2) == losses);
  each_file([](const auto& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(test::fs::file_size(path) / 2));
    file.put('!');
  });
  std::string id;
  try {
    for (std::int64_t end = 0; end < 5; ++end) test::train_to(world, text, 5);
  } catch (const Error& error) {
    id = error.problems().front().id.name();
  }
  RANK_EQUAL(id, "features-damaged");
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

/// Where nothing can be written, auto trains without a cache, and true ends the run before it computes anything, unless
/// all is there.
void check_closed_cache(comm::World& world) {
  const test::SharedFolder folder(world);
  const auto text = recipe_of(cached(frozen({.family = "gemma3"})), world.size(), folder / "run", false);
  const auto wanted = replaced(text, "cache_features: true", "cache_features: auto");
  const auto why = [&](const std::string& recipe) {
    const auto loaded = test::load_recipe(recipe);
    const train::Setup setup(loaded, world);
    return fmt::format("{} {}", setup.plan.features->cached, setup.plan.features->why);
  };
  const auto within = [&](const std::string& recipe, const test::fs::path& path) {
    return replaced(recipe, (folder / "features").native(), path.native());
  };
  RANK_CHECK(why(wanted).starts_with("true 10 pictures are read"));
  if (world.rank() == 0) std::ofstream(folder / "file") << "";
  world.control().barrier()->wait();
  for (const auto& closed : {folder / "file" / "cache", test::fs::path("/dev/null/x")}) {
    RANK_EQUAL(why(within(wanted, closed)), "false the folder of the cache cannot be written to, or its disk is full");
    RANK_EQUAL(test::train_to(world, within(wanted, closed), 1).size(), std::size_t{1});
    try {
      opened_cache(world, within(text, closed));
      RANK_CHECK(false);
    } catch (const Error& error) {
      const auto& problem = error.problems().front();
      RANK_EQUAL(problem.id.name(), "cannot-write");
      RANK_CHECK(problem.where.line > 0 && problem.message.find(closed.native()) != std::string::npos);
    }
  }
  world.control().barrier()->wait();
}

/// Files of a shared folder: only this run's pictures are counted, and the section that names it need not be the first.
void check_shared_cache(comm::World& world) {
  const test::SharedFolder folder(world);
  const auto text = recipe_of(cached(frozen({.family = "qwen3_vl"})), world.size(), folder / "run", false);
  const auto where = ", cache_dir: " + (folder / "features").native();
  const std::string validation =
      "validation_dataset: {_target_: mock_pictures, num_samples: 4, num_images_per_sample: 2, image_size: [40, 24]";
  RANK_EQUAL(opened_cache(world, replaced(text, where, "") + validation + where + "}\n"), "18 pictures, 18 computed");
  RANK_EQUAL(opened_cache(world, text), "10 pictures, all from an earlier run");
  RANK_EQUAL(opened_cache(world, text + validation + "}\n"), "18 pictures, all from an earlier run");
  world.control().barrier()->wait();
}

/// A picture that changes behind the opening of the data is named by its data set.
void check_changed_picture(comm::World& world) {
  const test::SharedFolder folder(world);
  const auto rows = vision_folder() + "/llava/samples.jsonl";
  test::fs::create_directory(folder / "rows");
  test::fs::copy(rows, folder / "rows");
  test::fs::copy(vision_folder() + "/llava/pictures", folder / "rows" / "pictures");
  const auto put = [&](const char* name) {  // pictures of one size
    test::fs::copy_file(vision_folder() + "/pictures/" + name, folder / "rows" / "pictures" / "t00.png",
                        test::fs::copy_options::overwrite_existing);
  };
  put("grey_16bit.png");
  const auto text = recipe_of(cached(frozen({.family = "gemma3"})), world.size(), folder / "run", false);
  const auto own = (folder / "rows" / "samples.jsonl").native();
  const auto loaded = test::load_recipe(replaced(text, rows, own));
  const train::Setup setup(loaded, world);
  const auto start = train::find_start(setup, nullptr);
  put("rgb_16bit.png");
  try {
    train::cache_features(setup, start.weights);
    RANK_CHECK(false);
  } catch (const Error& error) {
    const auto& problem = error.problems().front();
    RANK_EQUAL(problem.id.name(), "bad-row");
    RANK_EQUAL(problem.message,
               "picture 0 of row 0 of dataset ('" + own + "') has changed since the data set was opened");
    RANK_CHECK(problem.key == "dataset" && problem.where.line > 0);
  }
}

/// Saved models are whole and resumed runs the same, whether the cache is on, off, or changed in between.
void check_cached_saves(comm::World& world) {
  for (const bool adapters : {false, true}) {
    const test::SharedFolder folder(world);
    const auto text = [&](const char* name, bool caches) {
      Run run = adapters ? adapted({.family = "qwen3_vl"}) : frozen({.family = "qwen3_vl"});
      run.cached = caches;
      run.mesh = "strategy: fsdp2";
      return recipe_of(run, world.size(), folder / name, true);
    };
    const auto losses = test::train_to(world, text("plain", false), 3);
    RANK_CHECK(test::near(test::train_to(world, text("cached", true), 3), losses, 1e-6));
    RANK_EQUAL(test::saved_tensors(folder / "cached"), test::saved_tensors(folder / "plain"));
    auto mixed = test::train_to(world, text("mixed", true), 1, true);
    for (const bool caches : {false, true})
      for (const double loss : test::train_to(world, text("mixed", caches), caches ? 3 : 2, true))
        mixed.push_back(loss);
    RANK_CHECK(test::near(mixed, losses, 1e-6));
    RANK_EQUAL(test::saved_tensors(folder / "mixed"), test::saved_tensors(folder / "plain"));
    world.control().barrier()->wait();
  }
}

/// Pictures of a validation set that training lacks.
void check_cached_validation(comm::World& world) {
  auto run = frozen({.family = "qwen3_vl"});
  run.sections +=
      "validation_dataset: {_target_: mock_pictures, num_samples: 4, num_images_per_sample: 2, image_size: [40, 24]}\n";
  Session plain(world, run), once(world, cached(run));
  check_near("validation", once.validated(), plain.validated(), 0);
  RANK_EQUAL(once.runtime().plan().features->facts->pictures, std::int64_t{18});
  world.control().barrier()->wait();
}

const std::vector<test::RankCase> kCases = {
    {"a frozen tower's outputs are computed once", check_cached, 1, 1},
    {"the same in bfloat16", check_cached_half, 1, 1},
    {"outputs follow from weights, processor and types", check_cache_key},
    {"a cache that cannot be written", check_closed_cache, 1, 1},
    {"a cache that several runs share", check_shared_cache},
    {"a picture that has changed is named by its data set", check_changed_picture, 1, 1},
    {"damaged outputs are computed again or refused", check_damaged_cache, 1, 1},
    {"models are saved whole without their tower", check_cached_saves},
    {"outputs of a validation set", check_cached_validation},
    {"rows from a file of conversations", check_rows, 1, 1},
    {"joined experts are saved as transformers reads them", check_joined},
    {"Step 3.7 and MiniMax-M3 are saved under published names",
     [](comm::World& w) {
       for (const std::string family : {"step3p7", "minimax_m3_vl"}) check_published(w, family);
     }},
    {"adapters of the decoder", check_adapters, 1, 1},
    {"adapters of tower and projector", check_tower_adapters},
    {"adapters of a tower that are saved, resumed and merged", check_saved_adapters},
    {"packs", check_packs, 1, 1},
    {"text behind pictures, with and without cached keys", check_answers, 1, 1},
    {"a teacher sees the pictures of its student", check_distillation},
    {"tokens of Gemma 4's pictures that see each other", check_both_ways, 1, 1},
    {"limits that are infinite are saved", check_limits, 1, 1},
    {"experts over the ranks", check_experts, 2, 2},
    {"places of pictures' tokens by time, row and column", check_axes, 1, 1},
    {"gradients of every weight of other families' towers and decoders",
     [](comm::World& w) {
       for (const std::string family : kFamilies) check_gradients(w, family);
     },
     1, 1},
    {"their frozen towers are NeMo AutoModel's", check_frozen_names, 1, 1},
    {"ten steps of Gemma 3 and 4, Mistral 3, Muse-Glimmer, Qwen2.5-VL, Qwen3-VL, Qwen3.5, Step 3.7 and MiniMax-M3, all "
     "trained or the tower frozen",
     [](comm::World& w) { check_families(w, "ddp"); }},
    {"the same under FSDP2", [](comm::World& w) { check_families(w, "fsdp2"); }},
    {"pixel values equal those of transformers bit for bit", check_pixels, 1, 1},
    {"pictures that are cut into parts", check_parts, 1, 1},
    {"gradients of every weight of tower, projector and decoder", [](comm::World& w) { check_gradients(w, "llava"); },
     1, 1},
    {"ten steps with everything trained", [](comm::World& w) { check_run(w, {}); }},
    {"ten steps with gradients clipped",
     [](comm::World& w) {
       check_run(w, {"adamw_clip1", "clip_grad_norm: {max_norm: 1.0}\n"});
     },
     1, 1},
    {"ten steps with a frozen tower", [](comm::World& w) { check_run(w, frozen({})); }},
    {"shards of a tower, also where a rank has no picture",
     [](comm::World& w) {
       check_run(w, {.mesh = "strategy: fsdp2"});
       check_run(w, frozen({.mesh = "strategy: fsdp2"}));
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
