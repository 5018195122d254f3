#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <random>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "golden_file.h"
#include "temporary_folder.h"
#include "tokenizer/token_spans.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {
namespace {

using Ids = std::vector<Id>;
using nlohmann::json;

/// A file with the letters a, b, c, ... and their merges.
json small() {
  return json::parse(R"({"added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
    "decoder": null, "model": {"type": "BPE", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2, "c": 3, "ab": 4,
    "bc": 5, "abc": 6}, "merges": ["b c", "a b", "ab c"]}})");
}

Diagnostics problems_of(const json& file) {
  Diagnostics problems;
  CHECK(!Tokenizer::parse({.tokenizer = file.dump(), .folder = "f"}, problems));
  return problems;
}

Ids ids_of(const json& file, const std::string& text, bool special = false) {
  Diagnostics problems;
  const auto tokenizer = Tokenizer::parse({.tokenizer = file.dump(), .folder = "f"}, problems);
  INFO(to_text(problems));
  REQUIRE(tokenizer);
  Ids out;
  Encoder(*tokenizer).encode(text, special, out);
  return out;
}

std::string nfc(std::string_view text) {
  std::string out;
  append_nfc(text, out);
  return out;
}

}  // namespace

TEST_CASE("added tokens take the white space at the sides that they name", "[tokenizer]") {
  auto file = small();
  file["model"]["vocab"][" "] = 7;
  const auto ids = [&](bool left, bool right, const std::string& text) {
    file["added_tokens"] = {{{"id", 8},
                             {"content", "<x>"},
                             {"single_word", false},
                             {"lstrip", left},
                             {"rstrip", right},
                             {"normalized", false},
                             {"special", true}}};
    return ids_of(file, text);
  };
  CHECK(ids(false, false, "a <x> b") == Ids{1, 7, 8, 7, 2});
  CHECK(ids(false, true, "a <x>  b") == Ids{1, 7, 8, 2});
  CHECK(ids(true, false, "a  <x> b") == Ids{1, 8, 7, 2});
  CHECK(ids(true, true, "<x> <x>") == Ids{8, 8});
  CHECK(ids(false, true, "a<x> ") == Ids{1, 8});
}

TEST_CASE("the fingerprint follows the tokens that begin and end texts", "[tokenizer]") {
  // Caches of tokenized rows are kept by it, and such rows begin or end with these tokens.
  const auto fingerprint = [](const std::string& config) {
    Diagnostics problems;
    const auto tokenizer = Tokenizer::parse({.tokenizer = small().dump(), .config = config, .folder = "f"}, problems);
    INFO(to_text(problems));
    REQUIRE(tokenizer);
    return tokenizer->fingerprint();
  };
  const auto ends_with_c = fingerprint(R"({"eos_token": "c"})");
  CHECK(fingerprint(R"({"eos_token": "c"})") == ends_with_c);
  CHECK(fingerprint(R"({"eos_token": "b"})") != ends_with_c);
  CHECK(fingerprint(R"({"bos_token": "c"})") != ends_with_c);
  CHECK(fingerprint("{}") != ends_with_c);
}

TEST_CASE("BPE applies the merge of lowest rank first, and the leftmost of equal ones", "[tokenizer]") {
  CHECK(ids_of(small(), "abc") == Ids{1, 5});
  auto file = small();
  file["model"]["merges"] = {"a b", "b c", "ab c"};
  CHECK(ids_of(file, "abc") == Ids{6});
  file["model"]["vocab"]["aa"] = 7;
  file["model"]["merges"].push_back("a a");
  CHECK(ids_of(file, "aaa") == Ids{7, 1});
}

TEST_CASE("long pieces are merged in the same way as short ones", "[tokenizer]") {
  // The same text, in one piece and in pieces that are short enough for the other algorithm.
  auto file = golden::load("tokenizer/llama2/tokenizer.json");
  Diagnostics problems;
  const auto whole = Tokenizer::parse({.tokenizer = file.dump(), .folder = ""}, problems);
  file["model"]["ignore_merges"] = true;  // words are not cut then
  const auto uncut = Tokenizer::parse({.tokenizer = file.dump(), .folder = ""}, problems);
  REQUIRE((whole && uncut));
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "the rain in Spain, 12\n"[random() % 22];
    Ids a, b;
    Encoder(*whole).encode(text, false, a);
    Encoder(*uncut).encode(text, false, b);
    REQUIRE(a == b);
  }
}

