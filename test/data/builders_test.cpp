// Every dataset builder compared with NeMo AutoModel's results for the same sections (test/golden/datasets).
#include <cstdlib>
#include <fstream>
#include <set>

#include <catch2/catch.hpp>

#include "config/reader.h"
#include "data/numpy_order.h"
#include "data/open_dataset.h"
#include "data/packed_dataset.h"
#include "data/sampler.h"
#include "golden_file.h"
#include "golden_folder.h"
#include "temporary_folder.h"

namespace automodel::data {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

const std::string kGolden = automodel::golden_folder() + "/datasets";

std::vector<json> recorded(const std::string& file) {
  std::ifstream stream(kGolden + "/" + file);
  std::vector<json> out;
  for (std::string line; std::getline(stream, line);) out.push_back(json::parse(line));
  REQUIRE(!out.empty());
  return out;
}

struct Opened {
  std::unique_ptr<Dataset> dataset;
  std::map<std::int64_t, std::string> refused;  ///< rows, with the reason
  Diagnostics problems;

  /// The sample that row `index` of the data became.
  std::int64_t sample_of(std::int64_t index) const {
    std::int64_t out = index;
    for (const auto& [row, reason] : refused) out -= row < index ? 1 : 0;
    return out;
  }
};

/// The section of a recorded case, with its tokenizer.
json section_of(const json& each) {
  json out = each["dataset"];
  if (!each.contains("tokenizer")) return out;
  json tokenizer = each["tokenizer"];
  tokenizer["_target_"] = tokenizer["loader"] == "nemo" ? "nemo_automodel.NeMoAutoTokenizer.from_pretrained"
                                                        : "transformers.AutoTokenizer.from_pretrained";
  tokenizer.erase("loader");
  out["tokenizer"] = tokenizer;
  return out;
}

Opened open(const json& section) {
  setenv("HF_HUB_CACHE", (kGolden + "/hf_home/hub").c_str(), 1);
  setenv("HF_DATASETS_CACHE", "/nowhere", 1);
  Opened out;
  config::Origins origins;
  std::vector<config::IgnoredKey> ignored, unsupported;
  config::DatasetConfig config;
  config::Reader reader(out.problems, origins, ignored, unsupported);
  reader.read(config::parse_yaml(section.dump(), "recipe.yaml", out.problems), "dataset", config);
  if (!out.problems.empty()) return out;
  std::vector<std::pair<std::int64_t, Diagnostic>> rejected;
  DatasetContext context;
  context.recipe_folder = kGolden + "/local";
  context.rejected = &rejected;
  out.dataset = open_dataset(config, context, out.problems);
  for (auto& [row, problem] : rejected) out.refused.emplace(row, problem.message);
  return out;
}

/// Sections where ours is right and theirs is not, or whose rows depend on more than tokenizer.json; docs/data.md gives
/// the reasons.
const std::set<std::string> kDeliberate = {
    "squad/err_limit_type",            // a number in quotes is a number
    "squad/err_saved_to_disk",         // is read anyway
    "chat/err_parquet_file_in_cwd",    // found beside the recipe
    "chat/err_template_path_missing",  // a path that does not exist is refused, not used as text
    "chat/tulu_split_null",            // the split is train
    "chat/tulu_unshifted",
    "chat/tulu_unshifted_maxlen",  // rows without labels are not trained on
    "column_mapped/json_dates",    // a date is text
    "column_mapped/local_slice_ignored",
    "chat/local_split_ignored",  // a slice of a file is taken
    "squad/llama2_cls_nemo_bos_eos",
};

void compare(const json& each) {
  const Opened opened = open(section_of(each));
  INFO(each["id"] << " " << to_text(opened.problems));
  if (each.contains("error")) {
    CHECK(!opened.dataset);
    CHECK(!opened.problems.empty());
    return;
  }
  bool all_refused = !each["rows"].empty();
  for (const auto& item : each["rows"]) all_refused = all_refused && item[1].contains("error");
  if (all_refused && !opened.dataset) return;
  REQUIRE(opened.dataset);
  const auto refused = static_cast<std::int64_t>(opened.refused.size());
  if (!each["len"].is_null()) CHECK(opened.dataset->size() + refused == each["len"].get<std::int64_t>());
  Sample sample;
  Ids attention;
  for (const auto& item : each["rows"]) {
    auto index = item[0].get<std::int64_t>();
    if (index < 0) index += each["len"].get<std::int64_t>();
    const auto& row = item[1];
    INFO("row " << index);
    const auto reason = opened.refused.find(index);
    if (row.contains("error")) {
      CHECK(reason != opened.refused.end());
      continue;
    }
    if (reason != opened.refused.end() && reason->second.starts_with("the chat template leaves the tool calls out"))
      continue;  // docs/data.md gives the reason
    if (reason != opened.refused.end()) INFO(reason->second);
    REQUIRE(reason == opened.refused.end());
    opened.dataset->read(opened.sample_of(index), sample);
    CHECK(sample.input_ids == row["input_ids"].get<Ids>());
    Ids labels = row["labels"].get<Ids>();
    labels.resize(sample.input_ids.size());  // without a context there is one more, which never counts
    CHECK(sample.labels == labels);
    opened.dataset->attention_mask(opened.sample_of(index), attention);
    if (row.contains("attention_mask")) CHECK(attention == row["attention_mask"].get<Ids>());
  }
}

/// The first rows of a stream, which NeMo AutoModel repeats for ever.
void compare_first(json each, std::size_t rows) {
  auto& all = each["rows"];
  REQUIRE(all.size() > rows);
  all.erase(all.begin() + static_cast<std::ptrdiff_t>(rows), all.end());
  each["len"] = rows;
  compare(each);
}

}  // namespace

