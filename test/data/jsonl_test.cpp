#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "base/log.h"
#include "data/jsonl_dataset.h"
#include "data/loader.h"
#include "data/packed_dataset.h"
#include "data/token_store.h"
#include "golden_file.h"
#include "golden_folder.h"
#include "temporary_folder.h"
#include "tokenizer/tokenizer.h"

namespace automodel::data {
namespace {

using Ids = std::vector<std::int32_t>;

const std::string kGolden = automodel::golden_folder();

config::JsonlDatasetConfig config_of(const std::string& path, const std::string& tokenizer,
                                     const test::TemporaryFolder& cache) {
  config::JsonlDatasetConfig out;
  out.paths = config::PathList{{path}};
  out.tokenizer = tokenizer;
  out.cache_dir = cache.path().native();
  return out;
}

struct Opened {
  std::shared_ptr<const Dataset> dataset;
  Diagnostics problems;
};

Opened open(const config::JsonlDatasetConfig& config, DatasetContext context = {}) {
  Opened out;
  out.dataset = open_dataset(config, context, out.problems);
  return out;
}

/// Labels aligned with their own tokens, as in the recordings.
Ids unshifted(const Sample& sample) {
  Ids out(1, kIgnoredLabel);
  out.insert(out.end(), sample.labels.begin(), sample.labels.end() - 1);
  return out;
}

std::size_t files_in(const std::filesystem::path& folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) count += entry.path().extension() == ".tokens";
  return count;
}

}  // namespace

TEST_CASE("texts with a class are encoded with the tokenizer's special tokens, pairs one after the other", "[data]") {
  const test::TemporaryFolder folder;
  auto config = config_of(folder
                              .write("rows.jsonl",
                                     "{\"text\": \"ab\", \"label\": 1}\n"
                                     "{\"text_a\": \"a\", \"text_b\": \"bc\", \"label\": 0}\n")
                              .native(),
                          "bytes", folder);
  const auto opened = open(config, {.classes = 2});
  INFO(to_text(opened.problems));
  REQUIRE(opened.dataset);
  Sample sample;
  opened.dataset->read(0, sample);
  CHECK(sample.input_ids == Ids{'a', 'b'});
  CHECK(sample.labels == Ids{-100, 1});
  opened.dataset->read(1, sample);
  CHECK(sample.input_ids == Ids{'a', 'b', 'c'});
  CHECK(sample.labels == Ids{-100, -100, 0});
  // The cache of one number of classes is not taken for another's.
  CHECK(open(config, {.classes = 1}).problems.size() == 1);

  config.seq_length = 2;
  CHECK(open(config, {.classes = 2}).problems.at(0).id == "sequence-too-long");
  config.truncation = true;
  open(config, {.classes = 2}).dataset->read(1, sample);
  CHECK(sample.input_ids == Ids{'a', 'b'});
  CHECK(sample.labels == Ids{-100, 0});  // a cut row keeps its class

  config = config_of(folder.write("llama.jsonl", "{\"review\": \"hello\", \"stars\": 1}\n").native(),
                     kGolden + "/tokenizer/llama3", folder);
  config.column_mapping = std::map<std::string, std::string>{{"text", "review"}, {"label", "stars"}};
  const auto named = open(config, {.classes = 2});
  INFO(to_text(named.problems));
  REQUIRE(named.dataset);
  named.dataset->read(0, sample);
  Ids text;
  Diagnostics problems;
  const auto own = tokenizer::Tokenizer::load(kGolden + "/tokenizer/llama3", problems);
  REQUIRE(own);
  tokenizer::Encoder(*own).encode("hello", true, text);
  CHECK(sample.input_ids == text);

  // What pads rows is passed over at their ends too: it is saved as the model's pad token.
  const auto pad = own->role("pad_token").value_or(std::string(own->role("eos_token").value_or("")));
  config = config_of(folder.write("ends.jsonl", fmt::format("{{\"text\": \"hello{}\", \"label\": 1}}\n", pad)).native(),
                     kGolden + "/tokenizer/llama3", folder);
  const auto ends = open(config, {.classes = 2});
  REQUIRE(ends.dataset);
  ends.dataset->read(0, sample);
  REQUIRE(sample.input_ids.back() == ends.dataset->padding().id);
  CHECK(sample.labels.back() == kIgnoredLabel);
  CHECK(sample.labels.at(sample.labels.size() - 2) == 1);
}

