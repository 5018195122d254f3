#include <algorithm>
#include <cctype>

#include <catch2/catch.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "data/text_dataset.h"
#include "golden_folder.h"
#include "temporary_folder.h"

namespace automodel::data {
namespace {

using Ids = std::vector<std::int32_t>;

/// The files that `paths` match, in order, as names relative to the folder.
std::vector<std::string> found(const test::TemporaryFolder& folder, std::vector<std::string> paths,
                               Wanted wanted = Wanted::kText) {
  Diagnostics problems;
  const auto sources = find_files({std::move(paths)}, wanted, folder.path(), "dataset.paths", problems);
  INFO(to_text(problems));
  CHECK(problems.empty());
  std::vector<std::string> out;
  for (const auto& file : sources.files)
    out.push_back(std::filesystem::relative(file.path, folder.path()).lexically_normal().native());
  return out;
}

using Names = std::vector<std::string>;

struct Opened {
  std::unique_ptr<Dataset> dataset;
  Diagnostics problems;
};

Opened open_at(const test::TemporaryFolder& folder, std::vector<std::string> paths, int seq_length,
               DatasetContext context = {}) {
  config::TextDatasetConfig config;
  config.paths = config::PathList{std::move(paths)};
  config.seq_length = seq_length;
  context.recipe_folder = folder.path();
  Opened out;
  out.dataset = open_dataset(config, context, out.problems);
  return out;
}

/// A tokenizer whose token for a word is its length; 99 ends a text.
class WordLengths final : public Tokenizer {
 public:
  std::int32_t vocab_size() const override { return 100; }
  std::optional<std::int32_t> bos() const override { return std::nullopt; }
  std::optional<std::int32_t> eos() const override { return 99; }
  std::optional<std::int32_t> pad() const override { return std::nullopt; }
  void encode(std::string_view text, std::vector<std::int32_t>& out) const override {
    std::int32_t length = 0;
    for (const char c : std::string(text) + " ") {
      if (std::isspace(static_cast<unsigned char>(c)) == 0) {
        ++length;
      } else {
        if (length > 0) out.push_back(length);
        length = 0;
      }
    }
  }
  std::string decode(std::span<const std::int32_t>) const override { return ""; }
};

}  // namespace

TEST_CASE("a folder gives all text files below it, sorted, without hidden, build and binary files", "[data]") {
  const test::TemporaryFolder folder;
  for (const char* name : {"d/b.txt", "d/a.md", "d/B.txt", "d/sub/x", "d/sub.txt", "d/.hidden", "d/.git/config",
                           "d/build/out.txt", "d/node_modules/a/b.js", "d/z.py"})
    folder.write(name, "text");
  folder.write("d/image.dat", std::string("abc\0def", 7));
  folder.write("d/weights.safetensors", "text at first");
  CHECK(found(folder, {"d"}) == Names{"d/B.txt", "d/a.md", "d/b.txt", "d/sub/x", "d/sub.txt", "d/z.py"});
  Diagnostics problems;
  CHECK(find_files({{"d"}}, Wanted::kText, folder.path(), "k", problems).skipped == 2);
}

TEST_CASE("a file that is named explicitly is used, whatever its type", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("build/.x.bin", std::string("\0", 1));
  CHECK(found(folder, {"build/.x.bin"}) == Names{"build/.x.bin"});
}

TEST_CASE("a compressed file is refused, not trained on as bytes", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("a.txt.gz", std::string("\x1f\x8b\x08\x08text that is long enough", 28));
  folder.write("b.zst", std::string("\x28\xb5\x2f\xfdtext that is long enough", 28));
  for (const char* name : {"a.txt.gz", "b.zst"}) {
    const auto problems = open_at(folder, {name}, 4).problems;
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].id == "bad-value");
    CHECK(problems[0].message.ends_with("is compressed: its bytes are not text"));
  }
}

TEST_CASE("text without a tokenizer takes the model's, and bytes beside a model without one", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("a.txt", std::string(64, 'a'));
  const auto summary = [&](DatasetContext context) {
    auto opened = open_at(folder, {"a.txt"}, 4, std::move(context));
    INFO(to_text(opened.problems));
    REQUIRE(opened.dataset);
    return opened.dataset->summary();
  };
  CHECK(summary({}).find("as bytes") != std::string::npos);
  CHECK(summary({.model_folder = folder.path()}).find("as bytes") != std::string::npos);
  const auto with = std::filesystem::path(golden_folder()) / "tokenizer/llama3";
  REQUIRE(std::filesystem::exists(with / "tokenizer.json"));
  CHECK(summary({.model_folder = with}).find("as bytes") == std::string::npos);
}

