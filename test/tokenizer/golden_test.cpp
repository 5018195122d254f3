// Every recorded string of Hugging Face's tokenizers: ids and decoded text.
#include <cstdlib>
#include <fstream>

#include <catch2/catch.hpp>

#include "golden_file.h"
#include "golden_folder.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer.h"

namespace automodel::tokenizer {
namespace {

using Ids = std::vector<Id>;

const std::vector<std::string> kNames = {"gpt2", "llama2", "llama2_metaspace", "llama3", "qwen2"};

std::unique_ptr<const Tokenizer> open_golden(const std::string& name) {
  Diagnostics problems;
  auto out = Tokenizer::load(automodel::golden_folder() + "/tokenizer/" + name, problems);
  INFO(to_text(problems));
  REQUIRE(out);
  return out;
}

/// The ids of a row's text, without and with special tokens.
std::pair<Ids, Ids> ids_of(Encoder& encoder, const nlohmann::json& row) {
  const auto text = row["text"].get<std::string>();
  std::pair<Ids, Ids> out;
  encoder.encode(text, false, out.first);
  encoder.encode(text, true, out.second);
  return out;
}

void check_ids(Encoder& encoder, const nlohmann::json& row) {
  const auto [ids, special] = ids_of(encoder, row);
  CHECK(ids == row["ids"].get<Ids>());
  CHECK(special == row.value("ids_with_special", row["ids"]).get<Ids>());
}

void check_text(const Tokenizer& tokenizer, const nlohmann::json& row) {
  const auto ids = row["ids"].get<Ids>();
  CHECK(tokenizer.decode(ids, false) == row["decode"].get<std::string>());
  CHECK(tokenizer.decode(ids, true) == row.value("decode_skip", row["decode"]).get<std::string>());
}

}  // namespace

TEST_CASE("recorded strings encode to the recorded ids, with and without special tokens", "[tokenizer]") {
  for (const auto& name : kNames) {
    const auto tokenizer = open_golden(name);
    Encoder encoder(*tokenizer);
    const auto cases = golden::load("tokenizer/" + name + "/cases.json");
    REQUIRE(cases["strings"].size() == 240);
    for (const auto& row : cases["strings"]) {
      INFO(name << ": " << row["text"].get<std::string>());
      check_ids(encoder, row);
    }
  }
}

TEST_CASE("recorded ids decode to the recorded text", "[tokenizer]") {
  for (const auto& name : kNames) {
    const auto tokenizer = open_golden(name);
    const auto cases = golden::load("tokenizer/" + name + "/cases.json");
    for (const auto& row : cases["strings"]) {
      INFO(name << ": " << row["text"]);
      check_text(*tokenizer, row);
    }
    REQUIRE(cases["decode_cases"].size() == 40);
    for (const auto& row : cases["decode_cases"]) {
      const auto ids = row["ids"].get<Ids>();
      INFO(name << ": " << row["ids"]);
      CHECK(tokenizer->decode(ids, false) == row["text"].get<std::string>());
      CHECK(tokenizer->decode(ids, true) == row["text_skip"].get<std::string>());
    }
  }
}

TEST_CASE("LlamaTokenizer is read as transformers builds it, where the model's type does not say otherwise",
          "[tokenizer]") {
  const auto recorded = golden::load("tokenizer/llama2/classes.json");
  const auto file = golden::load("tokenizer/llama2/tokenizer.json").dump();
  REQUIRE(recorded["cases"].size() == 13);
  for (const auto& row : recorded["cases"]) {
    Diagnostics problems;
    TokenizerFiles files{.tokenizer = file, .config = row["config"].dump()};
    if (!row["model"].is_null()) files.model = row["model"].dump();
    const auto tokenizer = Tokenizer::parse(files, problems);
    INFO(row["model"] << " " << row["config"] << to_text(problems));
    REQUIRE(tokenizer);
    CHECK(tokenizer->as_llama() == (row["padding_side"] == "left"));
    Encoder encoder(*tokenizer);
    for (std::size_t i = 0; i < recorded["texts"].size(); ++i) {
      INFO(recorded["texts"][i]);
      Ids ids;
      encoder.encode(recorded["texts"][i].get<std::string>(), false, ids);
      CHECK(ids == row["ids"][i].get<Ids>());
      CHECK(tokenizer->decode(ids, false) == row["decoded"][i].get<std::string>());
    }
  }
}

TEST_CASE("texts are normalized and split into the recorded pieces", "[tokenizer]") {
  for (const auto& name : kNames) {
    const auto document = golden::load("tokenizer/" + name + "/tokenizer.json");
    Diagnostics problems;
    const JsonPart part(document, "", "tokenizer.json", problems);
    const auto normalizer = Normalizer::read(part.at("normalizer"));
    const auto pre_tokenizer = PreTokenizer::read(part.at("pre_tokenizer"));
    REQUIRE(problems.empty());
    PatternMatcher matcher;
    for (const auto& row : golden::load("tokenizer/" + name + "/cases.json")["pretokenized"]) {
      auto text = row["text"].get<std::string>();
      INFO(name << ": " << text);
      normalizer.apply(text, matcher);
      CHECK(text == row["normalized"].get<std::string>());
      std::vector<std::string> pieces;
      pre_tokenizer.run({text, true}, matcher, [&](const Piece& piece) {
        pieces.push_back(pre_tokenizer.byte_level() ? characters_of(piece.text) : std::string(piece.text));
      });
      auto recorded = row["pieces"].get<std::vector<std::string>>();
      std::erase(recorded, "");
      CHECK(pieces == recorded);
    }
  }
}

TEST_CASE("an encoder gives the same ids whatever it has encoded before", "[tokenizer]") {
  for (const auto& name : kNames) {
    const auto tokenizer = open_golden(name);
    Encoder old(*tokenizer);
    Ids ids;
    // More pieces than the encoder remembers.
    std::string text;
    for (int i = 0; i < 120'000; ++i) text += " w" + std::to_string(i * 7919 % 1'000'003);
    old.encode(text, false, ids);
    for (const auto& row : golden::load("tokenizer/" + name + "/cases.json")["strings"]) {
      ids.clear();
      old.encode(row["text"].get<std::string>(), false, ids);
      REQUIRE(ids == row["ids"].get<Ids>());
    }
  }
}

// --- models other than byte-pair encoding (test/golden/tokenizer/record_pieces.py)

TEST_CASE("Unigram and WordPiece models give the recorded ids and texts", "[tokenizer]") {
  for (const char* name : {"unigram", "unigram_bytes", "bert", "bert_cased"}) {
    const auto tokenizer = open_golden(name);
    Encoder encoder(*tokenizer);
    const auto cases = golden::load(std::string("tokenizer/") + name + "/cases.json");
    REQUIRE(cases["strings"].size() == 20);
    for (const auto& row : cases["strings"]) {
      INFO(name << ": " << row["text"].get<std::string>());
      check_ids(encoder, row);
      check_text(*tokenizer, row);
    }
  }
}

TEST_CASE("tokenizer.model gives the ids of the sentencepiece library", "[tokenizer]") {
  for (const char* name : {"spm_bpe", "spm_unigram"}) {
    const auto tokenizer = open_golden(name);
    Encoder encoder(*tokenizer);
    const auto cases = golden::load(std::string("tokenizer/") + name + "/cases.json");
    REQUIRE(cases["strings"].size() == 19);
    for (const auto& row : cases["strings"]) {
      INFO(name << ": " << row["text"].get<std::string>());
      auto [ids, special] = ids_of(encoder, row);
      CHECK(ids == row["ids"].get<Ids>());
      ids.insert(ids.begin(), cases["bos"].get<Id>());
      CHECK(special == ids);
    }
  }
}

// --- tokenizers drawn at random (test/golden/tokenizer/record_random.py; another file: AUTOMODEL_TOKENIZERS=FILE)

TEST_CASE("tokenizers drawn at random give the ids and texts of Hugging Face's libraries, or are refused",
          "[tokenizer]") {
  const char* other = std::getenv("AUTOMODEL_TOKENIZERS");
  std::ifstream file(other != nullptr ? other : automodel::golden_folder() + "/tokenizer/random.jsonl");
  int files = 0, read = 0;
  for (std::string line; std::getline(file, line); ++files) {
    const auto row = nlohmann::ordered_json::parse(line);
    TokenizerFiles parts{.tokenizer = row["file"].dump(), .folder = "f"};
    if (row.contains("config")) parts.config = row["config"].dump();
    if (row.contains("map")) parts.special_map = row["map"].dump();
    if (row.contains("older")) parts.added = row["older"].dump();
    Diagnostics problems;
    const auto tokenizer = Tokenizer::parse(parts, problems);
    INFO(row["seed"] << to_text(problems));
    if (!tokenizer) {
      CHECK(!problems.empty());
      continue;
    }
    ++read;
    if (row.contains("roles"))
      for (const auto& [role, id] : row["roles"].items()) {
        INFO(role);
        const auto own = tokenizer->role_id(role);
        CHECK((own ? nlohmann::json(*own) : nlohmann::json()) == id);
      }
    Encoder encoder(*tokenizer);
    for (const auto& text : row["texts"]) {
      INFO(text["text"]);
      const auto [ids, special] = ids_of(encoder, text);
      CHECK(ids == text["ids"].get<Ids>());
      CHECK(special == text["special"].get<Ids>());
      CHECK(tokenizer->decode(ids, false) == text["decoded"].get<std::string>());
      CHECK(tokenizer->decode(ids, true) == text["skipped"].get<std::string>());
    }
  }
  CHECK(files >= 50);
  CHECK(read >= files * 4 / 5);
}

}  // namespace automodel::tokenizer