TEST_CASE("NeMo AutoModel's sets of classes take a text or a pair of sentences, and cut them", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("train.jsonl",
               "{\"text\": \"hello there\", \"sentence1\": \"h\", \"sentence2\": \"e\", \"label\": 1}\n"
               "{\"text\": \"a\", \"sentence1\": \"a\", \"sentence2\": \"b\", \"label\": 0}\n");
  DatasetContext context{.classes = 2, .model_folder = kGolden + "/tokenizer/llama3"};
  const auto open_set = [&](auto config) {
    config.path_or_dataset = folder.path().native();
    config.cache = false;
    Opened out;
    out.dataset = open_dataset(config, context, out.problems);
    return out;
  };
  Sample text, pair;
  std::vector<std::string> said;
  log::set_listener([&](std::string_view line) { said.emplace_back(line); });
  const auto imdb = open_set(config::ImdbDatasetConfig());
  log::set_listener({});
  CHECK(said.empty());  // no turn ends in a class
  INFO(to_text(imdb.problems));
  REQUIRE(imdb.dataset);
  REQUIRE(imdb.dataset->size() == 2);
  imdb.dataset->read(0, text);
  Ids labels(text.input_ids.size(), kIgnoredLabel);
  labels.back() = 1;
  CHECK(text.labels == labels);
  config::MrpcDatasetConfig mrpc;
  mrpc.name = std::nullopt;
  const auto pairs = open_set(mrpc);
  INFO(to_text(pairs.problems));
  REQUIRE(pairs.dataset);
  pairs.dataset->read(0, pair);
  // Each sentence by itself: "he" is one token.
  Diagnostics problems;
  const auto own = tokenizer::Tokenizer::load(kGolden + "/tokenizer/llama3", problems);
  REQUIRE(own);
  Ids apart = own->surround().before;
  for (const auto* part : {"h", "e"}) tokenizer::Encoder(*own).encode(part, false, apart);
  Ids joined;
  tokenizer::Encoder(*own).encode("he", true, joined);
  CHECK(pair.input_ids == apart);
  CHECK(apart != joined);
  CHECK(std::count(pair.labels.begin(), pair.labels.end(), kIgnoredLabel) == std::ssize(pair.labels) - 1);
  CHECK(pair.labels.back() == 1);

  config::YelpDatasetConfig first;
  first.num_samples_limit = 1;
  first.max_length = 1;
  const auto cut = open_set(first);
  REQUIRE(cut.dataset);
  CHECK(cut.dataset->size() == 1);
  cut.dataset->read(0, text);
  CHECK(text.labels == Ids{1});
  context.classes = 1;
  const auto refused = open_set(config::ImdbDatasetConfig());
  REQUIRE(refused.problems.size() == 1);
  CHECK(refused.problems[0].id == "bad-row");
  CHECK(refused.problems[0].message.find("the label is 1") != std::string::npos);
}

TEST_CASE("a row of text without a class of the model is refused with its place", "[data]") {
  const auto problem = [](const std::string& row) {
    const test::TemporaryFolder folder;
    const auto opened = open(config_of(folder.write("rows.jsonl", row).native(), "bytes", folder), {.classes = 2});
    REQUIRE(opened.problems.size() == 1);
    CHECK(opened.problems[0].id == "bad-row");
    CHECK(opened.problems[0].where.line == 1);
    CHECK_FALSE(opened.problems[0].help.empty());
    return opened.problems[0].message;
  };
  CHECK(problem("{\"text\": \"a\"}") == "the row has no integer 'label'");
  CHECK(problem("{\"text\": \"a\", \"label\": \"x\"}") == "the row has no integer 'label'");
  CHECK(problem("{\"text\": \"a\", \"label\": 2}") == "the label is 2; the model has 2 classes");
  CHECK(problem("{\"text\": \"a\", \"label\": -1}") == "the label is -1; the model has 2 classes");
  CHECK(problem("{\"text\": \"a\", \"label\": 18446744073709551615}") ==
        "the label is 2147483647; the model has 2 classes");
  CHECK(problem("{\"text_a\": \"a\", \"label\": 1}") ==
        "the row has neither a string 'text' nor strings 'text_a' and 'text_b'");
  CHECK(problem("{\"text\": \"a\", \"text_a\": \"a\", \"label\": 1}") == "the row has both 'text' and 'text_a'");
  CHECK(problem("{\"text\": \"\", \"label\": 1}") == "the row has no token");
}

