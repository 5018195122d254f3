// Headers, files, folders and indices: valid ones are read exactly, invalid ones are reported with the fault.
#include "checkpoint/format/safetensors.h"

#include <algorithm>
#include <numeric>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "checkpoint/format/elements.h"
#include "checkpoint/format/shard_index.h"
#include "checkpoint/format/tensor_folder.h"
#include "checkpoint/raw_file.h"
#include "temporary_folder.h"

using namespace automodel;
using namespace automodel::checkpoint;
using automodel::test::bytes_of;
using automodel::test::raw_safetensors;
using automodel::test::TemporaryFolder;

namespace {

const std::string kTwoTensors =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]},)"
    R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})";

std::string text_of(const Diagnostics& problems) {
  std::string out;
  for (const auto& problem : problems) out += std::string(problem.id) + ": " + problem.message + "\n";
  return out;
}

/// The ids and messages of the problems of a file with this header and this much data.
std::string problems_of(const std::string& header, std::size_t data_bytes) {
  Diagnostics problems;
  const auto parsed = parse_header(header, 8 + header.size() + data_bytes, "x.safetensors", problems);
  CHECK(parsed.has_value() == problems.empty());
  for (const auto& problem : problems) CHECK(problem.where.file == "x.safetensors");
  return text_of(problems);
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

}  // namespace

TEST_CASE("A header's tensors are sorted by data offset, whatever their order in the JSON") {
  Diagnostics problems;
  const auto header = parse_header(kTwoTensors, 8 + kTwoTensors.size() + 12, "x", problems);
  INFO(text_of(problems));
  REQUIRE(header);
  REQUIRE(header->tensors.size() == 2);
  CHECK(header->tensors[0] == TensorInfo{"a", ElementType::kF32, {1, 2}, 0, 8});
  CHECK(header->tensors[1] == TensorInfo{"b", ElementType::kBF16, {2}, 8, 12});
  CHECK(header->metadata == std::vector<std::pair<std::string, std::string>>{{"format", "pt"}});
  CHECK(header->data_begin == 8 + kTwoTensors.size());
}

TEST_CASE("Scalars, empty tensors and padding after the header are read") {
  CHECK(problems_of(one("F32", "[]", "[0,4]"), 4).empty());
  CHECK(problems_of(one("F32", "[3,0,9223372036854775807]", "[0,0]"), 0).find("safetensors-header") == 0);
  CHECK(problems_of(one("F32", "[3,0,4611686018427387904]", "[0,0]"), 0).empty());
  CHECK(problems_of(one("I64", "[1]", "[0,8]") + "     ", 8).empty());
  CHECK(problems_of("{}", 0).empty());
}

TEST_CASE("A malformed header is refused with the tensor and offset at fault") {
  struct Row {
    std::string header;
    std::size_t data;
    std::string id, says;
  };
  const std::vector<Row> rows = {
      {"[]", 0, "safetensors-header", "does not begin with '{'"},
      {"{\"t\":", 0, "safetensors-header", "not JSON"},
      {"{\"t\":3}", 0, "safetensors-header", "the header has 3 at 't'"},
      {"{} {}", 0, "safetensors-header", "not JSON"},
      {one("F33", "[1]", "[0,4]"), 4, "safetensors-dtype", "tensor 't' has the type 'F33'"},
      {one("F32", "[2]", "[0,4]"), 4, "safetensors-shape", "'t' is F32 [2] (8 bytes) but has 4 bytes at offset 0"},
      {one("F4", "[3]", "[0,2]"), 2, "safetensors-shape", "not a whole number of bytes"},
      {one("F32", "[4611686018427387904,8]", "[0,4]"), 4, "safetensors-shape", "not a whole number"},
      {one("F32", "[-1]", "[0,4]"), 4, "safetensors-header", "the header has -1 at"},
      {one("F32", "[1.5]", "[0,4]"), 4, "safetensors-header", "the header has 1.5 at"},
      {one("F32", "[1]", "[4,0]"), 4, "safetensors-offsets", "ends at offset 0 before it begins at 4"},
      {one("F32", "[1]", "[0,4,8]"), 4, "safetensors-header", "third offset"},
      {one("F32", "[1]", "[0]"), 4, "safetensors-header", "no two data_offsets"},
      {one("F32", "[1]", "[4,8]"), 8, "safetensors-offsets", "'t' begins at offset 4, after the end"},
      {one("F32", "[1]", "[0,4]"), 3, "safetensors-truncated", "promises 4 bytes of data (up to 't'), the file has 3"},
      {one("F32", "[1]", "[0,4]"), 5, "safetensors-truncated", "the file has 5"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
       6, "safetensors-offsets", "'b' begins at offset 2, inside"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "safetensors-duplicate", "'a' appears twice"},
      {R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, "safetensors-header", "'a' has no dtype"},
      {R"({"__metadata__":{"format":3}})", 0, "safetensors-header", "the header has 3 at"},
  };
  for (const auto& row : rows) {
    INFO(row.header);
    const auto text = problems_of(row.header, row.data);
    INFO(text);
    CHECK(text.find(row.id + ": ") == 0);
    CHECK(text.find(row.says) != std::string::npos);
  }
}

