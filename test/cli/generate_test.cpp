// `automodel generate` as a user runs it: on checkpoints and their folders, on one rank and on several.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "cli/program.h"

namespace automodel {
namespace {

using nlohmann::json;

const std::string kRecipe =
    "model: {config: {model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, "
    "num_attention_heads: 4, num_key_value_heads: 2, vocab_size: VOCAB, max_position_embeddings: 64}}\n"
    "step_scheduler: {global_batch_size: 4, local_batch_size: 4, max_steps: 40}\n"
    "optimizer: {_target_: adamw, lr: 0.01}\n"
    "checkpoint: {checkpoint_dir: ck}\n"
    "device: cpu\n"
    "distributed: {strategy: ddp}\n";
const std::string kText = "dataset: {_target_: text, paths: [t.txt], tokenizer: bytes, seq_length: 32}\n";

std::string recipe(int vocab, const std::string& more) {
  std::string out = kRecipe + more;
  return out.replace(out.find("VOCAB"), 5, std::to_string(vocab));
}

/// Trains a model that knows one sentence, in ck/.
void train(const test::TemporaryFolder& folder) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "abcdefghij klmnop. ";
  folder.write("t.txt", text);
  folder.write("r.yaml", recipe(260, kText));
  const auto run = test::run_program(folder, "train r.yaml");
  INFO(run.err);
  REQUIRE(run.code == 0);
}

json answers(const test::Outcome& run) {
  INFO(run.err);
  REQUIRE(run.code == 0);
  return json::parse(run.out).at("answers");
}

TEST_CASE("a trained model continues its training text, identically on one rank and on two") {
  test::TemporaryFolder folder;
  train(folder);
  const auto alone =
      answers(test::run_program(folder, "generate ck --prompt abcde --prompt klm --max-new-tokens 20 --json"));
  REQUIRE(alone.size() == 2);
  CHECK(alone[0].at("text").get<std::string>().starts_with("fghij klmnop. abc"));
  CHECK(alone[0].at("prompt_tokens") == 5);
  CHECK(alone[1].at("ids").size() == 20);
  for (const char* mesh : {"--tp-size 2", "--pp-size 2"}) {
    const auto more = answers(test::run_program(
        folder, std::string("generate ck/LATEST --prompt abcde --prompt klm --max-new-tokens 20 --json ") + mesh));
    INFO(mesh);
    for (int i = 0; i < 2; ++i) CHECK(more[i].at("ids") == alone[i].at("ids"));
  }
}

TEST_CASE("generate streams text, reads a prompt from standard input, and needs a tokenizer for an export") {
  test::TemporaryFolder folder;
  train(folder);
  folder.write("in.txt", "abc");
  const auto streamed = test::run_program(folder, "generate ck --max-new-tokens 7 <in.txt");
  CHECK(streamed.out == "abcdefghij\n");
  CHECK(streamed.err.find("3 tokens read") != std::string::npos);
  REQUIRE(test::run_program(folder, "checkpoint export ck/LATEST out").code == 0);
  CHECK(test::run_program(folder, "generate out --prompt abc").err.find("error[missing-file]") != std::string::npos);
  const auto named = test::run_program(folder, "generate out --tokenizer bytes --prompt abc --max-new-tokens 4");
  CHECK(named.out == "abcdefg\n");
  // Generation stops at the model's last position.
  const auto all = answers(test::run_program(folder, "generate ck --prompt abc --max-new-tokens 1000 --json"));
  CHECK(all[0].at("ids").size() == 61);
}

TEST_CASE("generate refuses unusable models, prompts and options with a specific error") {
  test::TemporaryFolder folder;
  train(folder);
  const auto refuses = [&](const std::string& words, const std::string& what, int code = 2) {
    const auto run = test::run_program(folder, "generate " + words);
    INFO(words << ": " << run.err);
    CHECK(run.code == code);
    CHECK(run.err.find(what) != std::string::npos);
  };
  refuses("nowhere --prompt a", "error[missing-file]: there is no model in 'nowhere'");
  // A folder without a model, beside a folder that happens to be called model.
  std::filesystem::copy(folder.path() / "ck/LATEST/model", folder.path() / "model",
                        std::filesystem::copy_options::recursive);
  refuses("nowhere --prompt a --tokenizer bytes", "error[missing-file]: there is no model in 'nowhere'");
  refuses("ck --prompt a --nproc-per-node 3 --tp-size 2", "is not tp-size 2 x pp-size 1");
  refuses("ck --chat --prompt a", "error[no-chat-template]");
  refuses("ck --system a --prompt a", "add --chat");
  refuses("ck --dtype float31 --prompt a", "error[usage]");
  refuses("ck --prompt a --tp-size 3", "error[indivisible]", 3);
  refuses("ck --prompt " + std::string(64, 'a'), "error[prompt-too-long]");
  folder.write("adapters/model/adapter_config.json", "{}");
  refuses("adapters --prompt a", "error[adapters-alone]");
  refuses("adapters --prompt a --base ck/LATEST/model", "error[missing-weights]");
  refuses("ck --prompt a --base ck/LATEST/model", "--base is for adapters");
  refuses("ck --prompt a --logits --temperature 1", "--temperature");
  refuses("ck --chat --logits", "--logits reads no conversation");
  auto config = nlohmann::json::parse(folder.read("model/config.json"));
  config["architectures"] = {"LlamaForSequenceClassification"};
  folder.write("model/config.json", config.dump());
  refuses("model --prompt a --tokenizer bytes",
          "is a classifier (LlamaForSequenceClassification): it gives labels, not text", 3);
}

TEST_CASE("commands that have no pictures to give refuse a model with a vision tower") {
  const test::TemporaryFolder folder;
  const std::string model = AUTOMODEL_SOURCE_DIR "/test/golden/vlm/llava";
  const auto run = test::run_program(folder, "checkpoint export " + model + " x.gguf --gguf");
  INFO(run.err);
  CHECK(run.code == 2);
  CHECK(run.err.find("error[unsupported-model]: a GGUF file cannot say what a vision tower is") != std::string::npos);
}

const std::string kPictures = AUTOMODEL_SOURCE_DIR "/test/golden/vlm";

/// What transformers answers: the questions of some models (test/golden/vlm/record_answers.py).
std::vector<json> recorded(const std::vector<std::string>& families) {
  std::vector<json> out;
  std::ifstream file(kPictures + "/answers.jsonl");
  for (std::string line; std::getline(file, line);)
    if (auto each = json::parse(line);
        families.empty() || std::ranges::find(families, each.at("family").get<std::string>()) != families.end())
      out.push_back(std::move(each));
  return out;
}

/// Asks as recorded; a question without pictures is a conversation.
test::Outcome ask(const test::TemporaryFolder& folder, const json& question, const std::string& words) {
  auto line = fmt::format("generate {}/{} --device cpu --prompt '{}' {}", kPictures,
                          question.at("family").get<std::string>(), question.at("text").get<std::string>(), words);
  if (question.at("pictures").empty()) line += " --chat";
  for (const auto& each : question.at("pictures"))
    line += fmt::format(" --image {}/llava/pictures/{}", kPictures, each.get<std::string>());
  return test::run_program(folder, line);
}

TEST_CASE("answers about pictures are those of transformers, for every family") {
  const test::TemporaryFolder folder;
  const auto questions = recorded({});
  REQUIRE(questions.size() == 48);
  for (const auto& each : questions) {
    INFO(each.dump());
    const auto answer = answers(ask(folder, each, "--json --max-new-tokens 16"))[0];
    CHECK(answer.at("prompt_tokens") == each.at("prompt_tokens"));
    CHECK(answer.at("ids") == each.at("ids"));
  }
}

TEST_CASE("logits behind pictures are those of transformers") {
  const test::TemporaryFolder folder;
  for (const auto& each : recorded({"gemma3", "gemma4_moe"})) {  // which repeat themselves
    INFO(each.dump());
    const auto logits = answers(ask(folder, each, "--logits"))[0].at("logits");
    for (std::size_t i = 0; i < 4; ++i)
      CHECK(logits[i].get<double>() == Approx(each.at("logits")[i].get<double>()).margin(5e-5));
  }
}

TEST_CASE("answers about pictures are the same on two stages and on two tensor-parallel ranks") {
  const test::TemporaryFolder folder;
  for (const auto& [mesh, families] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {" --pp-size 2", {"qwen3_vl", "gemma4_moe"}}, {" --tp-size 2", {"gemma3", "minimax_m3_vl", "mistral3"}}})
    for (const auto& each : recorded(families)) {
      if (each.at("pictures").size() != 2) continue;
      INFO(mesh << each.dump());
      CHECK(answers(ask(folder, each, "--json --max-new-tokens 16" + mesh))[0].at("ids") == each.at("ids"));
    }
}