TEST_CASE("instructions and conversations get the recorded token ids and labels", "[data]") {
  const test::TemporaryFolder cache;
  for (const std::string name : {"llama2", "llama3", "qwen2"}) {
    const auto recorded = golden::load("chat/expected_" + name + ".json");
    for (const auto& [file, key] : {std::pair("instruct.jsonl", "rows"), std::pair("chat_multi.jsonl", "multi")}) {
      const auto opened = open(config_of(kGolden + "/chat/" + file, kGolden + "/tokenizer/" + name, cache));
      INFO(name << " " << to_text(opened.problems));
      REQUIRE(opened.dataset);
      REQUIRE(opened.dataset->size() == static_cast<std::int64_t>(recorded[key].size()));
      Sample sample;
      for (std::int64_t i = 0; i < opened.dataset->size(); ++i) {
        opened.dataset->read(i, sample);
        const auto& row = recorded[key][static_cast<std::size_t>(i)];
        REQUIRE(sample.input_ids == row["input_ids"].get<Ids>());
        REQUIRE(unshifted(sample) == row["labels"].get<Ids>());
        REQUIRE(opened.dataset->length(i) == static_cast<std::int64_t>(sample.input_ids.size()));
      }
    }
  }
}

TEST_CASE("packed rows match those of transformers' flattening collator", "[data]") {
  const test::TemporaryFolder cache;
  const auto recorded = golden::load("chat/packed_llama3.json");
  const auto opened = open(config_of(kGolden + "/chat/instruct.jsonl", kGolden + "/tokenizer/llama3", cache));
  REQUIRE(opened.dataset);
  config::PackedSequenceConfig packing;
  packing.packed_sequence_size = 240;
  Diagnostics problems;
  const auto packed = pack(opened.dataset, packing, 1, "packed_sequence", problems);
  REQUIRE(packed);
  Sample sample;
  packed->read(0, sample);
  const auto& ids = recorded["input_ids"][0];
  const auto& labels = recorded["labels"][0];
  REQUIRE(sample.input_ids == ids.get<Ids>());
  CHECK(sample.positions == recorded["position_ids"][0].get<Ids>());
  Ids segments;
  const auto bounds = recorded["cu_seq_lens_q"].get<Ids>();
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i)
    segments.insert(segments.end(), static_cast<std::size_t>(bounds[i + 1] - bounds[i]),
                    static_cast<std::int32_t>(i + 1));
  CHECK(sample.segments == segments);
  CHECK(unshifted(sample) == labels.get<Ids>());
}

TEST_CASE("prompts count in the loss if the recipe says so", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("a.jsonl", "{\"prompt\": \"Hi\", \"response\": \"You\"}\n");
  auto config = config_of((folder.path() / "a.jsonl").native(), "bytes", folder);
  Sample sample;
  auto opened = open(config);
  REQUIRE(opened.dataset);
  opened.dataset->read(0, sample);
  CHECK(sample.input_ids == Ids{'H', 'i', 'Y', 'o', 'u', 257});
  CHECK(sample.labels == Ids{-100, 'Y', 'o', 'u', 257, -100});
  config.mask_prompt = false;
  opened = open(config);
  opened.dataset->read(0, sample);
  CHECK(sample.labels == Ids{'i', 'Y', 'o', 'u', 257, -100});
  CHECK(opened.dataset->padding().id == 258);
}