TEST_CASE("unknown characters become unknown tokens, one each or fused into one", "[tokenizer]") {
  CHECK(ids_of(small(), "xya") == Ids{0, 0, 1});
  auto file = small();
  file["model"]["fuse_unk"] = true;
  CHECK(ids_of(file, "xya") == Ids{0, 1});
  file["model"]["unk_token"] = nullptr;
  CHECK(ids_of(file, "xya") == Ids{1});
}

TEST_CASE("invalid UTF-8 is read as U+FFFD", "[tokenizer]") {
  auto file = small();
  file["model"]["vocab"]["\xEF\xBF\xBD"] = 9;
  CHECK(ids_of(file, "a\xF0\x9F\x98z\xFF") == Ids{1, 9, 0, 9});
}

TEST_CASE("all unsupported parts of a tokenizer file are reported at once", "[tokenizer]") {
  auto file = small();
  file["normalizer"] = {{"type", "NFKC"}};
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {{{"type", "UnicodeScripts"}}}}};
  file["decoder"] = {{"type", "CTC"}};
  file["post_processor"] = {{"type", "X"}};
  file["model"]["type"] = "WordLevel";
  const auto problems = problems_of(file);
  REQUIRE(problems.size() == 5);
  CHECK(problems[0].message == "normalizer: the normalizer 'NFKC' is not supported");
  CHECK(problems[1].message == "pre_tokenizer.pretokenizers[0]: the pre_tokenizer 'UnicodeScripts' is not supported");
  CHECK(problems[4].message == "model: the model 'WordLevel' is not supported");
  CHECK(problems[4].help.find("Unigram") != std::string::npos);
  for (const auto& problem : problems) CHECK(problem.id == "bad-tokenizer");
}

