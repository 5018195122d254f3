#include <cstdlib>
#include <fstream>
#include <map>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "golden_file.h"
#include "golden_folder.h"
#include "rows/bounded_json.h"
#include "rows/data_files.h"
#include "rows/load.h"
#include "rows/split.h"
#include "rows/table_rows.h"
#include "temporary_folder.h"

namespace automodel::rows {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

const std::string kData = automodel::golden_folder() + "/datasets";

std::vector<json> recorded(const std::string& path) {
  std::ifstream file(kData + "/" + path);
  std::vector<json> out;
  for (std::string line; std::getline(file, line);) out.push_back(json::parse(line));
  REQUIRE(!out.empty());
  return out;
}

/// Sets the cache folders for a test.
class Caches {
 public:
  Caches(const std::string& hub, const std::string& prepared) {
    setenv("HF_HUB_CACHE", hub.c_str(), 1);
    setenv("HF_DATASETS_CACHE", prepared.c_str(), 1);
  }
  Caches(const Caches&) = delete;
  Caches& operator=(const Caches&) = delete;
  ~Caches() {
    unsetenv("HF_HUB_CACHE");
    unsetenv("HF_DATASETS_CACHE");
  }
};

std::vector<ordered_json> all_rows(const Rows& rows) {
  std::vector<ordered_json> out(static_cast<std::size_t>(rows.size()));
  for (std::size_t i = 0; i < out.size(); ++i) rows.read(static_cast<std::int64_t>(i), out[i]);
  return out;
}

LoadRequest request_of(const std::string& path, const std::string& split) {
  LoadRequest out;
  out.path = path;
  out.split = split;
  out.recipe_folder = kData + "/local";
  return out;
}

/// The card of a recorded case, as a README.md.
std::optional<std::string> card_of(const json& readme) {
  if (readme.is_null()) return std::nullopt;
  return "---\n" + readme.dump() + "\n---\nA card.\n";  // JSON is YAML
}

std::unique_ptr<Rows> rows_of(const std::string& name, const std::string& text, Diagnostics& problems) {
  static const test::TemporaryFolder folder;
  auto loaded = load_files({folder.write(name, text)}, problems);
  return loaded ? std::move(loaded->rows) : nullptr;
}

}  // namespace

TEST_CASE("files of a folder are assigned to splits as by the datasets library", "[rows]") {
  for (const auto& each : recorded("data_files.jsonl")) {
    INFO(each.dump());
    const auto name = each["name"].is_null() ? std::nullopt : std::optional(each["name"].get<std::string>());
    Diagnostics problems;
    const auto chosen =
        choose_data_files(each["files"].get<std::vector<std::string>>(), card_of(each["readme"]), name, "F", problems);
    if (each.contains("error") || each["module"] == "imagefolder") {
      CHECK(!chosen);
      CHECK(problems.size() == 1);
      continue;
    }
    INFO(to_text(problems));
    REQUIRE(chosen);
    const bool nothing = each["data_files"] == json({{"train", json::array()}});
    CHECK(chosen->reader == (nothing ? "" : each["module"].get<std::string>()));
    CHECK(chosen->config == each["config"].get<std::string>());
    json splits = json::object();
    for (const auto& [split, files] : chosen->splits) splits[split] = files;
    CHECK(splits == each["data_files"]);
  }
}

TEST_CASE("cards that are not clear and archives are refused", "[rows]") {
  const auto message_of = [](const std::vector<std::string>& files, const json& readme) {
    Diagnostics problems;
    CHECK(!choose_data_files(files, card_of(readme), std::nullopt, "F", problems));
    return problems.size() == 1 ? problems[0].message : to_text(problems);
  };
  const auto config = [](const std::string& name, bool is_default) {
    return json{{"config_name", name}, {"data_files", "*.csv"}, {"default", is_default}};
  };
  CHECK(message_of({"a.csv"}, {{"configs", {config("a", true), config("a", false)}}}) ==
        "the card of 'F' has configuration 'a' twice");
  CHECK(message_of({"a.csv"}, {{"configs", {config("a", true), config("b", true)}}}) ==
        "'F' has several configurations, and more than one is the default");
  CHECK(message_of({"a.csv"}, {{"configs", {config("a", true), config("default", false)}}}) ==
        "'F' has several configurations, and more than one is the default");
  CHECK(message_of({"a.csv"}, {{"configs", {config("a", false), config("b", false)}}}) ==
        "'F' has several configurations, and none is the default");
  CHECK(message_of({"train.csv", "train_2.zip"}, nullptr) == "'train_2.zip' of 'F' is an archive, which is not read");
}

