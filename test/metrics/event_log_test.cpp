#include "metrics/event_log.h"

#include <algorithm>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "metrics/event_stream.h"
#include "temporary_folder.h"

namespace automodel::metrics {
namespace {

TEST_CASE("events are single JSON lines, whatever their text contains") {
  const auto line = json_line({.event = "skip",
                               .step = 7,
                               .message = "loss \"NaN\"\n\xff",
                               .fields = {{"samples", std::string("1 2")}, {"code", std::int64_t{3}}, {"loss", 2.0}}},
                              0);
  const auto event = nlohmann::json::parse(line);
  CHECK(line.find('\n') == std::string::npos);
  CHECK(event.at("event") == "skip");
  CHECK(event.at("step") == 7);
  CHECK(event.at("timestamp") == "1970-01-01T00:00:00.000Z");
  CHECK(event.at("samples") == "1 2");
  CHECK(event.at("code") == 3);
  CHECK(event.at("loss") == 2.0);
  CHECK(event.at("message").get<std::string>().starts_with("loss \"NaN\"\n"));
  CHECK_FALSE(nlohmann::json::parse(json_line({.event = "end"}, 0)).contains("step"));
}

TEST_CASE("only the end event of a failed run has a cause") {
  const auto cause = [](int code) {
    return nlohmann::json::parse(json_line(end_event(code, "-----"), 0)).value("cause", "");
  };
  CHECK(cause(0).empty());
  CHECK(cause(10).empty());
  CHECK(cause(12) == "-----");
}

TEST_CASE("events of a resumed run are appended to the earlier ones") {
  test::TemporaryFolder folder;
  EventLog(folder.path()).add({.event = "start"});
  EventLog(folder.path()).add({.event = "restart"});
  const auto text = folder.read(kEventFile);
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
  CHECK(text.find("start") < text.find("restart"));
}

}  // namespace
}  // namespace automodel::metrics