TEST_CASE("broken tokenizer files are reported with their location", "[tokenizer]") {
  Diagnostics problems;
  CHECK(!Tokenizer::parse({.tokenizer = "{\n  \"model\": ?}", .folder = "f"}, problems));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].where.file == "f/tokenizer.json");
  CHECK(problems[0].where.line == 2);
  const auto message = [](const std::string& pointer, const json& value) {
    auto file = small();
    file[json::json_pointer(pointer)] = value;
    const auto found = problems_of(file);
    return found.empty() ? "" : found[0].message;
  };
  CHECK(message("/model", nullptr) == "model: the model is missing");
  CHECK(message("/model/vocab/a", -1).find("the id of 'a' is -1") != std::string::npos);
  CHECK(message("/model/vocab/a", 2'000'000'000).find("lie between 0 and") != std::string::npos);
  CHECK(message("/model/merges/0", "b  c").find("two tokens with a space") != std::string::npos);
  CHECK(message("/model/merges/0", "b x").find("not in the vocabulary") != std::string::npos);
  CHECK(message("/model/dropout", 0.1).find("random") != std::string::npos);
  const auto added = [](int count, std::size_t bytes) {
    auto out = json::array();
    for (int i = 0; i < count; ++i)
      out.push_back({{"content", std::string(bytes, 'a') + std::to_string(i)}, {"id", 7 + i}});
    return out;
  };
  CHECK(message("/added_tokens", added(1, 1000)).find("an added token of more than 1000 bytes") != std::string::npos);
  CHECK(message("/added_tokens", added(2500, 990)).find("the added tokens have more than") != std::string::npos);
  CHECK(message("/added_tokens", added(100'001, 1)).find("a list of more than 100000 items") != std::string::npos);
  CHECK(message("/post_processor",
                {{"type", "TemplateProcessing"},
                 {"single", json::array({{{"SpecialToken", {{"id", "a"}}}}, {{"Sequence", {{"id", "A"}}}}})},
                 {"special_tokens", {{"a", {{"ids", json(std::vector<int>(257, 1))}}}}}})
            .find("more than 256 tokens stand around a text") != std::string::npos);
  CHECK(message("/normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "("}}}, {"content", ""}})
            .find("the pattern cannot be used") != std::string::npos);
}

TEST_CASE("a folder without a usable tokenizer is refused", "[tokenizer]") {
  const test::TemporaryFolder folder;
  Diagnostics problems;
  CHECK(!Tokenizer::load(folder.path(), problems));
  folder.write("tokenizer.model", "x");
  CHECK(!Tokenizer::load(folder.path(), problems));
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].id == "missing-file");
  CHECK(problems[1].id == "bad-tokenizer");
  CHECK(problems[1].message == "the file is not a SentencePiece model");
  const auto refusal = [&] {
    Diagnostics own;
    CHECK(!Tokenizer::load(folder.path(), own));
    return own.size() == 1 ? own[0].message : to_text(own);
  };
  folder.write("tokenizer.json", std::string(2'000'000, '['));
  CHECK(refusal() == "the file nests more than 100 levels");
  std::filesystem::resize_file(folder.path() / "tokenizer.json", std::uintmax_t{1} << 40);
  CHECK(refusal() == "it has more than 67108864 bytes");
  folder.write("tokenizer.json", small().dump());
  const auto deep = folder.write("tokenizer_config.json",
                                 "{\"a\": " + std::string(3'000'000, '[') + std::string(3'000'000, ']') + "}");
  CHECK(refusal() == "the file nests more than 100 levels");
  std::filesystem::remove(deep);
  std::filesystem::resize_file(folder.write("chat_template.jinja", ""), std::uintmax_t{1} << 40);
  CHECK(refusal() == "it has more than 16777216 bytes");
}

TEST_CASE("broken Unigram and WordPiece models are reported with their location", "[tokenizer]") {
  const auto message = [](const json& model, const json& normalizer = nullptr) {
    auto file = small();
    file["model"] = model;
    file["normalizer"] = normalizer;
    file["added_tokens"] = json::array();
    const auto found = problems_of(file);
    return found.empty() ? "" : found[0].message;
  };
  const auto good = json::parse(R"({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["a", -1.5]]})");
  const auto with = [](json model, const char* key, const json& value) {
    model[key] = value;
    return model;
  };
  CHECK(message(with(good, "vocab", json::array())) == "model.vocab: a list of tokens and scores is expected");
  CHECK(message(with(good, "vocab", json::array({json::array({"a", -1}), "b"}))) ==
        "model.vocab: item 1 is not a token with a score");
  CHECK(message(with(good, "unk_id", 2)).starts_with("model.unk_id: "));
  CHECK(message({{"type", "WordPiece"}, {"vocab", {{"a", 0}}}}) == "model.unk_token: '[UNK]' is not in the vocabulary");
  const auto words = json::parse(R"({"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1}})");
  CHECK(message(with(words, "max_input_chars_per_word", 1001)).starts_with("model.max_input_chars_per_word: "));
  CHECK(message(with(words, "continuing_subword_prefix", std::string(65, '#'))) ==
        "model.continuing_subword_prefix: it is longer than any");
  CHECK(message(good, {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}) ==
        "normalizer.precompiled_charsmap: it is not a table compiled by SentencePiece");
  auto bytes = small();
  bytes["model"] = good;
  bytes["added_tokens"] = json::array();
  bytes["pre_tokenizer"] = {{"type", "ByteLevel"}};
  CHECK(problems_of(bytes).at(0).message == "model: Unigram does not work on bytes");
}

TEST_CASE("a character without a token is an error if there is no unknown token", "[tokenizer]") {
  auto file = small();
  file["model"] = json::parse(R"({"type": "Unigram", "vocab": [["a", -1.5]]})");
  file["added_tokens"] = json::array();
  CHECK(ids_of(file, "aa") == Ids{0, 0});
  CHECK_THROWS_AS(ids_of(file, "ab"), Error);
}

TEST_CASE("token roles and the chat template come from tokenizer_config.json", "[tokenizer]") {
  auto file = small();
  file["added_tokens"] = {{{"id", 10}, {"content", "<s>"}, {"special", true}}};
  Diagnostics problems;
  const auto tokenizer =
      Tokenizer::parse({.tokenizer = file.dump(),
                        .config = R"({"bos_token": {"content": "<s>"}, "eos_token": "abc", "pad_token": null,
                     "chat_template": [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}],
                     "added_tokens_decoder": {"12": {"content": "<x>", "special": true}}})",
                        .folder = ""},
                       problems);
  INFO(to_text(problems));
  REQUIRE(tokenizer);
  // Hugging Face's libraries count on from the seven tokens of the model, whatever ids the files give.
  CHECK(tokenizer->role_id("bos_token") == 7);
  CHECK(tokenizer->role_id("eos_token") == 6);
  CHECK(!tokenizer->role_id("pad_token"));
  CHECK(tokenizer->chat_template() == "d");
  CHECK(tokenizer->vocab_size() == 9);
  Ids ids;
  Encoder(*tokenizer).encode("a<x>", false, ids);
  CHECK(ids == Ids{1, 8});
}

TEST_CASE("special_tokens_map.json counts where tokenizer_config.json does not list the added tokens", "[tokenizer]") {
  const auto eos = [](std::optional<std::string> config) {
    Diagnostics problems;
    const auto tokenizer = Tokenizer::parse({.tokenizer = small().dump(),
                                             .config = std::move(config),
                                             .special_map = R"({"eos_token": {"content": "ab", "lstrip": false}})"},
                                            problems);
    REQUIRE(tokenizer);
    return tokenizer->role_id("eos_token").value_or(-1);
  };
  CHECK(eos(std::nullopt) == 4);
  CHECK(eos(R"({"eos_token": "bc"})") == 4);
  CHECK(eos(R"({"eos_token": "bc", "added_tokens_decoder": {}})") == 5);
}

