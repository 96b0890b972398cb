#include "fabric/yaml_reader.h"

#include "fabric/name_pattern.h"

#include <algorithm>
#include <charconv>
#include <set>

namespace softhca {

void YamlValue::fail(const std::string& reason) const {
    throw FabricError(*file_ + ":" + std::to_string(line()) + ": " + (key_.empty() ? "" : key_ + ": ") + reason);
}

void YamlValue::refuse(const std::string& allowed) const {
    const char* shape = node_.IsMap() ? "a mapping" : node_.IsSequence() ? "a list" : node_.IsNull() ? "nothing" : "";
    fail((*shape ? std::string(shape) : "'" + node_.Scalar() + "'") + " is not allowed; use " + allowed);
}

std::string YamlValue::text() const {
    if (!node_.IsScalar() || node_.Scalar().empty()) refuse("a word");
    return node_.Scalar();
}

bool YamlValue::boolean() const {
    const std::string v = node_.IsScalar() ? node_.Scalar() : "";
    if (v == "true" || v == "yes" || v == "on") return true;
    if (v == "false" || v == "no" || v == "off") return false;
    refuse("true or false");
}

uint64_t YamlValue::count(uint64_t least, uint64_t most) const {
    const std::string v = node_.IsScalar() ? node_.Scalar() : "";
    uint64_t n = 0;
    const auto [end, error] = std::from_chars(v.data(), v.data() + v.size(), n);
    if (v.empty() || error != std::errc{} || end != v.data() + v.size() || n < least || n > most)
        refuse("a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return n;
}

uint32_t YamlValue::time_ns() const {
    const auto t = node_.IsScalar() ? parse_time_ns(node_.Scalar()) : std::nullopt;
    if (!t) refuse(allowed_time);
    if (*t > UINT32_MAX) refuse("a time below 4.29 s");
    return static_cast<uint32_t>(*t);
}

int64_t YamlValue::signed_time_ns() const {
    const auto t = node_.IsScalar() ? parse_time_ns(node_.Scalar(), true) : std::nullopt;
    if (!t) refuse(allowed_time);
    return *t;
}

uint64_t YamlValue::size(uint64_t most) const {
    const auto s = node_.IsScalar() ? parse_size(node_.Scalar()) : std::nullopt;
    if (!s) refuse(allowed_size);
    if (*s > most) refuse("at most " + std::to_string(most) + " bytes");
    return *s;
}

Rate YamlValue::rate() const {
    const auto r = node_.IsScalar() ? parse_rate(node_.Scalar()) : std::nullopt;
    if (!r) refuse(allowed_rate);
    return *r;
}

std::vector<YamlValue> YamlValue::elements() const {
    std::vector<YamlValue> out;
    if (node_.IsNull()) return out;
    if (!node_.IsSequence()) return {*this};
    for (const YAML::Node& n : node_) out.emplace_back(n, key_, file_);
    return out;
}

std::vector<std::string> YamlValue::names() const {
    std::vector<std::string> all;
    for (const YamlValue& e : elements()) {
        try {
            for (std::string& n : expand_names(e.text())) all.push_back(std::move(n));
        } catch (const std::invalid_argument& reason) {
            e.refuse(std::string("a name or a pattern like node[0-15] (") + reason.what() + ")");
        }
    }
    if (all.empty()) refuse("a name or a pattern like node[0-15]");
    return all;
}

YamlMap::YamlMap(const YamlValue& value, std::initializer_list<const char*> allowed) : value_(value) {
    std::string list;
    for (const char* a : allowed) list.append(list.empty() ? "" : ", ").append(a);
    if (!value.node().IsMap()) value.refuse("a mapping with the keys " + list);
    std::set<std::string> seen;
    for (const auto& pair : value.node()) {
        const YamlValue key(pair.first, value.key(), value.file_address());
        const std::string name = pair.first.IsScalar() ? pair.first.Scalar() : "?";
        if (std::none_of(allowed.begin(), allowed.end(), [&](const char* a) { return name == a; }))
            key.fail("unknown key '" + name + "'; allowed keys: " + list);
        if (!seen.insert(name).second) key.fail("key '" + name + "' is given twice");
    }
}

std::optional<YamlValue> YamlMap::find(const char* key) const {
    const YAML::Node n = value_.node()[key];
    if (!n.IsDefined()) return std::nullopt;
    return YamlValue(n, value_.key().empty() ? key : value_.key() + "." + key, value_.file_address());
}

YamlValue YamlMap::need(const char* key) const {
    if (auto v = find(key)) return *v;
    value_.fail(std::string("the key '") + key + "' is missing");
}

} // namespace softhca
