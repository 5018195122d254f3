// Token files: Megatron's and nanoGPT's.
#include <cstring>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "data/megatron_dataset.h"
#include "data/megatron_index.h"
#include "data/nanogpt_file.h"
#include "temporary_folder.h"

namespace automodel::data {
namespace {

using Ids = std::vector<std::int32_t>;

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
std::string tokens_of(const std::vector<T>& values) {
  std::string out;
  for (const T value : values) put(out, value);
  return out;
}

/// An index of 16-bit tokens with one sequence per document.
std::string index_of(const std::vector<std::int32_t>& lengths, std::uint8_t code = 8, int width = 2) {
  std::string out("MMIDIDX\0\0", 9);
  put<std::uint64_t>(out, 1);
  put<std::uint8_t>(out, code);
  put<std::uint64_t>(out, lengths.size());
  put<std::uint64_t>(out, lengths.size() + 1);
  for (const auto length : lengths) put<std::int32_t>(out, length);
  std::int64_t place = 0;
  for (const auto length : lengths) {
    put<std::int64_t>(out, place);
    place += static_cast<std::int64_t>(length) * width;
  }
  for (std::size_t i = 0; i <= lengths.size(); ++i) put<std::int64_t>(out, static_cast<std::int64_t>(i));
  return out;
}

struct Opened {
  std::unique_ptr<Dataset> dataset;
  Diagnostics problems;
};

Opened open(const config::DatasetConfig& config, DatasetContext context) {
  Opened out;
  out.dataset = open_dataset(config, context, out.problems);
  return out;
}

/// The first token, then all labels.
Ids stream_of(const Dataset& dataset) {
  Ids out;
  Sample sample;
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    dataset.read(i, sample);
    if (i == 0) out.push_back(sample.input_ids.at(0));
    out.insert(out.end(), sample.labels.begin(), sample.labels.end());
  }
  return out;
}

}  // namespace

TEST_CASE("Megatron documents are joined into one stream of tokens", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("a.bin", tokens_of<std::uint16_t>({1, 2, 3, 40000, 5, 6, 7}));
  folder.write("a.idx", index_of({3, 0, 4}));
  config::MegatronDatasetConfig config;
  config.seq_length = 3;
  for (const std::string path : {"a", "a.bin", "a.idx", "*.idx", "."}) {
    config.paths = config::PathList{{path}};
    const auto opened = open(config, {.recipe_folder = folder.path()});
    INFO(path << ": " << to_text(opened.problems));
    REQUIRE(opened.dataset);
    CHECK(stream_of(*opened.dataset) == Ids{1, 2, 3, 40000, 5, 6, 7});
    CHECK(opened.dataset->size() == 2);
    CHECK(opened.dataset->summary() == "megatron: 1 file, 14 B, 3 documents, 7 tokens, 2 sequences of 3");
  }
  CHECK_THROWS_AS(stream_of(*open(config, {.recipe_folder = folder.path(), .vocab_size = 100}).dataset), Error);
}

TEST_CASE("Megatron's list of weights and prefixes is a mixture", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("a.bin", tokens_of<std::uint16_t>({1, 1, 1, 1, 1, 1, 1}));
  folder.write("a.idx", index_of({7}));
  folder.write("b.bin", tokens_of<std::uint16_t>({2, 2, 2, 2, 2}));
  folder.write("b.idx", index_of({5}));
  config::MegatronDatasetConfig config;
  config.seq_length = 2;
  config.paths = config::PathList{{"30", "a", "70.0", "b"}};
  const auto opened = open(config, {.recipe_folder = folder.path()});
  INFO(to_text(opened.problems));
  REQUIRE(opened.dataset);
  CHECK(opened.dataset->size() == 3 + 2);
  CHECK(opened.dataset->parts()[1].share == 0.7);
  Sample sample;
  std::int64_t of_b = 0;
  for (std::int64_t i = 0; i < 100; ++i) {
    opened.dataset->read(i, sample);
    of_b += sample.input_ids[0] == 2 ? 1 : 0;
  }
  CHECK(of_b == 70);
  config.paths = config::PathList{{"30", "missing", "70", "absent"}};
  const auto refused = open(config, {.recipe_folder = folder.path()});
  REQUIRE(refused.problems.size() == 2);  // a problem for each prefix, and none for a file named 30
  CHECK(refused.problems[0].message.find("missing") != std::string::npos);
}

