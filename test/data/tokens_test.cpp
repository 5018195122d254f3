#include <chrono>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "data/loader.h"
#include "data/token_row.h"
#include "data/tokens_dataset.h"
#include "temporary_folder.h"

namespace automodel::data {
namespace {

using Ids = std::vector<std::int32_t>;

struct Opened {
  std::shared_ptr<Dataset> dataset;
  Diagnostics problems;
};

Opened open_rows(const test::TemporaryFolder& folder, const std::string& text, DatasetContext context = {},
                 std::optional<int> seq_length = std::nullopt) {
  folder.write("rows.jsonl", text);
  config::TokensDatasetConfig config;
  config.paths = config::PathList{{"rows.jsonl"}};
  config.seq_length = seq_length;
  config.pad_token_id = 7;
  context.recipe_folder = folder.path();
  Opened out;
  out.dataset = open_dataset(config, context, out.problems);
  return out;
}

/// "line:column id message" of the only problem.
std::string problem(const std::string& text, const DatasetContext& context = {}) {
  const test::TemporaryFolder folder;
  const auto opened = open_rows(folder, text, context);
  CHECK(!opened.dataset);
  REQUIRE(opened.problems.size() == 1);
  const auto& p = opened.problems[0];
  return std::to_string(p.where.line) + ":" + std::to_string(p.where.column) + " " + std::string(p.id) + " " +
         p.message;
}

const std::string kGood = "{\"input_ids\": [1, 2, 3]}\n";

}  // namespace

TEST_CASE("a classifier's row has its label at the last token that is not padding", "[data]") {
  const test::TemporaryFolder folder;
  const auto opened = open_rows(folder,
                                "{\"input_ids\": [5, 6, 9], \"label\": 2}\n"
                                "{\"label\": 0, \"input_ids\": [5, 6, 3, 3]}\n"
                                "{\"label\": 1, \"input_ids\": [3, 3]}\n"
                                "{\"label\": 1, \"input_ids\": [4, 5, 6], \"attention_mask\": [1, 1, 0]}\n",
                                {.vocab_size = 10, .classes = 3, .pad_token = 3});
  INFO(to_text(opened.problems));
  REQUIRE(opened.dataset);
  Sample sample;
  const auto labels = [&](std::int64_t row) {
    opened.dataset->read(row, sample);
    return sample.labels;
  };
  CHECK(labels(0) == Ids{-100, -100, 2});
  CHECK(labels(1) == Ids{-100, 0, -100, -100});
  CHECK(labels(2) == Ids{-100, 1});  // nothing but padding: the last token all the same, as in transformers
  CHECK(labels(3) == Ids{-100, 1});
  CHECK(sample.input_ids == Ids{4, 5});
  // A model without a pad token gets the one that pads its rows (7), in its labels and in what is saved.
  const auto without =
      open_rows(folder, "{\"input_ids\": [5, 7, 9, 7], \"label\": 2}\n", {.vocab_size = 10, .classes = 3});
  REQUIRE(without.dataset);
  without.dataset->read(0, sample);
  CHECK(without.dataset->padding().id == 7);
  CHECK(sample.labels == Ids{-100, -100, 2, -100});
}

TEST_CASE("a classifier's rows without a class, or with one that the model lacks, are refused", "[data]") {
  const DatasetContext context{.classes = 3};
  const auto help = [&](const std::string& text) {
    const test::TemporaryFolder folder;
    return open_rows(folder, text, context).problems.at(0).help;
  };
  CHECK(problem("{\"input_ids\": [1]}", context) == "1:1 bad-row the row has no label");
  CHECK(help("{\"input_ids\": [1]}") == "a row is {\"input_ids\": [...], \"label\": 0}");
  CHECK(problem("{\"input_ids\": [1], \"label\": 3}", context) ==
        "1:30 bad-row the label is 3; the model has 3 classes");
  CHECK(help("{\"input_ids\": [1], \"label\": 3}") == "labels lie between 0 and 2 (model.num_labels: 3)");
  CHECK(problem("{\"label\": -1, \"input_ids\": [1]}", context) ==
        "1:13 bad-row the label is -1; the model has 3 classes");
  CHECK(problem("{\"input_ids\": [1], \"label\": \"good\"}", context) == "1:29 bad-row expected an integer");
  CHECK(problem("{\"input_ids\": [1], \"label\": 1, \"label\": 1}", context) == "1:39 bad-row 'label' appears twice");
  CHECK(problem("{\"input_ids\": [1], \"labels\": [1], \"label\": 1}", context) ==
        "1:28 bad-row 'labels' is for next-token prediction; a classifier's row has one 'label'");
  CHECK(problem("{\"input_ids\": [1], \"label\": 1, \"shifted\": true}", context) ==
        "1:41 bad-row 'shifted' is for next-token prediction; a classifier's row has one 'label'");
  const test::TemporaryFolder folder;  // a language model passes over the key
  CHECK(open_rows(folder, "{\"input_ids\": [1, 2], \"label\": \"good\"}").dataset);
}

TEST_CASE("labels given per token are shifted to the position that predicts them", "[data]") {
  const test::TemporaryFolder folder;
  const auto opened = open_rows(folder,
                                "{\"input_ids\": [5, 6, 7]}\n"
                                "\n"
                                "{\"labels\":[-100,-100,13,14],\"id\":\"x\\\"[\\u00e9\",\"meta\":{\"a\":[1.5e3,null,"
                                "true,[]]},\"input_ids\":[11,12,13,14]}\r\n"
                                "   {\"input_ids\": [9]}");
  INFO(to_text(opened.problems));
  REQUIRE(opened.dataset);
  REQUIRE(opened.dataset->size() == 3);
  Sample sample;
  opened.dataset->read(0, sample);
  CHECK(sample.input_ids == Ids{5, 6, 7});
  CHECK(sample.labels == Ids{6, 7, -100});
  CHECK(sample.segments.empty());
  opened.dataset->read(1, sample);
  CHECK(sample.input_ids == Ids{11, 12, 13, 14});
  CHECK(sample.labels == Ids{-100, 13, 14, -100});
  opened.dataset->read(2, sample);
  CHECK(sample.labels == Ids{-100});
  CHECK(opened.dataset->length(1) == 4);
  CHECK(opened.dataset->summary() == "tokens: 3 rows, 8 tokens, 4 labels");
}

TEST_CASE("rows that automodel data printed are read back as they were", "[data]") {
  const test::TemporaryFolder folder;
  const auto opened = open_rows(
      folder, R"({"row":0,"shifted":true,"input_ids":[11,12,13],"labels":[-100,13,14],"attention_mask":[1,1,1]})"
              "\n"
              R"({"row":1,"shifted":true,"input_ids":[5,6],"labels":[6,-100],"attention_mask":[1,1]})"
              "\n"
              R"({"shifted":false,"input_ids":[5,6],"labels":[-100,6]})"
              "\n");
  INFO(to_text(opened.problems));
  REQUIRE(opened.dataset);
  Sample sample;
  opened.dataset->read(0, sample);
  CHECK(Ids(sample.input_ids.begin(), sample.input_ids.begin() + 3) == Ids{11, 12, 13});
  CHECK(Ids(sample.labels.begin(), sample.labels.begin() + 3) == Ids{-100, 13, 14});
  opened.dataset->read(1, sample);
  CHECK(Ids(sample.labels.begin(), sample.labels.begin() + 2) == Ids{6, -100});
  opened.dataset->read(2, sample);
  CHECK(sample.labels == Ids{6, -100});
  CHECK(problem(R"({"shifted":1,"input_ids":[5,6]})") == "1:12 bad-row expected true or false");
  CHECK(problem(R"({"shifted":true,"input_ids":[5,6]})") == "1:1 bad-row the row is shifted, but has no labels");
}

TEST_CASE("padding at the end of a row is removed, and padding elsewhere is masked", "[data]") {
  const test::TemporaryFolder folder;
  const auto opened = open_rows(folder,
                                "{\"input_ids\": [5, 6, 7, 0, 0], \"attention_mask\": [1, 1, 1, 0, 0]}\n"
                                "{\"input_ids\": [0, 0, 7, 8, 9], \"attention_mask\": [0, 0, 1, 1, 1]}\n"
                                "{\"input_ids\": [4, 0, 5, 6, 0], \"attention_mask\": [1, 0, 1, 1, 0], "
                                "\"labels\": [4, 3, 5, 6, 2]}\n");
  REQUIRE(opened.dataset);
  Sample sample;
  opened.dataset->read(0, sample);
  CHECK(sample.input_ids == Ids{5, 6, 7});
  CHECK(sample.labels == Ids{6, 7, -100});
  CHECK(sample.segments.empty());
  CHECK(opened.dataset->length(0) == 3);
  opened.dataset->read(1, sample);
  CHECK(sample.input_ids == Ids{0, 0, 7, 8, 9});
  CHECK(sample.labels == Ids{-100, -100, 8, 9, -100});
  CHECK(sample.segments == Ids{0, 0, 1, 1, 1});
  opened.dataset->read(2, sample);
  CHECK(sample.input_ids == Ids{4, 0, 5, 6});
  CHECK(sample.labels == Ids{-100, -100, 6, -100});
  CHECK(sample.segments == Ids{1, 0, 1, 1});
}

TEST_CASE("label tokens are counted as transformers counts them in the same padded rows", "[data]") {
  // A row with 9 of 32 tokens padded on the left, and one with 12 padded on the right; each beside a full row.
  const auto row = [](int left, int real, int right) {
    std::string ids;
    std::string mask;
    for (int t = 0; t < left + real + right; ++t) {
      const bool in = t >= left && t < left + real;
      ids += (t > 0 ? "," : "") + std::to_string(in ? 100 + t : 0);
      mask += (t > 0 ? "," : "") + std::string(in ? "1" : "0");
    }
    return "{\"input_ids\":[" + ids + "],\"attention_mask\":[" + mask + "]}\n";
  };
  const auto labels = [&](const std::string& text) {
    const test::TemporaryFolder folder;
    const auto opened = open_rows(folder, text);
    Diagnostics problems;
    config::DataloaderConfig config;
    config.shuffle = false;
    const auto loader = Loader::make(opened.dataset, config, {.global_batch_size = 2, .local_batch_size = 2}, problems);
    return loader->load(0, 0).at(0).num_label_tokens;
  };
  CHECK(labels(row(9, 23, 0) + row(0, 32, 0)) == 53);
  CHECK(labels(row(0, 32, 0) + row(0, 20, 12)) == 50);
}

TEST_CASE("rows of different lengths become a padded batch, in file order if not shuffled", "[data]") {
  const test::TemporaryFolder folder;
  const auto opened = open_rows(folder, "{\"input_ids\": [1, 2]}\n{\"input_ids\": [3, 4, 5]}\n{\"input_ids\": [6]}\n");
  Diagnostics problems;
  config::DataloaderConfig config;
  config.shuffle = false;
  const auto loader = Loader::make(opened.dataset, config, {.global_batch_size = 2, .local_batch_size = 2}, problems);
  const Batch first = loader->load(0, 0).at(0);
  CHECK(first.input_ids == std::vector<std::int64_t>{1, 2, 7, 3, 4, 5});
  CHECK(first.labels == std::vector<std::int64_t>{2, -100, -100, 4, 5, -100});
  const Batch last = loader->load(0, 1).at(0);
  CHECK(last.input_ids == std::vector<std::int64_t>{6, 7});
  CHECK(last.num_label_tokens == 0);
}

TEST_CASE("a bad row is reported with file, line, column and reason", "[data]") {
  CHECK(problem(kGood + "[1]\n") == "2:1 bad-row expected '{'");
  CHECK(problem(kGood + "{\"input_ids\": [1, 2}\n") == "2:20 bad-row expected ']'");
  CHECK(problem(kGood + "{\"input_ids\": [1, 2.5]}\n") == "2:19 bad-row expected an integer");
  CHECK(problem(kGood + "{\"input_ids\": [1, \"a\"]}\n") == "2:19 bad-row expected an integer");
  CHECK(problem(kGood + "{\"input_ids\": [01]}\n") == "2:16 bad-row expected an integer");
  CHECK(problem(kGood + "{\"input_ids\": [1, 2]} x\n") == "2:23 bad-row text after the row's object");
  CHECK(problem(kGood + "{\"text\": \"no ids\"}\n") == "2:1 bad-row the row has no input_ids");
  CHECK(problem(kGood + "{\"input_ids\": []}\n") == "2:1 bad-row input_ids is empty");
  CHECK(problem(kGood + "{\"input_ids\": [1, 2], \"labels\": [1]}\n") ==
        "2:1 bad-row labels has 1 items, input_ids has 2");
  CHECK(problem(kGood + "{\"input_ids\": [1, 2], \"labels\": []}\n") ==
        "2:1 bad-row labels has 0 items, input_ids has 2");
  CHECK(problem(kGood + "{\"input_ids\": [1, 2], \"labels\": [1, -1]}\n") ==
        "2:1 bad-row labels[1] is -1; a label is an id or -100");
  CHECK(problem(kGood + "{\"input_ids\": [1, 2], \"attention_mask\": [1, 2]}\n").find("must lie between 0 and 1") !=
        std::string::npos);
  CHECK(problem(kGood + "{\"input_ids\": [1, 2], \"attention_mask\": [0, 0]}\n") ==
        "2:1 bad-row attention_mask is 0 everywhere");
  CHECK(problem(kGood + "{\"input_ids\": [1], \"input_ids\": [2]}\n") == "2:32 bad-row 'input_ids' appears twice");
  CHECK(problem(kGood + "{\"input_ids\": [1, 2], \"position_ids\": [0, 1]}\n").find("'position_ids' is not read") !=
        std::string::npos);
  CHECK(problem(kGood + "{\"input_ids\": [1, 2], \"a\": tru}\n") == "2:28 bad-row expected a JSON value");
  CHECK(problem(kGood + "{\"input_ids\": [1, 2], \"a\": \"\\x\"}\n").find("unknown escape") != std::string::npos);
  CHECK(problem(kGood + "{\"input_ids\": [1, 2]").find("2:21 bad-row expected '}'") == 0);
  CHECK(problem(kGood + "{\"input_ids\": [1, 2], \"a\": " + std::string(100, '[') + "}\n").find("nested too deeply") !=
        std::string::npos);
}

TEST_CASE("token ids outside the vocabulary are reported with file, line and index", "[data]") {
  CHECK(problem(kGood + "{\"input_ids\": [1, -2]}\n", {.vocab_size = 10}).find("2:21 bad-row item 1 is -2") == 0);
  CHECK(problem(kGood + "{\"input_ids\": [1, 10]}\n", {.vocab_size = 10}) ==
        "2:1 token-out-of-range input_ids[1] is 10, the model's vocabulary is 10");
  CHECK(problem(kGood + "{\"input_ids\": [1, 2], \"labels\": [1, 11]}\n", {.vocab_size = 10}) ==
        "2:1 token-out-of-range labels[1] is 11, the model's vocabulary is 10");
  CHECK(problem(kGood + "{\"input_ids\": [1, 99999999999999999999]}\n").find("expected an integer") !=
        std::string::npos);
  CHECK(problem(kGood + "{\"input_ids\": [1, 9999999999]}\n").find("must lie between 0 and 2147483647") !=
        std::string::npos);
  CHECK(problem(kGood, {.vocab_size = 5}) ==
        "0:0 token-out-of-range pad_token_id 7 is not in the model's vocabulary "
        "of 5");
}

TEST_CASE("a row that is too long is reported with the limit and where it comes from", "[data]") {
  CHECK(problem(kGood, {.max_length = 2}) == "1:1 sequence-too-long the row has 3 tokens");
  const test::TemporaryFolder folder;
  CHECK(open_rows(folder, kGood, {.max_length = 9}, 2).problems.at(0).help == "dataset.seq_length allows 2");
  CHECK(open_rows(folder, kGood, {.max_length = 2}, 9).problems.at(0).help == "the model accepts at most 2");
  CHECK(open_rows(folder, kGood, {.max_length = 3}, 3).dataset);
}

TEST_CASE("the first ten bad rows are reported, and the number of further ones", "[data]") {
  const test::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 25; ++i) text += kGood + "nonsense\n";
  const auto opened = open_rows(folder, text);
  REQUIRE(opened.problems.size() == 11);
  CHECK(opened.problems[9].where.line == 20);
  CHECK(opened.problems[10].message == "15 further rows have problems");
}