TEST_CASE("split strings select the recorded rows", "[rows]") {
  const Caches caches(kData + "/hf_home/hub", "/nowhere");
  for (const auto& each : recorded("splits.jsonl")) {
    INFO(each.dump());
    const auto text = each["split"].get<std::string>();
    if (each.contains("num_examples")) {
      const auto parsed = parse_split(text);
      std::string problem = parsed.problem;
      if (problem.empty()) {
        const auto range = range_of(parsed.parts[0], each["num_examples"], problem);
        if (problem.empty() && !each.contains("error")) {
          const bool both_empty = range.from >= range.to && each["range"][0][0] >= each["range"][0][1];
          CHECK((both_empty || json::array({range.from, range.to}) == each["range"][0]));
        }
      }
      CHECK(problem.empty() != each.contains("error"));
      continue;
    }
    Diagnostics problems;
    const auto loaded = load_rows(request_of(each["path"], text), problems);
    const bool no_rows = each.contains("ids") && each["ids"].empty();
    REQUIRE(loaded.has_value() == (each.contains("ids") && !no_rows));
    if (!loaded) continue;
    std::vector<std::string> ids;
    for (const auto& row : all_rows(*loaded->rows)) ids.push_back(row["id"]);
    CHECK(ids == each["ids"].get<std::vector<std::string>>());
  }
}

TEST_CASE("rows from the hub cache and from the prepared cache equal the recorded ones", "[rows]") {
  const bool hub = GENERATE(true, false);
  const Caches caches(hub ? kData + "/hf_home/hub" : "/nowhere", hub ? "/nowhere" : kData + "/hf_home/datasets");
  int compared = 0;
  for (const auto& each : recorded("rows.jsonl")) {
    if (!each.contains("load") || !each.contains("rows") || each["load"]["path"] == "json") continue;
    const auto& load = each["load"];
    INFO(load.dump());
    auto request = request_of(load["path"], load["split"]);
    if (load.contains("revision")) request.revision = load["revision"].get<std::string>();
    Diagnostics problems;
    const auto loaded = load_rows(request, problems);
    INFO(to_text(problems));
    REQUIRE(loaded);
    REQUIRE(loaded->rows->size() == each["len"].get<std::int64_t>());
    for (std::size_t i = 0; i < each["rows"].size(); ++i) {
      ordered_json row;
      loaded->rows->read(static_cast<std::int64_t>(i), row);
      CHECK(json::parse(row.dump()) == each["rows"][i]);
    }
    ++compared;
  }
  CHECK(compared > 10);
}

TEST_CASE("datasets are found under any spelling, and a missing one is reported with the searched cache", "[rows]") {
  const Caches caches(kData + "/hf_home/hub", "/nowhere");
  Diagnostics problems;
  CHECK(load_rows(request_of("Rowan/HellaSwag", "test"), problems));
  CHECK(load_rows(request_of("squad", "train"), problems));
  CHECK(problems.empty());
  CHECK(!load_rows(request_of("nobody/nothing", "train"), problems));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].id == "dataset-not-found");
  CHECK(problems[0].help.find(kData + "/hf_home/hub") != std::string::npos);
  auto other = request_of("rajpurkar/squad", "train");
  // A snapshot without all files of its dataset card.
  other.revision = "0000000000000000000000000000000000000001";
  CHECK(!load_rows(other, problems));
  CHECK(problems.back().message.find("validation") != std::string::npos);
  other.revision = "v9";
  CHECK(!load_rows(other, problems));
  other.revision = "../main";
  CHECK(!load_rows(other, problems));
}

