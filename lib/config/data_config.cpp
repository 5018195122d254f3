#include "config/data_config.h"

#include "config/reader.h"

namespace automodel::config {

TypeInfo PathList::config_type() {
  return {[]() -> std::string { return "path or list of paths"; },
          [](Reader& reader, const Node& node, const std::string& path, void* out) {
            auto& paths = static_cast<PathList*>(out)->paths;
            paths.clear();
            if (node.kind == Node::Kind::kScalar && !node.is_null() && !node.text.starts_with("["))
              return paths.push_back(node.text);
            reader.read(node, path, paths);
          },
          [](const void* value) -> Value {
            const auto& paths = static_cast<const PathList*>(value)->paths;
            if (paths.size() == 1) return paths.front();
            Value::List out;
            for (const auto& path : paths) out.emplace_back(path);
            return out;
          },
          [] {
            Value out;
            out.set("type", Value::List{"string", "array"});
            return out;
          }};
}

}  // namespace automodel::config