TEST_CASE("a conversation begins with its pictures") {
  const test::TemporaryFolder folder;
  folder.write("in.txt", "What is this?\nAnd now?\n");
  const std::string words = "generate " + kPictures + "/qwen3_vl --image " + kPictures +
                            "/llava/pictures/t00.png --device cpu --json --max-new-tokens 16";
  const auto both = answers(test::run_program(folder, words + " --chat <in.txt"));
  REQUIRE(both.size() == 2);
  const auto first = recorded({"qwen3_vl"})[0];
  CHECK(both[0].at("prompt_tokens") == first.at("prompt_tokens"));
  CHECK(both[0].at("ids") == first.at("ids"));
  CHECK(both[1].at("prompt_tokens") > both[0].at("prompt_tokens"));
  // A plain prompt needs no pictures and no template.
  CHECK(answers(test::run_program(folder, "generate " + kPictures + "/llava --prompt text --json"))[0].at("text") !=
        "");
}

TEST_CASE("pictures that cannot be used, and prompts that do not suit them, are refused with the reason") {
  test::TemporaryFolder folder;
  train(folder);
  const std::string llava = "generate " + kPictures + "/llava --prompt ", picture = kPictures + "/pictures/rgb.png";
  const auto refuses = [&](const std::string& words, const std::string& what, int code = 2) {
    const auto run = test::run_program(folder, words);
    INFO(words << ": " << run.err);
    CHECK(run.code == code);
    CHECK(run.err.find("command line: error[" + what) != std::string::npos);
    CHECK(run.err.find("\n    help: ") != std::string::npos);
  };
  refuses(llava + "a --image none.png", "missing-file]: there is no picture 'none.png'");
  for (const std::string name : {"damaged.png", "truncated.jpg", "palette.gif"})
    refuses(llava + "a --image " + kPictures + "/pictures/" + name, "bad-file]: the picture '" + kPictures);
  // 12,000 x 9,000 pixels, of which only the header is there.
  const unsigned char header[] = {0x89, 'P',  'N',  'G', '\r', '\n', 0x1a, '\n', 0, 0, 0, 13, 'I',  'H',  'D',  'R', 0,
                                  0,    0x2e, 0xe0, 0,   0,    0x23, 0x28, 8,    2, 0, 0, 0,  0x1a, 0x18, 0xe4, 0xac};
  folder.write("huge.png", std::string(reinterpret_cast<const char*>(header), sizeof header));
  refuses(llava + "a --image huge.png", "bad-file]: the picture 'huge.png' cannot be used: ");
  const std::string two =
      "bad-value]: the prompt cannot be asked about the pictures: the text has 2 placeholders for 1";
  refuses(llava + "'like <image>?' --image " + picture, two);
  refuses(llava + "'like <image>?'", "bad-value]: the prompt cannot be asked about the pictures: the text has 1 ");
  refuses(llava + std::string(2000, 'a') + " --image " + picture, "prompt-too-long]: the text with its pictures has ");
  refuses("generate ck --prompt a --image " + picture, "unsupported-model]: ", 3);
  const auto bytes = test::run_program(folder, llava + "a --tokenizer bytes --image " + picture);
  CHECK(bytes.code == 2);
  CHECK(bytes.err.find("error[no-chat-template]") != std::string::npos);
}