TEST_CASE("rows without labels are replaced by the next one, but left out of a stream", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("rows.jsonl", R"({"q": "a question that is long enough to fill all of the row", "a": "lost"}
{"q": "b", "a": "kept"}
{"q": "c", "a": "too"}
)");
  const auto sizes = [&](const std::string& target) {
    const Opened opened = open(json{{"_target_", target},
                                    {"path_or_dataset_id", (folder.path() / "rows.jsonl").native()},
                                    {"column_mapping", {{"question", "q"}, {"answer", "a"}}},
                                    {"seq_length", 16},
                                    {"truncation", true},
                                    {"cache", false},
                                    {"tokenizer", kGolden + "/tokenizers/gpt2"}});
    INFO(to_text(opened.problems));
    REQUIRE(opened.dataset);
    CHECK(opened.refused.empty());
    std::vector<Ids> rows;
    Sample sample;
    for (std::int64_t i = 0; i < opened.dataset->size(); ++i) {
      opened.dataset->read(i, sample);
      rows.push_back(sample.input_ids);
    }
    return rows;
  };
  const auto replaced = sizes("column_mapped"), streamed = sizes("column_mapped_stream");
  REQUIRE(replaced.size() == 3);
  CHECK(replaced[0] == replaced[1]);
  CHECK(streamed == std::vector<Ids>{replaced[1], replaced[2]});
}

TEST_CASE("a line that cannot be read does not speak for rows that lack a column", "[data]") {
  const test::TemporaryFolder folder;
  const auto path = folder.write("rows.jsonl",
                                 "{\"q\"\n{\"q\": \"a\", \"a\": \"words to learn\"}\n"
                                 "{\"q\": \"a\", \"a\": \"words to learn\", \"c\": \"d\"}\n");
  const auto opened = open(json{{"_target_", "column_mapped"},
                                {"path_or_dataset_id", path.native()},
                                {"column_mapping", {{"context", "c"}, {"question", "q"}, {"answer", "a"}}},
                                {"cache", false},
                                {"tokenizer", kGolden + "/tokenizers/gpt2"}});
  INFO(to_text(opened.problems));
  CHECK(opened.refused == std::map<std::int64_t, std::string>{{0, "the line is not JSON"}});
  REQUIRE(opened.dataset);
  CHECK(opened.dataset->size() == 2);
}

