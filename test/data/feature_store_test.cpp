// Files of a tower's outputs: what is read back, and what is noticed when they are cut, changed or written at once.
#include "data/feature_store.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "temporary_folder.h"

namespace automodel::data {
namespace {

namespace fs = std::filesystem;

const pictures::PictureContent kFirst = {1, 2}, kSecond = {1, 3}, kThird = {4, 4};

void write(const fs::path& folder, const std::string& key,
           const std::vector<std::pair<pictures::PictureContent, std::string>>& pictures) {
  FeatureWriter writer(folder, key, 4);
  for (const auto& [picture, rows] : pictures) writer.add(picture, rows);
  writer.finish();
}

std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const auto& each : fs::directory_iterator(folder)) out.push_back(each.path());
  return out;
}

std::string id_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return std::string(error.problems().front().id.name());
  }
  return "";
}

}  // namespace

TEST_CASE("outputs of a tower are read as they were written, by key", "[data]") {
  const test::TemporaryFolder folder;
  write(folder.path(), "key", {{kFirst, "aaaabbbb"}, {kSecond, "cccc"}});
  write(folder.path(), "key", {{kThird, "dddd"}});
  write(folder.path(), "key2", {{kThird, "eeee"}});
  const FeatureStore store(folder.path(), "key"), other(folder.path(), "key2"), none(folder.path(), "ke");
  CHECK(store.pictures() == 3);
  CHECK(store.read(kFirst) == "aaaabbbb");
  CHECK(store.read(kSecond) == "cccc");
  CHECK(store.read(kThird) == "dddd");
  CHECK(other.read(kThird) == "eeee");
  CHECK(!other.has(kFirst));
  CHECK(none.pictures() == 0);
  CHECK(store.values(2) == 2);
  CHECK(store.damaged().empty());
  CHECK(bytes_of_features(folder.path()) > static_cast<double>(store.bytes()));
}

TEST_CASE("a file of outputs that is cut anywhere counts as missing", "[data]") {
  const test::TemporaryFolder folder;
  write(folder.path(), "key", {{kFirst, "aaaabbbb"}, {kSecond, "cccc"}});
  const auto file = files_of(folder.path()).front();
  const auto text = folder.read(file.filename().native());
  for (std::size_t size = 0; size < text.size(); ++size) {
    folder.write(file.filename().native(), text.substr(0, size));
    const FeatureStore store(folder.path(), "key");
    CHECK(store.pictures() == 0);
    CHECK(store.damaged() == std::vector{file});
  }
  write(folder.path(), "key", {{kFirst, "aaaabbbb"}, {kSecond, "cccc"}});  // takes the place of the damaged one
  CHECK(files_of(folder.path()).size() == 1);
  CHECK(FeatureStore(folder.path(), "key").read(kSecond) == "cccc");
}

TEST_CASE("every changed byte of a file of outputs is noticed", "[data]") {
  const test::TemporaryFolder folder;
  write(folder.path(), "key", {{kFirst, "aaaabbbb"}, {kSecond, "cccc"}});
  const auto file = files_of(folder.path()).front();
  const auto text = folder.read(file.filename().native());
  int refused = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    auto changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    folder.write(file.filename().native(), changed);
    const FeatureStore store(folder.path(), "key");
    if (store.pictures() == 0) continue;
    const auto id = id_of([&] { store.read(kFirst), store.read(kSecond); });
    CHECK(id == "features-damaged");
    ++refused;
  }
  CHECK(refused == 12);  // the rows themselves
}

TEST_CASE("several writers of the same outputs leave one whole file, an interrupted one none", "[data]") {
  const test::TemporaryFolder folder;
  {
    FeatureWriter a(folder.path(), "key", 4), b(folder.path(), "key", 4), interrupted(folder.path(), "key", 4);
    for (auto* writer : {&a, &b, &interrupted}) writer->add(kFirst, "aaaa");
    CHECK(FeatureStore(folder.path(), "key").pictures() == 0);
    a.finish();
    const FeatureStore early(folder.path(), "key");
    b.finish();  // replaces the file that `early` reads
    CHECK(early.read(kFirst) == "aaaa");
  }
  CHECK(files_of(folder.path()).size() == 1);
  CHECK(FeatureStore(folder.path(), "key").read(kFirst) == "aaaa");
}

TEST_CASE("a folder that cannot be written is named", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("file", "");
  CHECK(id_of([&] { FeatureWriter(folder.path() / "file" / "cache", "key", 4); }) == "cannot-write");
}

}  // namespace automodel::data