TEST_CASE("conversations in which nothing ends a turn are warned about, once", "[data]") {
  const test::TemporaryFolder cache;
  cache.write("open.jinja",
              "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"
              "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}");
  const auto warnings = [&](const std::optional<std::string>& chat, bool quiet) {
    auto config = config_of(kGolden + "/chat/chat_multi.jsonl", kGolden + "/tokenizer/qwen2", cache);
    config.chat_template = chat;
    std::vector<std::string> lines;
    log::set_listener([&](std::string_view line) { lines.emplace_back(line); });
    const auto opened = open(config, {.key = "dataset", .quiet = quiet});
    log::set_listener({});
    INFO(to_text(opened.problems));
    REQUIRE(opened.dataset);
    return lines;
  };
  CHECK(warnings(std::nullopt, false).empty());  // Qwen's own ends turns with <|im_end|>
  CHECK(warnings("chatml", false).empty());
  const auto lines = warnings((cache.path() / "open.jinja").native(), false);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find("no-end-of-turn") != std::string::npos);
  CHECK(lines[0].find("<|im_end|>") != std::string::npos);
  CHECK(warnings((cache.path() / "open.jinja").native(), true).empty());
}

TEST_CASE("tools of a conversation are rendered, and calls that the template leaves out are refused", "[data]") {
  const test::TemporaryFolder folder;
  const auto opened_with = [&](const std::string& more, const std::string& chat) {
    folder.write("a.jsonl", R"({"tools": [{"name": "f"}], "messages": [{"role": "user", "content": "q"}, )"
                            R"({"role": "assistant", "content": "a")" +
                                more + "}]}\n");
    auto config = config_of((folder.path() / "a.jsonl").native(), kGolden + "/tokenizer/qwen2", folder);
    config.chat_template = chat == "chatml" ? chat : folder.write("chat.jinja", chat).native();
    return open(config);
  };
  const std::string calls = R"(, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}])";
  const std::string begin = "{% if tools %}{{ tools[0]['name'] }}{% endif %}{% for m in messages %}{{ m['content'] }}";
  CHECK(opened_with("", begin + "{% endfor %}").dataset->length(0) == 3);
  CHECK(opened_with(calls, begin + "{% if m['tool_calls'] %}#{% endif %}{% endfor %}").dataset->length(0) == 4);
  for (const auto& more : {calls, std::string(R"(, "weight": 0)")})
    CHECK(opened_with(more, "chatml").problems.size() == 1);
}

TEST_CASE("a conversation of more turns than anyone has is refused before they are rendered again for each", "[data]") {
  const test::TemporaryFolder folder;
  const auto opened_with = [&](int messages) {
    std::string row = "{\"messages\": [";
    for (int i = 0; i < messages; ++i)
      row += fmt::format("{}{{\"role\": \"{}\", \"content\": \"b\"}}", i == 0 ? "" : ", ",
                         i % 2 == 0 ? "user" : "assistant");
    folder.write("a.jsonl", row + "]}\n");
    auto config = config_of((folder.path() / "a.jsonl").native(), kGolden + "/tokenizer/qwen2", folder);
    config.chat_template = "chatml";
    return open(config);
  };
  CHECK(opened_with(200).dataset);
  const auto opened = opened_with(3'000);
  REQUIRE(opened.problems.size() == 1);
  CHECK(opened.problems[0].message.starts_with("the conversation has too many messages"));
}

TEST_CASE("columns with other names are mapped by column_mapping", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("a.jsonl", "{\"q\": \"Hi\", \"a\": \"You\"}\n");
  auto config = config_of((folder.path() / "a.jsonl").native(), "bytes", folder);
  config.column_mapping = {{"prompt", "q"}, {"response", "a"}};
  CHECK(open(config).dataset);
  config.column_mapping = {{"promt", "q"}};
  CHECK(open(config).problems.at(0).help == "did you mean 'prompt'?");
}

TEST_CASE("text columns that are not used are reported", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("a.jsonl",
               "{\"instruction\": \"add\", \"input\": \"1 2\", \"output\": \"3\", \"id\": 7}\n"
               "{\"instruction\": \"say hi\", \"input\": \"\", \"output\": \"hi\", \"id\": 8}\n");
  auto config = config_of((folder.path() / "a.jsonl").native(), "bytes", folder);
  config.column_mapping = {{"prompt", "instruction"}, {"response", "output"}};
  const auto said = [&] { return open(config).dataset->summary(); };
  CHECK(said().ends_with("; columns not used: input"));
  CHECK(said().ends_with("; columns not used: input"));  // also if the tokens come from the cache
  config.column_mapping = {{"prompt", "input"}, {"response", "output"}};
  CHECK(said().ends_with("; columns not used: instruction"));
}

TEST_CASE("the errors for conversations without a chat template name the key to set only once", "[data]") {
  const test::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 3; ++i) text += "{\"messages\": [{\"role\": \"assistant\", \"content\": \"b\"}]}\n";
  folder.write("a.jsonl", text);
  const auto opened = open(config_of((folder.path() / "a.jsonl").native(), "bytes", folder));
  REQUIRE(opened.problems.size() == 3);
  CHECK(opened.problems[0].help.starts_with("chat_template: FILE"));
  CHECK(opened.problems[1].help.empty());
  CHECK(opened.problems[2].help.empty());
}