TEST_CASE("random mock sentences match the recorded ones", "[data]") {
  int compared = 0;
  for (const auto& each : recorded("cases/other.jsonl"))
    if (each["dataset"]["_target_"].get<std::string>().ends_with("build_unpacked_dataset")) {
      compare(each);
      ++compared;
    }
  CHECK(compared == 2);
}

TEST_CASE("dataset builders give the recorded ids, labels and masks, and the same refusals", "[data]") {
  const std::string family = GENERATE("squad", "hellaswag", "column_mapped", "chat", "agent", "xlam");
  int compared = 0;
  for (const auto& each : recorded("cases/" + family + ".jsonl")) {
    if (kDeliberate.contains(each["id"])) continue;
    if (each["id"] == "column_mapped/iterable") {
      compare_first(each, 4);  // one of its five rows has no label
      continue;
    }
    compare(each);
    ++compared;
  }
  CHECK(compared >= (family == "xlam" ? 5 : 20));
}

TEST_CASE("tools that are no list of objects are refused by row", "[data]") {
  const test::TemporaryFolder folder;
  const auto row = [](const std::string& tools) {
    return json{{"query", "q"}, {"answers", R"([{"name": "f", "arguments": {}}])"}, {"tools", tools}}.dump() + "\n";
  };
  const auto path = folder.write(
      "rows.jsonl", row(R"([{"name": "f", "parameters": {}}])") + row(R"({"name": "f"})") + row("[1]") + row("[{") +
                        row("null") +
                        row("[{\"a\": " + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}]"));
  auto each = recorded("cases/xlam.jsonl").front();
  each["dataset"]["dataset_name"] = path.native();
  const auto opened = open(section_of(each));
  INFO(to_text(opened.problems));
  REQUIRE(opened.dataset);
  CHECK(opened.dataset->size() == 2);
  CHECK(opened.refused == std::map<std::int64_t, std::string>{{1, "column 'tools' is not a JSON list"},
                                                              {2, "column 'tools' has an item that is not an object"},
                                                              {3, "column 'tools' is not a JSON list"},
                                                              {5, "column 'tools' is not a JSON list"}});
}

TEST_CASE("conversations that the template or the loss would change silently are refused by row", "[data]") {
  const test::TemporaryFolder folder;
  const json user = {{"role", "user"}, {"content", "q"}}, answer = {{"role", "assistant"}, {"content", "a"}};
  const auto with = [](json message, const char* key, const json& value) {
    message[key] = value;
    return message;
  };
  const auto row = [](const json& messages) { return json{{"messages", messages}}.dump() + "\n"; };
  const json calls = json::parse(R"([{"function": {"name": "f", "arguments": {}}}])");
  const auto path = folder.write(
      "rows.jsonl", row({user, with(answer, "weight", 1)}) + row({user, with(answer, "weight", 0)}) +
                        row({user, with(answer, "tool_calls", calls)}) +
                        row({user, with(answer, "tool_calls", json::array())}) + row(json::array()) + row("text"));
  auto each = recorded("cases/chat.jsonl").front();
  each["dataset"]["path_or_dataset_id"] = path.native();
  each["dataset"]["chat_template"] = "chatml";
  const auto refused = [&] { return open(section_of(each)).refused; };
  const std::string calls_lost =
      "the chat template leaves the tool calls out, and an answer without them would be learned";
  CHECK(refused() ==
        std::map<std::int64_t, std::string>{{1, "messages[1] has the weight 0, but all answers are learned alike"},
                                            {2, calls_lost},
                                            {4, "column 'messages' is an empty list"},
                                            {5, "column 'messages' is not a list of messages"}});
  each["dataset"]["chat_template"] =
      "{% for m in messages %}{{ m['role'] + m['content'] }}{% if m['tool_calls'] %}{{ m['tool_calls'][0]['id'] }}"
      "{% endif %}{% endfor %}";
  CHECK_FALSE(refused().contains(2));
}

