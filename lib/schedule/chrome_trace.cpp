#include "schedule/chrome_trace.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace automodel::schedule {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (code < 0x20)
      out += fmt::format("\\u{:04x}", code);
    else
      out += c;
  }
  return out;
}

int thread_of(int rank, Lane lane) {
  return 2 * rank + (lane == Lane::kCommunication ? 1 : 0);
}

void write_timeline(std::string& out, const Timeline& timeline, std::string_view name, int process) {
  const auto put = std::back_inserter(out);
  fmt::format_to(put, "{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_name\",\"args\":{{\"name\":\"{}\"}}}}", process,
                 escaped(name));
  const bool communicates = std::any_of(timeline.events.begin(), timeline.events.end(),
                                        [](const Event& event) { return event.lane == Lane::kCommunication; });
  for (int rank = 0; rank < timeline.shape.ranks; ++rank)
    for (const Lane lane : {Lane::kCompute, Lane::kCommunication}) {
      if (lane == Lane::kCommunication && !communicates) continue;
      const int thread = thread_of(rank, lane);
      fmt::format_to(put,
                     ",\n{{\"ph\":\"M\",\"pid\":{3},\"tid\":{0},\"name\":\"thread_name\",\"args\":{{\"name\":\"rank "
                     "{1}{2}\"}}}},\n{{\"ph\":\"M\",\"pid\":{3},\"tid\":{0},\"name\":\"thread_sort_index\",\"args\":{{"
                     "\"sort_index\":{0}}}}}",
                     thread, rank, lane == Lane::kCompute ? "" : " communication", process);
    }
  for (const Event& event : timeline.events) {
    fmt::format_to(
        put,
        ",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"cat\":\"{}\",\"ts\":{:.3f},\"dur\":{:.3f},"
        "\"args\":{{\"stage\":{}",
        process, thread_of(event.rank, event.lane), to_text(event.action), traits(event.action.op()).meaning,
        event.start * 1e6, (event.end - event.start) * 1e6, event.action.stage().value);
    if (event.action.microbatch() != kNoMicrobatch)
      fmt::format_to(put, ",\"microbatch\":{}", event.action.microbatch().value);
    out += "}}";
  }
}

}  // namespace

std::string chrome_trace(const std::vector<NamedTimeline>& timelines) {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (std::size_t i = 0; i < timelines.size(); ++i) {
    if (i > 0) out += ",\n";
    write_timeline(out, *timelines[i].timeline, timelines[i].name, static_cast<int>(i));
  }
  out += "\n]}\n";
  return out;
}

std::string chrome_trace(const Timeline& timeline, std::string_view name) {
  return chrome_trace(std::vector<NamedTimeline>{{name, &timeline}});
}

}  // namespace automodel::schedule
