// NeMo AutoModel's sets of pictures: rows as its builders return them, tokens as its collate function makes them
// (test/golden/vlm/nemo), and pictures in the cells of tables.
#include <cstdlib>
#include <fstream>
#include <map>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "config/recipe.h"
#include "data/open_dataset.h"
#include "data/python_json.h"
#include "golden_folder.h"
#include "sha256.h"
#include "temporary_folder.h"

namespace automodel::data {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;

const std::string kFolder = golden_folder() + "/vlm";
const std::string kPrefix = "nemo_automodel.components.datasets.vlm.datasets.";

std::vector<Json> recorded(const std::string& file) {
  std::ifstream in(kFolder + "/nemo/" + file);
  std::vector<Json> out;
  for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
  REQUIRE(!out.empty());
  return out;
}

enum class Cache { kHub, kPrepared };

struct Opened {
  std::unique_ptr<Dataset> dataset;
  Diagnostics problems;
  std::vector<std::pair<std::int64_t, Diagnostic>> rejected;
};

/// A model that takes pictures, by its golden folder.
struct Tower {
  std::string model = "llava";
  std::optional<pictures::PictureTokens> pictures = pictures::PictureTokens{396, 16, {}};
};

Opened open(const Json& section, bool lenient = false, Cache cache = Cache::kHub, const Tower& tower = {},
            const Json& collate = {}) {
  const std::string home = kFolder + "/nemo/hf_home/";
  setenv("HF_HUB_CACHE", cache == Cache::kHub ? (home + "hub").c_str() : "/nowhere", 1);
  setenv("HF_DATASETS_CACHE", cache == Cache::kHub ? "/nowhere" : (home + "datasets").c_str(), 1);
  const Json recipe = {{"model", {{"config", {{"model_type", "llama"}}}}},
                       {"dataset", section},
                       {"dataloader", {{"collate_fn", collate}}}};
  const auto loaded =
      config::read_recipe(recipe.dump(), "recipe.yaml", {}, [](const std::string&) { return std::nullopt; });
  REQUIRE(loaded.problems.empty());
  Opened out;
  DatasetContext context{.pictures = tower.pictures, .model_folder = kFolder + "/" + tower.model};
  if (lenient) context.rejected = &out.rejected;
  out.dataset = open_dataset(*loaded.recipe.dataset(), context, out.problems);
  return out;
}

/// The section of a recorded call.
Json section_of(const std::string& builder, const Json& arguments) {
  Json out = {{"_target_", kPrefix + builder}};
  out.update(arguments);
  return out;
}

std::string hash_of(const pictures::Picture& picture) {
  return test::sha256({reinterpret_cast<const char*>(picture.rgb.data()), picture.rgb.size()});
}

/// Rows of `chat` that ask the same questions about any picture.
Opened same_questions(const test::TemporaryFolder& folder, const Json& rows) {
  std::string text;
  for (const auto& row : rows) {
    const auto part = [](const Json& words) { return Json{{"type", "text"}, {"text", words}}; };
    const Json picture = {{"type", "image"}, {"image", kFolder + "/pictures/rgb.png"}};
    text +=
        Json{{"messages", Json::array({{{"role", "user"}, {"content", Json::array({picture, part(row["question"])})}},
                                       {{"role", "assistant"}, {"content", Json::array({part(row["answer"])})}}})}}
            .dump() +
        "\n";
  }
  folder.write("rows.jsonl", text);
  return open({{"_target_", "chat"}, {"path_or_dataset_id", (folder.path() / "rows.jsonl").native()}});
}

void check_rows(const Opened& opened, const Json& wanted) {
  REQUIRE(opened.dataset);
  REQUIRE(opened.dataset->size() == static_cast<std::int64_t>(wanted.size()));
  const test::TemporaryFolder folder;
  const auto same = same_questions(folder, wanted);
  REQUIRE(same.dataset);
  Sample sample, other;
  for (std::size_t row = 0; row < wanted.size(); ++row) {
    INFO("row " << row);
    const auto index = static_cast<std::int64_t>(row);
    opened.dataset->read(index, sample);
    same.dataset->read(index, other);
    CHECK(sample.input_ids == other.input_ids);
    CHECK(sample.labels == other.labels);
    REQUIRE(sample.pictures.size() == 1);
    const pictures::Size size{wanted[row]["size"][0], wanted[row]["size"][1]};
    CHECK(sample.pictures[0]->size == size);
    CHECK(opened.dataset->picture_sizes(index) == std::vector{size});
    CHECK(hash_of(*sample.pictures[0]) == wanted[row]["rgb_sha256"].get<std::string>());
  }
}

TEST_CASE("rows of NeMo AutoModel's sets of pictures", "[pictures]") {
  int rows = 0, refused = 0;
  for (const auto& each : recorded("rows.jsonl")) {
    INFO(each["builder"] << " " << each["arguments"]);
    const auto opened = open(section_of(each["builder"], each["arguments"]));
    if (each.contains("error")) {
      REQUIRE(opened.problems.size() == 1);
      CHECK(opened.problems[0].id == "bad-value");
      CHECK(opened.problems[0].key == "dataset.limit_dataset_samples");
      ++refused;
      continue;
    }
    check_rows(opened, each["rows"]);
    rows += static_cast<int>(each["rows"].size());
  }
  CHECK(rows == 59);
  CHECK(refused == 1);
}

TEST_CASE("sets of pictures are read from the prepared cache, too", "[pictures]") {
  for (const auto& each : recorded("rows.jsonl"))
    if (each["builder"] == "make_rdr_dataset")
      check_rows(open(section_of(each["builder"], each["arguments"]), false, Cache::kPrepared), each["rows"]);
}

TEST_CASE("tokens of sets of pictures are those of the collate function that a recipe names", "[pictures]") {
  // The builder and the arguments of each name.
  const std::map<std::string, Json> sets = {
      {"medpix", section_of("make_medpix_dataset", {{"path_or_dataset", "mmoukouba/MedPix-VQA"}})},
      {"rdr", section_of("make_rdr_dataset", Json::object())},
      {"cord", section_of("make_cord_v2_dataset", Json::object())}};
  std::string why;
  const Tower mistral{
      "mistral3",  // which has answers that are searched for
      pictures::PictureTokens{.placeholder = 10, .processor = pictures::read_processor(kFolder + "/mistral3", why)}};
  const Tower gemma{
      "gemma4",
      pictures::PictureTokens{
          .placeholder = 11, .processor = pictures::read_processor(kFolder + "/gemma4", why), .begin = 9, .end = 10}};
  int samples = 0;
  for (const auto& each : recorded("batches.jsonl")) {
    const auto set = sets.find(each["dataset"].get<std::string>());
    REQUIRE(set != sets.end());
    INFO(each["dataset"] << " " << each["rows"] << " " << each["arguments"]);
    const auto function = each.value("collate_fn", "default_collate_fn");
    Json collate = {{"_target_", "nemo_automodel.components.datasets.vlm.collate_fns." + function}};
    collate.update(each["arguments"]);
    const auto family = each.value("family", "llava");
    const auto opened = open(set->second, true, Cache::kHub,
                             family == "mistral3" ? mistral
                             : family == "gemma4" ? gemma
                                                  : Tower{},
                             collate);
    if (each.contains("error")) {
      REQUIRE(!opened.rejected.empty());
      CHECK(opened.rejected[0].second.message == "its pictures need more than the 12 tokens that the row may have");
      continue;
    }
    REQUIRE(opened.dataset);
    Sample sample;
    for (std::size_t i = 0; i < each["rows"].size(); ++i) {
      opened.dataset->read(each["rows"][i], sample);
      const auto& wanted = each["samples"][i];
      const auto ids = wanted["input_ids"].get<Ids>(), labels = wanted["labels"].get<Ids>();
      if (each["arguments"].contains("max_length")) {
        // Padded on the right; there on the tokenizer's side.
        REQUIRE(std::ssize(sample.input_ids) == each["length"].get<std::int64_t>());
        CHECK(std::all_of(sample.labels.begin() + std::ssize(labels), sample.labels.end(),
                          [](std::int32_t label) { return label == kIgnoredLabel; }));
        sample.input_ids.resize(ids.size());
        sample.labels.resize(labels.size());
      }
      CHECK(sample.input_ids == ids);
      CHECK(sample.labels == labels);
      ++samples;
    }
  }
  CHECK(samples == 52);
}

TEST_CASE("JSON becomes Donut's tags", "[pictures]") {
  for (const auto& each : recorded("tags.jsonl"))
    CHECK(tagged_text(each["input"]) == each["sorted"].get<std::string>());
  CHECK_THROWS_WITH(tagged_text({{"text_sequence", 1}}), "'text_sequence' is not text");
}

TEST_CASE("answers in JSON are checked, and one of several is drawn", "[pictures]") {
  const test::TemporaryFolder folder;
  const auto refusal = [&](const std::string& truth) {
    folder.write("rows.jsonl", Json{{"image", kFolder + "/pictures/rgb.png"}, {"ground_truth", truth}}.dump());
    const auto opened = open({{"_target_", "cord_v2"}, {"path_or_dataset", folder.path().native()}}, true);
    return opened.rejected.empty() ? "" : opened.rejected.front().second.message;
  };
  CHECK(refusal(R"({"gt_parse": {"a": 1}})").empty());
  CHECK(refusal("no JSON") == "column 'ground_truth' is not a JSON object");
  CHECK(refusal(R"({"gt_parse": [1]})") == "'gt_parse' in column 'ground_truth' is not an object");
  CHECK(refusal(R"({"gt_parses": []})") == "'gt_parses' in column 'ground_truth' is not a list of answers");
  CHECK(refusal(R"({"gt_parses": [{"a": 1}, {"a": 2}]})").empty());
}

TEST_CASE("pictures of cells that cannot be used are refused with file, row and column", "[pictures]") {
  const std::string file = kFolder + "/cells.parquet";
  const auto opened = open({{"_target_", "rdr"}, {"path_or_dataset", file}}, true);
  REQUIRE(opened.dataset);
  // Bytes, and a file beside the table.
  REQUIRE(opened.dataset->size() == 2);
  Sample sample;
  opened.dataset->read(0, sample);
  CHECK(sample.pictures.at(0)->size == pictures::Size{40, 60});
  opened.dataset->read(1, sample);
  CHECK(sample.pictures.at(0)->size == pictures::Size{64, 48});
  REQUIRE(opened.rejected.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto& [row, problem] = opened.rejected[i];
    CHECK(row == std::vector<std::int64_t>{1, 3, 4, 5}[i]);
    CHECK(problem.where.file == file);
    CHECK(problem.where.line == row + 1);
    CHECK_THAT(problem.message, Catch::StartsWith("picture 1 ("));
  }
  CHECK_THAT(opened.rejected[0].second.message, Catch::StartsWith("picture 1 (column 'image') cannot be used: "));
  CHECK(opened.rejected[1].second.message ==
        "picture 1 ('https://example.org/a.png') cannot be used: nothing is downloaded; name a file");
  CHECK(opened.rejected[2].second.message ==
        "picture 1 (column 'image') cannot be used: there are no bytes, and no file is named");
  CHECK_THAT(opened.rejected[3].second.message, Catch::EndsWith("it is no JPEG, PNG or WebP file"));
}

TEST_CASE("messages may hold the bytes of their pictures", "[pictures]") {
  const auto opened = open({{"_target_", "chat"}, {"path_or_dataset_id", kFolder + "/turns.parquet"}}, true);
  REQUIRE(opened.dataset);
  REQUIRE(opened.rejected.size() == 1);
  CHECK_THAT(opened.rejected[0].second.message, Catch::StartsWith("picture 1 (column 'messages') cannot be used: "));
  Sample sample;
  opened.dataset->read(0, sample);
  REQUIRE(sample.pictures.size() == 2);
  CHECK(sample.pictures[0]->size == pictures::Size{64, 48});
  CHECK(sample.pictures[1]->size == pictures::Size{40, 60});
  CHECK(std::ranges::count(sample.input_ids, 396) == 2 * 16);
  // Rows of text have no bytes, whatever they say.
  const test::TemporaryFolder folder;
  folder.write("rows.jsonl", R"({"messages": [{"role": "user", "content": [{"type": "image", "image": {"bytes": 0}}]},)"
                             R"( {"role": "assistant", "content": "Yes."}]})");
  const auto text = open({{"_target_", "chat"}, {"path_or_dataset_id", (folder.path() / "rows.jsonl").native()}}, true);
  REQUIRE(text.rejected.size() == 1);
  CHECK(text.rejected[0].second.message == "rows of text hold no bytes");
}

TEST_CASE("a set of pictures needs a model that takes them, and its columns", "[pictures]") {
  const auto blind = open({{"_target_", "rdr"}}, false, Cache::kHub, {"llava", std::nullopt});
  REQUIRE(blind.problems.size() == 1);
  CHECK(blind.problems[0].id == "unsupported-model");
  CHECK(blind.problems[0].key == "dataset._target_");
  const auto other = open({{"_target_", "medpix"}, {"path_or_dataset", "quintend/rdr-items"}}, true);
  REQUIRE(!other.rejected.empty());
  CHECK(other.rejected[0].second.message == "there is no column 'image_id' among image, text");
}

}  // namespace
}  // namespace automodel::data