TEST_CASE("bad rows are reported with file and line, and skipped up to the limit", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("a.jsonl",
               "{\"prompt\": \"a\", \"response\": \"b\"}\n"
               "{\"prompt\": \"a\"}\n"
               "\n"
               "{\"prompt\": \"a\", \"response\": \n"
               "[1]\n"
               "{\"messages\": [{\"role\": \"assistant\", \"content\": \"b\"}]}\n"
               "{\"prompt\": \"a\", \"response\": \"toolong\"}\n");
  auto config = config_of((folder.path() / "a.jsonl").native(), "bytes", folder);
  config.seq_length = 8;
  auto opened = open(config);
  CHECK(!opened.dataset);
  REQUIRE(opened.problems.size() == 5);
  const std::vector<int> lines = {2, 4, 5, 6, 7};
  for (std::size_t i = 0; i < lines.size(); ++i) CHECK(opened.problems[i].where.line == lines[i]);
  CHECK(opened.problems[0].message == "the row has neither 'messages' nor a string 'response'");
  CHECK(opened.problems[1].message == "the line is not JSON");
  CHECK(opened.problems[3].message == "conversations need a chat template, and the tokenizer has none");
  CHECK(opened.problems[4].id == "sequence-too-long");
  config.max_bad_rows = 4;
  opened = open(config);
  REQUIRE(opened.problems.size() == 6);
  CHECK(opened.problems.back().help == "max_bad_rows allows 4");
  config.max_bad_rows = 5;
  opened = open(config, {.quiet = true});
  REQUIRE(opened.dataset);
  CHECK(opened.dataset->size() == 1);
  CHECK(opened.dataset->summary() == "jsonl: 1 rows, 3 tokens, 2 labels, 5 bad rows left out");
  CHECK(files_in(folder.path()) == 0);  // the bad rows must be reported again next time
  config.truncation = true;
  CHECK(open(config, {.quiet = true}).dataset->size() == 2);
}

TEST_CASE("cached tokens are keyed by the content of files, tokenizer and options", "[data]") {
  const test::TemporaryFolder folder;
  const test::TemporaryFolder cache;
  folder.write("a.jsonl", "{\"prompt\": \"a\", \"response\": \"b\"}\n");
  auto config = config_of((folder.path() / "a.jsonl").native(), kGolden + "/tokenizer/llama3", cache);
  Sample first, second;
  open(config).dataset->read(0, first);
  CHECK(files_in(cache.path()) == 1);
  open(config).dataset->read(0, second);
  CHECK(first.input_ids == second.input_ids);
  CHECK(files_in(cache.path()) == 1);
  config.mask_prompt = false;
  open(config);
  CHECK(files_in(cache.path()) == 2);
  folder.write("a.jsonl", "{\"prompt\": \"a\", \"response\": \"c\"}\n");
  open(config).dataset->read(0, second);
  CHECK(first.input_ids != second.input_ids);
  CHECK(files_in(cache.path()) == 3);
  config.tokenizer = kGolden + "/tokenizer/qwen2";
  open(config);
  CHECK(files_in(cache.path()) == 4);
  // Truncated cache files are made again.
  for (const auto& entry : std::filesystem::directory_iterator(cache.path()))
    if (entry.path().extension() == ".tokens") std::filesystem::resize_file(entry.path(), 40);
  CHECK(open(config).dataset);
  config.cache = false;
  config.cache_dir = "/nowhere";
  CHECK(open(config).dataset);
}

