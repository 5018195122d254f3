// Sequence classifiers of transformers and students of NeMo AutoModel's distillation, trained: ten recorded steps of
// four pairs each (test/golden/objectives), the same on other meshes; classifiers also over a checkpoint, and from a
// language model whose head is new.
#include <cmath>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "golden_folder.h"
#include "ops/distillation.h"
#include "parallel/tensor/vocabulary.h"
#include "parity/parity.h"
#include "rank_suite.h"
#include "train/evaluate.h"
#include "train/saved_runs.h"
#include "train/start_point.h"
#include "train/trainer.h"

namespace automodel {
namespace {

using Json = nlohmann::json;

const std::string kGolden = automodel::golden_folder() + "/objectives/";
constexpr double kLoss = 1e-4, kNorm = 2e-3;  // of float32; the norm is relative

Json recorded_run(const std::string& name) {
  std::ifstream file(kGolden + (name.starts_with("cls") ? "classification.jsonl" : "distillation.jsonl"));
  for (std::string line; std::getline(file, line);)
    if (auto row = Json::parse(line); row["dir"] == name) return row;
  throw InternalError("no such recording: " + name);
}

void check_near(const std::string& what, double ours, double theirs, double tolerance) {
  if (!(std::abs(ours - theirs) <= tolerance))
    test::rank_check_failed(__FILE__, __LINE__, fmt::format("{}: {} against {}", what, ours, theirs));
}

/// The rest of a recorded run's recipe, without models.
std::string rest_of(const Json& run, const std::string& distributed, const std::filesystem::path& folder, int local,
                    bool saves = false) {
  const auto data = fmt::format("{}{}/rows.jsonl", kGolden, run["dir"].get<std::string>());
  return fmt::format(
      "dataset: {{_target_: tokens, path: {0}}}\n"
      "validation_dataset: {{_target_: tokens, path: {0}}}\n"
      "dataloader: {{shuffle: false}}\n"
      "optimizer: {{lr: 0.001, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.1}}\n"
      "clip_grad_norm: null\n"
      "step_scheduler: {{global_batch_size: 4, local_batch_size: {1}, max_steps: 10, num_epochs: null, "
      "ckpt_every_steps: 100}}\n"
      "checkpoint: {{enabled: {2}, checkpoint_dir: {3}}}\n"
      "distributed: {{{4}}}\n",
      data, local, saves, folder.native(), distributed);
}

/// The recorded run's recipe; `model`: another model than the recorded one.
std::string recipe_of(const Json& run, const std::string& distributed, const std::filesystem::path& folder, int local,
                      const std::string& model = "", bool saves = false) {
  return fmt::format(
             "recipe: TrainFinetuneRecipeForSequenceClassification\n"
             "model: {{_target_: nemo_automodel.NeMoAutoModelForSequenceClassification.from_pretrained, num_labels: "
             "{}, "
             "pretrained_model_name_or_path: {}, torch_dtype: float32}}\n",
             run["num_labels"].get<int>(),
             model.empty() ? fmt::format("{}{}/model", kGolden, run["dir"].get<std::string>()) : model) +
         rest_of(run, distributed, folder, local, saves);
}

/// A recorded student's recipe; `more`: further keys of kd_loss_fn.
std::string student_of(const Json& run, const std::string& distributed, const std::filesystem::path& folder, int local,
                       const std::string& more = "") {
  const auto from = kGolden + run["dir"].get<std::string>();
  return fmt::format(
             "recipe: KnowledgeDistillationRecipeForNextTokenPrediction\n"
             "model: {{pretrained_model_name_or_path: {0}/student, torch_dtype: float32}}\n"
             "teacher_model: {{pretrained_model_name_or_path: {0}/teacher, torch_dtype: float32}}\n"
             "kd_ratio: {1}\n"
             "kd_loss_fn: {{_target_: nemo_automodel.components.loss.kd_loss.KDLoss, temperature: {2}{3}}}\n",
             from, run["kd_ratio"].get<double>(), run["temperature"].get<double>(), more) +
         rest_of(run, distributed, folder, local);
}

std::vector<train::StepResult> train_steps(comm::World& world, const std::string& recipe, int steps) {
  const auto loaded = test::load_recipe(recipe);
  const train::Setup setup(loaded, world);
  const auto start = train::find_start(setup, nullptr);
  train::Runtime runtime(setup.plan, world, start.weights);
  train::Trainer trainer(runtime, start.rates);
  std::vector<train::StepResult> out;
  for (int step = 0; step < steps; ++step) {
    const auto plan = setup.steps->plan(step);
    out.push_back(trainer.step(step, setup.loader->load(plan.epoch, plan.step_in_epoch), false));
  }
  world.control().barrier()->wait();
  return out;
}

void check_recorded(comm::World& world, const std::string& name, const std::string& distributed, int local) {
  const test::SharedFolder folder(world);
  const auto run = recorded_run(name);
  const auto losses = run["losses"].get<std::vector<double>>(), norms = run["grad_norms"].get<std::vector<double>>(),
             accuracy = run["accuracy"].get<std::vector<double>>();
  const auto steps =
      train_steps(world, recipe_of(run, distributed, folder / "run", local), static_cast<int>(losses.size()));
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const auto what = fmt::format("{}, {}, step {}", name, distributed, i);
    check_near(what, steps[i].loss, losses[i], kLoss);
    check_near(what + ", gradient norm", steps[i].grad_norm, norms[i], kNorm * norms[i]);
    RANK_CHECK(steps[i].accuracy.has_value());
    check_near(what + ", accuracy", *steps[i].accuracy, accuracy[i], 1e-9);
    RANK_EQUAL(steps[i].label_tokens, std::int64_t{4});
  }
}

/// Meshes of this many ranks, with the rows per rank.
std::vector<std::pair<std::string, int>> meshes(const comm::World& world) {
  if (world.size() == 1) return {{"strategy: ddp", 4}, {"strategy: ddp", 2}};
  return {{"strategy: ddp", 2},
          {"strategy: fsdp2", 2},
          {"strategy: fsdp2, tp_size: 2", 4},
          {"strategy: fsdp2, tp_size: 2, sequence_parallel: true", 4},
          {"strategy: fsdp2, cp_size: 2", 4},
          {"strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 2}", 4}};
}

void check_student(comm::World& world, const std::string& name, const std::string& distributed, int local,
                   const std::string& more = "") {
  const test::SharedFolder folder(world);
  const auto run = recorded_run(name);
  const auto losses = run["losses"].get<std::vector<double>>(), norms = run["grad_norms"].get<std::vector<double>>(),
             ce = run["ce"].get<std::vector<double>>(), kd = run["kd"].get<std::vector<double>>();
  const auto steps =
      train_steps(world, student_of(run, distributed, folder / "run", local, more), static_cast<int>(losses.size()));
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const auto what = fmt::format("{}, {}{}, step {}", name, distributed, more, i);
    check_near(what, steps[i].loss, losses[i], kLoss);
    check_near(what + ", gradient norm", steps[i].grad_norm, norms[i], kNorm * norms[i]);
    RANK_CHECK(steps[i].ce_loss && steps[i].kd_loss);
    check_near(what + ", cross-entropy", *steps[i].ce_loss, ce[i], kLoss);
    // A fiftieth of the loss: the whole loss would hide an error.
    check_near(what + ", divergence", *steps[i].kd_loss, kd[i], 1e-3 * kd[i]);
  }
}

