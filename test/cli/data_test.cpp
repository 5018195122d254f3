// `automodel data` prints the rows that NeMo AutoModel's builders give (test/golden/datasets).
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <tuple>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "cli/program.h"
#include "golden_folder.h"

namespace automodel {
namespace {

using nlohmann::json;

const std::string kGolden = automodel::golden_folder() + "/datasets";
const json kModel = {{"config",
                      {{"model_type", "llama"},
                       {"hidden_size", 64},
                       {"intermediate_size", 128},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 4},
                       {"vocab_size", 4096}}}};

/// A recorded case as a recipe that works from any folder: its paths are absolute.
json recipe_of(const json& each) {
  json dataset = each["dataset"], tokenizer = each["tokenizer"];
  tokenizer["_target_"] = tokenizer["loader"] == "nemo" ? "nemo_automodel.NeMoAutoTokenizer.from_pretrained"
                                                        : "transformers.AutoTokenizer.from_pretrained";
  tokenizer.erase("loader");
  tokenizer["pretrained_model_name_or_path"] =
      kGolden + "/local/" + tokenizer["pretrained_model_name_or_path"].get<std::string>();
  dataset["tokenizer"] = tokenizer;
  dataset["cache"] = false;
  return {{"model", kModel}, {"dataset", dataset}};
}

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> out;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) out.push_back(json::parse(line));
  return out;
}

test::Outcome show(const test::TemporaryFolder& folder, const json& recipe, const std::string& words) {
  setenv("HF_HUB_CACHE", (kGolden + "/hf_home/hub").c_str(), 1);
  folder.write("r.yaml", recipe.dump());
  return test::run_program(folder, "data r.yaml " + words);
}

/// Compares the rows of a whole dataset with those recorded; returns how many were compared.
int compare(const json& each, const std::vector<json>& printed) {
  REQUIRE(printed.size() == each["len"].get<std::size_t>());
  int compared = 0;
  for (const auto& item : each["rows"]) {
    const auto index =
        static_cast<std::size_t>(item[0].get<std::int64_t>() + (item[0] < 0 ? each["len"].get<std::int64_t>() : 0));
    const auto& ours = printed[index];
    CHECK(ours["row"] == index);
    REQUIRE(ours.contains("error") == item[1].contains("error"));
    if (ours.contains("error")) continue;
    CHECK(ours["input_ids"] == item[1]["input_ids"]);
    CHECK(ours["labels"] == item[1]["labels"]);
    CHECK(ours["attention_mask"] == item[1]["attention_mask"]);
    ++compared;
  }
  return compared;
}

}  // namespace

TEST_CASE("data --json prints the recorded rows of a whole dataset, with errors in place of unusable ones", "[cli]") {
  const test::TemporaryFolder folder;
  int sets = 0, rows = 0;
  std::ifstream stream(kGolden + "/cases/squad.jsonl");
  for (std::string line; std::getline(stream, line);) {
    const auto each = json::parse(line);
    INFO(each["id"].get<std::string>());
    if (each["dataset"].value("dataset_name", "") != "rajpurkar/squad" || !each.contains("rows") ||
        each["dataset"].contains("chat_template") || sets == 8)
      continue;
    const auto run = show(folder, recipe_of(each), "--json --rows 2000");
    INFO(run.err);
    // A run would refuse the unusable rows, and so does this.
    REQUIRE(run.code == (run.out.find("\"error\"") == std::string::npos ? 0 : 2));
    rows += compare(each, lines_of(run.out));
    ++sets;
  }
  CHECK(sets == 8);
  CHECK(rows > 60);
}

TEST_CASE("data without --json marks the text that counts in the loss, and counts packs", "[cli]") {
  const test::TemporaryFolder folder;
  json recipe = {{"model", kModel},
                 {"dataset",
                  {{"_target_", "squad"},
                   {"dataset_name", "rajpurkar/squad"},
                   {"split", "train[14:20]"},
                   {"cache", false},
                   {"tokenizer", kGolden + "/tokenizers/llama3_base"}}},
                 {"packed_sequence", {{"packed_sequence_size", 256}}}};
  const auto run = show(folder, recipe, "--rows 1");
  INFO(run.err);
  REQUIRE(run.code == 0);
  CHECK(run.out.find("row 0") != std::string::npos);
  CHECK(run.out.find("row 1") == std::string::npos);
  CHECK(run.out.find("Context: ") != std::string::npos);
  CHECK(run.out.find("\n  + ") != std::string::npos);
  CHECK(run.out.find("packs of 256") != std::string::npos);
}

