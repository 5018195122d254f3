#include "checkpoint/format/safetensors.h"

#include <algorithm>
#include <limits>
#include <unordered_set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace automodel::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostProblems = 20;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;

/// Collects the problems of one file.
class Report {
 public:
  Report(std::string_view file, Diagnostics& problems) : file_(file), problems_(problems), first_(problems.size()) {}
  void add(ProblemId id, std::string message, std::string help) {
    ++count_;
    if (problems_.size() - first_ < kMostProblems)
      problems_.add(id).says(std::move(message)).hint(std::move(help)).at({file_, 0, 0});
  }
  bool ok() const { return count_ == 0; }

 private:
  std::string file_;
  Diagnostics& problems_;
  std::size_t first_;
  std::size_t count_ = 0;
};

constexpr const char* kBroken = "the file is damaged or is not a safetensors file; copy or download it again";

/// Handles the header's parse events one by one, so that nothing outside the format is materialized.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(Report& report) : report_(report) {}

  std::vector<TensorInfo> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;

  bool start_object(std::size_t) override {
    if (skipped_ > 0) return ++skipped_, true;
    if (place_ == Place::kStart) return enter(Place::kTop);
    if (place_ == Place::kOther) return skipped_ = 1, true;
    if (place_ != Place::kEntry) return wrong("an object");
    if (name_ == "__metadata__") return enter(Place::kMetadata);
    tensor_ = {.name = name_};
    has_type_ = has_shape_ = offsets_ = 0;
    return enter(Place::kTensor);
  }
  bool end_object() override {
    if (skipped_ > 0) return leave_skipped();
    if (place_ == Place::kTensor) finish_tensor();
    return enter(place_ == Place::kTop ? Place::kEnd : Place::kTop);
  }
  bool start_array(std::size_t) override {
    if (skipped_ > 0) return ++skipped_, true;
    if (place_ == Place::kShape || place_ == Place::kOffsets) return in_list_ ? wrong("a list") : (in_list_ = true);
    if (place_ == Place::kOther) return skipped_ = 1, true;
    return wrong("a list");
  }
  bool end_array() override {
    if (skipped_ > 0) return leave_skipped();
    in_list_ = false;
    if (place_ == Place::kShape) has_shape_ = 1;
    return enter(Place::kTensor);
  }
  bool key(std::string& text) override {
    if (skipped_ > 0) return true;
    name_ = text;
    if (place_ == Place::kTop) return enter(Place::kEntry);
    if (place_ == Place::kMetadata) return enter(Place::kText);
    if (text == "dtype") return enter(Place::kType);
    if (text == "shape") return tensor_.shape.clear(), enter(Place::kShape);
    if (text == "data_offsets") return offsets_ = 0, enter(Place::kOffsets);
    return enter(Place::kOther);
  }
  bool string(std::string& text) override {
    if (skipped_ > 0) return true;
    if (place_ == Place::kText) return metadata.emplace_back(name_, text), enter(Place::kMetadata);
    if (place_ == Place::kType) {
      if (const auto type = parse_element_type(text))
        tensor_.type = *type, has_type_ = 1;
      else
        report_.add("safetensors-dtype",
                    fmt::format("tensor '{}' has the type '{}'", printable(tensor_.name, kMostShown),
                                printable(text, kMostShown)),
                    "known: F64, F32, BF16, F16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL, C64, F8_*, F6_*, F4"),
            has_type_ = 2;
      return enter(Place::kTensor);
    }
    return scalar("a text");
  }
  bool number_unsigned(std::uint64_t value) override {
    if (skipped_ > 0) return true;
    if (in_list_ && value <= kMostBytes) {
      if (place_ == Place::kShape) return tensor_.shape.push_back(static_cast<std::int64_t>(value)), true;
      (offsets_ == 0 ? tensor_.begin : tensor_.end) = value;
      return ++offsets_ <= 2 || wrong("a third offset");
    }
    return scalar(std::to_string(value));
  }
  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("a boolean"); }
  bool number_integer(std::int64_t value) override { return scalar(std::to_string(value)); }
  bool number_float(double, const std::string& text) override { return scalar(text); }
  bool binary(Json::binary_t&) override { return wrong("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    const std::string_view text = error.what();
    report_.add("safetensors-header",
                fmt::format("the header is not JSON: byte {}: {}", 8 + position, printable(text, kMostShown)), kBroken);
    return false;
  }

  /// Whether the text held exactly one complete object.
  bool complete() const { return place_ == Place::kEnd; }

 private:
  enum class Place { kStart, kTop, kEntry, kMetadata, kText, kTensor, kType, kShape, kOffsets, kOther, kEnd };

  bool enter(Place place) {
    place_ = place;
    return true;
  }
  bool leave_skipped() {
    if (--skipped_ == 0) enter(Place::kTensor);
    return true;
  }
  /// Handles a scalar value, expected or not.
  bool scalar(std::string_view what) {
    if (skipped_ > 0) return true;
    if (place_ == Place::kOther) return enter(Place::kTensor);
    return wrong(what);
  }
  bool wrong(std::string_view what) {
    const bool top = place_ == Place::kStart;
    report_.add("safetensors-header",
                top ? fmt::format("the header is {}, not an object", what)
                    : fmt::format("the header has {} at '{}'", what, printable(name_, kMostShown)),
                "a tensor is {\"dtype\": text, \"shape\": list, \"data_offsets\": [begin, end]}");
    return false;
  }
  void finish_tensor() {
    if (has_type_ == 0 || has_shape_ == 0 || offsets_ != 2)
      report_.add("safetensors-header",
                  fmt::format("tensor '{}' has no {}", printable(tensor_.name, kMostShown),
                              has_type_ == 0    ? "dtype"
                              : has_shape_ == 0 ? "shape"
                                                : "two data_offsets"),
                  "a tensor is {\"dtype\": text, \"shape\": list, \"data_offsets\": [begin, end]}");
    else if (has_type_ == 1)
      tensors.push_back(std::move(tensor_));
  }

  Report& report_;
  Place place_ = Place::kStart;
  std::string name_;
  TensorInfo tensor_;
  int has_type_ = 0;  ///< 2: unknown type
  int has_shape_ = 0;
  int offsets_ = 0;
  int skipped_ = 0;  ///< nesting depth inside an unknown key
  bool in_list_ = false;
};