/// The student's loss against its formula, written out, with logits that differ enough for the temperature to matter;
/// the vocabulary is split over the ranks.
void check_lesson(comm::World& world, double ratio, double temperature) {
  constexpr std::int64_t kRows = 6, kVocabulary = 11;
  constexpr double kScale = 0.5;
  const auto numbers = at::arange(kRows * kVocabulary, at::TensorOptions().dtype(at::kDouble)).view({kRows, -1});
  const auto student = (numbers * 1.7).sin() * 7, teacher = (numbers * 0.9).cos() * 5;
  const auto labels = at::tensor({3, -100, 10, 0, 7, 5}, at::TensorOptions().dtype(at::kLong));
  const auto counted = labels.ne(-100).to(at::kDouble).unsqueeze(1);
  const auto wanted = at::softmax(teacher / temperature, 1), cool = at::softmax(student / temperature, 1);
  const auto onehot = at::zeros_like(student).scatter_(1, labels.clamp_min(0).unsqueeze(1), 1.0);
  const auto ce = -(at::log_softmax(student, 1) * onehot * counted).sum().item<double>();
  const auto kl = (wanted * (wanted.log() - cool.log()) * counted).sum().item<double>() * temperature * temperature;
  const auto slope =
      ((at::softmax(student, 1) - onehot) * (1 - ratio) + (cool - wanted) * (ratio * temperature)) * counted * kScale;

  const auto share = parallel::VocabularyShare::of(kVocabulary, world.size(), world.rank());
  const auto width = (kVocabulary + world.size() - 1) / world.size();
  const auto mine = [&](const at::Tensor& whole) {
    auto out = at::zeros({kRows, width}, whole.options());
    out.narrow(1, 0, share.rows).copy_(whole.narrow(1, share.first, share.rows));
    return out;
  };
  ops::HeadLoss loss{.first = share.first, .columns = share.rows};
  loss.lesson = std::make_shared<ops::Lesson>(ops::Lesson{.ratio = ratio, .temperature = temperature});
  if (world.size() > 1)
    loss.gather = [&](const at::Tensor& each) {
      auto all = at::empty({world.size(), each.size(0), each.size(1)}, each.options());
      world.control().all_gather(all, each)->wait();
      return all;
    };
  auto logits = mine(student);
  const auto sums = ops::lesson_loss(logits, mine(teacher), labels, loss, kScale, true);
  check_near("cross-entropy", sums.cross_entropy.item<double>(), ratio < 1 ? ce : 0, 1e-10);
  check_near("divergence", sums.divergence.item<double>(), kl, 1e-10);
  check_near("gradient", (logits - mine(slope)).abs().max().item<double>(), 0, 1e-12);
}