TEST_CASE("folders written by save_to_disk are read", "[rows]") {
  Diagnostics problems;
  const auto whole = load_rows(request_of("saved_squad", "train"), problems);
  INFO(to_text(problems));
  REQUIRE(whole);
  CHECK(whole->rows->size() == 20);
  const auto part = load_rows(request_of("saved_squad_dict", "validation[1:]"), problems);
  REQUIRE(part);
  CHECK(part->rows->size() == 3);
}

TEST_CASE("a split that is not there is refused, also beside one that is", "[rows]") {
  for (const std::string split : {"tset", "train+tset", "tset[:2]+train"}) {
    Diagnostics problems;
    CHECK(!load_rows(request_of("saved_squad_dict", split), problems));
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].message == "'saved_squad_dict' has no split 'tset'");
    CHECK(problems[0].help == "one of train, validation");
  }
}

TEST_CASE("Parquet files of every codec, page and type are read, and damaged files are refused", "[rows]") {
  const std::string folder = kData + "/local/parquet_matrix/";
  const auto rows = recorded("local/parquet_matrix/rows.jsonl");
  const auto manifest = golden::load("datasets/local/parquet_matrix/manifest.json");
  for (const auto& [name, facts] : manifest.items()) {
    INFO(name);
    Diagnostics problems;
    const auto loaded = load_files({folder + name}, problems);
    if (name.starts_with("bad_")) {
      REQUIRE(!loaded);
      CHECK(problems[0].id == "bad-table");
      CHECK(problems[0].where.file == folder + name);
      continue;
    }
    INFO(to_text(problems));
    REQUIRE(loaded);
    REQUIRE(loaded->rows->size() == facts["num_rows"].get<std::int64_t>());
    for (std::size_t i = 0; i < static_cast<std::size_t>(loaded->rows->size()); ++i) {
      ordered_json row;
      loaded->rows->read(static_cast<std::int64_t>(i), row);
      for (const auto& [column, cell] : row.items()) {
        const auto& want = rows[i][column];
        // Times, bytes and decimals have no JSON type.
        if (want.is_object() && (want.contains("base16") || want.contains("iso") || want.contains("decimal"))) continue;
        if (column == "st" || column == "lst" || column == "stst" || column == "m") continue;
        if (want.is_number_float())
          CHECK(cell.get<double>() == Approx(want.get<double>()).epsilon(1e-6));
        else
          CHECK(json::parse(cell.dump()) == want);
      }
    }
  }
}

