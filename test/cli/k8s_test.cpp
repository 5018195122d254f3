// Objects that `automodel k8s` prints; test/launch/k8s_test.py checks them against the schemas of their kinds and runs
// their scripts.
#include <sstream>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "cli/program.h"

namespace automodel {
namespace {

constexpr const char* kRecipe = R"(device: cuda
model: {config: {model_type: llama, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2,
  num_attention_heads: 2, num_key_value_heads: 2, vocab_size: 67, max_position_embeddings: 16}}
distributed: {tp_size: 2}
dataset: {_target_: mock, vocab_size: 67, seq_length: 16}
step_scheduler: {global_batch_size: 8, local_batch_size: 2, max_steps: 3}
fault_tolerance: {max_restarts: 5}
)";

test::Outcome objects(const std::string& words, const std::string& recipe = kRecipe) {
  const test::TemporaryFolder folder;
  folder.write("My_Run.yaml", recipe);
  return test::run_program(folder, "k8s My_Run.yaml " + words);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t out = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++out;
  return out;
}

}  // namespace

TEST_CASE("k8s prints the objects of each kind with ranks, GPUs, volumes and restarts", "[cli]") {
  for (const std::string kind : {"mpijob", "trainjob", "jobset"}) {
    INFO(kind);
    const auto made = objects("--nodes 2 --gpus-per-node 4 --kind " + kind +
                              " --image reg/am:1 --namespace ml --volume data=/data --volume ckpt=/runs/a "
                              "--checkpoint.checkpoint_dir 'a b'");
    INFO(made.err);
    REQUIRE(made.code == 0);
    const auto& text = made.out;
    CHECK(text.starts_with("apiVersion: v1\nkind: ConfigMap\n"));
    CHECK(count(text, "\n---\n") == (kind == "trainjob" ? 2 : 1));
    CHECK(count(text, "  namespace: ml\n") == (kind == "trainjob" ? 3 : 2));
    CHECK(has(text, "name: my-run-files\n"));
    CHECK(has(text, "mpirun --allow-run-as-root -np 8 --hostfile "));
    CHECK(has(text, " --map-by ppr:4:node "));
    CHECK(has(text, " --wdir /data "));
    CHECK(has(text, "automodel train /etc/automodel/recipe.yaml --checkpoint.checkpoint_dir 'a b' &\n"));
    // Both kinds of pod have the image, the volumes and shared memory; only nodes have GPUs and stop their ranks.
    CHECK(count(text, "image: \"reg/am:1\"\n") + count(text, "image: reg/am:1\n") == 2);
    CHECK(count(text, "claimName: ckpt\n") == 2);
    CHECK(count(text, "mountPath: /runs/a\n") == 2);
    CHECK(count(text, "medium: Memory\n") == 2);
    CHECK(count(text, "nvidia.com/gpu: 4\n") == 1);
    CHECK(count(text, "preStop:\n") == 1);
    CHECK(count(text, "StrictModes=no") == 1);  // a Secret's folder has mode 1777
    CHECK(count(text, "terminationGracePeriodSeconds: 120\n") == 2);
    CHECK(has(text, kind == "mpijob" ? "backoffLimit: 5\n" : "maxRestarts: 5\n"));  // of the recipe
    std::istringstream lines(kRecipe);
    for (std::string line; std::getline(lines, line);) CHECK(has(text, "    " + line + "\n"));
  }
  const auto set = objects("--nodes 2 --gpus-per-node 4 --kind jobset --max-restarts 0 --volume d=/d");
  CHECK(has(set.out, "my-run-node-0-0.my-run slots=4\n    my-run-node-0-1.my-run slots=4\n"));
  CHECK(has(set.out, "maxRestarts: 0\n"));
  CHECK(has(set.err, "create secret generic my-run-ssh "));
  CHECK(!has(objects("--nodes 2 --gpus-per-node 4 --device cpu --volume d=/d").out, "nvidia.com/gpu"));
}

TEST_CASE("k8s gives a pod as long to end as its checkpoint takes", "[cli]") {
  std::string large = kRecipe;
  large.replace(large.find("hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2"),
                std::string("hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2").size(),
                "hidden_size: 4096, intermediate_size: 14336, num_hidden_layers: 32");
  const auto made = objects("--nodes 1 --gpus-per-node 2 --volume d=/d", large);
  const auto at = made.out.find("terminationGracePeriodSeconds: ");
  REQUIRE(at != std::string::npos);
  // About 9 billion parameters with two moments, 100 MB/s for each of two ranks.
  CHECK(std::stoi(made.out.substr(at + 31)) > 300);
}

TEST_CASE("k8s refuses before it prints", "[cli][errors]") {
  const auto refused = [](const std::string& words, const std::string& what, int code = 2) {
    INFO(words);
    const auto made = objects(words);
    INFO(made.err);
    CHECK(made.code == code);
    CHECK(made.out.empty());
    CHECK(has(made.err, what));
  };
  refused("--nodes 1 --gpus-per-node 3", "error[indivisible]");
  refused("--gpus-per-node 2", "--nodes");
  refused("--nodes 1 --kind pod", "--kind");
  refused("--nodes 1 --volume data", "is not NAME=PATH");
  refused("--nodes 1 --volume Data=/data", "is not NAME=PATH");
  refused("--nodes 1 --volume data=data", "is not NAME=PATH");
  for (const char* bad : {"data=//", "data=/.", "data=/data/..", "data=", "a..b=/data", "'data=/a\nb'"})
    refused(fmt::format("--nodes 1 --volume {}", bad), "is not NAME=PATH");
  refused("--nodes 1 --volume a=/data --volume b=/data/", "is the place of two volumes");
  refused("--nodes 1 --volume a=/etc/automodel-ssh", "is the place of two volumes");
  refused("--nodes 1 --volume a=/dev/shm", "is the place of two volumes");
  refused("--nodes 1 --namespace My_Space", "--namespace");
  refused("--nodes 1 --image 'a b'", "--image");
  refused("--nodes 1 --model.confg 3", "unknown-key");
}

TEST_CASE("k8s says what the pods would lack", "[cli]") {
  CHECK(has(objects("--nodes 1 --gpus-per-node 2").err, "no volume: data and checkpoints are lost"));
  const test::TemporaryFolder folder, data;
  data.write("t.jsonl", "{\"input_ids\": [1, 2, 3]}\n");
  folder.write("r.yaml", std::string(kRecipe) + "validation_dataset: {_target_: tokens, path: " +
                             (data.path() / "t.jsonl").native() + "}\n");
  const auto outside = test::run_program(folder, "k8s r.yaml --nodes 1 --gpus-per-node 2 --volume a=/elsewhere");
  CHECK(has(outside.err, "no volume holds '" + data.path().native() + "'"));
  const auto inside =
      test::run_program(folder, "k8s r.yaml --nodes 1 --gpus-per-node 2 --volume a=" + data.path().native());
  CHECK(!has(inside.err, "no volume holds"));
}

}  // namespace automodel