/// The recorded model as the language model that it could come from: another head in place of its own.
void make_language_model(const std::string& name, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::ifstream config_in(kGolden + name + "/model/config.json");
  auto config = Json::parse(config_in);
  for (const char* key : {"architectures", "id2label", "label2id"}) config.erase(key);
  std::ofstream(folder / "config.json") << config;
  std::ifstream in(kGolden + name + "/model/model.safetensors", std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), 8);
  auto header = Json::parse(bytes.substr(8, size));
  const auto from = header["score.weight"]["data_offsets"][0].get<std::uint64_t>();
  const auto to = header["score.weight"]["data_offsets"][1].get<std::uint64_t>();
  header.erase("score.weight");
  std::string data = bytes.substr(8 + size);
  data.erase(from, to - from);
  for (auto& [key, info] : header.items())
    if (key != "__metadata__" && info["data_offsets"][0].get<std::uint64_t>() >= to)
      for (auto& offset : info["data_offsets"]) offset = offset.get<std::uint64_t>() - (to - from);
  const auto head =
      std::uint64_t{4} * config["vocab_size"].get<std::uint64_t>() * config["hidden_size"].get<std::uint64_t>();
  header["lm_head.weight"] = {{"dtype", "F32"},
                              {"shape", {config["vocab_size"], config["hidden_size"]}},
                              {"data_offsets", {data.size(), data.size() + head}}};
  data.append(head, '\0');
  const auto text = header.dump();
  size = text.size();
  std::ofstream out(folder / "model.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&size), 8);
  out << text << data;
}