TEST_CASE("A header length that the file does not have is refused before anything is allocated") {
  Diagnostics problems;
  CHECK_FALSE(header_length(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8), 100, "x", problems));
  CHECK_FALSE(header_length(std::string("\x00\x00\x10\x00\x00\x00\x00\x00", 8), 100, "x", problems));
  CHECK_FALSE(header_length("abc", 3, "x", problems));
  REQUIRE(problems.size() == 3);
  CHECK(problems[0].id == "safetensors-header");
  CHECK(problems[1].id == "safetensors-truncated");
  CHECK(problems[2].id == "safetensors-truncated");
}

TEST_CASE("A laid-out file is parsed back to the same tensors and metadata") {
  const auto layout = lay_out({{"norm", ElementType::kF32, {3}},
                               {"\"q\" \\ \u00e9", ElementType::kBF16, {2, 5}},
                               {"empty", ElementType::kF32, {0}},
                               {"ids", ElementType::kI64, {1}}},
                              {{"step", "7"}});
  CHECK(layout.head.size() % 8 == 0);
  Diagnostics problems;
  const auto header = parse_header(std::string_view(layout.head).substr(8), layout.file_size, "x", problems);
  INFO(text_of(problems));
  REQUIRE(header);
  CHECK(header->tensors == layout.tensors);
  CHECK(header->tensors.front().name == "ids");
  CHECK(header->metadata.back() == std::pair<std::string, std::string>{"step", "7"});
  CHECK(layout.file_size == layout.head.size() + 8 + 12 + 20);
}

TEST_CASE("Any range of a tensor's bytes can be read, but nothing beyond its end") {
  const TemporaryFolder folder;
  const auto path = folder.write(
      "model.safetensors", raw_safetensors(kTwoTensors, bytes_of<float>({1, 2}) + bytes_of<std::uint16_t>({3, 4})));
  Diagnostics problems;
  const auto file = TensorFile::open(path, problems);
  REQUIRE(file);
  float second = 0;
  file->read(*file->find("a"), 4, reinterpret_cast<char*>(&second), 4);
  CHECK(second == 2);
  std::uint16_t last = 0;
  file->read(*file->find("b"), 2, reinterpret_cast<char*>(&last), 2);
  CHECK(last == 4);
  CHECK(file->find("c") == nullptr);
  CHECK_THROWS_AS(file->read(*file->find("b"), 2, reinterpret_cast<char*>(&second), 4), InternalError);
}

TEST_CASE("A file truncated while it is open gives an error that names it, not a crash") {
  const TemporaryFolder folder;
  const auto path = folder.write(
      "model.safetensors", raw_safetensors(kTwoTensors, bytes_of<float>({1, 2}) + bytes_of<std::uint16_t>({3, 4})));
  Diagnostics problems;
  const auto file = TensorFile::open(path, problems);
  REQUIRE(file);
  std::filesystem::resize_file(path, 8 + kTwoTensors.size() + 4);
  char out[8];
  try {
    file->read(*file->find("a"), 0, out, 8);
    FAIL("read beyond the end");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kCheckpoint);
    CHECK(error.problems().front().message.find(path.native()) != std::string::npos);
  }
}

TEST_CASE("A file truncated at any byte is refused") {
  const TemporaryFolder folder;
  const std::string whole = raw_safetensors(kTwoTensors, std::string(12, 'x'));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto path = folder.write("cut.safetensors", whole.substr(0, size));
    Diagnostics problems;
    INFO(size);
    CHECK_FALSE(TensorFile::open(path, problems));
    REQUIRE_FALSE(problems.empty());
    CHECK(problems.front().where.file == path.native());
  }
}

