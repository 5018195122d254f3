#include "base/json_writer.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace automodel {
namespace {

std::string written(std::string_view text) {
  JsonWriter json;
  json.value(text);
  return json.take();
}

}  // namespace

TEST_CASE("nested objects and arrays are written with commas in the right places", "[base][json]") {
  JsonWriter json;
  json.begin_object();
  json.member("a", 1);
  json.key("b");
  json.begin_array();
  json.begin_array();
  json.end_array();
  json.begin_object();
  json.end_object();
  json.value(nullptr);
  json.value(true);
  json.end_array();
  const std::array<std::int32_t, 3> ranks = {-1, 0, 123456};
  json.member("c", std::span<const std::int32_t>(ranks));
  json.member("d", std::vector<std::string>{"x", "y"});
  json.end_object();
  CHECK(json.take() == R"({"a":1,"b":[[],{},null,true],"c":[-1,0,123456],"d":["x","y"]})");
}

TEST_CASE("characters on which a terminal may act are escaped in JSON", "[base][json]") {
  CHECK(written("\x1b[0m\x7f\xc2\x9b\xc2\xa0") == "\"\\u001b[0m\\u007f\\u009b\xc2\xa0\"");
}

TEST_CASE("a JSON writer can be reused after its text is taken", "[base][json]") {
  JsonWriter json;
  json.value(1);
  CHECK(json.take() == "1");
  json.value(2);
  CHECK(json.take() == "2");
}

TEST_CASE("numbers survive a round trip through JSON, and infinity becomes null", "[base][json]") {
  for (const double number : {0.0, 1.0, -2.5, 1e300, 0.1, 3.0e-7, std::nextafter(1.0, 2.0)}) {
    JsonWriter json;
    json.value(number);
    const auto text = json.take();
    CHECK(nlohmann::json::parse(text).get<double>() == number);
    CHECK(nlohmann::json::parse(text).is_number_float());
  }
  JsonWriter json;
  json.value(std::numeric_limits<double>::infinity());
  CHECK(json.take() == "null");
  json.value(std::numeric_limits<std::int64_t>::min());
  CHECK(json.take() == "-9223372036854775808");
}

TEST_CASE("any bytes, even invalid UTF-8, become a JSON string that parsers accept", "[base][json]") {
  CHECK(written("a\"b\\c\n\t\x01") == R"("a\"b\\c\n\t\u0001")");
  CHECK(written("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80") == "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"");
  // Overlong, surrogate, truncated, lone continuation, beyond U+10FFFF.
  for (const auto* bad : {"\xC0\xAF", "\xED\xA0\x80", "\xE2\x82", "\x80", "\xF5\x80\x80\x80", "\xF0\x8F\xBF\xBF"}) {
    const auto text = written(std::string("x") + bad + "y");
    CHECK_NOTHROW(nlohmann::json::parse(text));
    CHECK(text.find("\xEF\xBF\xBD") != std::string::npos);
    CHECK(text.starts_with("\"x"));
    CHECK(text.ends_with("y\""));
  }
}

}  // namespace automodel
