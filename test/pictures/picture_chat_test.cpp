// Conversations with pictures as rows: ids as transformers' processor gives them, labels as NeMo AutoModel's collate
// function sets them (test/golden/vlm/conversations.json), and what is refused.
#include "data/picture_chat.h"

#include <array>
#include <fstream>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "config/recipe.h"
#include "data/open_dataset.h"
#include "golden_folder.h"
#include "temporary_folder.h"

namespace automodel::data {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;

const std::string kFolder = golden_folder() + "/vlm";
constexpr int kTokens = 16;

struct Opened {
  std::unique_ptr<Dataset> dataset;
  Diagnostics problems;
  std::vector<std::pair<std::int64_t, Diagnostic>> rejected;
};

/// How a recorded family's pictures stand in rows.
struct Family {
  std::string name = "llava";
  pictures::PictureTokens tokens = {.placeholder = 396, .per_picture = kTokens};
};

/// A set of these rows, whose pictures are named from the golden folder. `keys`: more keys of the section.
Opened open_rows(const test::TemporaryFolder& folder, const std::vector<Json>& rows, const std::string& keys = "",
                 bool lenient = false, const Family& family = {}) {
  std::string text;
  for (const auto& row : rows) text += row.dump() + "\n";
  folder.write("rows.jsonl", text);
  const auto loaded = config::read_recipe(
      fmt::format("model: {{config: {{model_type: llama}}}}\ndataset: {{_target_: chat, path_or_dataset_id: {}{}}}\n",
                  (folder.path() / "rows.jsonl").native(), keys),
      "recipe.yaml", {}, [](const std::string&) { return std::nullopt; });
  REQUIRE(loaded.problems.empty());
  Opened out;
  DatasetContext context{.pictures = family.tokens, .model_folder = kFolder + "/" + family.name};
  if (lenient) context.rejected = &out.rejected;
  out.dataset = open_dataset(*loaded.recipe.dataset(), context, out.problems);
  return out;
}

/// The messages with the golden folder's files.
Json named(Json messages) {
  for (auto& message : messages)
    for (auto& part : message["content"])
      if (part["type"] == "image") part["image"] = kFolder + "/pictures/" + part["image"].get<std::string>();
  return messages;
}

Json golden() {
  std::ifstream in(kFolder + "/conversations.json");
  return Json::parse(in);
}

Json question(const Json& content) {
  return Json::array({{{"role", "user"}, {"content", content}}, {{"role", "assistant"}, {"content", "Yes."}}});
}
Json picture(const std::string& file) {
  return {{"type", "image"}, {"image", file}};
}

/// The reason for which a row is refused.
std::string refusal(const Json& row, const std::string& keys = "",
                    const std::optional<pictures::Processor>& processor = {}) {
  const test::TemporaryFolder folder;
  Family family;
  family.tokens.processor = processor;
  const auto opened = open_rows(folder, {row}, keys, true, family);
  return opened.rejected.empty() ? "" : opened.rejected.front().second.message;
}

/// Checks a family's recorded conversations; returns how many there are.
int check_text(const Family& family, const Json& recorded) {
  int checked = 0;
  for (const auto& wanted : recorded) {
    INFO(family.name << ": " << wanted["name"]);
    const test::TemporaryFolder folder;
    const bool answered = wanted["messages"].back()["role"] == "assistant";
    const auto opened = open_rows(folder, {{{"conversation", named(wanted["messages"])}}}, "", !answered, family);
    REQUIRE(opened.dataset);
    Sample sample;
    opened.dataset->read(0, sample);
    auto ids = wanted["input_ids"].get<Ids>();
    ids.pop_back();  // which is only a target
    CHECK(sample.input_ids == ids);
    std::size_t pictures = 0;
    for (const auto& message : wanted["messages"])
      for (const auto& part : message["content"]) pictures += part["type"] == "image" ? 1 : 0;
    CHECK(opened.dataset->pictures(0).size() == pictures);
    CHECK(sample.pictures.size() == pictures);
    ++checked;
  }
  return checked;
}

pictures::Processor processor_of(const std::string& family) {
  std::string why;
  const auto out = pictures::read_processor(kFolder + "/" + family, why);
  INFO(why);
  REQUIRE(out);
  return *out;
}

TEST_CASE("rows with pictures have the ids of transformers' processors", "[pictures]") {
  const auto recorded = golden();
  CHECK(check_text({}, recorded["text"]) == 11);
  const auto& families = recorded["families"];
  Family gemma{"gemma3",
               {.placeholder = 403, .per_picture = 16, .both_ways = true, .begin = 7, .end = 8, .own_lines = true}};
  CHECK(check_text(gemma, families["gemma3"]["text"]) == 9);
  const Family mistral{"mistral3", {.placeholder = 10, .processor = processor_of("mistral3")}};
  CHECK(check_text(mistral, families["mistral3"]["text"]) == 11);
  const Family gemma4{"gemma4", {.placeholder = 11, .processor = processor_of("gemma4"), .begin = 9, .end = 10}};
  CHECK(check_text(gemma4, families["gemma4"]["text"]) == 11);
  const Family muse{"muse_glimmer", {.placeholder = 10, .processor = processor_of("muse_glimmer")}};
  CHECK(check_text(muse, families["muse_glimmer"]["text"]) == 11);
  for (const std::string name : {"qwen2_5_vl", "qwen3_vl", "qwen3_5"}) {
    const Family qwen{name,
                      {.placeholder = 328,
                       .processor = processor_of(name),
                       .answer = "<|im_start|>assistant\n",
                       .stop = "<|im_end|>"}};
    CHECK(check_text(qwen, families[name]["text"]) == 9);
  }
}

TEST_CASE("answers whose labels end at a token inside of them are warned about", "[pictures]") {
  const auto warnings = [](const Family& family) {
    const test::TemporaryFolder folder;
    const Json row = {{"messages", question(Json::array({{{"type", "text"}, {"text", "Is it?"}}}))}};
    std::string lines;
    log::set_listener([&](std::string_view line) { lines += line; });
    const auto opened = open_rows(folder, {row, row}, "", false, family);
    log::set_listener({});
    REQUIRE(opened.dataset);
    return lines;
  };
  // LLaVA's template ends answers with a space, and in its tokenizer a word begins with one.
  CHECK_THAT(warnings({}), Catch::Contains("answers-end-early") && Catch::Contains("in 2 of 2 rows of dataset"));
  CHECK_THAT(warnings({"qwen3_vl", {.placeholder = 328, .processor = processor_of("qwen3_vl")}}),
             !Catch::Contains("answers-end-early"));
  CHECK_THAT(warnings({"mistral3", {.placeholder = 10, .processor = processor_of("mistral3")}}),
             !Catch::Contains("answers-end-early"));
}

TEST_CASE("pictures of any size have the tokens that their resized size needs, or are refused", "[pictures]") {
  const Family qwen{"qwen3_vl", {.placeholder = 328, .processor = processor_of("qwen3_vl")}};
  const auto& tokens = qwen.tokens;
  CHECK(tokens.count({32, 32}) == 16);         // 32 x 32 pixels, 8 x 8 a token
  CHECK(tokens.count({4000, 3000}) == 5 * 3);  // at most 1,280 pixels
  CHECK(tokens.count({1, 1}) == 2 * 2);        // at least 256
  CHECK(tokens.processor->refusal({200, 1}).empty());
  CHECK_THAT(tokens.processor->refusal({201, 1}), Catch::Contains("more than 200 times"));
  auto fixed = *tokens.processor;
  fixed.resize = false;
  CHECK(fixed.refusal({16, 24}).empty());
  CHECK_THAT(fixed.refusal({16, 20}), Catch::Contains("multiples of 8"));
  const test::TemporaryFolder folder;
  const Json wide = {{"messages", question(Json::array({picture(kFolder + "/pictures/very_wide.png")}))}};
  CHECK(open_rows(folder, {wide}, "", true, qwen).rejected.empty());
  auto strict = qwen;
  strict.tokens.processor->resize = false;
  const auto opened = open_rows(folder, {wide}, "", true, strict);
  REQUIRE(opened.rejected.size() == 1);
  CHECK_THAT(opened.rejected.front().second.message, Catch::Contains("cannot be used: it is"));
}

TEST_CASE("Muse-Glimmer's pictures take the grid nearest to their shape", "[pictures]") {
  std::ifstream in(kFolder + "/processors.json");
  const auto grids = Json::parse(in)["grids"];
  int square = 0;
  for (const auto& row : grids) {
    const auto [patch, most, width, height, columns, rows] = row.get<std::array<int, 6>>();
    CAPTURE(patch, most, width, height);
    const pictures::PictureTokens tokens{
        .processor = pictures::Processor{.patches = pictures::PatchSettings{.patch = patch, .grid_tokens = most}}};
    CHECK(tokens.grid({width, height}) == pictures::Size{columns, rows});
    square += width == height ? 1 : 0;
  }
  CHECK(grids.size() == 241);
  CHECK(square == 62);
  Family muse{"muse_glimmer", {.placeholder = 10, .processor = processor_of("muse_glimmer")}};
  CHECK(muse.tokens.processor->patches->most_tokens() == 15);
  const test::TemporaryFolder folder;
  const Json row = {{"messages", question(Json::array({picture(kFolder + "/pictures/rgb.png")}))}};
  for (const std::string begin : {"two tokens", "<|patch|>"}) {
    muse.tokens.processor->picture_begin = begin;
    const auto opened = open_rows(folder, {row}, "", true, muse);
    REQUIRE(opened.problems.size() == 1);
    CHECK(opened.problems[0].id == "bad-tokenizer");
  }
}

TEST_CASE("Pixtral's pictures fit within a side, and rows of placeholders end with tokens", "[pictures]") {
  Family mistral{"mistral3", {.placeholder = 10, .processor = processor_of("mistral3")}};
  const auto& tokens = mistral.tokens;
  CHECK(tokens.processor->patches->side() == 8);
  CHECK(tokens.processor->patches->most_tokens() == 25);
  CHECK(tokens.grid({40, 32}) == pictures::Size{5, 4});
  CHECK(tokens.count({40, 32}) == 6 * 4);
  CHECK(tokens.grid({41, 20}) == pictures::Size{5, 3});  // 40 x 19 pixels, rounded up
  CHECK(tokens.grid({20, 48}) == pictures::Size{2, 5});  // 16.7 pixels wide, rounded down before up
  CHECK(tokens.grid({1, 1}) == pictures::Size{1, 1});
  CHECK(tokens.processor->refusal({41, 2}).empty());
  CHECK_THAT(tokens.processor->refusal({41, 1}), Catch::Contains("nothing is left"));
  const test::TemporaryFolder folder;
  const Json row = {{"messages", question(Json::array({picture(kFolder + "/pictures/rgb.png")}))}};
  for (const std::string end : {"two tokens", "[IMG]"}) {  // [IMG] is the placeholder itself
    INFO(end);
    mistral.tokens.processor->row_end = end;
    const auto opened = open_rows(folder, {row}, "", true, mistral);
    REQUIRE(opened.problems.size() == 1);
    CHECK(opened.problems[0].id == "bad-tokenizer");
    CHECK(opened.problems[0].key == "dataset");
  }
}

TEST_CASE("Gemma 4's pictures are resized to nearly as many tokens as they may have", "[pictures]") {
  const pictures::PictureTokens tokens{.placeholder = 11, .processor = processor_of("gemma4")};
  CHECK(tokens.grid({64, 48}) == pictures::Size{9, 7});
  CHECK(tokens.grid({1, 1}) == pictures::Size{8, 8});
  CHECK(tokens.grid({16384, 1}) == pictures::Size{70, 1});  // a row is not longer
  CHECK(tokens.grid({1, 100}) == pictures::Size{1, 70});
  CHECK(tokens.grid({90, 1}) == pictures::Size{70, 1});
  auto limited = *tokens.processor;
  CHECK(limited.refusal({300, 1}).empty());
  limited.patches->positions = 128;
  CHECK(limited.refusal({64, 48}).empty());
  CHECK_THAT(limited.refusal({300, 1}), Catch::Contains("210 x 3 patches, and the tower has positions for 128"));
}

TEST_CASE("a prefix of answers stands behind what the template puts before them", "[pictures]") {
  CHECK((AnswerMarks{{5, 6}, 9}.prefixed({1, 5, 6, 7, 9, 5, 5, 6}, {3, 4})) == Ids{1, 5, 6, 3, 4, 7, 9, 5, 5, 6, 3, 4});
  const test::TemporaryFolder folder;
  const Json row = {{"messages", question(Json::array({picture(kFolder + "/pictures/rgb.png")}))}};
  const std::string key = ", answer_prefix: 'It is '";
  const Family mistral{"mistral3", {.placeholder = 10, .processor = processor_of("mistral3")}};
  const auto opened = open_rows(folder, {row}, key, true, mistral);
  REQUIRE(opened.problems.size() == 1);
  CHECK(opened.problems[0].id == "bad-template");
  CHECK_THAT(opened.problems[0].message, Catch::Contains("'answer_prefix' has no place"));
  CHECK(open_rows(folder, {row}, key, true).problems.empty());
}

TEST_CASE("tokens around a picture must be the tokenizer's", "[pictures]") {
  const test::TemporaryFolder folder;
  const Json row = {{"messages", question(Json::array({picture(kFolder + "/pictures/rgb.png")}))}};
  const Family gemma{"gemma4", {.placeholder = 11, .processor = processor_of("gemma4"), .begin = 9, .end = 999}};
  const auto opened = open_rows(folder, {row}, "", true, gemma);
  REQUIRE(opened.problems.size() == 1);
  CHECK(opened.problems[0].id == "bad-tokenizer");
}

TEST_CASE("answers are searched for where a template puts nothing before them", "[pictures]") {
  const auto found = [](const Ids& ids, const std::vector<AnswerText>& answers) {
    std::string out;
    for (const bool each : find_answers(ids, answers, {2, 9})) out += each ? '+' : '-';
    return out;
  };
  CHECK(found({1, 5, 6, 2, 5, 6, 2}, {{{5, 6}, {5, 6}}}) == "-+++---");            // the first place, and its stop
  CHECK(found({1, 5, 6, 2, 5, 6, 7}, {{{5, 6}, {}}, {{5, 6}, {}}}) == "-+++++-");  // one behind the other
  CHECK(found({1, 8, 6, 2}, {{{3, 8, 6}, {8, 6}}}) == "-+++");                     // without spaces in front
  CHECK(found({1, 5, 6, 2, 7, 2}, {{{4}, {4}}, {{7}, {7}}}) == "------");          // none from one that is not found on
  CHECK(found({5, 6}, {{{5, 6}, {5, 6}}}) == "++");
}

TEST_CASE("labels are those of NeMo AutoModel's collate function", "[pictures]") {
  const auto recorded = golden();
  CHECK(recorded["labels"].size() == 4);
  for (const auto& wanted : recorded["labels"]) {
    const test::TemporaryFolder folder;
    const auto opened = open_rows(folder, {{{"messages", named(wanted["messages"])}}});
    REQUIRE(opened.dataset);
    Sample sample;
    opened.dataset->read(0, sample);
    CHECK(sample.input_ids == wanted["input_ids"].get<Ids>());
    CHECK(sample.labels == wanted["labels"].get<Ids>());
  }
}

TEST_CASE("files are beside the rows, and sizes are those of upright pictures", "[pictures]") {
  const test::TemporaryFolder folder;
  std::ifstream in(kFolder + "/pictures/exif_6.jpg", std::ios::binary);
  folder.write("shots/a.jpg", {std::istreambuf_iterator<char>(in), {}});
  const auto opened = open_rows(folder, {{{"messages", question(Json::array({picture("shots/a.jpg")}))}}});
  REQUIRE(opened.dataset);
  CHECK(opened.dataset->pictures(0).at(0).size == pictures::Size{40, 60});
  Sample sample;
  opened.dataset->read(0, sample);
  CHECK(sample.pictures.front()->size == pictures::Size{40, 60});
  // A file that changes afterwards ends the run.
  folder.write("shots/a.jpg", "no picture");
  CHECK_THROWS_WITH(opened.dataset->read(0, sample), Catch::Contains("cannot be decoded: it is no JPEG, PNG or WebP"));
}

TEST_CASE("rows whose pictures cannot be used are refused with the reason", "[pictures]") {
  const std::string rgb = kFolder + "/pictures/rgb.png";
  const auto row = [](const Json& content) { return Json{{"messages", question(content)}}; };
  CHECK(refusal(row(Json::array({picture(rgb)}))).empty());
  CHECK_THAT(refusal(row(Json::array({picture(rgb), picture("none.png")}))),
             Catch::StartsWith("picture 2 ('none.png') cannot be used: "));
  CHECK(refusal(row(Json::array({picture("https://example.org/a.png")}))) ==
        "picture 1 ('https://example.org/a.png') cannot be used: nothing is downloaded; name a file");
  CHECK_THAT(refusal(row(Json::array({picture(kFolder + "/pictures/palette.gif")}))),
             Catch::EndsWith("it is no JPEG, PNG or WebP file"));
  CHECK(refusal(row(Json::array({picture(rgb), {{"type", "text"}, {"text", "like <image>?"}}}))) ==
        "the text has 2 placeholders for 1 picture");
  CHECK_THAT(refusal(row(Json::array({{{"type", "video"}, {"video", "a.mp4"}}}))), Catch::Contains("\"video\""));
  CHECK_THAT(refusal(row(Json::array({{{"type", "image"}}}))), Catch::Contains("does not name its file"));
  // Damage far behind a header, too, is found before training.
  CHECK_THAT(refusal(row(Json::array({picture(kFolder + "/pictures/truncated.jpg")}))), Catch::StartsWith("picture 1"));
  // Rows may be cut behind their pictures, not within them.
  CHECK_THAT(refusal(row(Json::array({picture(rgb)})), ", seq_length: 20, truncation: true"),
             Catch::StartsWith("its pictures need more than the 20 tokens"));
  CHECK(refusal(row(Json::array({picture(rgb)})), ", seq_length: 48, truncation: true").empty());
  // What the processor of a stranger's model would make of it.
  CHECK_THAT(refusal(row(Json::array({picture(rgb)})), "", pictures::Processor{.shortest_edge = 16384}),
             Catch::Contains("would be resized to"));
  const pictures::Processor large{.shortest_edge = 7000};
  CHECK(refusal(row(Json::array({picture(rgb)})), "", large).empty());
  Json many = Json::array();
  for (int i = 0; i < 9; ++i) many.push_back(picture(rgb));
  CHECK_THAT(refusal(row(many), "", large), Catch::Contains("its pictures together have more than"));
}

TEST_CASE("what does not work with pictures is refused, and a template must show where answers begin", "[pictures]") {
  const test::TemporaryFolder folder;
  const std::vector<Json> rows = {{{"messages", question(Json::array({picture(kFolder + "/pictures/rgb.png")}))}}};
  const auto history = open_rows(folder, rows, ", mask_history: true");
  REQUIRE(history.problems.size() == 1);
  CHECK(history.problems[0].id == "unsupported-option");
  CHECK(history.problems[0].key == "dataset.mask_history");
  const auto bare =
      open_rows(folder, rows, R"(, chat_template: "{% for m in messages %}{{ m.content[0].text }}{% endfor %}")");
  REQUIRE(bare.problems.size() == 1);
  CHECK(bare.problems[0].id == "bad-template");
}

}  // namespace
}  // namespace automodel::data