TEST_CASE("globs match within a name or, with two stars, across folders", "[data]") {
  const test::TemporaryFolder folder;
  for (const char* name : {"a1.txt", "a2.txt", "b1.txt", "s/a3.txt", "s/t/a4.txt", "s/t/c.md", ".h/a5.txt", "[x].txt"})
    folder.write(name, "text");
  CHECK(found(folder, {"a*.txt"}) == Names{"a1.txt", "a2.txt"});
  CHECK(found(folder, {"[ab]1.t?t"}) == Names{"a1.txt", "b1.txt"});
  CHECK(found(folder, {"**/a*.txt"}) == Names{"a1.txt", "a2.txt", "s/a3.txt", "s/t/a4.txt"});
  CHECK(found(folder, {"s/**"}) == Names{"s/a3.txt", "s/t/a4.txt", "s/t/c.md"});
  CHECK(found(folder, {"s/**/a4.txt"}) == Names{"s/t/a4.txt"});
  CHECK(found(folder, {(folder.path() / "b*").native()}) == Names{"b1.txt"});
  CHECK(found(folder, {"[x].txt"}) == Names{"[x].txt"});  // an existing name wins over a pattern
}

TEST_CASE("files keep the order of the paths, and each is used once", "[data]") {
  const test::TemporaryFolder folder;
  for (const char* name : {"a.txt", "b.txt", "s/c.txt"}) folder.write(name, "text");
  std::filesystem::create_symlink(folder.path() / "s", folder.path() / "link");
  std::filesystem::create_symlink(folder.path(), folder.path() / "s" / "loop");
  CHECK(found(folder, {"b.txt", "*.txt", "./b.txt", "s", "link/c.txt"}) == Names{"b.txt", "a.txt", "s/c.txt"});
}

TEST_CASE("paths are searched beside the recipe, then in the working directory", "[data]") {
  const test::TemporaryFolder recipe;
  const test::TemporaryFolder working;
  recipe.write("both.txt", "recipe");
  working.write("both.txt", "working");
  working.write("only.txt", "working");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(working.path());
  Diagnostics problems;
  const auto sources = find_files({{"both.txt", "only.txt"}}, Wanted::kText, recipe.path(), "k", problems);
  std::filesystem::current_path(before);
  REQUIRE(sources.files.size() == 2);
  CHECK(sources.files[0].path == recipe.path() / "both.txt");
  CHECK(sources.files[1].path == "only.txt");
}

TEST_CASE("missing, unreadable and empty text files are all reported", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("corpus.txt", "some text");
  const auto missing = open_at(folder, {"corpsu.txt", "nothing/*.txt"}, 4).problems;
  REQUIRE(missing.size() == 2);
  CHECK(missing[0].id == "missing-file");
  CHECK(missing[0].key == "dataset.paths");
  CHECK(missing[0].help.find("did you mean 'corpus.txt'?") != std::string::npos);
  CHECK(missing[1].id == "missing-file");
  CHECK(open_at(folder, {}, 4).problems.at(0).id == "missing-key");

  folder.write("e/empty.txt", "");
  folder.write("e/one.txt", "x");
  std::filesystem::create_directories(folder.path() / "none");
  CHECK(open_at(folder, {"e"}, 4).problems.at(0).id == "empty-data");
  CHECK(open_at(folder, {"none"}, 4).problems.at(0).id == "empty-data");
  if (geteuid() != 0) {  // root reads everything
    chmod((folder.path() / "corpus.txt").c_str(), 0);
    const auto unreadable = open_at(folder, {"corpus.txt"}, 4).problems;
    CHECK(unreadable.at(0).message.find("Permission denied") != std::string::npos);
  }
}

TEST_CASE("files are joined with end-of-text tokens and cut into windows", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("a.txt", "abcde");
  folder.write("b.txt", "");
  folder.write("c.txt", "\xff");
  folder.write("d.txt", "fg");
  const auto opened = open_at(folder, {"*.txt"}, 4);
  INFO(to_text(opened.problems));
  REQUIRE(opened.dataset);
  // a b c d | e <eos> 255 <eos> | f g
  Sample sample;
  REQUIRE(opened.dataset->size() == 3);
  opened.dataset->read(0, sample);
  CHECK(sample.input_ids == Ids{'a', 'b', 'c', 'd'});
  CHECK(sample.labels == Ids{'b', 'c', 'd', 'e'});
  opened.dataset->read(1, sample);
  CHECK(sample.input_ids == Ids{'e', 257, 255, 257});
  CHECK(sample.labels == Ids{257, 255, 257, 'f'});
  opened.dataset->read(2, sample);
  CHECK(sample.input_ids == Ids{'f'});
  CHECK(sample.labels == Ids{'g'});
  CHECK(opened.dataset->length(1) == 4);
  CHECK(opened.dataset->length(2) == 1);
  CHECK(opened.dataset->padding().shortest == 4);
  CHECK(opened.dataset->padding().id == 258);
  CHECK(opened.dataset->summary() == "text: 4 files, 8 B as bytes, 10 tokens, 3 sequences of 4");
}

