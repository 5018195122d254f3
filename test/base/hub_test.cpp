#include "base/hub.h"

#include <cstdlib>
#include <map>

#include <catch2/catch.hpp>

#include "temporary_folder.h"

namespace automodel {
namespace {

/// Sets the variables that choose a cache, and no other of them.
class Variables {
 public:
  explicit Variables(const std::map<std::string, std::string>& values) {
    for (const auto& [name, old] : before_) unsetenv(name.c_str());
    for (const auto& [name, value] : values) setenv(name.c_str(), value.c_str(), 1);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;
  ~Variables() {
    for (const auto& [name, old] : before_) old ? setenv(name.c_str(), old->c_str(), 1) : unsetenv(name.c_str());
  }

 private:
  static std::optional<std::string> now(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }
  std::map<std::string, std::optional<std::string>> before_ = [] {
    std::map<std::string, std::optional<std::string>> out;
    for (const char* name :
         {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_DATASETS_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"})
      out[name] = now(name);
    return out;
  }();
};

}  // namespace

TEST_CASE("a name on the hub gives the command that downloads it, a path gives none", "[base]") {
  CHECK(download_advice("Qwen/Qwen3-0.6B", std::nullopt) == ": 'hf download Qwen/Qwen3-0.6B' does that");
  CHECK(download_advice("a/b", "v1") == ": 'hf download a/b --revision v1' does that");
  CHECK(download_advice("a/b", std::nullopt, HubKind::kDataset) == ": 'hf download --repo-type dataset a/b' does that");
  for (const char* path : {"", "a", "/a/b", "./b", "../b", "a/../b", "a/.b", "a/b/c", "a/", "a b/c", "a/b;c"})
    CHECK(download_advice(path, std::nullopt).empty());
  CHECK(is_repository_name("squad"));
  for (const char* path : {"", "/squad", ".squad", "..", "a//b", "a/..", "a:b"}) CHECK(!is_repository_name(path));
}

TEST_CASE("caches are where Hugging Face's tools have them", "[base]") {
  std::map<std::string, std::string> set{{"HOME", "/h"}};
  const auto where = [&] {
    const Variables variables(set);
    return std::pair{hub_cache().string(), prepared_cache().string()};
  };
  using Places = std::pair<std::string, std::string>;
  CHECK(where() == Places{"/h/.cache/huggingface/hub", "/h/.cache/huggingface/datasets"});
  set["XDG_CACHE_HOME"] = "/x";
  CHECK(where() == Places{"/x/huggingface/hub", "/x/huggingface/datasets"});
  set["HF_HOME"] = "/f";
  CHECK(where() == Places{"/f/hub", "/f/datasets"});
  set["HF_DATASETS_CACHE"] = "/d";
  set["HUGGINGFACE_HUB_CACHE"] = "/old";
  CHECK(where() == Places{"/old", "/d"});
  set["HF_HUB_CACHE"] = "/new";
  CHECK(where() == Places{"/new", "/d"});
}

TEST_CASE("a snapshot is found by branch or commit, in any letter case, and never outside of the cache", "[base]") {
  const test::TemporaryFolder folder;
  const auto hub = folder.path() / "hub";
  folder.write("hub/models--Org--Name/refs/main", "c1\n");
  folder.write("hub/models--Org--Name/snapshots/c1/config.json", "{}");
  folder.write("hub/models--Org--Name/snapshots/c2/config.json", "{}");
  folder.write("hub/models--Org--Name/refs/gone", "c3\n");
  folder.write("hub/datasets--rajpurkar--squad/refs/main", "c1\n");
  folder.write("hub/datasets--rajpurkar--squad/snapshots/c1/README.md", "");
  folder.write("outside/config.json", "{}");
  const auto found = [&](HubKind kind, const std::string& name, std::optional<std::string> revision = std::nullopt) {
    const auto path = find_snapshot(kind, name, revision, hub);
    return path.empty() ? "" : path.lexically_relative(hub).string();
  };
  CHECK(found(HubKind::kModel, "Org/Name") == "models--Org--Name/snapshots/c1");
  CHECK(found(HubKind::kModel, "org/NAME", "c2") == "models--Org--Name/snapshots/c2");
  CHECK(found(HubKind::kDataset, "squad") == "datasets--rajpurkar--squad/snapshots/c1");
  for (const char* revision : {"gone", "", "../../../outside"})
    CHECK(found(HubKind::kModel, "Org/Name", revision).empty());
  for (const char* name : {"Org/Other", "squad", "../outside", "Org/Name/snapshots/c1"})
    CHECK(found(HubKind::kModel, name).empty());
  const Variables variables({{"HF_HUB_CACHE", hub.string()}});
  CHECK(find_snapshot(HubKind::kModel, "Org/Name", std::nullopt) == hub / "models--Org--Name/snapshots/c1");
}

}  // namespace automodel