void check_tensors(std::vector<TensorInfo>& tensors, std::uint64_t data_size, Report& report) {
  std::unordered_set<std::string_view> names;
  for (const auto& tensor : tensors) {
    if (!names.insert(tensor.name).second)
      report.add("safetensors-duplicate",
                 fmt::format("tensor '{}' appears twice in the header", printable(tensor.name, kMostShown)), kBroken);
    const auto bytes = tensor_bytes(tensor.type, tensor.shape);
    if (tensor.begin > tensor.end)
      report.add("safetensors-offsets",
                 fmt::format("tensor '{}' ends at offset {} before it begins at {}", printable(tensor.name, kMostShown),
                             tensor.end, tensor.begin),
                 kBroken);
    else if (!bytes || *bytes != tensor.bytes())
      report.add("safetensors-shape",
                 fmt::format("tensor '{}' is {} ({}) but has {} bytes at offset {}", printable(tensor.name, kMostShown),
                             describe(tensor), bytes ? fmt::format("{} bytes", *bytes) : "not a whole number of bytes",
                             tensor.bytes(), tensor.begin),
                 kBroken);
  }
  if (!report.ok()) return;
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t at = 0;
  for (const auto& tensor : tensors) {
    if (tensor.begin != at) {
      report.add("safetensors-offsets",
                 fmt::format("tensor '{}' begins at offset {}, {} the end of the one before it, {}",
                             printable(tensor.name, kMostShown), tensor.begin,
                             tensor.begin < at ? "inside, before" : "after", at),
                 "the tensors' bytes must follow each other without gap or overlap; the file is damaged");
      return;
    }
    at = tensor.end;
  }
  if (at != data_size)
    report.add(
        "safetensors-truncated",
        fmt::format("the header promises {} bytes of data{}, the file has {}", at,
                    tensors.empty() ? "" : fmt::format(" (up to '{}')", printable(tensors.back().name, kMostShown)),
                    data_size),
        at > data_size ? "the file is cut off; copy or download it again"
                       : "bytes follow the last tensor; copy or download the file again");
}

}  // namespace