TEST_CASE("files without rows or without labels are refused as empty data", "[data]") {
  CHECK(problem("").find("empty-data there is no row") != std::string::npos);
  CHECK(problem("\n \n").find("empty-data there is no row") != std::string::npos);
  CHECK(problem("{\"input_ids\": [1, 2], \"labels\": [1, -100]}\n").find("no row has a label that counts") !=
        std::string::npos);
}

TEST_CASE("a byte order mark is skipped, and rows of several files follow in order of file names", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("d/b.jsonl", "{\"input_ids\": [3, 3]}\n");
  folder.write("d/a.jsonl", "\xEF\xBB\xBF{\"input_ids\": [1, 1]}\n{\"input_ids\": [2, 2]}");
  folder.write("d/readme.md", "not rows");
  config::TokensDatasetConfig config;
  config.paths = config::PathList{{"d"}};
  Diagnostics problems;
  const auto dataset = open_dataset(config, {.recipe_folder = folder.path()}, problems);
  INFO(to_text(problems));
  REQUIRE(dataset);
  REQUIRE(dataset->size() == 3);
  for (std::int64_t k = 0; k < 3; ++k) {
    Sample sample;
    dataset->read(k, sample);
    CHECK(sample.input_ids[0] == k + 1);
  }
}

}  // namespace automodel::data