TEST_CASE("each token except the first is a label exactly once, for every window length", "[data]") {
  const test::TemporaryFolder folder;
  std::string joined;
  for (int i = 0; i < 30; ++i) {
    std::string text;
    for (int j = 0; j < i * 7 % 11; ++j) text += static_cast<char>('a' + (i + j) % 26);
    folder.write("f" + std::string(i < 10 ? "0" : "") + std::to_string(i), text);
    if (text.empty()) continue;
    if (!joined.empty()) joined += '|';
    joined += text;
  }
  for (int length = 1; length <= static_cast<int>(joined.size()) + 2; ++length) {
    const auto opened = open_at(folder, {"."}, length);
    REQUIRE(opened.dataset);
    std::string labels(1, joined[0]);
    for (std::int64_t k = 0; k < opened.dataset->size(); ++k) {
      Sample sample;
      opened.dataset->read(k, sample);
      REQUIRE(static_cast<std::int64_t>(sample.input_ids.size()) == opened.dataset->length(k));
      REQUIRE(sample.labels.size() == sample.input_ids.size());
      for (std::size_t t = 0; t < sample.labels.size(); ++t) {
        REQUIRE((sample.input_ids[t] == 257 ? '|' : static_cast<char>(sample.input_ids[t])) == labels.back());
        labels += sample.labels[t] == 257 ? '|' : static_cast<char>(sample.labels[t]);
      }
    }
    REQUIRE(labels == joined);
  }
}

TEST_CASE("text is cut into windows of tokens with any tokenizer", "[data]") {
  const test::TemporaryFolder folder;
  Diagnostics problems;
  folder.write("a.txt", "a bb ccc");
  folder.write("b.txt", "  ");
  folder.write("c.txt", "dddd");
  const auto sources = find_files({{"."}}, Wanted::kText, folder.path(), "k", problems);
  const auto dataset = make_text_dataset(sources, WordLengths(), 3, std::nullopt);
  REQUIRE(dataset);
  Sample sample;
  REQUIRE(dataset->size() == 2);
  dataset->read(0, sample);
  CHECK(sample.input_ids == Ids{1, 2, 3});
  CHECK(sample.labels == Ids{2, 3, 99});
  dataset->read(1, sample);
  CHECK(sample.input_ids == Ids{99});
  CHECK(sample.labels == Ids{4});
  CHECK(dataset->padding().id == 99);
}

TEST_CASE("bytes that are not UTF-8 are counted where a tokenizer reads them as another character", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("a.txt",
               "Stra\xdf"
               "e und Stra\xc3\x9f"
               "e \xff\xfe");
  folder.write("b.txt", "more");
  const auto summary = [&](const std::string& tokenizer, std::vector<std::string> paths) {
    config::TextDatasetConfig config;
    config.paths = config::PathList{std::move(paths)};
    config.seq_length = 4;
    config.tokenizer = tokenizer;
    config.cache = false;
    Diagnostics problems;
    DatasetContext context;
    context.recipe_folder = folder.path();
    const auto dataset = open_dataset(config, context, problems);
    INFO(to_text(problems));
    REQUIRE(dataset);
    return dataset->summary();
  };
  const std::string qwen = golden_folder() + "/tokenizer/qwen2";
  CHECK(summary(qwen, {"a.txt", "b.txt"}).find(" (3 bytes are not UTF-8, read as U+FFFD)") != std::string::npos);
  CHECK(summary(qwen, {"b.txt"}).find("UTF-8") == std::string::npos);
  CHECK(summary("bytes", {"a.txt"}).find("UTF-8") == std::string::npos);
}

TEST_CASE("a text dataset that exceeds the model's limits is refused with the limits", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("a.txt", "some text");
  const auto opened = open_at(folder, {"a.txt"}, 64, {.vocab_size = 256, .max_length = 32});
  REQUIRE(opened.problems.size() == 2);
  CHECK(opened.problems[0].help == "the model's vocab_size must be at least 259");
  CHECK(opened.problems[1].id == "sequence-too-long");
}

TEST_CASE("an unknown tokenizer is refused with a suggestion", "[data]") {
  Diagnostics problems;
  CHECK(!open_tokenizer("byte", ".", "dataset.tokenizer", problems));
  CHECK(problems.at(0).help == "did you mean 'bytes'?");
}

TEST_CASE("a text file that shrinks while it is read gives an error, not garbage", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("a.txt", "some text");
  const auto opened = open_at(folder, {"a.txt"}, 4);
  folder.write("a.txt", "so");
  Sample sample;
  CHECK_THROWS_AS(opened.dataset->read(1, sample), Error);
}

TEST_CASE("the byte tokenizer encodes and decodes every byte", "[data]") {
  const auto tokenizer = make_byte_tokenizer();
  Ids ids;
  std::string text;
  for (int c = 0; c < 256; ++c) text += static_cast<char>(c);
  tokenizer->encode(text, ids);
  CHECK(ids.size() == 256);
  ids.push_back(*tokenizer->eos());
  CHECK(tokenizer->decode(ids) == text);
}

}  // namespace automodel::data