std::int64_t TensorInfo::elements() const {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::int64_t count = 1;
  for (const auto size : shape) count *= size;
  return count;
}

std::string describe(const TensorInfo& tensor) {
  return fmt::format("{} [{}]", name_of(tensor.type), fmt::join(tensor.shape, ", "));
}

std::optional<std::uint64_t> tensor_bytes(ElementType type, const std::vector<std::int64_t>& shape) {
  // Check for zero sizes first: the other sizes can then be arbitrarily large.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::uint64_t elements = 1;
  for (const auto size : shape) {
    if (size < 0 || elements > kMostBytes / static_cast<std::uint64_t>(size)) return std::nullopt;
    elements *= static_cast<std::uint64_t>(size);
  }
  const auto bits = static_cast<std::uint64_t>(bits_of(type));
  if (elements > kMostBytes / bits || elements * bits % 8 != 0) return std::nullopt;
  return elements * bits / 8;
}

std::optional<std::uint64_t> header_length(std::string_view head, std::uint64_t file_size, std::string_view file,
                                           Diagnostics& problems) {
  Report report(file, problems);
  if (head.size() < 8) {
    report.add("safetensors-truncated", fmt::format("the file has {} bytes; its header alone takes 8", file_size),
               "the file is cut off; copy or download it again");
    return std::nullopt;
  }
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = (length << 8) | static_cast<unsigned char>(head[static_cast<std::size_t>(i)]);
  if (length > kLongestHeader) {
    report.add("safetensors-header",
               fmt::format("the header claims to have {} bytes; at most {} are allowed", length, kLongestHeader),
               kBroken);
    return std::nullopt;
  }
  if (length < 2 || file_size < 8 || length > file_size - 8) {
    report.add(
        "safetensors-truncated",
        fmt::format("the header claims to have {} bytes, the file has {} after its first 8", length, file_size - 8),
        "the file is cut off or is not a safetensors file; copy or download it again");
    return std::nullopt;
  }
  return length;
}

std::optional<SafetensorsHeader> parse_header(std::string_view json, std::uint64_t file_size, std::string_view file,
                                              Diagnostics& problems) {
  Report report(file, problems);
  if (json.empty() || json.front() != '{') {
    report.add("safetensors-header", "the header does not begin with '{'", kBroken);
    return std::nullopt;
  }
  HeaderReader reader(report);
  const bool parsed = Json::sax_parse(json.begin(), json.end(), &reader);
  if (parsed && !reader.complete()) report.add("safetensors-header", "the header is cut off", kBroken);
  if (!report.ok()) return std::nullopt;
  const std::uint64_t data_begin = 8 + json.size();
  check_tensors(reader.tensors, file_size - data_begin, report);
  if (!report.ok()) return std::nullopt;
  return SafetensorsHeader{std::move(reader.tensors), std::move(reader.metadata), data_begin, file_size};
}

SafetensorsLayout lay_out(std::vector<TensorInfo> tensors,
                          const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    const int left = bits_of(a.type), right = bits_of(b.type);
    return left != right ? left > right : a.name < b.name;
  });
  SafetensorsLayout out;
  const auto quoted = [](const std::string& text) { return Json(text).dump(); };
  std::string json = R"({"__metadata__":{"format":"pt")";
  for (const auto& [key, value] : metadata) json += fmt::format(",{}:{}", quoted(key), quoted(value));
  json += "}";
  std::uint64_t at = 0;
  for (auto& tensor : tensors) {
    tensor.begin = at;
    tensor.end = at += tensor_bytes(tensor.type, tensor.shape).value();
    json += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", quoted(tensor.name),
                        name_of(tensor.type), fmt::join(tensor.shape, ","), tensor.begin, tensor.end);
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  for (std::size_t i = 0; i < 8; ++i) out.head += static_cast<char>(json.size() >> (8 * i) & 0xFFU);
  out.head += json;
  out.tensors = std::move(tensors);
  out.file_size = out.head.size() + at;
  return out;
}

}  // namespace automodel::checkpoint
