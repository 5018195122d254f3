// Every family compared with transformers 5.23: logits, losses, gradients and ten optimizer steps of its fixture, on
// one rank or as a pipeline of all ranks.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>

#include "config/recipe.h"
#include "estimate/estimated_plan.h"
#include "families/fixture.h"
#include "ops/graph.h"
#include "ops/scalar_type.h"
#include "rank_suite.h"
#include "train/gather.h"
#include "train/microbatches.h"
#include "train/trainer.h"

namespace automodel::test {
namespace {

/// Largest differences allowed; two implementations in float32 differ 50 times less (reference/hf.md).
constexpr double kLogits = 5e-5, kLoss = 1e-5, kGradient = 1e-5, kNorm = 1e-4, kStepLoss = 1e-4, kWeightNorm = 2e-4;

class Check {
 public:
  Check(comm::World& world, std::string what) : world_(world), what_(std::move(what)) {}
  void near(const std::string& name, double got, double wanted, double tolerance) const {
    if (!(std::abs(got - wanted) <= tolerance))
      rank_check_failed(__FILE__, __LINE__,
                        fmt::format("{} {}: {:.9g}, recorded {:.9g}, apart {:.2e}, allowed {:.0e}", what_, name, got,
                                    wanted, std::abs(got - wanted), tolerance));
    if (std::getenv("AUTOMODEL_SHOW") != nullptr && world_.rank() == 0 && std::abs(got - wanted) > tolerance / 20)
      fmt::print("{} {}: apart {:.2e}, allowed {:.0e}\n", what_, name, std::abs(got - wanted), tolerance);
  }
  void relative(const std::string& name, double got, double wanted, double tolerance, double floor) const {
    near(name, got, wanted, tolerance * std::max(std::abs(wanted), floor));
  }
  void near(const std::string& name, const at::Tensor& got, const at::Tensor& wanted, double tolerance) const {
    near(name, (got.to(at::kDouble) - wanted.to(at::kDouble)).abs().max().item<double>(), 0, tolerance);
  }

 private:
  comm::World& world_;
  std::string what_;
};

struct Variant {
  bool clip = false;
  bool groups = false;     ///< no decay for norms and biases
  bool auxiliary = false;  ///< output_router_logits
  int microbatch = 1;
  std::string dtype = "float32";
  std::string distributed = "";  ///< of the recipe, with data-parallel ranks that have a row each; empty: a pipeline
};

std::string recipe_text(const Fixture& fixture, const Variant& variant, int pp) {
  std::string text = fmt::format(
      "model: {{config: {}{}}}, torch_dtype: {}}}\n"
      "step_scheduler: {{global_batch_size: 2, local_batch_size: {}, max_steps: 10}}\n"
      "clip_grad_norm: {{max_norm: {}}}\n",
      fixture.model, variant.auxiliary ? ", output_router_logits: true" : "", variant.dtype,
      variant.distributed.empty() ? 2 : 1, variant.clip ? "1.0" : "null");
  text += "optimizer: {_target_: adamw, lr: 0.001, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.1";
  if (variant.groups) {
    std::string names;
    for (const auto& name : fixture.reference["no_decay"])
      names += (names.empty() ? "" : "|") + name.get<std::string>();
    text += fmt::format(", param_group_overrides: [{{pattern: '^({})$', wd_mult: 0}}]", names);
  }
  text += "}\n";
  if (!variant.distributed.empty()) return text + "distributed: {" + variant.distributed + "}\n";
  if (pp == 1) return text + "distributed: {strategy: ddp}\n";
  return text + fmt::format(
                    "distributed: {{strategy: ddp, pp_size: {}, pipeline: {{pp_schedule: 1F1B, "
                    "pp_microbatch_size: {}}}}}\n",
                    pp, variant.microbatch);
}

/// A model with the fixture's weights, ready to train.
class Session {
 public:
  Session(comm::World& world, const Fixture& fixture, const Variant& variant)
      : loaded_(load(recipe_text(fixture, variant, world.size()))), plan_(make_plan(loaded_, world)) {
    runtime_ = std::make_unique<train::Runtime>(plan_, world, fixture.source(plan_.model->spec));
    Diagnostics problems;
    auto rates = plan::make_lr_schedule(loaded_.recipe.lr_scheduler(), 0.001, 0.1, 10, problems);
    trainer_ = std::make_unique<train::Trainer>(*runtime_, *rates);
  }
  train::Runtime& runtime() { return *runtime_; }
  train::Trainer& trainer() { return *trainer_; }
  const arch::ModelSpec& spec() const { return plan_.model->spec; }
  std::map<std::string, at::Tensor> gradients(const Fixture& fixture) {
    return fixture.as_recorded(train::gather_gradients(*runtime_), spec());
  }

