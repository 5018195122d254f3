#include "checkpoint/format/shard_index.h"

#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/format/safetensors.h"

namespace automodel::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostIndexProblems = 20;
constexpr const char* kShape = R"(an index is {"metadata": {...}, "weight_map": {tensor: file, ...}})";

/// Handles the parse events of {"metadata": {"total_size": n, ...}, "weight_map": {name: file}}; other keys are
/// ignored.
class IndexReader : public nlohmann::json_sax<Json> {
 public:
  IndexReader(std::string_view file, Diagnostics& problems) : file_(file), problems_(problems) {}

  ShardIndex index;
  bool has_map = false;

  bool start_object(std::size_t) override {
    if (depth_ == 0 && !done_) return ++depth_, true;
    if (depth_ == 1 && top_ == "weight_map") {
      if (has_map) add("index-duplicate", "weight_map appears twice");
      has_map = true;
    } else if (depth_ == 2 && top_ == "weight_map") {
      return wrong("an object");
    }
    return ++depth_, true;
  }
  bool end_object() override {
    done_ = --depth_ == 0;
    return true;
  }
  bool start_array(std::size_t) override {
    return depth_ == 0 || (top_ == "weight_map" && depth_ <= 2) ? wrong("a list") : (++depth_, true);
  }
  bool end_array() override { return --depth_, true; }
  bool key(std::string& text) override {
    (depth_ == 1 ? top_ : key_) = text;
    return true;
  }
  bool string(std::string& text) override {
    if (depth_ == 0 || (depth_ == 1 && top_ == "weight_map")) return wrong("a text");
    if (depth_ != 2 || top_ != "weight_map") return true;
    const std::filesystem::path path(text);
    bool inside = !text.empty() && path.is_relative() && path.has_filename() && text.find('\0') == std::string::npos &&
                  text.find('\\') == std::string::npos;
    for (const auto& part : path) inside = inside && part != "..";
    if (!inside)
      add("index-path",
          fmt::format("tensor '{}' is said to be in '{}'", printable(key_, kMostShown), printable(text, kMostShown)),
          "files of a model must be inside its folder");
    else if (!index.files.emplace(key_, text).second)
      add("index-duplicate", fmt::format("tensor '{}' appears twice in weight_map", printable(key_, kMostShown)));
    return true;
  }
  bool number_unsigned(std::uint64_t value) override {
    if (depth_ == 2 && top_ == "metadata" && key_ == "total_size") index.total_size = value;
    return scalar(std::to_string(value));
  }
  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("a boolean"); }
  bool number_integer(std::int64_t value) override { return scalar(std::to_string(value)); }
  bool number_float(double, const std::string& text) override { return scalar(text); }
  bool binary(Json::binary_t&) override { return wrong("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    add("index-syntax", fmt::format("byte {}: {}", position, printable(error.what(), kMostShown)));
    return false;
  }

  void add(ProblemId id, std::string message, std::string help = kShape) {
    if (count_++ < kMostIndexProblems)
      problems_.add(id).says(std::move(message)).hint(std::move(help)).at({file_, 0, 0});
  }
  bool ok() const { return count_ == 0; }

 private:
  bool scalar(std::string_view what) {
    return depth_ == 0 || (depth_ <= 2 && top_ == "weight_map") ? wrong(what) : true;
  }
  bool wrong(std::string_view what) {
    add("index-syntax", fmt::format("the index has {} at '{}'", what, printable(depth_ < 2 ? top_ : key_, kMostShown)));
    return false;
  }

  std::string file_;
  Diagnostics& problems_;
  std::size_t count_ = 0;
  std::size_t depth_ = 0;
  bool done_ = false;
  std::string top_, key_;
};

}  // namespace

std::optional<ShardIndex> parse_shard_index(std::string_view text, std::string_view file, Diagnostics& problems) {
  IndexReader reader(file, problems);
  const bool parsed = Json::sax_parse(text.begin(), text.end(), &reader);
  if (parsed && !reader.has_map) reader.add("index-syntax", "there is no weight_map");
  if (!reader.ok()) return std::nullopt;
  return std::move(reader.index);
}

std::string to_json(const ShardIndex& index) {
  Json out;
  out["metadata"]["total_size"] = index.total_size.value_or(0);
  out["weight_map"] = index.files;
  return out.dump(2) + "\n";
}

std::string shard_name(std::string_view stem, std::size_t number, std::size_t count) {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", stem, number, count);
}

}  // namespace automodel::checkpoint
