// NeMo AutoModel's sets of pictures: rows as its builders return them, tokens as its collate function makes them
// (test/golden/vlm/nemo), and pictures in the cells of tables. Sets without files or without pictures.
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

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
const std::string kMock = "nemo_automodel.components.datasets.vlm.mock.build_mock_vlm_dataset";

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
    CHECK(opened.dataset->pictures(index).at(0).size == size);
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
      CHECK(opened.rejected[0].second.message == "its pictures need more than the 12 tokens that there may be");
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

/// A recipe with sections of its own.
config::LoadedRecipe recipe_with(const Json& sections) {
  Json recipe = {{"model", {{"config", {{"model_type", "llama"}}}}}};
  recipe.update(sections);
  return config::read_recipe(recipe.dump(), "recipe.yaml", {}, [](const std::string&) { return std::nullopt; });
}

TEST_CASE("random pictures have the counts, sizes and texts that the recipe names, and the same bits every time",
          "[pictures]") {
  const Json section = {{"_target_", kMock}, {"num_samples", 3},  {"num_images_per_sample", 2}, {"image_size", {5, 7}},
                        {"prompt", "What?"}, {"max_length", 200}, {"pretokenize", false},       {"seed", 42}};
  const auto opened = open(section), again = open(section);
  REQUIRE(opened.dataset);
  REQUIRE(opened.dataset->size() == 3);
  std::vector<std::string> hashes;
  std::vector<Ids> rows;
  Sample sample, other;
  for (std::int64_t row = 2; row >= 0; --row) {
    opened.dataset->read(row, sample);
    again.dataset->read(row, other);
    CHECK(sample.input_ids == other.input_ids);
    CHECK(sample.labels == other.labels);
    REQUIRE(sample.pictures.size() == 2);
    CHECK(std::ranges::count(sample.input_ids, 396) == 2 * 16);
    CHECK(opened.dataset->pictures(row).at(1).size == pictures::Size{5, 7});
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(sample.pictures[i]->size == pictures::Size{5, 7});
      CHECK(sample.pictures[i]->rgb.size() == 3 * 5 * 7);
      CHECK(sample.pictures[i]->rgb == other.pictures.at(i)->rgb);
      hashes.push_back(hash_of(*sample.pictures[i]));
    }
    rows.push_back(sample.input_ids);
  }
  // What is drawn differs from picture to picture and from row to row, and stays from version to version.
  CHECK(std::set(hashes.begin(), hashes.end()).size() == 6);
  CHECK(std::set(rows.begin(), rows.end()).size() == 3);
  CHECK(hashes.back() == "16553221b45663c3508f3cf6c3d2c8de161a2be35a6f1949c21eb0867fc2f4a5");
  // More pixels than a block of random numbers, all values among them.
  Json large = section;
  large["image_size"] = {64, 48};
  open(large).dataset->read(0, sample);
  const auto& rgb = sample.pictures.at(0)->rgb;
  CHECK(std::set(rgb.begin(), rgb.end()).size() == 256);
  CHECK(rgb[0] != rgb[3]);
  // Another seed, other rows.
  Json moved = section;
  moved["seed"] = 43;
  open(moved).dataset->read(0, other);
  opened.dataset->read(0, sample);
  CHECK(sample.pictures[0]->rgb != other.pictures[0]->rgb);
  CHECK(sample.input_ids != other.input_ids);
}

TEST_CASE("answers about random pictures are as many words as max_length, or named ones in turn", "[pictures]") {
  const test::TemporaryFolder folder;
  const auto tokens = [&](const Json& more) {
    Json section = {{"_target_", "mock_pictures"}, {"num_samples", 5}, {"image_size", {8, 8}}};
    section.update(more);
    const auto opened = open(section);
    INFO(to_text(opened.problems));
    REQUIRE(opened.dataset);
    std::vector<Ids> out;
    Sample sample;
    for (std::int64_t row = 0; row < opened.dataset->size(); ++row) {
      opened.dataset->read(row, sample);
      out.push_back(sample.input_ids);
    }
    return out;
  };
  const auto named = tokens({{"responses", {"One.", "Two, or three."}}});
  const auto same =
      same_questions(folder, Json::array({{{"question", "Describe this image."}, {"answer", "One."}},
                                          {{"question", "Describe this image."}, {"answer", "Two, or three."}}}));
  REQUIRE(same.dataset);
  Sample sample;
  for (std::size_t row = 0; row < named.size(); ++row) {
    same.dataset->read(static_cast<std::int64_t>(row % 2), sample);
    CHECK(named[row] == sample.input_ids);
  }
  // Each word and its space are tokens: twice as many words, twice as many of the answer's tokens, within the spread of
  // their lengths.
  const auto mean = [&](const Json& more) {
    double sum = 0;
    for (const auto& row : tokens(more)) sum += static_cast<double>(row.size());
    return sum / 5;
  };
  const double none = mean({{"responses", {""}}}), usual = mean(Json::object()) - none;
  CHECK(mean({{"max_length", 512}, {"pretokenize", false}}) - none == Approx(2 * usual).epsilon(0.1));
  CHECK(mean({{"max_length", 64}, {"pretokenize", false}}) - none == Approx(usual / 4).epsilon(0.1));
  // Without pictures, text remains.
  CHECK(std::ranges::count(tokens({{"num_images_per_sample", 0}}).front(), 396) == 0);
}