  /// [rows, tokens, vocabulary] on the rank of the last stage, undefined elsewhere.
  at::Tensor logits(const data::Batch& batch) {
    const ops::NoGraph guard;
    auto microbatch = train::make_microbatches(batch, static_cast<int>(batch.rows), runtime_->world().device()).front();
    auto& group = *runtime_->groups().pipeline;
    const int me = runtime_->place().pp, last = group.size() - 1;
    const auto& spec = plan_.model->spec;
    auto hidden = at::empty({batch.rows, batch.length, (1 + spec.carried_streams()) * spec.hidden},
                            at::TensorOptions().dtype(scalar_type(plan_.types.compute)));
    auto& model = runtime_->stages().front()->model();
    if (me > 0) group.exchange({}, {{hidden, me - 1, 0}})->wait();
    if (me == last) return model.logits(microbatch, hidden).to(at::kDouble);
    hidden = model.forward(microbatch, hidden, {}).contiguous();
    group.exchange({{hidden, me + 1, 0}}, {})->wait();
    return {};
  }

 private:
  static config::LoadedRecipe load(const std::string& text) {
    auto loaded = config::read_recipe(text, "fixture.yaml", {}, [](const std::string&) { return std::nullopt; });
    if (!loaded.problems.empty()) throw Error(ExitCode::kBadInput, loaded.problems);
    return loaded;
  }
  static estimate::EstimatedPlan make_plan(const config::LoadedRecipe& loaded, comm::World& world) {
    auto result = estimate::make_plan(loaded, {.world_size = world.size(), .training = true});
    if (!result.plan) throw Error(ExitCode::kBadInput, result.problems);
    return std::move(*result.plan);
  }
  config::LoadedRecipe loaded_;
  estimate::EstimatedPlan plan_;
  std::unique_ptr<train::Runtime> runtime_;
  std::unique_ptr<train::Trainer> trainer_;
};

const std::vector<std::string> kCaseNames = {"plain", "padded", "leftpad", "packed"};

void check_logits(const Check& check, const Fixture& fixture, Session& session, const std::string& name) {
  const auto got = session.logits(case_batch(fixture, name, 0));
  if (!got.defined()) return;
  const auto slice = fixture.at(name + ".logits_slice").to(at::kDouble);
  const auto positions = fixture.reference["cases"][name]["slice_positions"].get<std::vector<std::int64_t>>();
  for (std::size_t i = 0; i < positions.size(); ++i)
    check.near(fmt::format("{} logits at {}", name, positions[i]),
               got.select(1, positions[i]).narrow(1, 0, slice.size(2)), slice.select(1, static_cast<std::int64_t>(i)),
               kLogits);
  if (!fixture.recorded.contains(name + ".logits_lse")) return;
  const auto sums = at::logsumexp(got, {2});
  auto apart = sums - fixture.at(name + ".logits_lse").narrow(1, 0, sums.size(1)).to(at::kDouble);
  if (name == "padded" || name == "leftpad")
    apart = apart * fixture.at(name + ".attention_mask").narrow(1, 0, sums.size(1)).to(at::kDouble);
  check.near(name + " log-sum of logits", apart.abs().max().item<double>(), 0, kLogits);
}

/// 0 for a weight that is not trained, because no gradient reaches it: those of an index.
double norm_of(const std::map<std::string, at::Tensor>& gradients, const std::string& name) {
  const auto found = gradients.find(name);
  return found == gradients.end() ? 0 : found->second.norm().item<double>();
}

void check_gradients(const Check& check, const Fixture& fixture, Session& session, double norm) {
  const auto& reference = fixture.reference;
  check.relative("gradient norm", norm, reference["grad_norm_total"].get<double>(), kNorm, 0);
  const auto gradients = session.gradients(fixture);
  for (const auto& [name, size] : reference["grad_norms"].items())
    check.relative("gradient norm of " + name, norm_of(gradients, name), size.get<double>(), kNorm, 1e-2 * norm);
  for (const auto& [name, tensor] : fixture.recorded)
    if (name.starts_with("grad."))
      check.near("gradient of " + name.substr(5), gradients.at(name.substr(5)), tensor, kGradient);
}

void check_cases(comm::World& world, const Fixture& fixture) {
  const Check check(world, fixture.name);
  Session session(world, fixture, {});
  for (const auto& name : kCaseNames) {
    check_logits(check, fixture, session, name);
    const auto& wanted = fixture.reference["cases"][name];
    const auto result = session.trainer().gradients(0, {case_batch(fixture, name, 2)}, false);
    RANK_EQUAL(result.label_tokens, wanted["n_target_tokens"].get<std::int64_t>());
    check.near(name + " loss", result.loss, wanted["loss"].get<double>(), kLoss);
    if (name == "plain") check_gradients(check, fixture, session, result.grad_norm);
  }
}

/// This rank's row of two.
data::Batch own_row(const data::Batch& whole, int rank) {
  data::Batch out{.rows = 1, .length = whole.length};
  const auto cut = [&](const auto& from, auto& to) {
    to.assign(from.begin() + rank * whole.length, from.begin() + (rank + 1) * whole.length);
  };
  cut(whole.input_ids, out.input_ids);
  cut(whole.labels, out.labels);
  cut(whole.positions, out.positions);
  cut(whole.segments, out.segments);
  out.num_tokens = whole.length;
  out.num_label_tokens = whole.length - std::count(out.labels.begin(), out.labels.end(), data::kIgnoredLabel);
  out.samples = {whole.samples[static_cast<std::size_t>(rank)]};
  return out;
}

void check_run(comm::World& world, const Fixture& fixture, const std::string& name, const Variant& variant) {
  const Check check(world, fixture.name + " " + name);
  const auto& wanted = fixture.reference["train"][name];
  Session session(world, fixture, variant);
  for (std::int64_t step = 0; step < 10; ++step) {
    auto batch = training_batch(fixture, step);
    if (!variant.distributed.empty()) batch = own_row(batch, world.rank());
    const auto result = session.trainer().step(step, {std::move(batch)}, false);
    const auto at = static_cast<std::size_t>(step);
    check.near(fmt::format("loss of step {}", step), result.loss, wanted["losses"][at].get<double>(), kStepLoss);
    check.relative(fmt::format("gradient norm of step {}", step), result.grad_norm,
                   wanted["grad_norms"][at].get<double>(), 10 * kNorm, 0);
  }
  if (!wanted.contains("final_loss_batch0")) return;
  const auto after = session.trainer().gradients(0, {training_batch(fixture, 0)}, false);
  check.near("loss after ten steps", after.loss, wanted["final_loss_batch0"].get<double>(), kStepLoss);
  if (name != "adamw" || !fixture.reference.contains("param_norms_after")) return;
  const auto values = fixture.as_recorded(train::gather_values(session.runtime()), session.spec());
  for (const auto& [weight, size] : fixture.reference["param_norms_after"].items())
    if (!weight.ends_with("c_attn.bias"))  // key biases have no gradient: Adam's steps follow rounding errors
      check.relative("norm of " + weight, values.at(weight).norm().item<double>(), size.get<double>(), kWeightNorm, 0);
}

void check_auxiliary(comm::World& world, const Fixture& fixture) {
  const Check check(world, fixture.name + " auxiliary loss");
  Session session(world, fixture, {.auxiliary = true, .microbatch = 2});
  const auto& moe = fixture.reference["moe"];
  for (const std::string name : {"padded", "plain"}) {
    const auto result = session.trainer().gradients(0, {case_batch(fixture, name, 2)}, false);
    check.near(name, result.loss, moe[name + "_loss_with_aux"].get<double>(), kLoss);
  }
  const auto gradients = session.gradients(fixture);
  for (const auto& [recorded, size] : moe["router_grad_norms_with_aux"].items()) {
    std::string name = recorded;  // transformers 5 calls Mixtral's block mlp
    if (fixture.name == "mixtral") name.replace(name.find(".mlp."), 5, ".block_sparse_moe.");
    check.relative("gradient norm of " + name, norm_of(gradients, name), size.get<double>(), kNorm, 0);
  }
}

void check_fixture(comm::World& world, const std::string& name) {
  const auto fixture = load_fixture(name);
  check_cases(world, fixture);
  for (const auto& [run, recorded] : fixture.reference["train"].items()) {
    const bool auxiliary = run == "adamw_aux";
    check_run(world, fixture, run,
              {.clip = run == "adamw_clip1",
               .groups = run == "adamw_hf_groups",
               .auxiliary = auxiliary,
               .microbatch = auxiliary ? 2 : 1});
  }
  if (fixture.reference.contains("moe") && fixture.reference["moe"].contains("plain_loss_with_aux"))
    check_auxiliary(world, fixture);
}

/// Tokens in a pack attend only to their own document: their logits are those of the document by itself.
void check_documents(comm::World& world, const Fixture& fixture) {
  const Check check(world, fixture.name);
  Session session(world, fixture, {});
  // These kinds of RoPE choose their frequencies by the length of the row, which the pack's documents share.
  const auto kind = session.runtime().plan().model->spec.rope.kind;
  if (kind == arch::RopeKind::kLongRope || kind == arch::RopeKind::kDynamic) return;
  // Among equal scores topk's choice depends on the length of the row, and in a tiny model with few heads many are 0.
  const auto& index = session.runtime().plan().model->spec.index;
  if (index && index->block == 0) return;
  const std::vector<std::int32_t> lengths = {13, 1, 18};
  const auto whole = case_batch(fixture, "plain", 0);
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < whole.length; ++t)
    ids.push_back(static_cast<std::int32_t>(fixture.at("plain.input_ids")[0][t].item<std::int64_t>()));
  data::Sample pack{.input_ids = ids, .labels = ids};
  std::vector<data::Sample> apart;
  for (std::size_t d = 0, begin = 0; d < lengths.size(); ++d) {
    const auto length = static_cast<std::size_t>(lengths[d]);
    const std::vector<std::int32_t> own(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                        ids.begin() + static_cast<std::ptrdiff_t>(begin + length));
    apart.push_back({.input_ids = own, .labels = own});
    for (std::int32_t t = 0; t < lengths[d]; ++t) {
      pack.positions.push_back(t);
      pack.segments.push_back(static_cast<std::int32_t>(d) + 1);
    }
    begin += length;
  }
  const auto one_row = [](data::Sample sample) { return data::make_batch(std::vector{std::move(sample)}, {0}, {}); };
  const auto packed = session.logits(one_row(pack));
  for (std::int64_t d = 0, begin = 0; d < static_cast<std::int64_t>(lengths.size()); ++d) {
    const auto length = lengths[static_cast<std::size_t>(d)];
    const auto alone = session.logits(one_row(apart[static_cast<std::size_t>(d)]));
    if (alone.defined())
      check.near(fmt::format("logits of document {} in a pack", d), packed.narrow(1, begin, length),
                 alone.narrow(1, 0, length), kLogits);
    begin += length;
  }
}

void check_family(comm::World& world, const Fixture& fixture) {
  {
    const Check check(world, fixture.name);
    Session session(world, fixture, {});
    check_logits(check, fixture, session, "plain");
    const auto result = session.trainer().gradients(0, {case_batch(fixture, "plain", 2)}, false);
    check.near("loss", result.loss, fixture.reference["cases"]["plain"]["loss"].get<double>(), kLoss);
    check_gradients(check, fixture, session, result.grad_norm);
  }
  check_documents(world, fixture);
  check_run(world, fixture, "adamw", {});
  check_run(world, fixture, "adamw_clip1", {.clip = true});
}

/// Layers that differ, with keys, inputs and experts of their own, or experts by a table, on ranks that have different
/// rows.
void check_unlike_layers(comm::World& world) {
  for (const std::string name : {"gemma4_text", "gemma4_text_moe", "deepseek_v4", "laguna", "mimo_v2_flash",
                                 "minimax_m3", "muse_glimmer_text", "step3p5"}) {
    const auto fixture = load_family(name);
    for (const std::string distributed :
         {"strategy: fsdp2", "strategy: fsdp2, activation_checkpointing: true", "strategy: ddp",
          "strategy: megatron_fsdp, zero_dp_strategy: 3, fsdp_double_buffer: true"})
      check_run(world, fixture, "adamw", {.distributed = distributed});
  }
  for (const std::string name : {"gemma4_text_moe", "deepseek_v4", "minimax_m3", "step3p5"})
    check_run(world, load_family(name), "adamw", {.distributed = "strategy: fsdp2, ep_size: 2"});
  world.control().barrier()->wait();
}

/// Padding of a pack may be longer than its documents, and so than the positions that are known.
void check_long_padding(comm::World& world) {
  const auto fixture = load_family("deepseek_v4");
  const Check check(world, fixture.name);
  Session session(world, fixture, {});
  data::Sample alone, pack;
  for (std::int64_t t = 0; t < 32; ++t) {
    const auto id = static_cast<std::int32_t>(fixture.at("plain.input_ids")[0][t].item<std::int64_t>());
    pack.input_ids.push_back(id);
    pack.positions.push_back(t < 9 ? static_cast<std::int32_t>(t) : 0);
    pack.segments.push_back(t < 9 ? 1 : 0);
    if (t < 9) alone.input_ids.push_back(id);
  }
  alone.labels = alone.input_ids;
  pack.labels = pack.input_ids;
  const auto packed = session.logits(data::make_batch(std::vector{pack}, {0}, {}));
  const auto apart = session.logits(data::make_batch(std::vector{alone}, {0}, {}));
  check.near("logits in front of padding", packed.narrow(1, 0, 9), apart, kLogits);
  const auto gradients_of = [&](const data::Sample& sample) {
    auto labelled = sample;
    labelled.labels.resize(9);
    labelled.labels.resize(sample.input_ids.size(), data::kIgnoredLabel);
    const auto batch = data::make_batch(std::vector{labelled, data::Sample{}}, {0, 0}, {});
    return session.trainer().gradients(0, {batch}, false).grad_norm;
  };
  const double norm = gradients_of(alone);
  check.relative("gradient norm", gradients_of(pack), norm, kNorm, 0);
}

/// Fixtures in other folders, one folder per model.
void check_folders(comm::World& world) {
  const char* folders = std::getenv("AUTOMODEL_FAMILY_FOLDERS");
  RANK_CHECK(folders != nullptr);
  std::stringstream names(folders);
  for (std::string folder; std::getline(names, folder, ':');) check_family(world, load_fixture(folder));
}

void check_names(comm::World& world);

void check_bfloat16(comm::World& world) {
  const auto fixture = load_fixture("llama_bf16");
  const Check check(world, "llama_bf16 in bfloat16");
  Session session(world, fixture, {.dtype = "bfloat16"});
  const auto logits = session.logits(case_batch(fixture, "plain", 0));
  const auto& wanted = fixture.reference["bf16_cpu"];
  if (logits.defined()) {
    const auto positions = fixture.reference["cases"]["plain"]["slice_positions"].get<std::vector<std::int64_t>>();
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const auto apart = (logits.select(1, positions[i]) -
                          fixture.at("bf16.logits_slice").to(at::kDouble).select(1, static_cast<std::int64_t>(i)))
                             .abs();
      check.near("logits", apart.max().item<double>(), 0, 0.15);
      check.near("mean of logits", apart.mean().item<double>(), 0, 0.02);
    }
  }
  const auto result = session.trainer().gradients(0, {case_batch(fixture, "plain", 2)}, false);
  check.near("loss", result.loss, wanted["loss_eager"].get<double>(), 0.02);
  const auto gradients = session.gradients(fixture);
  for (const auto& [name, size] : wanted["grad_norms_bf16"].items())
    check.relative("gradient norm of " + name, norm_of(gradients, name), size.get<double>(), 0.05, 0);
}

