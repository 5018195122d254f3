// Supervised fine-tuning from text to loss: JSON lines, tokenizer, chat template, masks, padding or packing, model and
// optimizer together give the results of transformers (test/golden/hf/e2e_llama_sft, test/golden/chat) and, from rows
// in a Hugging Face cache, those of NeMo AutoModel (test/golden/nemo/fine_tuning.json).
#include <cmath>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "golden_folder.h"
#include "parity/parity.h"
#include "rank_suite.h"
#include "train/saved_runs.h"
#include "train/start_point.h"
#include "train/trainer.h"

namespace automodel {
namespace {

using Json = nlohmann::json;

const std::string kGolden = automodel::golden_folder();
constexpr double kLoss = 1e-4, kNorm = 2e-3;  // of float32; the norm is relative

Json reference(const std::string& path) {
  std::ifstream file(kGolden + "/" + path);
  return Json::parse(file);
}

struct Sft {
  std::string distributed = "strategy: ddp";
  int global = 4;
  int local = 4;
  int packed = 0;  ///< tokens per pack; 0: padded rows
};

std::vector<train::StepResult> train_sections(comm::World& world, const std::string& sections, int steps) {
  const test::SharedFolder folder(world);
  const auto loaded = test::load_recipe(
      fmt::format("model: {{pretrained_model_name_or_path: {0}/hf/e2e_llama_sft, torch_dtype: float32}}\n"
                  "optimizer: {{lr: 0.001, betas: [0.9, 0.95], weight_decay: 0.1}}\n"
                  "checkpoint: {{enabled: false, checkpoint_dir: {1}}}\n{2}",
                  kGolden, (folder / "run").native(), sections));
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

std::vector<train::StepResult> train_steps(comm::World& world, const Sft& sft, int steps) {
  return train_sections(
      world,
      fmt::format("dataset: {{_target_: jsonl, path: {0}/chat/instruct.jsonl, tokenizer: {0}/tokenizer/llama3, "
                  "cache: false}}\n"
                  "dataloader: {{shuffle: false}}\n"
                  "packed_sequence: {{packed_sequence_size: {1}}}\n"
                  "step_scheduler: {{global_batch_size: {2}, local_batch_size: {3}, max_steps: 10, num_epochs: null}}\n"
                  "distributed: {{{4}}}\n",
                  kGolden, sft.packed, sft.global, sft.local, sft.distributed),
      steps);
}

void check_near(const std::string& what, double ours, double theirs, double tolerance) {
  if (!(std::abs(ours - theirs) <= tolerance))
    test::rank_check_failed(__FILE__, __LINE__, fmt::format("{}: {} against {}", what, ours, theirs));
}

void check_recorded(comm::World& world, const Sft& sft, const std::string& key) {
  const auto recorded = reference("hf/e2e_llama_sft/reference.json")[key];
  const auto losses = recorded["losses"].get<std::vector<double>>();
  const auto norms = recorded["grad_norms"].get<std::vector<double>>();
  const auto steps = train_steps(world, sft, static_cast<int>(losses.size()));
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const auto what = fmt::format("{}, {}, step {}", key, sft.distributed, i);
    check_near(what, steps[i].loss, losses[i], kLoss);
    check_near(what + ", gradient norm", steps[i].grad_norm, norms[i], kNorm * norms[i]);
  }
}

/// Meshes of this many ranks, with the rows per rank and run of a global batch.
std::vector<Sft> meshes(const comm::World& world, int global) {
  const int ranks = world.size();
  std::vector<Sft> out = {{"strategy: ddp", global, global / ranks}, {"strategy: fsdp2", global, global / ranks}};
  if (ranks != 2) return out;
  out.push_back({"strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 2}", global, global});
  out.push_back({"strategy: fsdp2, tp_size: 2", global, global});
  out.push_back({"strategy: fsdp2, cp_size: 2", global, global});
  return out;
}

/// Ten steps of NeMo AutoModel 0.7.0, from its own recipe: shuffled epochs that end within a global batch.
void check_nemo_run(comm::World& world, const std::string& name, const std::string& dataset, const Sft& sft,
                    const std::string& packing = "packed_sequence_size: 0") {
  const auto recorded = reference("nemo/fine_tuning.json")[name];
  const auto losses = recorded["loss"].get<std::vector<double>>(),
             norms = recorded["grad_norm"].get<std::vector<double>>();
  const auto steps = train_sections(
      world,
      fmt::format("dataset: {{_target_: nemo_automodel.components.datasets.llm.{}, cache: false}}\n"
                  "packed_sequence: {{{}}}\n"
                  "step_scheduler: {{global_batch_size: {}, local_batch_size: {}, max_steps: 10, num_epochs: 10}}\n"
                  "lr_scheduler: {{lr_decay_style: cosine, lr_warmup_steps: 2, min_lr: 1.0e-5}}\n"
                  "distributed: {{{}}}\n",
                  dataset, packing, sft.global, sft.local, sft.distributed),
      static_cast<int>(losses.size()));
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const auto what = fmt::format("{}, {}, step {}", name, sft.distributed, i);
    RANK_EQUAL(steps[i].label_tokens, recorded["label_tokens"][i].get<std::int64_t>());
    check_near(what, steps[i].loss, losses[i], kLoss);
    check_near(what + ", gradient norm", steps[i].grad_norm, norms[i], kNorm * norms[i]);
  }
}

std::string squad_with(const std::string& tokenizer) {
  return fmt::format("squad.make_squad_dataset, dataset_name: rajpurkar/squad, split: 'train[14:30]', tokenizer: {}/{}",
                     kGolden, "datasets/tokenizers/" + tokenizer);
}

const std::vector<test::RankCase> kCases = {
    {"padded rows",
     [](comm::World& w) {
       for (const auto& sft : meshes(w, 4)) check_recorded(w, sft, "sft");
     }},
    {"two runs of rows before each optimizer step",
     [](comm::World& w) { check_recorded(w, {.global = 8, .local = 4 / w.size()}, "sft_grad_accum2"); }},
    {"a pack is worth its rows, which do not see each other",
     [](comm::World& w) {
       const auto recorded = reference("chat/packed_llama3.json");
       const auto result = train_steps(w, {.global = 1, .local = 1, .packed = 240}, 1).front();
       check_near("loss", result.loss, recorded["loss_block_diagonal"].get<double>(), 1e-5);
       RANK_EQUAL(result.label_tokens, recorded["n_target_tokens"].get<std::int64_t>());
       RANK_CHECK(std::abs(result.loss - recorded["loss_if_causal_across_rows"].get<double>()) > 0.05);
     },
     1, 1},
    {"all rows in packs are worth all rows padded",
     [](comm::World& w) {
       const auto padded = train_steps(w, {.global = 40, .local = 40 / w.size()}, 2);
       for (auto sft : meshes(w, 4)) {
         sft.packed = 440;  // four packs, even if context parallelism pads rows
         const auto packed = train_steps(w, sft, 2);
         for (std::size_t i = 0; i < padded.size(); ++i) {
           RANK_EQUAL(packed[i].label_tokens, padded[i].label_tokens);
           check_near(sft.distributed, packed[i].loss, padded[i].loss, 1e-5);
           check_near(sft.distributed + ", gradient norm", packed[i].grad_norm, padded[i].grad_norm,
                      1e-4 * padded[i].grad_norm);
         }
       }
     }},
    {"SQuAD gives NeMo AutoModel's losses",
     [](comm::World& w) {
       for (const auto& sft : meshes(w, 4)) check_nemo_run(w, "squad", squad_with("llama3_base"), sft);
     },
     1, 2},
    {"SQuAD as a conversation gives NeMo AutoModel's losses",
     [](comm::World& w) {
       check_nemo_run(w, "squad_chat", squad_with("llama3"), {.global = 4, .local = 2 / w.size()});
     },
     1, 2},
    {"SQuAD in packs gives NeMo AutoModel's losses",
     [](comm::World& w) {
       check_nemo_run(w, "squad_packed", squad_with("llama3_base"), {.global = 2, .local = 2 / w.size()},
                      "packed_sequence_size: 160, packing_strategy: neat");
     },
     1, 2},
    {"HellaSwag gives NeMo AutoModel's losses",
     [](comm::World& w) {
       check_nemo_run(
           w, "hellaswag",
           fmt::format("hellaswag.HellaSwag, path_or_dataset: rowan/hellaswag, split: train, num_samples_limit: "
                       "17, tokenizer: {}/datasets/tokenizers/llama3_base",
                       kGolden),
           {.global = 4, .local = 2 / w.size()});
     },
     1, 2},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  setenv("HF_HUB_CACHE", (automodel::kGolden + "/datasets/hf_home/hub").c_str(), 1);
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
