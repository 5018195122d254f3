// Generation with a key-value cache: compares the logits after every prefix of a text with those that transformers gave
// for the whole text, for every family, on one rank, as a pipeline and under tensor parallelism.
#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>

#include "config/recipe.h"
#include "estimate/estimated_plan.h"
#include "families/fixture.h"
#include "model/rope_table.h"
#include "rank_suite.h"
#include "train/generate.h"

namespace automodel::test {
namespace {

constexpr double kLogits = 5e-5;  // as for whole sequences (golden_suite.cpp)
constexpr auto kAll = std::numeric_limits<std::int64_t>::max();

/// A model with the fixture's weights.
class Session {
 public:
  Session(comm::World& world, const Fixture& fixture, const std::string& mesh)
      : loaded_(config::read_recipe(fmt::format("model: {{config: {}}}, torch_dtype: float32}}\n"
                                                "step_scheduler: {{global_batch_size: 2, local_batch_size: 2}}\n"
                                                "distributed: {{{}}}\n",
                                                fixture.model, mesh),
                                    "fixture", {}, {})),
        plan_(plan(loaded_, world)),
        runtime_(plan_, world, fixture.source(plan_.model->spec)) {}
  train::Runtime& runtime() { return runtime_; }

 private:
  static estimate::EstimatedPlan plan(const config::LoadedRecipe& loaded, comm::World& world) {
    if (!loaded.problems.empty()) throw Error(ExitCode::kBadInput, loaded.problems);
    auto result = estimate::make_plan(loaded, {.world_size = world.size(), .training = true});
    if (!result.plan) throw Error(ExitCode::kBadInput, result.problems);
    return std::move(*result.plan);
  }
  config::LoadedRecipe loaded_;
  estimate::EstimatedPlan plan_;
  train::Runtime runtime_;
};

std::vector<std::int32_t> recorded_text(const Fixture& fixture) {
  const auto ids = fixture.at("plain.input_ids")[0];
  std::vector<std::int32_t> out;
  for (std::int64_t t = 0; t < ids.numel(); ++t) out.push_back(static_cast<std::int32_t>(ids[t].item<std::int64_t>()));
  return out;
}

/// Feeds the first `given` tokens at once, then one at a time. If a text's length changes the frequencies of RoPE, what
/// was recorded for the whole text holds only for prefixes of the same length class.
void check_prefixes(const arch::ModelSpec& spec, train::Generator& generator, const Fixture& fixture,
                    std::size_t given) {
  const auto text = recorded_text(fixture);
  const auto wanted = fixture.at("plain.logits_slice")[0].to(at::kDouble);
  const auto positions = fixture.reference["cases"]["plain"]["slice_positions"].get<std::vector<std::int64_t>>();
  for (std::size_t length = given; length <= text.size(); ++length) {
    const auto got = generator.logits({text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length)}, kAll);
    const auto place = std::find(positions.begin(), positions.end(), static_cast<std::int64_t>(length) - 1);
    const auto kind = [&](std::size_t tokens) {
      return model::length_class(spec.rope, spec.max_positions, static_cast<std::int64_t>(tokens));
    };
    if (!got.defined() || place == positions.end() || kind(length) != kind(text.size())) continue;
    const auto row = wanted[place - positions.begin()];
    const double apart = (got.narrow(0, 0, row.numel()).to(at::kDouble) - row).abs().max().item<double>();
    if (!(apart <= kLogits))
      rank_check_failed(__FILE__, __LINE__,
                        fmt::format("{}: logits behind {} tokens differ by {:.2e}", fixture.name, length, apart));
  }
}

/// The tokens are the same with a key-value cache as when everything is recomputed for each token.
void check_greedy(Session& session, train::Generator& cached, const Fixture& fixture) {
  auto text = recorded_text(fixture);
  text.resize(5);
  train::Generator whole(session.runtime(), false);
  const train::GenerateOptions options{.tokens = 12, .temperature = 0};
  const auto a = cached.continue_text(text, options), b = whole.continue_text(text, options);
  if (a != b)
    rank_check_failed(
        __FILE__, __LINE__,
        fmt::format("{}: [{}] with a cache, [{}] without", fixture.name, fmt::join(a, " "), fmt::join(b, " ")));
}

void check_model(comm::World& world, const Fixture& fixture, const std::string& mesh) {
  Session session(world, fixture, mesh);
  train::Generator generator(session.runtime());
  const auto& spec = session.runtime().plan().model->spec;
  check_prefixes(spec, generator, fixture, 3);
  // Starting over must not reuse what is cached from the previous text.
  check_prefixes(spec, generator, fixture, 1);
  check_greedy(session, generator, fixture);
}

std::string pipeline_of(const comm::World& world) {
  if (world.size() == 1) return "strategy: ddp";
  return fmt::format("strategy: ddp, pp_size: {}, pipeline: {{pp_schedule: 1F1B, pp_microbatch_size: 1}}",
                     world.size());
}

void check_models(comm::World& world) {
  for (const char* name : {"deepseek_v3", "gemma2", "gemma3_text", "gpt2", "gpt_oss", "llama", "llama3", "llama_tied",
                           "mistral", "mixtral", "phi3", "qwen2", "qwen3", "qwen3_moe"})
    check_model(world, load_fixture(name), pipeline_of(world));
}

void check_families(comm::World& world) {
  for (const auto& name : family_fixtures()) {
    // Refused in pipelines (check_unlike_layers): every layer has an input from the embeddings.
    if (world.size() > 1 && name == "gemma4_text") continue;
    check_model(world, load_family(name), pipeline_of(world));
  }
}

void check_tensor_parallel(comm::World& world) {
  for (const char* options : {"strategy: ddp", "strategy: fsdp2, sequence_parallel: true"})
    for (const char* name : {"gpt_oss", "llama", "qwen3_moe"})
      check_model(world, load_fixture(name), fmt::format("{}, tp_size: {}", options, world.size()));
}

/// Random draws depend on the seed, not on what was generated before.
void check_draws(comm::World& world) {
  const auto fixture = load_fixture("llama");
  Session session(world, fixture, pipeline_of(world));
  train::Generator generator(session.runtime());
  auto text = recorded_text(fixture);
  text.resize(4);
  train::GenerateOptions options{.tokens = 20, .temperature = 1};
  const auto first = generator.continue_text(text, options);
  options.seed = 43;
  const auto other = generator.continue_text(text, options);
  options.seed = 42;
  RANK_CHECK(first == generator.continue_text(text, options));
  RANK_CHECK(first != other);
  // With a single candidate the draw is the likeliest token.
  const train::GenerateOptions greedy{.tokens = 20, .temperature = 0};
  options.top_k = 1;
  RANK_CHECK(generator.continue_text(text, greedy) == generator.continue_text(text, options));
  options.top_k = 0;
  options.top_p = 1e-9;
  RANK_CHECK(generator.continue_text(text, greedy) == generator.continue_text(text, options));
}

/// An end token ends the text, and every rank receives every token.
void check_end(comm::World& world) {
  const auto fixture = load_fixture("llama");
  Session session(world, fixture, pipeline_of(world));
  train::Generator generator(session.runtime());
  auto text = recorded_text(fixture);
  text.resize(4);
  std::vector<std::int32_t> heard;
  train::GenerateOptions options{.tokens = 10, .temperature = 0};
  const auto all = generator.continue_text(text, options);
  const auto end = std::find(all.begin(), all.end(), all[3]) - all.begin();
  options.ends = {all[3]};
  options.on_token = [&](std::int32_t token) { heard.push_back(token); };
  const auto cut = generator.continue_text(text, options);
  RANK_EQUAL(cut.size(), static_cast<std::size_t>(end) + 1);
  RANK_CHECK(cut == heard);
}

const std::vector<RankCase> kCases = {
    {"models with recorded weights give transformers' logits when generating", check_models},
    {"every family gives transformers' logits when generating", check_families},
    {"tensor-parallel ranks give transformers' logits when generating", check_tensor_parallel, 2, 2},
    {"random draws follow the seed", check_draws},
    {"an end token ends the text", check_end},
};

}  // namespace
}  // namespace automodel::test

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::test::kCases);
}
