// Adapters of a run: the files that it writes, resuming from them, and merging them into the base model.
#include <algorithm>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ATen/TensorOperators.h>

#include "base/error.h"
#include "checkpoint/format/export.h"
#include "checkpoint/format/root_folder.h"
#include "checkpoint/format/tensor_folder.h"
#include "comm/loopback/loopback.h"
#include "golden_folder.h"
#include "parity/parity.h"
#include "rank_suite.h"
#include "rounding.h"
#include "train/microbatches.h"
#include "train/saved_runs.h"
#include "train/start_point.h"

namespace automodel {
namespace {

using test::SharedFolder;
using test::train_to;
namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string kGolden = automodel::golden_folder() + "/hf/e2e_llama_sft";

struct Wanted {
  std::string peft = "dim: 4, alpha: 10";
  std::string distributed = "strategy: ddp";
  std::string model = kGolden;
  double lr = 0.05;
  std::string checkpoint = {};  ///< further keys of the section
};

std::string recipe(const fs::path& root, const Wanted& wanted, int local) {
  return fmt::format(
      "model: {{pretrained_model_name_or_path: {}, torch_dtype: float32}}\n"
      "dataset: {{_target_: tokens, path: {}/rows.jsonl, pad_token_id: 2003}}\n"
      "dataloader: {{shuffle: false}}\n"
      "step_scheduler: {{global_batch_size: 4, local_batch_size: {}, max_steps: 10, num_epochs: null}}\n"
      "optimizer: {{lr: {}}}\n"
      "checkpoint: {{checkpoint_dir: {}{}}}\n"
      "distributed: {{{}}}\n{}",
      wanted.model, kGolden, local, wanted.lr, root.native(), wanted.checkpoint, wanted.distributed,
      wanted.peft.empty() ? "" : fmt::format("peft: {{{}}}\n", wanted.peft));
}

Json read_json(const fs::path& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

struct Logits {
  at::Tensor values;
  double width = 0;  ///< the longest sum in a layer, in terms
  double depth = 0;  ///< matmuls between the tokens and the logits
};

/// The logits of the first rows of the data, computed on one rank by the model in the recipe's folder.
Logits logits_of(const std::string& text) {
  Logits out;
  const auto outcome = comm::run_ranks(1, [&](comm::World& world) {
    const auto loaded = test::load_recipe(text);
    const train::Setup setup(loaded, world);
    const auto start = train::find_start(setup, nullptr);
    train::Runtime runtime(setup.plan, world, start.weights);
    const auto plan = setup.steps->plan(0);
    const auto batch = setup.loader->load(plan.epoch, plan.step_in_epoch).front();
    const ops::NoGraph guard;
    const auto microbatch = train::make_microbatches(batch, static_cast<int>(batch.rows), world.device()).front();
    out.values = runtime.stages().front()->model().logits(microbatch, {}).clone();
    const auto& spec = setup.plan.model->spec;
    out.width = std::max(spec.hidden, spec.ffn);
    out.depth = 6 * spec.layers + 1;  // projections, scores, values, output, both of the MLP; the head
  });
  if (!outcome.ok()) throw Error(outcome.code, {"internal", outcome.text, "", {}, ""});
  return out;
}

double apart(const Logits& a, const Logits& b) {
  return (a.values - b.values).abs().max().item<double>();
}

/// The largest allowed difference between merged weights and separate weights and adapters.
double rounding_of(const Logits& logits) {
  return test::rounding(at::kFloat, logits.values.abs().max().item<double>(), logits.width, logits.depth);
}

/// Trains three steps on the mesh, then compares base + adapters with what `checkpoint export --merge` writes.
void check_merge(comm::World& world, const Wanted& wanted, int local) {
  const SharedFolder folder(world);
  train_to(world, recipe(folder / "run", wanted, local), 3);
  world.control().barrier()->wait();
  if (world.rank() == 0) {
    const auto report = checkpoint::export_model(folder / "run", folder / "merged",
                                                 {.type = checkpoint::ElementType::kF32, .merge = true});
    RANK_CHECK(report.merged > 0);
    auto alone = wanted;
    alone.distributed = "strategy: ddp";
    const auto adapted = logits_of(recipe(folder / "run", alone, 4));
    alone.peft = "";
    alone.model = (folder / "merged").native();
    const auto merged = logits_of(recipe(folder / "elsewhere", alone, 4));
    alone.model = wanted.model;
    const auto base = logits_of(recipe(folder / "nowhere", alone, 4));
    const double allowed = rounding_of(adapted);
    if (!(apart(adapted, merged) < allowed))
      test::rank_check_failed(
          __FILE__, __LINE__,
          fmt::format("{}: logits differ by {}, rounding explains {}", wanted.peft, apart(adapted, merged), allowed));
    RANK_CHECK(apart(adapted, base) > 100 * allowed);  // the adapters have an effect
  }
  world.control().barrier()->wait();
}

/// The same for models that are first trained here: an untied head, GPT-2's transposed weights.
void check_merge_into(comm::World& world, const std::string& config, const std::string& peft) {
  const SharedFolder folder(world);
  const auto text = fmt::format(
      "model: {{config: {{{}, initializer_range: 0.2}}, torch_dtype: float32}}\n"
      "dataset: {{_target_: tokens, path: {}/rows.jsonl, pad_token_id: 2003}}\n"
      "step_scheduler: {{global_batch_size: 4, local_batch_size: {}, max_steps: 10, num_epochs: null}}\n"
      "checkpoint: {{checkpoint_dir: {}}}\n",
      config, kGolden, 4 / world.size(), (folder / "base").native());
  train_to(world, text, 1);
  world.control().barrier()->wait();
  const auto model = world.broadcast_text((checkpoint::newest_checkpoint(folder / "base") / "model").native());
  check_merge(world, {.peft = peft, .model = model}, 4 / world.size());
}

/// The layout that the PEFT library reads.
void check_layout(comm::World& world) {
  const SharedFolder folder(world);
  train_to(world, recipe(folder / "run", {.peft = "dim: 4, alpha: 10, dropout: 0.1, lora_dtype: bfloat16"}, 2), 2);
  world.control().barrier()->wait();
  if (world.rank() == 0) {
    const auto newest = checkpoint::newest_checkpoint(folder / "run");
    const auto config = read_json(newest / "model/adapter_config.json");
    RANK_EQUAL(config["peft_type"].get<std::string>(), "LORA");
    RANK_EQUAL(config["task_type"].get<std::string>(), "CAUSAL_LM");
    RANK_EQUAL(config["r"].get<int>(), 4);
    RANK_EQUAL(config["lora_alpha"].get<double>(), 10.0);
    RANK_EQUAL(config["lora_dropout"].get<double>(), 0.1);
    RANK_EQUAL(config["bias"].get<std::string>(), "none");
    RANK_EQUAL(config["base_model_name_or_path"].get<std::string>(), fs::canonical(kGolden).native());
    const std::vector<std::string> modules = {"down_proj", "gate_proj", "k_proj", "o_proj",
                                              "q_proj",    "up_proj",   "v_proj"};
    RANK_CHECK(config["target_modules"].get<std::vector<std::string>>() == modules);
    const auto model = read_json(fs::path(kGolden) / "config.json");
    Diagnostics problems;
    const auto files = checkpoint::TensorFolder::open(newest / "model", "adapter_model", problems);
    RANK_CHECK(files.has_value());
    RANK_EQUAL(files->files().size(), std::size_t{1});
    const auto layers = model["num_hidden_layers"].get<std::size_t>();
    RANK_EQUAL(files->tensors().size(), 2 * modules.size() * layers);
    const auto hidden = model["hidden_size"].get<std::int64_t>(),
               inner = model["intermediate_size"].get<std::int64_t>();
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const auto at = fmt::format("base_model.model.model.layers.{}.mlp.down_proj.", layer);
      const auto a = files->find(at + "lora_A.weight"), b = files->find(at + "lora_B.weight");
      RANK_CHECK(a && b);
      RANK_CHECK(a.info->shape == std::vector<std::int64_t>({4, inner}));
      RANK_CHECK(b.info->shape == std::vector<std::int64_t>({hidden, 4}));
      RANK_CHECK(a.info->type == checkpoint::ElementType::kBF16);
    }
    RANK_CHECK(!fs::exists(newest / "model/config.json"));
    // The optimizer's folder has moments and masters of the adapters, nothing of the base.
    const auto states = checkpoint::TensorFolder::open(newest / "optim", "optim", problems);
    RANK_CHECK(states.has_value());
    RANK_EQUAL(states->tensors().size(), 3 * files->tensors().size());
    for (const auto& stored : states->tensors()) RANK_CHECK(stored.info->name.find(".lora_") != std::string::npos);
  }
  world.control().barrier()->wait();
}

/// A checkpoint of another peft section is refused with a message.
void check_refusals(comm::World& world) {
  const SharedFolder folder(world);
  train_to(world, recipe(folder / "run", {.peft = "dim: 4, alpha: 10, target_modules: [q_proj, v_proj]"}, 4), 1);
  const auto refusal = [&](const Wanted& wanted) -> std::string {
    try {
      train_to(world, recipe(folder / "run", wanted, 4), 2);
    } catch (const Error& error) {
      // Another method is another run; differences that the manifest does not show are found in the files.
      const auto& id = error.problems().front().id;
      RANK_CHECK(error.code() == (id == "checkpoint-of-another-run" ? ExitCode::kBadInput : ExitCode::kCheckpoint));
      return id;
    }
    return "none";
  };
  const std::string named = ", restore_from: LATEST";
  RANK_EQUAL(refusal({.peft = "dim: 8, target_modules: [q_proj, v_proj]"}), "checkpoint-of-another-run");
  RANK_EQUAL(refusal({.peft = "dim: 8, target_modules: [q_proj, v_proj]", .checkpoint = named}), "weights-shape");
  RANK_EQUAL(refusal({.peft = "dim: 4, alpha: 10"}), "weights-missing");
  RANK_EQUAL(refusal({.peft = "dim: 4, alpha: 10, target_modules: q_proj"}), "weights-unexpected");
  RANK_EQUAL(refusal({.peft = ""}), "checkpoint-of-another-run");
  RANK_EQUAL(refusal({.peft = "", .checkpoint = named}), "missing-weights");
  // The files cannot show another scale as an error, so it is reported.
  const auto loaded =
      test::load_recipe(recipe(folder / "run", {.peft = "dim: 4, alpha: 20, target_modules: [q_proj, v_proj]"}, 4));
  const train::Setup setup(loaded, world);
  const auto start = train::find_start(setup, nullptr);
  bool found = false;
  for (const auto& line : start.lines)
    found = found || line.find("adapters are scaled by 5 here and were by 2.5") != std::string::npos;
  RANK_CHECK(found);
}

const std::vector<test::RankCase> kCases = {
    {"merged adapters are worth what base and adapters are",
     [](comm::World& w) {
       const int local = 4 / w.size();
       check_merge(w, {}, local);
       check_merge(w, {.distributed = "strategy: fsdp2"}, local);
       check_merge(w, {.peft = "dim: 3, alpha: 10, exclude_modules: lm_head, dropout: 0.2"}, local);
       check_merge(w, {.peft = "dim: 8, target_modules: ['*.layers.1.*.q_proj', '*.layers.0.*.down_proj']"}, local);
       check_merge_into(
           w,
           "model_type: llama, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, "
           "num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 2016, max_position_embeddings: 512",
           "dim: 3, alpha: 10, match_all_linear: true");
       check_merge_into(w,
                        "model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 4, vocab_size: 2016, n_positions: 512, "
                        "attn_pdrop: 0.0, embd_pdrop: 0.0, resid_pdrop: 0.0",
                        "dim: 3, alpha: 10, target_modules: [c_attn, c_proj, c_fc]");
       check_merge_into(w,
                        "model_type: granitemoe, hidden_size: 32, intermediate_size: 12, num_hidden_layers: 2, "
                        "num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 2016, num_local_experts: 4, "
                        "num_experts_per_tok: 2, attention_multiplier: 0.35, max_position_embeddings: 512",
                        "dim: 3, alpha: 10, target_modules: ['*experts', '*q_proj']");
       if (w.size() != 2) return;
       check_merge(
           w, {.distributed = "strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 2}"}, 4);
       check_merge(w, {.distributed = "strategy: fsdp2, tp_size: 2"}, 4);
     }},
    {"the files are laid out as the PEFT library lays them out", [](comm::World& w) { check_layout(w); }, 2},
    {"a checkpoint of other adapters is refused", [](comm::World& w) { check_refusals(w); }, 1, 1},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