/// The largest difference of the logits behind the prompts, which are the same.
double apart(const json& a, const json& b) {
  REQUIRE(a.size() == b.size());
  double out = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].at("ids") == b[i].at("ids"));
    const auto x = a[i].at("logits").get<std::vector<double>>(), y = b[i].at("logits").get<std::vector<double>>();
    REQUIRE(x.size() == y.size());
    for (std::size_t j = 0; j < x.size(); ++j) out = std::max(out, std::abs(x[j] - y[j]));
  }
  return out;
}

TEST_CASE("logits behind prompts compare exports and meshes") {
  test::TemporaryFolder folder;
  train(folder);
  const std::string prompts = " --prompt abcde --prompt klm";
  const auto logits = answers(test::run_program(folder, "generate ck --logits" + prompts));
  REQUIRE(logits.size() == 2);
  CHECK(logits[0].at("prompt") == "abcde");
  CHECK(logits[0].at("ids").size() == 5);
  const auto values = logits[0].at("logits").get<std::vector<double>>();
  REQUIRE(values.size() == 260);
  const auto text = answers(test::run_program(folder, "generate ck --json --max-new-tokens 1" + prompts));
  CHECK(std::max_element(values.begin(), values.end()) - values.begin() == text[0].at("ids")[0].get<int>());
  REQUIRE(test::run_program(folder, "checkpoint export ck new").code == 0);
  CHECK(apart(logits, answers(test::run_program(folder, "generate new --tokenizer bytes --logits" + prompts))) == 0);
  // Sums of 32 and 64 float32 products in another order, through two layers; logits are about 10.
  for (const char* mesh : {" --tp-size 2", " --pp-size 2"})
    CHECK(apart(logits, answers(test::run_program(folder, "generate ck --logits" + prompts + mesh))) < 1e-4);
  REQUIRE(test::run_program(folder, "checkpoint export ck half --dtype bfloat16").code == 0);
  CHECK(apart(logits, answers(test::run_program(
                          folder, "generate half --tokenizer bytes --dtype float32 --logits" + prompts))) > 1e-4);
}