#define FIXTURE(name)                                                                                 \
  RankCase {                                                                                          \
    name " computes what transformers computes", [](comm::World& w) { check_fixture(w, name); }, 1, 2 \
  }

#define FAMILY(name)                                                                                           \
  RankCase {                                                                                                   \
    name " trains as transformers trains it", [](comm::World& w) { check_family(w, load_family(name)); }, 1, 2 \
  }

const std::vector<RankCase> kCases = {
    FIXTURE("llama"),
    FIXTURE("llama3"),
    FIXTURE("llama_tied"),
    FIXTURE("llama_bf16"),
    FIXTURE("mistral"),
    FIXTURE("qwen2"),
    FIXTURE("qwen3"),
    FIXTURE("gemma2"),
    FIXTURE("gemma3_text"),
    FIXTURE("gpt2"),
    FIXTURE("phi3"),
    FIXTURE("mixtral"),
    FIXTURE("qwen3_moe"),
    FIXTURE("deepseek_v3"),
    FIXTURE("gpt_oss"),
    {"bfloat16 results stay as close as those of two kernels", check_bfloat16, 1, 2},
    {"every recorded family is compared", check_names, 1, 1},
    {"models in other folders", check_folders, 1, 2, true},
    FAMILY("apertus"),
    FAMILY("arcee"),
    FAMILY("baichuan"),
    FAMILY("bailing_hybrid"),
    FAMILY("bailing_moe"),
    FAMILY("bamba"),
    FAMILY("cohere"),
    FAMILY("cohere2"),
    FAMILY("deepseek_v2"),
    FAMILY("deepseek_v32"),
    FAMILY("deepseek_v4"),
    FAMILY("dots1"),
    FAMILY("ernie4_5"),
    FAMILY("ernie4_5_moe"),
    FAMILY("exaone4"),
    FAMILY("falcon"),
    FAMILY("falcon_h1"),
    FAMILY("flex_olmo"),
    FAMILY("gemma"),
    RankCase{"gemma4_text trains as transformers trains it",
             [](comm::World& w) { check_family(w, load_family("gemma4_text")); }, 1, 1},  // no pipelines
    FAMILY("gemma4_text_moe"),
    FAMILY("glm"),
    FAMILY("glm4"),
    FAMILY("glm4_moe"),
    FAMILY("glm4_moe_lite"),
    FAMILY("glm_moe_dsa"),
    FAMILY("gpt_neox"),
    FAMILY("granite"),
    FAMILY("granitemoe"),
    FAMILY("granitemoeshared"),
    FAMILY("helium"),
    FAMILY("hunyuan_v1_dense"),
    FAMILY("hunyuan_v1_moe"),
    FAMILY("hy_v3"),
    FAMILY("kimi_linear"),
    FAMILY("laguna"),
    FAMILY("lfm2"),
    FAMILY("lfm2_moe"),
    FAMILY("mamba2"),
    FAMILY("mimo_v2_flash"),
    FAMILY("minimax_m2"),
    FAMILY("minimax_m3"),
    FAMILY("ministral"),
    FAMILY("ministral3"),
    FAMILY("mistral4"),
    FAMILY("muse_glimmer_text"),
    FAMILY("nemotron"),
    FAMILY("nemotron-nas"),
    FAMILY("nemotron_h"),
    FAMILY("olmo"),
    FAMILY("olmo2"),
    FAMILY("olmo3"),
    FAMILY("olmoe"),
    FAMILY("opt"),
    FAMILY("phi"),
    FAMILY("phimoe"),
    FAMILY("qwen2_moe"),
    FAMILY("qwen3_5_moe_text"),
    FAMILY("qwen3_5_text"),
    FAMILY("qwen3_next"),
    FAMILY("seed_oss"),
    FAMILY("smollm3"),
    FAMILY("stablelm"),
    FAMILY("starcoder2"),
    FAMILY("step3p5"),
    RankCase{"padding longer than the documents of a pack", check_long_padding, 1, 1},
    RankCase{"layers that differ, over data-parallel and expert-parallel ranks", check_unlike_layers, 2, 2},
};

#undef FIXTURE
#undef FAMILY

void check_names(comm::World& /*world*/) {
  for (const auto& name : family_fixtures()) {
    const auto wanted = name + " trains as transformers trains it";
    RANK_CHECK(std::any_of(kCases.begin(), kCases.end(), [&](const RankCase& each) { return each.name == wanted; }));
  }
}

}  // namespace
}  // namespace automodel::test

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::test::kCases);
}