TEST_CASE("an older folder's added_tokens.json follows the tokens of tokenizer.model", "[tokenizer]") {
  const test::TemporaryFolder folder;
  const auto from = automodel::golden_folder() + "/tokenizer/spm_bpe/tokenizer.model";
  std::filesystem::copy_file(from, folder.path() / "tokenizer.model");

  folder.write("added_tokens.json", R"({"[PAD]": 420})");
  folder.write("special_tokens_map.json", R"({"pad_token": "[PAD]"})");
  Diagnostics problems;
  const auto tokenizer = Tokenizer::load(folder.path(), problems);
  INFO(to_text(problems));
  REQUIRE(tokenizer);
  CHECK(tokenizer->role_id("pad_token") == 420);
  CHECK(tokenizer->vocab_size() == 421);
  CHECK(tokenizer->decode(Ids{420}, true).empty());
}

TEST_CASE("added tokens of every file are bounded, also in their normal forms", "[tokenizer]") {
  const auto refusal = [](json file, const json& added) {
    Diagnostics problems;
    try {
      Tokenizer::parse({.tokenizer = file.dump(), .added = added.dump()}, problems);
    } catch (const Error& error) {
      return error.problems().front().message;
    }
    return problems.empty() ? "" : problems[0].message;
  };
  json many = json::object();
  for (int i = 0; i < 2500; ++i) many[std::string(900, 'a') + std::to_string(i)] = 7 + i;
  CHECK(refusal(small(), {{std::string(1001, 'a'), 7}}).find("an added token of more than 1000 bytes") !=
        std::string::npos);
  CHECK(refusal(small(), many).find("the added tokens have more than") != std::string::npos);
  auto growing = small();
  growing["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "t"}}}, {"content", std::string(4000, 'x')}};
  CHECK(refusal(growing, {{"t1", 7}}) == "");
  CHECK(refusal(growing, {{"t1", 7}, {"t2", 8}}).find("the normalizer makes more than") != std::string::npos);
}

TEST_CASE("an empty list of extra special tokens leaves the older list in place", "[tokenizer]") {
  const auto ids = [](const char* config) {
    Diagnostics problems;
    const auto tokenizer = Tokenizer::parse({.tokenizer = small().dump(), .config = config}, problems);
    REQUIRE(tokenizer);
    Ids out;
    Encoder(*tokenizer).encode("abc", false, out);
    return out;
  };
  CHECK(ids("{}") == Ids{1, 5});
  CHECK(ids(R"({"additional_special_tokens": ["ab"], "extra_special_tokens": []})") == Ids{4, 3});
  CHECK(ids(R"({"additional_special_tokens": ["ab"], "extra_special_tokens": ["b"]})") == Ids{1, 2, 3});
}

TEST_CASE("a token whose place in the text cannot be told is refused rather than guessed", "[tokenizer]") {
  Diagnostics problems;
  const auto tokenizer = Tokenizer::parse({.tokenizer = small().dump()}, problems);
  REQUIRE(tokenizer);
  const auto spans = [&](const std::string& text) {
    Ids ids;
    Encoder(*tokenizer).encode(text, false, ids);
    return token_spans(*tokenizer, text, ids);
  };
  const auto known = spans("abca");
  CHECK(known.at(1).begin == 1);
  CHECK_THROWS_WITH(
      spans("axb"),
      Catch::Contains("the place of the token '?' in a text, which {% generation %} needs, cannot be told"));
  auto dropping = small();
  dropping["model"]["unk_token"] = nullptr;
  const auto other = Tokenizer::parse({.tokenizer = dropping.dump()}, problems);
  CHECK_THROWS_AS(token_spans(*other, "axb", Ids{1, 2}), Error);
  CHECK(token_spans(*other, "a b", Ids{1, 2}).at(1).begin == 2);
}

TEST_CASE("NFC and NFD compose, decompose and reorder combining marks", "[tokenizer]") {
  CHECK(nfc("e\u0301") == "\u00e9");
  CHECK(nfc("q\u0307\u0323") == "q\u0323\u0307");
  CHECK(nfc("\u1112\u1161\u11ab") == "\ud55c");
  CHECK(nfc("\u212b") == "\u00c5");
  CHECK(nfc("a\u0315\u0300\u05ae\u0062") == "\u00e0\u05ae\u0315\u0062");
  CHECK(nfc("plain") == "plain");
  std::string out;
  append_nfd("\u00e9\ud55c", out);
  CHECK(out == "e\u0301\u1112\u1161\u11ab");
}

TEST_CASE("steps behind ByteLevel see the characters of its alphabet, as Falcon's", "[tokenizer]") {
  auto file = small();
  file["model"]["vocab"] = {{"1", 0}, {"12", 1}, {"\u0120", 2}, {"\u01201", 3}, {"a", 4}, {"!", 5}};
  file["model"]["merges"] = {"1 2", "\u0120 1"};
  file["model"]["vocab"]["2"] = 6;
  file["model"]["unk_token"] = nullptr;
  file["pre_tokenizer"] = json::parse(R"({"type": "Sequence", "pretokenizers": [
    {"type": "Punctuation", "behavior": "Contiguous"},
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    {"type": "Digits", "individual_digits": false},
    {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": false}]})");
  CHECK(ids_of(file, "a 12!") == Ids{4, 2, 1, 5});
  file["pre_tokenizer"]["pretokenizers"].push_back({{"type", "Metaspace"}});
  CHECK(problems_of(file)[0].message.find("Metaspace may not follow ByteLevel") != std::string::npos);
}

TEST_CASE("patterns are interpreted as by Oniguruma", "[tokenizer]") {
  const auto found = [](const std::string& pattern, const std::string& text) {
    std::string problem;
    const auto made = Pattern::make(pattern, problem);
    INFO(problem);
    REQUIRE(made);
    PatternMatcher matcher;
    const auto match = matcher.find(*made, text, 0);
    return match ? text.substr(match->begin, match->end - match->begin) : "none";
  };
  CHECK(found("\\p{N}{1,3}+", "1234567") == "1234567");  // the interval repeats
  CHECK(found("(ab){1,2}+c", "xabababc") == "abababc");
  CHECK(found("a{,2}b", "aaab") == "aab");
  CHECK(found("\\p{N}?+1", "1") == "none");            // this one is possessive
  CHECK(found("\\w+", "\u2460b\u00bd") == "b\u00bd");  // circled digits are none of its word characters,
  CHECK(found("[\\w]+", "\u00bdb") == "b");            // and fractions only outside brackets
  CHECK(found("\\b.", "\u2460b") == "b");
  CHECK(found("[[:punct:]]", "a\U0001f600") == "\U0001f600");
  CHECK(found("\\p{Han}+", "\u3002\u4f60\U00031350a") == "\u4f60\U00031350");  // not the full stop that Han shares
  CHECK(found("[a-z&&[^b]&&\\w]+", "b1acb") == "ac");
  CHECK(found("[^[a-c]\\d]", "b1d") == "d");
  CHECK(found("\\s", "\u180e") == "none");
  CHECK(found("[^\\s]", " \u180e") == "\u180e");
  CHECK(found("\\h+", "xyzcafe") == "cafe");
  CHECK(found("x$", "x\ny") == "x");
  CHECK(found("\\p{L}+", "\U0002EBF0") == "\U0002EBF0");
  CHECK(found("[^\\p{L}]", "\U0002EBF0!") == "!");
  CHECK(found("\\P{L}", "\U0002EBF0!") == "!");
  // Negated sets within brackets, as the tokenizers library matches them.
  CHECK(found("[\\S\\d]+", " a\u180e\u200b1\u2007") == "a\u180e\u200b1");
  CHECK(found("[^\\S\\n]+", "\n\u180e \u1680x") == " \u1680");
  CHECK(found("[\\W]+", "a\u24b6b\u0301c_d\U0001f130\u203f-!e") == "-!");
  CHECK(found("[^\\W_]+", "-_\u203fa\u24b6\u0301_") == "\u203fa\u24b6\u0301");
  CHECK(found("[\\D]+", "1\u0663\u00b2a2") == "\u00b2a");
  CHECK(found("[\\H]+", "aFz-9") == "z-");
  CHECK(found("[^a-c\\W\\D]+", "ab1_\u0663\u00b2") == "1");
  CHECK(found("[-\\P{L}\\S]{2}", "x\t-\U0002EBF0") == "x\t");
  CHECK(found("[\\P{L}-]+", "\U0002EBF0-1") == "-1");
  CHECK(found("[^\\P{L}]+", "!\U0002EBF0") == "\U0002EBF0");
  for (const char* bad : {"[a&&b]", "[a[b]]", "[a", "\\", "\\p", "a{2", "(", "[[:alpha:"}) {
    std::string problem;
    CHECK((Pattern::make(bad, problem).has_value() || !problem.empty()));
  }
}

}  // namespace automodel::tokenizer