TEST_CASE("adapters generate on top of their model as when they are merged into it") {
  test::TemporaryFolder folder;
  train(folder);
  const auto base = folder.path() / "ck/LATEST/model";
  std::string text;
  for (int i = 0; i < 200; ++i) text += "ponmlk jihgfedcba. ";
  folder.write("t.txt", text);
  const std::string prompts = " --tokenizer bytes --prompt ponm --prompt jih";
  const auto before = answers(test::run_program(folder, "generate ck --logits" + prompts));
  for (const char* kind : {"", ", use_dora: true"}) {
    INFO(kind);
    folder.write("r.yaml", "model: {pretrained_model_name_or_path: " + std::filesystem::canonical(base).string() +
                               "}\n"
                               "step_scheduler: {global_batch_size: 4, local_batch_size: 4, max_steps: 40}\n"
                               "optimizer: {_target_: adamw, lr: 0.02}\n"
                               "checkpoint: {checkpoint_dir: lora" +
                               std::string(*kind == 0 ? "1" : "2") +
                               "}\n"
                               "device: cpu\n"
                               "distributed: {strategy: ddp}\n"
                               "peft: {target_modules: ['*_proj'], dim: 4, alpha: 6" +
                               kind + "}\n" + kText);
    const auto run = test::run_program(folder, "train r.yaml");
    INFO(run.err);
    REQUIRE(run.code == 0);
    const std::string lora = *kind == 0 ? "lora1" : "lora2", merged = lora + "m";
    REQUIRE(test::run_program(folder, "checkpoint export " + lora + " " + merged + " --merge").code == 0);
    const auto whole = answers(test::run_program(folder, "generate " + merged + " --logits" + prompts));
    // The merged weights are rounded once more: 2^-24 of sums of 64 products, through two layers; logits are about 10.
    const auto apart_from_merged = [&](const std::string& words) {
      return apart(whole, answers(test::run_program(folder, "generate " + words + " --logits" + prompts)));
    };
    CHECK(apart_from_merged(lora) < 1e-3);
    CHECK(apart_from_merged(lora + "/LATEST --tp-size 2") < 1e-3);
    CHECK(apart_from_merged(lora + "/LATEST/model --base " + base.string()) < 1e-3);
    CHECK(apart(whole, before) > 0.1);
    const auto said = answers(test::run_program(folder, "generate " + lora + " --json --max-new-tokens 6" + prompts));
    CHECK(said[0].at("text").get<std::string>() == "lk jih");
  }
  // Another model: one layer less.
  folder.write("small.yaml", recipe(260, kText));
  const auto small = test::run_program(folder,
                                       "train small.yaml --model.config.num_hidden_layers 1 "
                                       "--step_scheduler.max_steps 1 --checkpoint.checkpoint_dir small");
  INFO(small.err);
  REQUIRE(small.code == 0);
  const auto other = test::run_program(folder, "generate lora1 --base small/LATEST/model" + prompts);
  CHECK(other.code == 2);
  CHECK(other.err.find("the adapters belong to another model; name theirs with --base") != std::string::npos);
}