TEST_CASE("data --html shows label tokens, padding, cut and unusable rows, and the rows of packs", "[cli]") {
  const test::TemporaryFolder folder;
  const auto turns = [](const std::string& question, const std::string& answer) {
    return json{{"messages", {{{"role", "user"}, {"content", question}}, {{"role", "assistant"}, {"content", answer}}}}}
               .dump() +
           "\n";
  };
  folder.write("rows.jsonl", turns("</script><b>", "yes") + "{}\n" +
                                 turns("q", "a long answer that goes on and on until nothing of it fits any more"));
  json recipe = {{"model", kModel},
                 {"dataset",
                  {{"_target_", "chat"},
                   {"path_or_dataset_id", "rows.jsonl"},
                   {"tokenizer", kGolden + "/tokenizers/qwen2"},
                   {"seq_length", 60},
                   {"padding", "max_length"},
                   {"truncation", true},
                   {"max_bad_rows", 1},
                   {"cache", false}}}};
  const auto page_of = [&](const std::string& words) {
    const auto run = show(folder, recipe, "--html p.html " + words);
    INFO(run.err << run.out);
    REQUIRE(run.code == 0);
    CHECK(run.out.find("+ label tokens") != std::string::npos);
    CHECK(run.out.find("row 0") == std::string::npos);  // rows are on the page
    return folder.read("p.html");
  };
  const auto has = [](const std::string& page, const std::string& text) {
    INFO(page.substr(page.find("</style>")) << "\nlacks " << text);
    CHECK(page.find(text) != std::string::npos);
  };
  const auto page = page_of("");
  has(page, "&lt;/script&gt;&lt;b&gt;");
  CHECK(page.find("<script") == std::string::npos);
  has(page, "<h2>row 1</h2><p class=\"bad\">cannot be used: ");
  has(page, "<h2>row 2</h2>");
  has(page, "<span class=\"border\">fills seq_length 60 or was cut to it</span>");
  has(page, "</mark><span class=\"padding\">");
  CHECK(page_of("--rows 1").find("<h2>row 1") == std::string::npos);
  recipe["packed_sequence"] = {{"packed_sequence_size", 128}};
  const auto packs = page_of("");
  has(packs, "<h2>row 1</h2><p class=\"bad\">");
  has(packs, "<h2>pack 0</h2>");
  has(packs, "the next row of the pack</span>");
  CHECK(packs.find("<h2>row 0") == std::string::npos);
  has(packs, "fills seq_length 60 or was cut to it");
  // Rows of several sections, of which a pack tells no limit.
  auto other = recipe["dataset"];
  other["seq_length"] = 90;
  recipe["dataset"] = {
      {"_target_", "mixture"},
      {"datasets", {{{"weight", 1}, {"dataset", recipe["dataset"]}}, {{"weight", 1}, {"dataset", other}}}}};
  recipe["packed_sequence"]["packed_sequence_size"] = 256;
  const auto mixed = page_of("");
  has(mixed, "the next row of the pack</span>");
  CHECK(mixed.find("fills seq_length") == std::string::npos);
}