TEST_CASE("a damaged token store is not opened", "[data]") {
  const test::TemporaryFolder folder;
  {
    TokenStoreWriter writer(folder.path() / "x.tokens", true);
    writer.add(Ids{1, 2, 3}, Ids{2, 3, -100});
    writer.add(Ids{4}, Ids{-100});
    const auto store = writer.finish(true);
    CHECK(store.rows() == 2);
    CHECK(store.tokens() == 4);
    CHECK(store.labels(0)[1] == 3);
    CHECK(store.ids(1)[0] == 4);
  }
  std::ifstream stream(folder.path() / "x.tokens", std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(stream), {}};
  REQUIRE(TokenStore::open(folder.path() / "x.tokens"));
  for (std::size_t at = 0; at < 32; ++at) {  // every byte of the header counts
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x7F);
    folder.write("x.tokens", bad);
    CHECK(!TokenStore::open(folder.path() / "x.tokens"));
  }
  folder.write("x.tokens", good.substr(0, good.size() - 1));
  CHECK(!TokenStore::open(folder.path() / "x.tokens"));
  CHECK(!TokenStore::open(folder.path() / "y.tokens"));
}

TEST_CASE("rows are packed in order, or longest first with the neat strategy", "[data]") {
  const test::TemporaryFolder folder;
  std::string rows;
  for (const int length : {5, 3, 4, 2, 6, 9})
    rows += "{\"input_ids\": [" + std::string("1") + [&] {
      std::string out;
      for (int i = 1; i < length; ++i) out += "," + std::to_string(i + 1);
      return out;
    }() + "]}\n";
  folder.write("rows.jsonl", rows);
  config::TokensDatasetConfig config;
  config.paths = config::PathList{{(folder.path() / "rows.jsonl").native()}};
  config.pad_token_id = 77;
  Diagnostics problems;
  const std::shared_ptr<const Dataset> data = open_dataset(config, {}, problems);
  REQUIRE(data);
  const auto lengths = [&](const config::PackedSequenceConfig& packing) {
    std::string out;
    const auto packed = pack(data, packing, 1, "packed_sequence", problems);
    INFO(to_text(problems));
    REQUIRE(packed);
    Sample sample;
    for (std::int64_t i = 0; i < packed->size(); ++i) {
      packed->read(i, sample);
      out += "|";
      for (std::size_t t = 0; t < sample.segments.size(); ++t)
        out += sample.segments[t] == 0 ? '.' : static_cast<char>('0' + sample.segments[t]);
    }
    return out;
  };
  config::PackedSequenceConfig packing;
  packing.packed_sequence_size = 9;
  CHECK(lengths(packing) == "|11111222|111122|111111|111111111");
  packing.packing_strategy = config::PackingStrategy::kNeat;
  CHECK(lengths(packing) == "|111111111|111111222|111112222|11");
  packing.packed_sequence_size = 12;
  CHECK(lengths(packing) == "|111111111|11111122222|111122233");
  packing.packed_sequence_size = 9;
  packing.max_packs = 2;
  CHECK(lengths(packing) == "|111111111|111111222");
  packing = {};
  packing.packed_sequence_size = 12;
  packing.pad_to_multiple_of = 4;
  CHECK(lengths(packing) ==
        "|11111...222.|1111"
        "22.."
        "|111111..|111111111...");
  packing.packed_sequence_size = 8;
  packing.drop_long_samples = false;
  CHECK(!pack(data, packing, 1, "packed_sequence", problems));
  CHECK(problems.at(0).id == "sequence-too-long");
  packing.drop_long_samples = true;
  CHECK(lengths(packing) == "|11111...|111.2222|11..|111111..");
  packing = {};
  packing.packed_sequence_size = 9;
  packing.pretokenize = true;
  CHECK(lengths(packing) == "|111111111|111111222|111112222|11");
  packing.max_length = 5;
  CHECK(lengths(packing) == "|111112222|11122");
  packing.drop_long_samples = false;
  CHECK(!pack(data, packing, 1, "packed_sequence", problems));
  CHECK(problems.back().key == "packed_sequence.max_length");
  packing.drop_long_samples = true;
  packing.max_length = std::nullopt;
  packing.packing_ratio = 0.7;  // 6 tokens
  CHECK(lengths(packing) == "|111111|11111|1111|11122");
}

}  // namespace automodel::data