TEST_CASE("A folder of several files is read as one table, and the index decides which file has a tensor") {
  const TemporaryFolder folder;
  folder.write("one.safetensors", raw_safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                                  R"("c":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                                  "14"));
  folder.write("two.safetensors", raw_safetensors(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                                  R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                                  "23"));
  const auto index = [&](const std::string& map) {
    folder.write("model.safetensors.index.json", R"({"metadata":{"total_size":2},"weight_map":)" + map + "}");
    Diagnostics problems;
    const auto opened = TensorFolder::open(folder.path(), "model", problems);
    CHECK(opened.has_value() == problems.empty());
    if (!opened) return text_of(problems);
    char value = 0;
    const auto stored = opened->find("a");
    stored.file->read(*stored.info, 0, &value, 1);
    return std::string(1, value);
  };
  CHECK(index(R"({"a":"one.safetensors","b":"two.safetensors"})") == "1");
  CHECK(index(R"({"a":"two.safetensors","b":"two.safetensors"})") == "3");
  CHECK(index(R"({"c":"one.safetensors","a":"two.safetensors","b":"two.safetensors"})") == "3");
  CHECK(index(R"({"a":"one.safetensors","b":"one.safetensors"})")
            .find("index-missing-tensor: 'one.safetensors' has no tensor 'b'") == 0);
  CHECK(index(R"({"a":"none.safetensors"})").find("cannot-read: ") == 0);
  CHECK(index(R"({"a":"../one.safetensors"})").find("index-path: ") == 0);
  CHECK(index(R"({"a":"/etc/passwd"})").find("index-path: ") == 0);
  CHECK(index(R"({"a":3})").find("index-syntax: ") == 0);
  CHECK(index(R"([])").find("index-syntax: ") == 0);
  CHECK(index(R"({"a":"one.safetensors","a":"two.safetensors"})").find("index-duplicate: ") == 0);
}

TEST_CASE("A folder without safetensors files is refused, with a note that pickles are not read") {
  const TemporaryFolder folder;
  Diagnostics problems;
  CHECK_FALSE(TensorFolder::open(folder.path(), "model", problems));
  folder.write("pytorch_model.bin", "x");
  CHECK_FALSE(TensorFolder::open(folder.path(), "model", problems));
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].id == "missing-weights");
  CHECK(problems[1].help.find("pickles") != std::string::npos);
}

TEST_CASE("Every half-precision value survives a round trip through float, and ties round to even") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const bool nan16 = (bits & 0x7C00U) == 0x7C00U && (bits & 0x3FFU) != 0;
    const bool nanb = (bits & 0x7F80U) == 0x7F80U && (bits & 0x7FU) != 0;
    if (!nan16 && to_f16(to_float_from_f16(half)) != half) ++wrong;
    if (!nanb && to_bf16(to_float_from_bf16(half)) != half) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(to_bf16(1.00390625F) == 0x3F80);  // halfway between 1 and the next value: rounds to even
  CHECK(to_bf16(1.01171875F) == 0x3F82);
  CHECK(to_f16(65519.0F) == 0x7BFF);
  CHECK(to_f16(65520.0F) == 0x7C00);
  CHECK(to_f16(0x1p-25F) == 0);
  CHECK(to_f16(0x1.8p-25F) == 1);
  CHECK(to_f16(0x1.002p0F) == 0x3C00);
  CHECK(to_f16(0x1.006p0F) == 0x3C02);
  const std::vector<double> values = {1.0, -2.5, 1e-8};
  std::vector<float> out(3);
  convert_elements(ElementType::kF64, reinterpret_cast<const char*>(values.data()), ElementType::kF32,
                   reinterpret_cast<char*>(out.data()), 3);
  CHECK(out == std::vector<float>{1.0F, -2.5F, 1e-8F});
}

TEST_CASE("More elements than are converted at a time keep their places") {
  std::vector<double> values(10000), back(values.size());
  std::iota(values.begin(), values.end(), 0.0);  // all of them float32 values
  std::vector<float> narrow(values.size());
  const auto count = static_cast<std::int64_t>(values.size());
  convert_elements(ElementType::kF64, reinterpret_cast<const char*>(values.data()), ElementType::kF32,
                   reinterpret_cast<char*>(narrow.data()), count);
  CHECK(std::equal(narrow.begin(), narrow.end(), values.begin()));
  convert_elements(ElementType::kF32, reinterpret_cast<const char*>(narrow.data()), ElementType::kF64,
                   reinterpret_cast<char*>(back.data()), count);
  CHECK(back == values);
}

TEST_CASE("Numbers of experts up to 512 survive every type of weights") {
  std::vector<std::int64_t> numbers(513);
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto count = static_cast<std::int64_t>(numbers.size());
  for (const auto type : {ElementType::kF64, ElementType::kF32, ElementType::kBF16, ElementType::kF16}) {
    std::string kept(numbers.size() * 8, '\0');
    convert_elements(ElementType::kI64, reinterpret_cast<const char*>(numbers.data()), type, kept.data(), count);
    std::vector<std::int64_t> back(numbers.size());
    convert_elements(type, kept.data(), ElementType::kI64, reinterpret_cast<char*>(back.data()), count);
    CHECK(back == numbers);
    std::vector<std::int32_t> small(numbers.size());
    convert_elements(type, kept.data(), ElementType::kI32, reinterpret_cast<char*>(small.data()), count);
    CHECK(std::equal(small.begin(), small.end(), numbers.begin()));
  }
}