TEST_CASE("max_length of random pictures cuts rows, unless the recipe says otherwise", "[pictures]") {
  const auto limit = [](const Json& more, const Json& sections = Json::object()) -> std::optional<int> {
    Json section = {{"_target_", kMock}};
    section.update(more);
    Json all = {{"dataset", section}};
    all.update(sections);
    const auto loaded = recipe_with(all);
    INFO(to_text(loaded.problems));
    REQUIRE(loaded.problems.empty());
    const auto& read = std::get<config::MockPicturesDatasetConfig>(*loaded.recipe.dataset());
    if (read.truncation() != config::SampleTruncation::kCut) return std::nullopt;
    return read.seq_length();
  };
  const Json packs = {{"packed_sequence", {{"pretokenize", true}, {"pack_size", 900}, {"max_length", 800}}}};
  const Json collate = {{"dataloader",
                         {{"collate_fn",
                           {{"_target_", "nemo_automodel.components.datasets.vlm.collate_fns.default_collate_fn"},
                            {"max_length", 70}}}}}};
  CHECK(limit({{"max_length", 64}}) == 64);
  CHECK(limit({{"max_length", 64}, {"pretokenize", false}}) == std::nullopt);
  CHECK(limit({{"max_length", 64}, {"truncate", false}}) == std::nullopt);
  CHECK(limit(Json::object()) == std::nullopt);
  CHECK(limit({{"max_length", 64}}, packs) == 800);
  CHECK(limit({{"max_length", 64}, {"pretokenize", false}}, packs) == 800);
  CHECK(limit({{"max_length", 64}, {"pretokenize", false}}, collate) == 70);
  const auto opened = open({{"_target_", kMock}, {"image_size", {8, 8}}, {"max_length", 90}});
  REQUIRE(opened.dataset);
  CHECK(opened.dataset->longest() == 89);  // before the shift
  // Pictures are never cut.
  const auto narrow = open({{"_target_", kMock}, {"image_size", {8, 8}}, {"max_length", 12}}, true);
  REQUIRE(!narrow.rejected.empty());
  CHECK(narrow.rejected[0].second.message == "its pictures need more than the 12 tokens that there may be");
  // Rows of other sets that are packed are cut to max_length of the packs where truncate says so.
  Json tulu = {{"dataset", {{"_target_", kPrefix + "make_tulu3_dataset"}, {"truncate", true}}}};
  tulu.update(packs);
  CHECK(std::get<config::Tulu3DatasetConfig>(*recipe_with(tulu).recipe.dataset()).seq_length() == 800);
  tulu["dataset"]["truncate"] = false;
  CHECK_FALSE(std::get<config::Tulu3DatasetConfig>(*recipe_with(tulu).recipe.dataset()).seq_length());
}

TEST_CASE("random pictures without a size or an answer are refused", "[pictures]") {
  const auto problem = [](const Json& more) {
    Json section = {{"_target_", "mock_pictures"}};
    section.update(more);
    const auto loaded = recipe_with({{"dataset", section}});
    REQUIRE(loaded.problems.size() == 1);
    return std::string(loaded.problems[0].id) + " " + loaded.problems[0].key;
  };
  CHECK(problem({{"image_size", {0, 8}}}) == "bad-value dataset.image_size");
  CHECK(problem({{"image_size", {8}}}) == "bad-type dataset.image_size");
  CHECK(problem({{"responses", Json::array()}}) == "bad-value dataset.responses");
  CHECK(problem({{"num_samples", 0}}) == "bad-value dataset.num_samples");
  CHECK(problem({{"split", "train"}}) == "unknown-key dataset.split");
  const auto opened = open({{"_target_", "mock_pictures"}, {"image_size", {100000, 100000}}}, true);
  REQUIRE(!opened.rejected.empty());
  CHECK_THAT(opened.rejected[0].second.message, Catch::StartsWith("picture 1 (column 'image') cannot be used: "));
}