TEST_CASE("a conversation uses the chat template and keeps earlier turns") {
  test::TemporaryFolder folder;
  const std::string tokenizer = AUTOMODEL_SOURCE_DIR "/test/golden/tokenizer/llama3";
  folder.write("r.yaml", recipe(2016, "dataset: {_target_: mock, vocab_size: 2016, seq_length: 16}\n"));
  const auto run = test::run_program(folder, "train r.yaml step_scheduler.max_steps=2");
  INFO(run.err);
  REQUIRE(run.code == 0);
  folder.write("in.txt", "Hi\nMore\n");
  const auto spoken = answers(
      test::run_program(folder, "generate ck --chat --tokenizer " + tokenizer + " --max-new-tokens 3 --json <in.txt"));
  REQUIRE(spoken.size() == 2);
  CHECK(spoken[0].at("prompt") == "Hi");
  // The second prompt contains the first turn and its answer.
  CHECK(spoken[1].at("prompt_tokens").get<int>() > spoken[0].at("prompt_tokens").get<int>() + 3);
  const auto one = answers(test::run_program(
      folder, "generate ck --chat --prompt Hi --tokenizer " + tokenizer + " --max-new-tokens 3 --json"));
  CHECK(one[0].at("ids") == spoken[0].at("ids"));
}

TEST_CASE("the tokenizer of the revision that a recipe names is saved beside the weights") {
  test::TemporaryFolder folder;
  const std::filesystem::path golden = AUTOMODEL_SOURCE_DIR "/test/golden/datasets/tokenizers";
  const std::string stored = "hub/models--some--model";
  folder.write(stored + "/refs/main", "hash1");
  folder.write(stored + "/refs/second", "hash2");
  std::filesystem::create_directories(folder.path() / stored / "snapshots");
  std::filesystem::copy(golden / "qwen2", folder.path() / stored / "snapshots/hash1");
  std::filesystem::copy(golden / "qwen2_tools", folder.path() / stored / "snapshots/hash2");
  folder.write("rows.jsonl",
               R"({"messages": [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "cd"}]})"
               "\n");
  for (const char* revision : {"", ", revision: second"}) {
    folder.write("r.yaml", recipe(1400,
                                  "dataset: {_target_: chat, path_or_dataset_id: rows.jsonl, tokenizer: "
                                  "{pretrained_model_name_or_path: some/model" +
                                      std::string(revision) + "}}\n"));
    setenv("HF_HUB_CACHE", (folder.path() / "hub").c_str(), 1);
    const auto run = test::run_program(folder,
                                       "train r.yaml --step_scheduler.max_steps 1 --step_scheduler.global_batch_size 1 "
                                       "--step_scheduler.local_batch_size 1 --checkpoint.checkpoint_dir ck" +
                                           std::to_string(*revision == 0));
    unsetenv("HF_HUB_CACHE");
    INFO(run.err);
    REQUIRE(run.code == 0);
    const auto read = [](const std::filesystem::path& file) {
      std::ifstream stream(file);
      return std::string(std::istreambuf_iterator<char>(stream), {});
    };
    const auto model = folder.path() / ("ck" + std::to_string(*revision == 0)) / "LATEST/model";
    CHECK(read(model / "chat_template.jinja") ==
          read(golden / (*revision == 0 ? "qwen2" : "qwen2_tools") / "chat_template.jinja"));
  }
}

}  // namespace
}  // namespace automodel
