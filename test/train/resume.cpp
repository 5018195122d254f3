// Runs that are saved and resumed, on the same mesh and on others.
#include <filesystem>
#include <fstream>
#include <mutex>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/root_folder.h"
#include "comm/loopback/loopback.h"
#include "parity/parity.h"
#include "rank_suite.h"
#include "temporary_folder.h"
#include "train/checkpointing.h"
#include "train/trainer.h"

namespace automodel {
namespace {

namespace fs = std::filesystem;

struct Mesh {
  std::string distributed;  ///< keys of the section
  std::string more = {};    ///< further lines
  int local = 4;
};

constexpr int kGlobal = 8;

std::string recipe(const Mesh& mesh, const fs::path& root, const std::string& dtype, bool async = false) {
  return fmt::format(
      "model: {{config: {{model_type: llama, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 5, "
      "num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 67, max_position_embeddings: 32, "
      "tie_word_embeddings: true, initializer_range: 0.2}}, torch_dtype: {}}}\n"
      "dataset: {{_target_: mock, vocab_size: 67, seq_length: 12, num_samples: 64}}\n"
      "step_scheduler: {{global_batch_size: {}, local_batch_size: {}, max_steps: 100, num_epochs: null, "
      "ckpt_every_steps: 1}}\n"
      "optimizer: {{lr: 0.01, amsgrad: true}}\n"
      "lr_scheduler: {{lr_decay_style: cosine, lr_warmup_steps: 3, lr_decay_steps: 9}}\n"
      "checkpoint: {{checkpoint_dir: {}, is_async: {}}}\n"
      "distributed: {{{}}}\n{}",
      dtype, kGlobal, mesh.local, root.native(), async, mesh.distributed, mesh.more);
}

/// A run from where its folder is to step `end`; saves after every step, or after the last alone.
std::vector<double> train_to(comm::World& world, const std::string& text, std::int64_t end, bool save_all = false) {
  const auto loaded = test::load_recipe(text);
  const train::Setup setup(loaded, world);
  train::Checkpointing checkpoints(setup, [](const std::string&) {});
  train::Runtime runtime(setup.plan, loaded.recipe, world, checkpoints.weights());
  train::Trainer trainer(runtime, loaded.recipe, checkpoints.rates());
  checkpoints.restore(trainer);
  std::vector<double> losses;
  for (auto step = checkpoints.first_step(); step < end; ++step) {
    auto plan = setup.steps->plan(step);
    const auto result = trainer.step(step, setup.loader->load(plan.epoch, plan.step_in_epoch), false);
    losses.push_back(result.loss);
    plan.checkpoint = save_all || step + 1 == end;
    plan.last = step + 1 == end;
    checkpoints.after_step(plan, result.loss, std::nullopt);
  }
  checkpoints.finish();
  return losses;
}

/// What is saved when a run is resumed and nothing is trained: every bit that was loaded, gathered again.
void save_again(comm::World& world, const std::string& text) {
  const auto loaded = test::load_recipe(text);
  const train::Setup setup(loaded, world);
  train::Checkpointing checkpoints(setup, [](const std::string&) {});
  train::Runtime runtime(setup.plan, loaded.recipe, world, checkpoints.weights());
  train::Trainer trainer(runtime, loaded.recipe, checkpoints.rates());
  checkpoints.restore(trainer);
  checkpoints.after_step({.step = 99, .checkpoint = true, .last = true}, 0.0, std::nullopt);
}

/// Checksums of the tensors of a checkpoint.
std::string tensors(const fs::path& root) {
  Diagnostics problems;
  const auto manifest = checkpoint::read_manifest(checkpoint::newest_checkpoint(root), problems);
  if (!manifest) return "no manifest: " + to_text(problems);
  std::string out;
  for (const auto& entry : manifest->files)
    if (entry.file.ends_with(".safetensors"))
      out += fmt::format("{} {} {:08x}\n", entry.file, entry.size, entry.checksum);
  return out;
}

/// A folder that all ranks know, made by rank 0, removed when the last has left.
class SharedFolder {
 public:
  explicit SharedFolder(comm::World& world) : world_(world) {
    if (world.rank() == 0) folder_ = std::make_unique<test::TemporaryFolder>();
    path_ = world.broadcast_text(folder_ ? folder_->path().native() : "");
  }
  ~SharedFolder() = default;
  fs::path operator/(const std::string& name) const { return path_ / name; }
  void copy(const std::string& from, const std::string& to) const {
    world_.control().barrier()->wait();
    if (world_.rank() == 0)
      fs::copy(path_ / from, path_ / to, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    world_.control().barrier()->wait();
  }

 private:
  comm::World& world_;
  std::unique_ptr<test::TemporaryFolder> folder_;
  fs::path path_;
};

std::vector<Mesh> meshes(int ranks) {
  std::vector<Mesh> out = {{"strategy: ddp", "", kGlobal / std::min(ranks, kGlobal)},
                           {"strategy: fsdp2", "", kGlobal / std::min(ranks, kGlobal)},
                           {"strategy: megatron_fsdp, zero_dp_strategy: 1, preserve_fp32_weights: true", "",
                            kGlobal / std::min(ranks, kGlobal)}};
  if (ranks > 1)
    out.push_back(
        {fmt::format("strategy: ddp, pp_size: {}, pipeline: {{pp_schedule: 1F1B, pp_microbatch_size: 2}}", ranks)});
  if (ranks == 2)
    out.push_back({"strategy: ddp, pp_size: 2, pipeline: {pp_schedule: ZBVZeroBubble, pp_microbatch_size: 1}",
                   "model_parallel: {virtual_pipeline_model_parallel_size: 2}\n"});
  if (ranks == 4) {
    out.push_back({"strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 1}"});
    out.push_back({"strategy: fsdp2, dp_size: 4, dp_replicate_size: 2", "", 2});
    out.push_back({"strategy: fsdp2, tp_size: 4"});  // more ranks than key-value heads
  }
  return out;
}

void check_same_mesh(comm::World& world, const Mesh& mesh, const std::string& dtype, bool async) {
  const SharedFolder folder(world);
  const auto whole = train_to(world, recipe(mesh, folder / "whole", dtype, async), 6);
  auto parts = train_to(world, recipe(mesh, folder / "parts", dtype, async), 3, true);
  for (const double loss : train_to(world, recipe(mesh, folder / "parts", dtype, async), 6, true))
    parts.push_back(loss);
  RANK_EQUAL(parts.size(), std::size_t{6});
  for (std::size_t i = 0; i < parts.size(); ++i) RANK_EQUAL(parts[i], whole[i]);  // the same bits
  world.control().barrier()->wait();
  if (world.rank() == 0) RANK_EQUAL(tensors(folder / "parts"), tensors(folder / "whole"));
  world.control().barrier()->wait();
}

bool near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  if (a.size() != b.size() || a.empty()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= tolerance * std::abs(b[i]))) return false;
  return true;
}

/// bfloat16 rounds sums that meshes take in another order; its weights come back bitwise all the same.
double tolerance(const std::string& dtype) {
  return dtype == "bfloat16" ? 0.02 : 1e-6;
}

/// Every mesh goes on from a checkpoint of `from`: what it loads it saves again bit by bit, and it trains alike.
void check_other_meshes(comm::World& world, const Mesh& from, const std::string& dtype) {
  const SharedFolder folder(world);
  train_to(world, recipe(from, folder / "base", dtype), 3);
  folder.copy("base", "goes_on");
  const auto expected = train_to(world, recipe(from, folder / "goes_on", dtype), 6);
  int number = 0;
  for (const auto& to : meshes(world.size())) {
    const auto name = fmt::format("mesh{}", ++number);
    folder.copy("base", name + "a");
    folder.copy("base", name + "b");
    save_again(world, recipe(to, folder / (name + "a"), dtype));
    world.control().barrier()->wait();
    if (world.rank() == 0) RANK_EQUAL(tensors(folder / (name + "a")), tensors(folder / "base"));
    const auto losses = train_to(world, recipe(to, folder / (name + "b"), dtype), 6);
    RANK_CHECK(near(losses, expected, tolerance(dtype)));
  }
  // And one rank alone.
  folder.copy("base", "alone");
  folder.copy("base", "again");
  if (world.rank() == 0) {
    std::vector<double> losses;
    const auto outcome = comm::run_ranks(1, [&](comm::World& one) {
      const Mesh single{"strategy: ddp", "", kGlobal};
      save_again(one, recipe(single, folder / "again", dtype));
      losses = train_to(one, recipe(single, folder / "alone", dtype), 6);
    });
    if (!outcome.ok()) test::rank_check_failed(__FILE__, __LINE__, outcome.text);
    RANK_EQUAL(tensors(folder / "again"), tensors(folder / "base"));
    RANK_CHECK(near(losses, expected, tolerance(dtype)));
  }
  world.control().barrier()->wait();
}

/// Four rows a step of a folder that transformers wrote, as transformers trained it.
void check_pretrained(comm::World& world, const std::string& distributed, int local) {
  const SharedFolder folder(world);
  const std::string golden = std::string(AUTOMODEL_GOLDEN_DIR) + "/hf/e2e_llama_sft";
  const auto text = fmt::format(
      "model: {{pretrained_model_name_or_path: {}, torch_dtype: float32}}\n"
      "dataset: {{_target_: tokens, path: {}/rows.jsonl, pad_token_id: 2003}}\n"
      "dataloader: {{shuffle: false}}\n"
      "step_scheduler: {{global_batch_size: 4, local_batch_size: {}, max_steps: 10, num_epochs: null}}\n"
      "optimizer: {{lr: 0.001, betas: [0.9, 0.95], weight_decay: 0.1}}\n"
      "checkpoint: {{checkpoint_dir: {}}}\n"
      "distributed: {{{}}}\n",
      golden, golden, local, (folder / "run").native(), distributed);
  const auto losses = train_to(world, text, 10);
  std::ifstream file(golden + "/reference.json");
  const auto reference = nlohmann::json::parse(file)["sft"]["losses"].get<std::vector<double>>();
  RANK_EQUAL(losses.size(), reference.size());
  for (std::size_t i = 0; i < losses.size(); ++i)
    if (std::abs(losses[i] - reference[i]) > 1e-4)
      test::rank_check_failed(__FILE__, __LINE__,
                              fmt::format("{}: step {}: loss {} against {}", distributed, i, losses[i], reference[i]));
}

const std::vector<test::RankCase> kCases = {
    {"a folder that transformers wrote trains as transformers trains it",
     [](comm::World& w) {
       check_pretrained(w, "strategy: ddp", 4 / w.size());
       check_pretrained(w, "strategy: fsdp2", 4 / w.size());
       if (w.size() != 2) return;
       check_pretrained(w, "strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 2}", 4);
     }},
    {"a table of positions is sharded like everything else",
     [](comm::World& w) {
       const SharedFolder folder(w);
       const auto losses = [&](const std::string& strategy) {
         auto text = recipe({"strategy: " + strategy, "", kGlobal / w.size()}, folder / strategy, "float32");
         const auto begin = text.find("model_type"), end = text.find("tie_word");
         text.replace(begin, end - begin,
                      "model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 4, n_positions: 32, vocab_size: 67, "
                      "attn_pdrop: 0, resid_pdrop: 0, embd_pdrop: 0, ");
         return train_to(w, text, 3);
       };
       RANK_CHECK(near(losses("fsdp2"), losses("ddp"), 1e-6));
     }},
    {"resume on the same mesh is bitwise the uninterrupted run",
     [](comm::World& w) {
       for (const auto& mesh : meshes(w.size())) check_same_mesh(w, mesh, "float32", false);
     }},
    {"a save in the background holds the bits of its step",
     [](comm::World& w) {
       for (const auto& mesh : meshes(w.size())) check_same_mesh(w, mesh, "float32", true);
     }},
    {"masters beside rounded weights come back bitwise",
     [](comm::World& w) {
       for (const auto& mesh : meshes(w.size())) check_same_mesh(w, mesh, "bfloat16", false);
     }},
    {"the loss scale of float16 comes back with its counts",
     [](comm::World& w) { check_same_mesh(w, meshes(w.size()).front(), "float16", false); }},
    {"any mesh goes on from any other's checkpoint",
     [](comm::World& w) {
       for (const auto& mesh : meshes(w.size())) check_other_meshes(w, mesh, "float32");
     }},
    {"a checkpoint of one rank is read by several, with their masters",
     [](comm::World& w) { check_other_meshes(w, meshes(w.size()).front(), "bfloat16"); }},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