/// Rows of messages, read by a target.
Opened of_messages(const test::TemporaryFolder& folder, const std::string& target, const Json& row) {
  folder.write("rows.jsonl", row.dump());
  const std::string file = (folder.path() / "rows.jsonl").native();
  return open({{"_target_", target}, {target == "chat" ? "path_or_dataset_id" : "path_or_dataset", file}}, true);
}

TEST_CASE("conversations of Tulu 3 are rows without pictures", "[pictures]") {
  const test::TemporaryFolder folder;
  const auto message = [](const std::string& role, const Json& content) {
    return Json{{"role", role}, {"content", content}};
  };
  const auto parts = [](const std::vector<std::string>& texts) {
    Json out = Json::array();
    for (const auto& text : texts) out.push_back({{"type", "text"}, {"text", text}});
    return out;
  };
  const auto opened =
      of_messages(folder, kPrefix + "make_tulu3_dataset",
                  {{"id", "a"},
                   {"messages",
                    {message("system", " Help. "), message("user", "\n one <IMAGE>\u00a0two<video><image>"),
                     message("tool", "left out"), message("assistant", " Yes. "), message("user", " \t"),
                     message("assistant", "No.")}},
                   {"source", "none"}});
  REQUIRE(opened.dataset);
  // The same as parts of texts: marks of pictures that a user writes go, with the spaces around them.
  const auto same = of_messages(folder, "chat",
                                {{"messages",
                                  {message("system", parts({" Help. "})), message("user", parts({"one", "two"})),
                                   message("assistant", parts({" Yes. "})), message("user", parts({""})),
                                   message("assistant", parts({"No."}))}}});
  REQUIRE(same.dataset);
  Sample sample, other;
  opened.dataset->read(0, sample);
  same.dataset->read(0, other);
  CHECK(sample.input_ids == other.input_ids);
  CHECK(sample.labels == other.labels);
  CHECK(sample.pictures.empty());
  CHECK(std::ranges::any_of(sample.labels, [](std::int32_t label) { return label != kIgnoredLabel; }));
}

TEST_CASE("rows that are no conversations of Tulu 3 are refused", "[pictures]") {
  const test::TemporaryFolder folder;
  const auto refusal = [&](const Json& row) {
    const auto opened = of_messages(folder, "tulu3", row);
    return opened.rejected.empty() ? "" : opened.rejected.front().second.message;
  };
  const Json yes = {{"role", "assistant"}, {"content", "Yes."}}, tool = {{"role", "tool"}, {"content", "x"}};
  CHECK(refusal({{"messages", Json::array({yes})}, {"images", Json::array()}}).empty());
  CHECK(refusal({{"messages", Json::array({yes})}, {"images", {"a.png"}}}) ==
        "the row has 'images'; _target_: chat reads conversations with pictures");
  CHECK(refusal({{"text", "a"}}) == "there is no list 'messages' among text");
  CHECK(refusal({{"messages", {1}}}) == "messages[0] is not a message");
  CHECK(refusal({{"messages", Json::array({tool})}}) == "no message is of a user, an assistant or the system");
  CHECK(refusal({{"messages", Json::array({yes, {{"role", "user"}, {"content", 1}}})}}) ==
        "the content of messages[1] is not text");
  CHECK_THAT(refusal({{"messages", Json::array({{{"role", "assistant"}, {"content", "A <image>."}}})}}),
             Catch::StartsWith("the text has 1 placeholder for 0 pictures"));
  for (const char* target : {"tulu3", "mock_pictures"}) {
    const auto blind = open({{"_target_", target}}, false, Cache::kHub, {"llava", std::nullopt});
    REQUIRE(blind.problems.size() == 1);
    CHECK(blind.problems[0].id == "unsupported-model");
    CHECK(blind.problems[0].key == "dataset._target_");
  }
}

}  // namespace
}  // namespace automodel::data
