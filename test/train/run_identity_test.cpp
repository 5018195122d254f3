// What makes a run another run: its model, its data, its method; not its mesh, types or folders.
#include "train/run_identity.h"

#include <string>
#include <vector>

#include "comm/loopback/loopback.h"
#include "config/recipe.h"
#include "temporary_folder.h"
#include "torch_catch.h"

namespace automodel::train {
namespace {

/// Three rows; the middle one begins with `first` and ends with `last`.
std::string rows(int last, int first = 5) {
  return "{\"input_ids\": [1, 2, 3, 4]}\n{\"input_ids\": [" + std::to_string(first) + ", 6, 7, " +
         std::to_string(last) + "]}\n{\"input_ids\": [9, 10, 11, 12]}\n";
}

std::string equal_rows(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += "{\"input_ids\": [1, 2, 3, 4]}\n";
  return out;
}

class Identities {
 public:
  Identities() {
    folder_.write("rows.jsonl", rows(8));
    folder_.write("moved/rows.jsonl", rows(8));
    folder_.write("other/rows.jsonl", rows(13));
    folder_.write("begins/rows.jsonl", rows(8, 13));
    folder_.write("many/rows.jsonl", equal_rows(20));
    folder_.write("more/rows.jsonl", equal_rows(21));
  }
  checkpoint::RunIdentity of(const std::vector<std::string>& words = {}, int ranks = 1) const {
    const std::string text =
        "device: cpu\n"
        "model: {config: {model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, "
        "num_attention_heads: 2, num_key_value_heads: 2, vocab_size: 64, max_position_embeddings: 32, "
        "rope_theta: 10000}}\n"
        "dataset: {_target_: tokens, path: " +
        folder_.path().string() +
        "/rows.jsonl}\n"
        "distributed: {strategy: ddp}\n"
        "step_scheduler: {global_batch_size: 2, local_batch_size: 1, max_steps: 1}\n"
        "checkpoint: {checkpoint_dir: " +
        folder_.path().string() + "/run}\n";
    Diagnostics problems;
    const auto loaded = config::read_recipe(text, "r.yaml", config::parse_overrides(words, problems),
                                            [](const std::string&) { return std::nullopt; });
    REQUIRE(to_text(problems) + to_text(loaded.problems) == "");
    checkpoint::RunIdentity out;
    const auto outcome = comm::run_ranks(ranks, [&](comm::World& world) {
      const Setup setup(loaded, world);
      const auto found = identity_of(setup);
      if (world.rank() == 0) out = found;
    });
    INFO(outcome.text);
    REQUIRE(outcome.ok());
    return out;
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

 private:
  test::TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("another configuration of a model, other samples or another method make another run", "[train]") {
  const Identities identities;
  const auto run = identities.of();
  const auto theta = identities.of({"model.config.rope_theta=50000"});
  CHECK(theta.model.digest != run.model.digest);  // of the same shapes
  CHECK(theta.data == run.data);
  const auto other = identities.of({"dataset.path=" + identities.path("other/rows.jsonl")});
  CHECK(other.data.digest != run.data.digest);  // as many rows in a file of the same name
  CHECK(other.model == run.model);
  // The first token of a row is no label.
  CHECK(identities.of({"dataset.path=" + identities.path("begins/rows.jsonl")}).data.digest != run.data.digest);
  // More rows than are sampled, so that only their number differs.
  CHECK(identities.of({"dataset.path=" + identities.path("many/rows.jsonl")}).data.digest !=
        identities.of({"dataset.path=" + identities.path("more/rows.jsonl")}).data.digest);
  const auto adapters = identities.of({"peft={dim: 2}"});
  CHECK(!(adapters.method == run.method));
  CHECK(adapters.model == run.model);
  const std::string teacher =
      "teacher_model={config: {model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, "
      "num_attention_heads: 2, vocab_size: 64, max_position_embeddings: 32, rope_theta: ";
  const auto taught = identities.of({teacher + "10000}}"}), otherwise = identities.of({teacher + "50000}}"});
  CHECK(run.method.digest == "training of all parameters");  // as before there were teachers
  CHECK(taught.method.name != run.method.name);
  CHECK(taught.method.digest != otherwise.method.digest);
  CHECK(taught.model == run.model);
}

TEST_CASE("a run on another mesh, in another type or folder is the same run", "[train]") {
  const Identities identities;
  const auto run = identities.of();
  CHECK(identities.of({"distributed.strategy=fsdp2"}, 2) == run);
  CHECK(identities.of({"model.torch_dtype=float64", "optimizer.lr=0.5"}) == run);
  CHECK(identities.of({"dataset.path=" + identities.path("moved/rows.jsonl")}) == run);
}

TEST_CASE("values from the environment are recorded as the recipe has them", "[train]") {
  const std::string text =
      "device: cpu\nmodel: {config: {model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, "
      "num_attention_heads: 2, vocab_size: 64, max_position_embeddings: 32}}\n"
      "dataset: {_target_: mock, vocab_size: 64}\ngeneration: {prompts: [\"${SECRET}\", plain], max_new_tokens: 2}\n"
      "checkpoint: {checkpoint_dir: \"run_${SECRET}\"}\n";
  const auto loaded = config::read_recipe(text, "r.yaml", {}, [](const std::string& name) {
    return name == "SECRET" ? std::optional<std::string>("hidden value") : std::nullopt;
  });
  REQUIRE(to_text(loaded.problems) == "");
  const auto recorded = recorded_recipe(loaded);
  CHECK(recorded.find("hidden value") == std::string::npos);
  CHECK(recorded.find("[\"${SECRET}\",\"plain\"]") != std::string::npos);
  CHECK(recorded.find("\"run_${SECRET}\"") != std::string::npos);
}

}  // namespace automodel::train