const std::vector<test::RankCase> kCases = {
    {"Llama, Qwen3, Qwen2 and Gemma 2 give transformers' losses, norms and accuracies",
     [](comm::World& w) {
       for (const std::string name : {"cls0", "cls1", "cls2", "cls3"})
         for (const auto& [distributed, local] : meshes(w)) check_recorded(w, name, distributed, local);
     }},
    {"students give NeMo AutoModel's losses, norms, cross-entropies and divergences",
     [](comm::World& w) {
       for (const std::string name : {"kd0", "kd1", "kd2", "kd3"})
         for (const auto& [distributed, local] : meshes(w)) check_student(w, name, distributed, local);
     }},
    {"the loss of a student is that of its formula, with the vocabulary on one rank or split",
     [](comm::World& w) {
       for (const double ratio : {0.0, 0.3, 1.0})
         for (const double temperature : {1.0, 2.5}) check_lesson(w, ratio, temperature);
     }},
    {"the loss of a student does not depend on its chunks",
     [](comm::World& w) { check_student(w, "kd2", "strategy: ddp", 4 / w.size(), ", chunk_size: 7"); }},
    {"a student's validation has both parts of the loss",
     [](comm::World& w) {
       const test::SharedFolder folder(w);
       const auto run = recorded_run("kd0");
       for (const auto& [distributed, local] : meshes(w)) {
         const auto loaded = test::load_recipe(student_of(run, distributed, folder / "run", local));
         const train::Setup setup(loaded, w);
         const auto start = train::find_start(setup, nullptr);
         train::Runtime runtime(setup.plan, w, start.weights);
         const auto result = train::evaluate(runtime, *setup.validation.front().second);
         RANK_CHECK(result && result->ce_loss && result->kd_loss);
         check_near("parts", 0.5 * *result->ce_loss + 0.5 * *result->kd_loss, result->loss, 1e-6);
         check_near("divergence", *result->kd_loss, run["kd"][0].get<double>(), 0.2 * run["kd"][0].get<double>());
         w.control().barrier()->wait();
       }
     }},
    {"a run goes on from its checkpoint, which holds the head",
     [](comm::World& w) {
       const test::SharedFolder folder(w);
       const auto run = recorded_run("cls0");
       const auto recipe = recipe_of(run, "strategy: fsdp2", folder / "run", 4 / w.size(), "", true);
       auto losses = test::train_to(w, recipe, 4);
       const auto later = test::train_to(w, recipe, 10);
       losses.insert(losses.end(), later.begin(), later.end());
       RANK_EQUAL(losses.size(), std::size_t{10});
       for (std::size_t i = 0; i < losses.size(); ++i)
         check_near(fmt::format("step {}", i), losses[i], run["losses"][i].get<double>(), kLoss);
       // What transformers opens: its class, its classes, and the head's weight.
       const auto model = folder / "run" / "LATEST" / "model";
       std::ifstream config_file(model / "config.json");
       const auto config = Json::parse(config_file);
       RANK_CHECK(config["architectures"][0] == "LlamaForSequenceClassification");
       RANK_EQUAL(config["id2label"].size(), std::size_t{5});
       RANK_EQUAL(config["pad_token_id"].get<int>(), 0);
       std::string tensors;
       for (const auto& file : std::filesystem::directory_iterator(model))
         if (file.path().extension() == ".safetensors") {
           std::ifstream in(file.path(), std::ios::binary);
           tensors.append(std::istreambuf_iterator<char>(in), {});
         }
       RANK_CHECK(tensors.find("\"score.weight\"") != std::string::npos);
       RANK_CHECK(tensors.find("lm_head") == std::string::npos);
     }},
    {"a language model's folder gives all but the head, which is drawn from the seed",
     [](comm::World& w) {
       const test::SharedFolder folder(w);
       const auto run = recorded_run("cls0");
       if (w.rank() == 0) make_language_model("cls0", folder / "language");
       w.control().barrier()->wait();
       const auto steps = train_steps(
           w, recipe_of(run, "strategy: fsdp2", folder / "run", 4 / w.size(), (folder / "language").native()), 2);
       // Small scores: nearly the loss of a guess.
       check_near("first loss", steps[0].loss, std::log(5.0), 0.2);
       RANK_CHECK(std::abs(steps[0].loss - run["losses"][0].get<double>()) > 1e-3);
       RANK_CHECK(steps[1].loss != steps[0].loss);
     }},
    {"validation has an accuracy, the same on every mesh",
     [](comm::World& w) {
       const test::SharedFolder folder(w);
       const auto run = recorded_run("cls3");
       for (const auto& [distributed, local] : meshes(w)) {
         const auto loaded = test::load_recipe(recipe_of(run, distributed, folder / "run", local));
         const train::Setup setup(loaded, w);
         const auto start = train::find_start(setup, nullptr);
         train::Runtime runtime(setup.plan, w, start.weights);
         const auto result = train::evaluate(runtime, *setup.validation.front().second);
         RANK_CHECK(result && result->accuracy);
         RANK_EQUAL(result->label_tokens, std::int64_t{40});
         const double rows = *result->accuracy * 40;
         check_near("whole rows", rows, std::round(rows), 1e-9);
         RANK_CHECK(*result->accuracy >= 0.25 && *result->accuracy <= 0.75);
         w.control().barrier()->wait();
       }
     }},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