TEST_CASE("a Megatron split assigns documents to train, validation and test", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("a.bin",
               tokens_of<std::int32_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}));
  folder.write("a.idx", index_of(std::vector<std::int32_t>(10, 2), 4, 4));
  config::MegatronDatasetConfig config;
  config.paths = config::PathList{{"a"}};
  config.seq_length = 100;
  config.split = "80, 10,10";
  const auto first = [&](const std::string& part) {
    config.part = part;
    const auto opened = open(config, {.recipe_folder = folder.path()});
    REQUIRE(opened.dataset);
    const auto ids = stream_of(*opened.dataset);
    return std::pair(ids.front(), ids.back());
  };
  CHECK(first("train") == std::pair(0, 15));
  CHECK(first("validation") == std::pair(16, 17));
  CHECK(first("test") == std::pair(18, 19));
  for (const std::string bad : {"80,20", "a,b,c", "0,0,0", "1,2,3,4", "-1,1,1", ""}) {
    config.split = bad;
    CHECK(open(config, {.recipe_folder = folder.path()}).problems.at(0).id == "bad-value");
  }
  config.split = "1,0,0";
  CHECK(open(config, {.recipe_folder = folder.path()}).problems.at(0).id == "empty-data");
  config.part = "validatoin";
  CHECK(open(config, {.recipe_folder = folder.path()}).problems.at(0).help == "did you mean 'validation'?");
}

TEST_CASE("a corrupt Megatron index is refused before anything is allocated", "[data]") {
  const std::string good = index_of({3, 4});
  std::string problem;
  REQUIRE(read_megatron_index(good, 14, problem));
  CHECK(!read_megatron_index(good, 13, problem));
  CHECK(problem.find("beyond the 13 bytes") != std::string::npos);
  for (std::size_t size = 0; size < good.size(); ++size) CHECK(!read_megatron_index(good.substr(0, size), 14, problem));
  const auto with = [&](std::size_t at, auto value) {
    std::string bad = good;
    std::memcpy(bad.data() + at, &value, sizeof value);
    return read_megatron_index(bad, 14, problem).has_value();
  };
  CHECK(!with(9, std::uint64_t{2}));
  CHECK(!with(17, std::uint8_t{6}));
  CHECK(!with(17, std::uint8_t{200}));
  CHECK(!with(18, std::uint64_t{1} << 62));
  CHECK(!with(26, std::uint64_t{1} << 62));
  CHECK(!with(34, std::int32_t{-1}));
  CHECK(!with(42, std::int64_t{-2}));
  CHECK(!with(50, std::int64_t{1} << 62));
  CHECK(!with(58, std::int64_t{1}));
  CHECK(!with(66, std::int64_t{9}));
  const test::TemporaryFolder folder;
  folder.write("a.bin", tokens_of<std::uint16_t>({1, 2, 3, 4, 5, 6}));
  folder.write("a.idx", good);
  config::MegatronDatasetConfig config;
  config.paths = config::PathList{{"a"}};
  const auto opened = open(config, {.recipe_folder = folder.path()});
  CHECK(opened.dataset == nullptr);
  REQUIRE(opened.problems.size() == 1);
  CHECK(opened.problems.front().id == "bad-index");
}

TEST_CASE("nanoGPT token files are read with and without a header", "[data]") {
  const test::TemporaryFolder folder;
  const auto file = [](std::int32_t magic, std::int32_t count, std::int32_t width, const std::string& tokens) {
    std::string out;
    for (const std::int32_t value : {magic, 1, count, width}) put(out, value);
    out.resize(1024);
    return out + tokens;
  };
  folder.write("1.bin", file(20240520, 3, 0, tokens_of<std::uint16_t>({1, 50256, 3})));
  folder.write("2.bin", file(278895051, 2, 4, tokens_of<std::uint32_t>({100000, 5})));
  config::NanogptDatasetConfig config;
  config.seq_length = 2;
  config.paths = config::PathList{{"*.bin"}};
  const DatasetContext context{.recipe_folder = folder.path()};
  const auto opened = open(config, context);
  INFO(to_text(opened.problems));
  REQUIRE(opened.dataset);
  CHECK(stream_of(*opened.dataset) == Ids{1, 50256, 3, 100000, 5});

  folder.write("raw/train.bin", tokens_of<std::uint16_t>({9, 8, 7}));
  config.paths = config::PathList{{"raw/train.bin"}};
  CHECK(open(config, context).problems.at(0).id == "bad-file");
  config.dtype = "uint16";
  CHECK(stream_of(*open(config, context).dataset) == Ids{9, 8, 7});
  folder.write("raw/train.bin", "abc");
  const auto cut = open(config, context).problems.at(0);
  CHECK(cut.message.ends_with("cannot be used: its size is not a multiple of 2 bytes"));
  CHECK(cut.help.starts_with("whole files of llm.c or modded-nanogpt"));
  config.dtype = "uint61";
  CHECK(open(config, context).problems.at(0).help == "did you mean 'uint16'?");
  std::string problem;
  CHECK(!read_nanogpt_header(file(20240520, 1'000'000'000, 0, ""), {}, problem));
  CHECK(!read_nanogpt_header(file(20240520, -1, 0, ""), {}, problem));
  CHECK(!read_nanogpt_header(file(278895051, 1, 3, "abcd"), {}, problem));
  CHECK(!read_nanogpt_header("abc", TokenType::kUint16, problem));
}

}  // namespace automodel::data