TEST_CASE("a row with an unknown character that stands before marked text is refused by itself", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("tokenizer.json", R"({"added_tokens": [], "model": {"type": "BPE", "unk_token": "?",
                                     "vocab": {"?": 0, "a": 1, "b": 2, "ab": 3, "<e>": 4}, "merges": ["a b"]}})");
  folder.write("tokenizer_config.json", R"({"eos_token": "<e>"})");
  const auto row = [](const char* user) {
    return json{{"messages", {{{"role", "user"}, {"content", user}}, {{"role", "assistant"}, {"content", "ab"}}}}}
               .dump() +
           "\n";
  };
  const auto path = folder.write("rows.jsonl", row("a") + row("x") + row("b"));
  json each = {{"dataset", recorded("cases/chat.jsonl").front()["dataset"]},
               {"tokenizer", {{"loader", "hf"}, {"pretrained_model_name_or_path", folder.path().native()}}}};
  each["dataset"]["path_or_dataset_id"] = path.native();
  each["dataset"]["chat_template"] =
      "{% for m in messages %}{% if m['role'] == 'user' %}{{ m['content'] }}{% else %}"
      "{% generation %}{{ m['content'] }}{% endgeneration %}{% endif %}{% endfor %}";
  const auto opened = open(section_of(each));
  INFO(to_text(opened.problems));
  REQUIRE(opened.dataset);
  REQUIRE(opened.refused.size() == 1);
  CHECK(opened.refused.at(1).starts_with("the place of the token '?' in a text, which {% generation %} needs"));
  Sample sample;
  opened.dataset->read(0, sample);
  CHECK(sample.input_ids == Ids{1});
  CHECK(sample.labels == Ids{3});
}

TEST_CASE("endings that a label cannot choose from are refused by row", "[data]") {
  const test::TemporaryFolder folder;
  const auto row = [](const json& endings, const json& label) {
    return json{{"ctx", "A man"}, {"endings", endings}, {"label", label}}.dump() + "\n";
  };
  const auto path =
      folder.write("rows.jsonl", row({"sits.", "runs."}, "1") + row({"sits.", "runs."}, 2) + row({"sits.", 3}, "1") +
                                     row("sits.", 0) + row({"sits."}, "") + row({"sits."}, -1));
  auto each = recorded("cases/hellaswag.jsonl").front();
  each["dataset"]["path_or_dataset"] = path.native();
  each["dataset"]["split"] = "train";
  const auto opened = open(section_of(each));
  INFO(to_text(opened.problems));
  REQUIRE(opened.dataset);
  CHECK(opened.dataset->size() == 1);
  const std::string none = "column 'label' is not a number; splits without labels cannot be trained with";
  CHECK(opened.refused == std::map<std::int64_t, std::string>{{1, "label 2 has no ending"},
                                                              {2, "label 1 has no ending"},
                                                              {3, "column 'endings' is not a list"},
                                                              {4, none},
                                                              {5, none}});
}

TEST_CASE("shuffling with a seed gives numpy's permutation", "[data]") {
  int compared = 0;
  for (const auto& each : recorded("order.jsonl")) {
    if (!each.contains("permutation")) continue;
    CHECK(numpy_permutation(each["seed"], each["n"]) == each["permutation"].get<std::vector<std::int64_t>>());
    ++compared;
  }
  CHECK(compared > 3);
}

TEST_CASE("each rank gets the samples that NeMo AutoModel's data loader gives it", "[data]") {
  int compared = 0;
  for (const auto& each : recorded("order.jsonl")) {
    if (each["kind"] != "dataloader sampler") continue;
    const auto n = each["n"].get<std::int64_t>(), dp = each["dp_world_size"].get<std::int64_t>();
    SamplerOptions options;
    options.dp_size = options.global_batch_size = dp;
    options.shuffle = each["shuffle"];
    options.seed = each["seed"];
    const Sampler sampler(n, options);
    const auto& ranks = each["per_rank"];
    REQUIRE(ranks.size() == static_cast<std::size_t>(dp));
    for (std::size_t d = 0; d < ranks.size(); ++d)
      for (std::size_t k = 0; k < ranks[d].size(); ++k)
        REQUIRE(sampler.rows(each["epoch"], static_cast<std::int64_t>(k), 0, static_cast<std::int64_t>(d)) ==
                std::vector<std::int64_t>{ranks[d][k]});
    ++compared;
  }
  CHECK(compared > 30);
}