TEST_CASE("tables that promise or hide too much are refused before memory is taken for it", "[rows]") {
  const std::string folder = kData + "/hostile/";
  const auto refusal = [&](const std::string& name) {
    Diagnostics problems;
    const auto loaded = load_files({folder + name}, problems);
    if (!loaded) return problems.at(0).message + "; " + problems.at(0).help;
    try {
      nlohmann::ordered_json row;
      for (std::int64_t i = 0; i < loaded->rows->size(); ++i) loaded->rows->read(i, row);
    } catch (const RowError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::map<std::string, std::string> expected = {
      {"group_rows.parquet", "row group 0 does not have its 1099511627776 rows"},
      {"all_counts.parquet", "its metadata promises 1099511627776 rows, in a file of 384 bytes"},
      {"zeros.parquet", "its metadata promises 3000000 rows, in a file of 6863 bytes"},
      {"nulls.arrow", "its metadata promises 1099511627776 rows, in a file of 224 bytes"},
      {"deep.parquet", "too deeply nested"},
      {"long_cell.parquet", "a cell of more than 16777216 bytes"},
      {"long_words.parquet", "more than 268435456 bytes of text"},
      {"blanks.jsonl.zst", "more than 268435456 bytes of text"}};
  for (const auto& [name, reason] : expected) {
    INFO(name);
    CHECK_THAT(refusal(name), Catch::Contains(reason));
  }
  // Too much once is too much: nothing of it is decompressed again.
  Diagnostics problems;
  const auto words = load_files({folder + "long_words.parquet"}, problems);
  REQUIRE(words);
  nlohmann::ordered_json row;
  std::int64_t good = 0;
  try {
    for (; good < words->rows->size(); ++good) words->rows->read(good, row);
  } catch (const RowError&) {
  }
  CHECK(good == 63);  // of 4 MiB, in 256 MiB
  CHECK_THROWS_AS(words->rows->read(0, row), RowError);
  CHECK_THAT(refusal("zeros.parquet"), Catch::Contains("SECURITY.md lists the limits"));
  CHECK_THAT(refusal("group_rows.parquet"), Catch::Contains("the file is damaged"));
}

TEST_CASE("binary cells are numbered within their row, and given by number", "[rows]") {
  Diagnostics problems;
  const auto pictures = load_files({automodel::golden_folder() + "/vlm/turns.parquet"}, problems);
  REQUIRE(pictures);
  nlohmann::ordered_json row;
  pictures->rows->read(0, row);
  const auto& content = row["messages"][0]["content"];
  CHECK(content[0]["image"].dump() == R"({"bytes":{"bytes":0},"path":null})");
  CHECK(content[1]["image"].is_null());
  CHECK(content[2]["image"]["bytes"]["bytes"] == 1);
  CHECK(pictures->rows->bytes(0, 0).starts_with("\x89PNG"));
  CHECK(pictures->rows->bytes(0, 1).starts_with("\xFF\xD8"));
  CHECK_THROWS_WITH(pictures->rows->bytes(0, 2), "row 1: it has 2 binary cells");
  auto again = load_files(pictures->files, problems);
  const auto selected = select(std::move(again->rows), std::vector<RowSpan>{{0, 1}, {0, 1}});
  CHECK(selected->bytes(1, 1) == pictures->rows->bytes(0, 1));
  const auto huge = load_files({kData + "/hostile/long_picture.parquet"}, problems);
  REQUIRE(huge);
  huge->rows->read(0, row);
  CHECK_THROWS_WITH(huge->rows->bytes(0, 0), Catch::Contains("a cell of more than 67108864 bytes"));
  const test::TemporaryFolder folder;
  const auto text = load_files({folder.write("rows.jsonl", "{}")}, problems);
  REQUIRE(text);
  CHECK_THROWS_WITH(text->rows->bytes(0, 0), "rows of text hold no bytes");
}

TEST_CASE("rows of text have limits, and wide ones take no square of their columns", "[rows]") {
  const auto row_of = [](const std::string& name, const std::string& text) {
    Diagnostics problems;
    const auto rows = rows_of(name, text, problems);
    if (!rows) return problems.at(0).message;
    try {
      nlohmann::ordered_json row;
      rows->read(0, row);
      return std::to_string(row.size());
    } catch (const RowError& error) {
      return std::string(error.what());
    }
  };
  const auto keys = [](int count) {
    std::string out = "{\"a\": {";
    for (int i = 0; i < count; ++i) out += fmt::format("{}\"k{}\": 1", i > 0 ? "," : "", i);
    return out + "}, \"b\": 1}\n";
  };
  CHECK(row_of("a.jsonl", keys(10'000)) == "2");
  CHECK(row_of("a.jsonl", keys(10'001)) == "an object has more than 10000 keys");
  std::string list = "{\"a\": [{\"k\": 1}";  // keys of different objects do not add up
  for (int i = 0; i < 10'000; ++i) list += ",{\"k\": 1}";
  CHECK(row_of("a.jsonl", list + "]}\n") == "1");
  CHECK(row_of("a.jsonl", keys(1'000'000)) == "an object has more than 10000 keys");
  CHECK(row_of("a.jsonl", "{\"a\": \"" + std::string(17 << 20, 'x') + "\"}\n") ==
        "the row has 17825801 bytes; at most 16777216 are read");
  const auto columns = [](int count) {
    std::string head, cells;
    for (int i = 0; i < count; ++i) head += fmt::format("{}c{}", i > 0 ? "," : "", i), cells += i > 0 ? ",1" : "1";
    return head + "\n" + cells + "\n";
  };
  CHECK(row_of("a.csv", columns(10'000)) == "10000");
  CHECK(row_of("a.csv", columns(300'000)) == "the file has 300000 columns; at most 10000 are read");
}

TEST_CASE("a folder of saved splits does not lead out of itself", "[rows]") {
  const test::TemporaryFolder folder;
  fs::create_directories(folder.path() / "set");
  fs::copy(kData + "/local/saved_squad", folder.path() / "outside", fs::copy_options::recursive);
  const std::vector<std::string> names = {"../outside", (folder.path() / "outside").native(), ".."};
  for (const auto& name : names) {
    folder.write("set/dataset_dict.json", json{{"splits", json::array({name})}}.dump());
    Diagnostics problems;
    CHECK_FALSE(load_rows(request_of((folder.path() / "set").native(), "all"), problems));
  }
}

TEST_CASE("JSON that a cell holds as text has the limits of a row", "[rows]") {
  const auto lists = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  CHECK(json_in_text(lists(kMostDepth)) == json::parse(lists(kMostDepth)));
  CHECK(json_in_text(lists(kMostDepth + 2)).is_discarded());
  CHECK(json_in_text(lists(5'000'000)).is_discarded());
  CHECK(json_in_text("[" + std::string(17 << 20, ' ') + "]").is_discarded());
  CHECK(json_in_text("[1").is_discarded());
  std::string keys = "{\"a\": 1";
  for (int i = 0; i < 300'000; ++i) keys += fmt::format(",\"{}\": 1", i);
  CHECK(json_in_text(keys + "}").is_discarded());
}

TEST_CASE("patterns of a card take no more time than their length times that of the names", "[rows]") {
  const auto chosen = [](const std::vector<std::string>& files, const json& patterns) {
    Diagnostics problems;
    const json card = {{"configs", json::array({{{"config_name", "default"}, {"data_files", patterns}}})}};
    const auto out = choose_data_files(files, card_of(card), std::nullopt, "set", problems);
    return out ? fmt::format("{}", fmt::join(out->splits.at(0).second, " ")) : problems.at(0).message;
  };
  std::string folders, deep;
  for (int i = 0; i < 60; ++i) folders += i % 3 == 0 ? "**/a/" : "", deep += "a/";
  CHECK(chosen({deep + "a.csv"}, json::array({folders + "b*"})) ==
        "no file in 'set' matches '" + folders + "b*' of its card");
  CHECK(chosen({deep + "a.csv"}, json::array({folders + "*.csv"})) == deep + "a.csv");
  CHECK(chosen({"a/a/b/a.csv", "a/a.csv"}, json::array({"**/a/*.csv"})) == "a/a.csv");
  CHECK(chosen({"a/b-1.csv", "a/b-22.csv", "a/c.csv"}, json::array({"**/?-[0-9].csv"})) == "a/b-1.csv");
  CHECK(chosen({"a.csv", "b/a.csv"}, json::array({"b/**"})) == "b/a.csv");
  CHECK(chosen({"a.csv", "b"}, json::array({"a.csv", "b/**"})) == "no file in 'set' matches 'b/**' of its card");
  std::vector<std::string> many;
  for (int i = 0; i < 30'000; ++i) many.push_back(fmt::format("{}.csv", i));
  json repeated = json::array();
  for (int i = 0; i < 100; ++i) repeated.push_back("*.csv");
  CHECK(chosen(many, repeated) == "the card of 'set' names more files than are looked for");
  CHECK(chosen(many, json(many)).size() > 200'000);  // each by its name
}

TEST_CASE("a list of files is not taken for more than it is", "[rows]") {
  const test::TemporaryFolder folder;
  const fs::path set = folder.path() / "set";
  fs::copy(kData + "/local/saved_squad", set, fs::copy_options::recursive);
  const auto refusal = [&] {
    Diagnostics problems;
    const auto rows = load_rows(request_of(set.native(), "all"), problems);
    return rows ? "" : to_text(problems);
  };
  const auto state = json::parse(std::ifstream(set / "state.json"));
  CHECK(refusal().empty());
  auto more = state;
  for (int i = 0; i < 16; ++i) more["_data_files"].push_back(state["_data_files"][0]);
  folder.write("set/state.json", more.dump());
  CHECK_THAT(refusal(), Catch::Contains("error[bad-table]: the file is named more than 16 times"));
  folder.write("set/state.json", "{\"a\": " + std::string(200, '[') + std::string(200, ']') + "}");
  CHECK_THAT(refusal(), Catch::Contains("error[bad-table]: it nests more than 100 levels"));
  fs::resize_file(set / "state.json", std::uintmax_t{1} << 40);
  CHECK_THAT(refusal(), Catch::Contains("error[bad-table]: it has more than 16777216 bytes"));
}

TEST_CASE("spans of rows are selected without a list of them", "[rows]") {
  Diagnostics problems;
  auto rows = rows_of("a.jsonl", "{\"i\":0}\n{\"i\":1}\n{\"i\":2}\n{\"i\":3}\n", problems);
  const auto some = select(std::move(rows), std::vector<RowSpan>{{2, 4}, {0, 1}, {3, 4}});
  std::string order;
  nlohmann::ordered_json row;
  for (std::int64_t i = 0; i < some->size(); ++i) {
    some->read(i, row);
    order += row["i"].dump();
  }
  CHECK(order == "2303");
  CHECK(some->where(2).line == 1);
}

TEST_CASE("a table reader library that is missing or cannot be loaded is reported", "[rows]") {
  const test::TemporaryFolder folder;
  Diagnostics problems;
  CHECK(open_table_module({folder.path() / "no.so"}, "x.parquet", problems) == nullptr);
  CHECK(open_table_module({folder.write("bad.so", "no library")}, "x.parquet", problems) == nullptr);
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].id == "unavailable");
  CHECK(problems[0].message.find("no.so") != std::string::npos);
  CHECK(problems[1].message.find("cannot be loaded") != std::string::npos);
}

TEST_CASE("JSON, JSON lines, CSV and TSV files are read", "[rows]") {
  Diagnostics problems;
  const auto lines = rows_of("a.jsonl", "\xEF\xBB\xBF{\"a\": 1}\r\n\n{\"a\": 2}", problems);
  REQUIRE(lines->size() == 2);
  CHECK(all_rows(*lines)[1]["a"] == 2);
  CHECK(lines->where(1).line == 3);
  const auto array = rows_of("b.json", "[\n {\"a\": \"]\\\"\"},\n {\"a\": [1, {}]}]\n", problems);
  REQUIRE(array->size() == 2);
  CHECK(all_rows(*array)[0]["a"] == "]\"");
  CHECK(array->where(1).line == 3);
  const auto table = rows_of("c.csv", "x,y\n1,\"a,\n\"\"b\"\"\"\n,z\n", problems);
  REQUIRE(table->size() == 2);
  CHECK(all_rows(*table)[0] == ordered_json({{"x", "1"}, {"y", "a,\n\"b\""}}));
  CHECK(all_rows(*table)[1]["x"].is_null());
  CHECK(table->where(1).line == 4);
  CHECK(all_rows(*rows_of("d.tsv", "x\ty\n1\t2\n", problems))[0]["y"] == "2");
  CHECK(problems.empty());
}

TEST_CASE("broken JSON and CSV files are reported with their line", "[rows]") {
  Diagnostics problems;
  CHECK(!rows_of("a.json", "[{\"a\": 1},\n {\"a\": ", problems));
  CHECK(!rows_of("b.json", "[{} {}]", problems));
  CHECK(!rows_of("c.csv", "a,b\n\"1,2\n", problems));
  CHECK(!rows_of("d.csv", "a,a\n", problems));
  REQUIRE(problems.size() == 4);
  CHECK(problems[0].where.line == 2);
  CHECK(problems[2].where.line == 2);
  ordered_json row;
  CHECK_THROWS_AS(rows_of("e.jsonl", "{\"a\": \n", problems)->read(0, row), RowError);
  CHECK_THROWS_WITH(rows_of("g.csv", "a,b\n1,caf\xE9\n", problems)->read(0, row),
                    "column 'b' is not UTF-8 text: save the file as UTF-8");
  const auto table = rows_of("f.csv", "a,b\n1,2\n3\n4,5,6\n", problems);
  table->read(0, row);
  CHECK_THROWS_WITH(table->read(1, row), "the row has 1 fields, the first line 2");
  CHECK_THROWS_WITH(table->read(2, row), "the row has 3 fields, the first line 2");
}

}  // namespace automodel::rows