TEST_CASE("data --html holds pictures up to a limit, and names those that it leaves out", "[cli]") {
  const test::TemporaryFolder folder;
  const std::string models = automodel::golden_folder() + "/vlm", small = models + "/pictures/rgb.png";
  std::ifstream file(small, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  folder.write("large.png", bytes.str() + std::string(33 << 20, '\0'));  // what follows a PNG file is not read
  json content = json::array();
  for (const std::string& each : {small, std::string("large.png"), small})
    content.push_back({{"type", "image"}, {"image", each}});
  const json turns = {{{"role", "user"}, {"content", content}}, {{"role", "assistant"}, {"content", "a"}}};
  folder.write("rows.jsonl", json{{"messages", turns}}.dump() + "\n");
  const auto run = show(folder,
                        {{"model", {{"pretrained_model_name_or_path", models + "/mistral3"}}},
                         {"dataset", {{"_target_", "chat"}, {"path_or_dataset_id", "rows.jsonl"}}}},
                        "--html p.html");
  if (run.err.find("the decoders are not installed") != std::string::npos) {
    WARN("no decoders in this build");
    return;
  }
  INFO(run.err);
  REQUIRE(run.code == 0);
  const auto page = folder.read("p.html");
  CHECK(page.size() < 100'000);
  const std::string caption = "picture 2: 64 x 48 pixels, 24 tokens; its 33.0 MiB are left out: a page holds 32.0 MiB";
  CHECK(page.find("<figure class=\"gone\"><figcaption>" + caption) != std::string::npos);
  CHECK(page.find("<figcaption>picture 3: 64 x 48 pixels, 24 tokens</figcaption>") != std::string::npos);
  CHECK(page.find("data:image/png;base64,") != page.rfind("data:image/png;base64,"));
}

TEST_CASE("data prints how long rows are, and which ones usual limits would cut", "[cli]") {
  const test::TemporaryFolder folder;
  std::string rows;
  for (const int length : {10, 600, 1500})
    rows += R"({"prompt": ")" + std::string(static_cast<std::size_t>(length), 'a') + R"(", "response": "b"})" + "\n";
  folder.write("rows.jsonl", rows);
  const auto run =
      show(folder,
           {{"model", kModel},
            {"dataset", {{"_target_", "jsonl"}, {"path", "rows.jsonl"}, {"tokenizer", "bytes"}, {"cache", false}}}},
           "--rows 1");
  INFO(run.out << run.err);
  REQUIRE(run.code == 0);
  // A row is its bytes, BOS before them and EOS after; the last token is only a label.
  CHECK(run.out.find("lengths: mean 705.3, 95% up to 1502, longest 1502 tokens") != std::string::npos);
  CHECK(run.out.find("cut: 2 to 512 (66.7 %), 1 to 1024 (33.3 %), 0 to 2048 (0.0 %)") != std::string::npos);
  // A short row does not fill seq_length by being padded to it.
  const auto padded = show(folder,
                           {{"model", kModel},
                            {"dataset",
                             {{"_target_", "column_mapped"},
                              {"path_or_dataset_id", "rows.jsonl"},
                              {"column_mapping", {{"question", "prompt"}, {"answer", "response"}}},
                              {"answer_only_loss_mask", false},
                              {"tokenizer", kGolden + "/tokenizers/qwen2_base"},
                              {"seq_length", 30},
                              {"truncation", true},
                              {"padding", "max_length"},
                              {"cache", false}}}},
                           "--rows 1");
  INFO(padded.out << padded.err);
  CHECK(padded.out.find("2 of 3 rows fill seq_length 30 or were cut to it") != std::string::npos);
}

TEST_CASE("a plan takes the length of rows that it can read, and says so where it cannot", "[cli]") {
  const test::TemporaryFolder folder;
  std::string rows;
  for (const int length : {10, 70})
    rows += R"({"prompt": ")" + std::string(static_cast<std::size_t>(length), 'a') + R"(", "response": "b"})" + "\n";
  folder.write("rows.jsonl", rows);
  folder.write("r.yaml", json{{"model", kModel},
                              {"dataset", {{"_target_", "jsonl"}, {"path", "rows.jsonl"}, {"tokenizer", "bytes"}}},
                              {"step_scheduler", {{"global_batch_size", 2}, {"local_batch_size", 2}}}}
                             .dump());
  const auto told = [&](const std::string& words) {
    const auto run = test::run_program(folder, "plan r.yaml " + words);
    INFO(run.out << run.err);
    REQUIRE(run.code == 0);
    return run.out + run.err;
  };
  const auto read = told(""), unread = told("--no-files");
  CHECK(read.find("length-unknown") == std::string::npos);
  CHECK(read.find("2 sequences per step") != std::string::npos);
  CHECK(read.find("72 tokens") != std::string::npos);
  CHECK(unread.find("length-unknown") != std::string::npos);
  CHECK(unread.find("72 tokens") == std::string::npos);
}

TEST_CASE("data says which keys of the section a run refuses", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("rows.jsonl",
               R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})"
               "\n");
  json dataset = {{"_target_", "chat"},
                  {"path_or_dataset_id", "rows.jsonl"},
                  {"cache", false},
                  {"tokenizer", kGolden + "/tokenizers/qwen2"}};
  const auto plain = show(folder, {{"model", kModel}, {"dataset", dataset}}, "--json");
  REQUIRE(plain.code == 0);
  CHECK(plain.err.find("dataset.unshifted") == std::string::npos);
  dataset["unshifted"] = true;
  const auto told = show(folder, {{"model", kModel}, {"dataset", dataset}}, "--json");
  CHECK(told.err.find("warning[unsupported]: dataset.unshifted is not supported") != std::string::npos);
  CHECK(told.err.ends_with("as if it were not set\n"));
  CHECK(told.out == plain.out);
}