namespace {

/// The packs of a recorded case; null if they were refused.
std::shared_ptr<const Dataset> packs_of(const json& each, Opened& opened) {
  config::PackedSequenceConfig packing;
  config::Origins origins;
  std::vector<config::IgnoredKey> ignored, unsupported;
  config::Reader reader(opened.problems, origins, ignored, unsupported);
  reader.read(config::parse_yaml(each["packing"]["packed_sequence"].dump(), "recipe.yaml", opened.problems),
              "packed_sequence", packing);
  if (!opened.problems.empty()) return nullptr;
  return pack(std::move(opened.dataset), packing, each["packing"].value("cp_size", 1), "packed_sequence",
              opened.problems);
}

/// Compares a recorded row: thd gives lengths with and without padding, neat a segment number per token.
void compare_pack(const json& row, const Sample& sample, std::int64_t size) {
  Ids ids = row["input_ids"], labels = row["labels"], positions = row["position_ids"], segments;
  if (row.contains("seq_lens")) {
    for (std::size_t i = 0; i < row["seq_lens"].size(); ++i) {
      const auto real = row["seq_lens"][i].get<std::size_t>(), whole = row["seq_lens_padded"][i].get<std::size_t>();
      segments.insert(segments.end(), real, static_cast<std::int32_t>(i + 1));
      segments.insert(segments.end(), whole - real, 0);
    }
  } else {
    segments = row["attention_mask"].get<Ids>();
  }
  REQUIRE(static_cast<std::int64_t>(ids.size()) == size);
  REQUIRE(segments.size() == ids.size());
  REQUIRE(sample.input_ids.size() <= ids.size());  // the batch pads it
  for (std::size_t t = 0; t < ids.size(); ++t) {
    INFO("position " << t);
    if (segments[t] == 0) {  // padding: its id means nothing
      CHECK(labels[t] == kIgnoredLabel);
      if (t < sample.input_ids.size()) CHECK((sample.segments[t] == 0 && sample.labels[t] == kIgnoredLabel));
      continue;
    }
    REQUIRE(t < sample.input_ids.size());
    CHECK(sample.input_ids[t] == ids[t]);
    CHECK(sample.labels[t] == labels[t]);
    if (sample.segments[t] == 0) continue;  // padding inside a row, which theirs treats as text
    CHECK(sample.segments[t] == segments[t]);
    CHECK(sample.positions[t] == positions[t]);
  }
}

}  // namespace

TEST_CASE("packs have the same rows, labels and positions as NeMo AutoModel's", "[data]") {
  int compared = 0;
  for (const auto& each : recorded("cases/packing.jsonl")) {
    INFO(each["id"].get<std::string>());
    const auto target = each["dataset"]["_target_"].get<std::string>();
    if (target.find("mock") != std::string::npos) continue;
    if (each["packing"].contains("supports_seq_lens")) continue;  // every model here supports packs
    auto opened = open(section_of(each));
    INFO(to_text(opened.problems));
    REQUIRE(opened.dataset);
    const auto packed = packs_of(each, opened);
    INFO(to_text(opened.problems));
    ++compared;
    REQUIRE((packed != nullptr) == each.contains("packed"));
    if (!packed) continue;
    REQUIRE(packed->size() == static_cast<std::int64_t>(each["packed"].size()));
    Sample sample;
    for (std::int64_t i = 0; i < packed->size(); ++i) {
      INFO("pack " << i);
      packed->read(i, sample);
      compare_pack(each["packed"][static_cast<std::size_t>(i)], sample, packed->length(i));
    }
  }
  CHECK(compared == 18);
}

}  // namespace automodel::data
