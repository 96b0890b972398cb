// YAML values that know where they come from, so that every mistake is reported as
//   four-path.yaml:12: rate: '8 Gbit' is not allowed; use a data rate (8 Gb/s, ...
#pragma once
#include "fabric/topology.h"

#include <yaml-cpp/yaml.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace softhca {

// One value of the file with the key it stands under.
class YamlValue {
public:
    YamlValue(const YAML::Node& node, std::string key, const std::string* file)
        : node_(node), key_(std::move(key)), file_(file) {}

    // Typed reads; each throws FabricError naming what is allowed.
    [[nodiscard]] std::string text() const;
    [[nodiscard]] bool boolean() const;
    [[nodiscard]] uint64_t count(uint64_t least, uint64_t most) const;
    [[nodiscard]] uint32_t time_ns() const;
    [[nodiscard]] int64_t signed_time_ns() const;
    [[nodiscard]] uint64_t size(uint64_t most) const;
    [[nodiscard]] Rate rate() const;
    // One value or a list of them: the elements. Empty for an empty (null) value.
    [[nodiscard]] std::vector<YamlValue> elements() const;
    // A name pattern or a list of them, expanded (name_pattern.h).
    [[nodiscard]] std::vector<std::string> names() const;

    [[nodiscard]] const YAML::Node& node() const { return node_; }
    [[nodiscard]] const std::string& key() const { return key_; }
    [[nodiscard]] const std::string& file() const { return *file_; }
    [[nodiscard]] const std::string* file_address() const { return file_; }
    [[nodiscard]] int line() const { return node_.Mark().line + 1; }
    // "file:line: key: 'value' is not allowed; use <allowed>"
    [[noreturn]] void refuse(const std::string& allowed) const;
    // "file:line: key: <reason>"
    [[noreturn]] void fail(const std::string& reason) const;

private:
    YAML::Node node_;
    std::string key_;
    const std::string* file_; // outlives the value
};

// A mapping of which every key is known: unknown and repeated keys throw at once.
class YamlMap {
public:
    YamlMap(const YamlValue& value, std::initializer_list<const char*> allowed);
    [[nodiscard]] std::optional<YamlValue> find(const char* key) const;
    [[nodiscard]] YamlValue need(const char* key) const; // throws if the key is missing
    [[nodiscard]] const YamlValue& value() const { return value_; }

private:
    YamlValue value_;
};

} // namespace softhca