TEST_CASE("data exits with code 2 and gives the reason if a dataset builder refuses", "[cli]") {
  const test::TemporaryFolder folder;
  const json dataset = {{"_target_", "squad"},
                        {"dataset_name", "rajpurkar/squad"},
                        {"split", "train[14:20]"},
                        {"tokenizer", kGolden + "/tokenizers/gpt2"}};
  for (const auto& [key, value, id] :
       std::vector<std::tuple<std::string, json, std::string>>{{"split", "training", "split"},
                                                               {"dataset_name", "nobody/nothing", "nobody/nothing"},
                                                               {"seq_length", 0, "seq_length"}}) {
    json changed = dataset;
    changed[key] = value;
    const auto run = show(folder, {{"model", kModel}, {"dataset", changed}}, "--json");
    INFO(run.out << run.err);
    CHECK(run.code == 2);
    CHECK((run.err + run.out).find(id) != std::string::npos);
  }
  CHECK(show(folder, {{"model", kModel}, {"dataset", dataset}}, "--validation").code == 2);
}

TEST_CASE("data shows a classifier's label where training has it", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("rows.jsonl", "{\"input_ids\": [5, 6, 4, 9], \"label\": 1}\n");
  auto model = kModel;
  model["num_labels"] = 2;
  json recipe = {{"recipe", "TrainFinetuneRecipeForSequenceClassification"},
                 {"model", model},
                 {"dataset", {{"_target_", "tokens"}, {"path", "rows.jsonl"}}}};
  const auto labels = [&] {
    const auto run = show(folder, recipe, "--json");
    INFO(run.err);
    REQUIRE(run.code == 0);
    return lines_of(run.out).at(0)["labels"];
  };
  CHECK(labels() == json({-100, -100, -100, 1}));
  recipe["model"]["config"]["pad_token_id"] = 9;
  CHECK(labels() == json({-100, -100, 1, -100}));
  CHECK_THAT(show(folder, recipe, "").out, Catch::Contains("+ class 1"));  // no token
}

TEST_CASE("split takes its part of files as of repositories", "[cli]") {
  const test::TemporaryFolder folder;
  std::string rows, columns;
  for (int i = 0; i < 4; ++i) {
    rows += R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": ")" +
            std::to_string(i) + "\"}]}\n";
    columns += R"({"q": "question", "a": "answer )" + std::to_string(i) + "\"}\n";
  }
  folder.write("chat.jsonl", rows);
  folder.write("columns.jsonl", columns);
  const json tokenizer = kGolden + "/tokenizers/llama3";
  const auto with = [&](json dataset, const std::string& split) {
    dataset["tokenizer"] = tokenizer;
    dataset["cache"] = false;
    if (!split.empty()) dataset["split"] = split;
    return show(folder, {{"model", kModel}, {"dataset", dataset}}, "--rows 10 --json");
  };
  const json chat = {{"_target_", "chat"}, {"path_or_dataset_id", "chat.jsonl"}};
  const json mapped = {{"_target_", "column_mapped"},
                       {"path_or_dataset_id", "columns.jsonl"},
                       {"column_mapping", {{"question", "q"}, {"answer", "a"}}}};
  for (const auto& dataset : {chat, mapped}) {
    const auto all = lines_of(with(dataset, "").out), first = lines_of(with(dataset, "train[:50%]").out),
               rest = lines_of(with(dataset, "train[50%:]").out);
    REQUIRE(all.size() == 4);
    REQUIRE(first.size() == 2);
    REQUIRE(rest.size() == 2);
    CHECK(first[1]["input_ids"] == all[1]["input_ids"]);
    CHECK(rest[0]["input_ids"] == all[2]["input_ids"]);
    const auto refused = with(dataset, "validation");
    CHECK(refused.code == 2);
    CHECK(refused.out.find("has no split 'validation'") != std::string::npos);
  }
}

TEST_CASE("rows that data prints are trained on unchanged when tokens reads them", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("c.jsonl", R"({"q": "question", "a": "answer"})"
                          "\n");
  const json dataset = {{"_target_", "column_mapped"},
                        {"path_or_dataset_id", "c.jsonl"},
                        {"column_mapping", {{"question", "q"}, {"answer", "a"}}},
                        {"tokenizer", kGolden + "/tokenizers/llama3"},
                        {"cache", false}};
  const auto printed = show(folder, {{"model", kModel}, {"dataset", dataset}}, "--json");
  REQUIRE(printed.code == 0);
  folder.write("r.jsonl", printed.out);
  const auto again =
      show(folder, {{"model", kModel}, {"dataset", {{"_target_", "tokens"}, {"path", "r.jsonl"}}}}, "--json");
  INFO(again.err << again.out);
  REQUIRE(again.code == 0);
  const auto before = lines_of(printed.out), after = lines_of(again.out);
  REQUIRE(after.size() == before.size());
  const auto labels = before[0]["labels"].size();
  for (std::size_t i = 0; i < labels; ++i) {
    CHECK(after[0]["input_ids"][i] == before[0]["input_ids"][i]);
    CHECK(after[0]["labels"][i] == before[0]["labels"][i]);
  }
}

}  // namespace automodel
